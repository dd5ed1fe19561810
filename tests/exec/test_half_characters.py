"""Half a character, which JSON can spell and UTF-8 cannot carry, is refused alike on every path to a tool."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from toolexec import CodeResult, Exec
from toolexec.errors import InvalidRequestError, ToolExecError

HALF = "\ud800"
SAID = "lone surrogate"


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """A library with one tool that gives back what it gets."""
    async with Exec() as made:
        made.add(lambda x: x, "t:echo")
        yield made


async def _call(ex: Exec) -> object:
    return (await ex.run_tool("t:echo", {"x": HALF})).value


async def _chain(ex: Exec) -> object:
    return (await ex.run_chain([{"tool_id": "t:echo", "args": {"x": HALF}}])).raise_for_error().value


async def _chain_in_code(ex: Exec) -> object:
    steps = '[{"tool": "t:echo", "args": {"x": "\\ud800"}}]'
    return (await ex.execute_code(f"return tools.run_chain({steps})")).raise_for_error().value


async def _python(ex: Exec) -> object:
    return (await ex.execute_code("return tools.t.echo(x='\\ud800')")).raise_for_error().value


async def _javascript(ex: Exec) -> object:
    code = "return await tools.t.echo({x: '\\ud800'})"
    return (await ex.execute_code(code, language="javascript")).raise_for_error().value


@pytest.mark.parametrize("path", [_call, _chain, _chain_in_code, _python, _javascript])
async def test_a_call_with_half_a_character_is_refused(ex: Exec, path: Callable[[Exec], Awaitable[object]]) -> None:
    """Refuse the call, whichever way it came, with what it has."""
    with pytest.raises(ToolExecError, match=SAID):
        await path(ex)


@pytest.mark.parametrize("code", ["'\\ud800'", "['\\udfff']", "{'\\ud800': 1}"])
@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_value_with_half_a_character_fails_its_program(ex: Exec, language: str, code: str) -> None:
    """Fail the program rather than return another text than it meant."""
    done = await ex.execute_code(f"return ({code})", language=language)
    assert done.error is not None
    assert SAID in done.error.message


@pytest.mark.parametrize("code", ["print('a\\ud800')", "console.log('a\\ud800')"])
async def test_half_a_character_in_prints_is_a_question_mark(ex: Exec, code: str) -> None:
    """Print a mark: this text is for reading."""
    done: CodeResult = await ex.execute_code(code, language="python" if code[0] == "p" else "javascript")
    assert done.stdout == "a?\n"


async def test_a_program_with_half_a_character_is_refused() -> None:
    """Refuse it before any sandbox gets it."""
    async with Exec() as ex:
        with pytest.raises(InvalidRequestError, match=SAID):
            await ex.execute_code(f"x = '{HALF}'")


async def test_a_whole_character_of_two_halves_passes(ex: Exec) -> None:
    """Read two escapes in a row as one character."""
    assert (await ex.execute_code("return tools.t.echo(x='\\U0001f600')")).value == "\U0001f600"
    done = await ex.execute_code("return await tools.t.echo({x: '\\ud83d\\ude00'})", language="javascript")
    assert done.value == "\U0001f600"


async def test_a_refused_call_can_be_caught(ex: Exec) -> None:
    """Go on, as after any call with wrong arguments."""
    code = "try:\n    tools.t.echo(x='\\ud800')\nexcept ToolError as e:\n    return e.code"
    assert (await ex.execute_code(code)).value == "validation_input"


@pytest.mark.parametrize("durable", [None, "run-1"])
async def test_the_record_of_a_refused_call_is_whole(durable: str | None, tmp_path: Path) -> None:
    """Record a mark in the place of what the call was refused for, so that the result can be sent and kept."""
    async with Exec(journal=tmp_path / "runs.db") as ex:
        ex.add(lambda **more: more, "t:echo")
        code = (
            "try:\n    tools.run('t:echo', {'\\ud800': '\\udfff', 'é': 'é'})\nexcept ToolError as e:\n    return e.code"
        )
        done = await ex.execute_code(code, durable=durable)
    assert done.value == "validation_input"
    assert json.loads(json.dumps(done.to_dict(), ensure_ascii=False).encode())["toolCalls"][0]["args"] == {
        "?": "?",
        "é": "é",
    }


@pytest.mark.parametrize("step", ["{'tool': '\\ud800'}", "{'tool': 't:echo', 'name': '\\ud800'}", "{'\\ud800': 1}"])
@pytest.mark.parametrize("durable", [None, "run-1"])
async def test_a_step_with_half_a_character_is_recorded_whole(durable: str | None, step: str, tmp_path: Path) -> None:
    """Show a mark in what names a step; only arguments keep what they are refused for."""
    async with Exec(journal=tmp_path / "runs.db") as ex:
        ex.add(lambda **more: more, "t:echo")
        done = await ex.execute_code(f"return tools.run_chain([{step}])", durable=durable)
    assert done.error is not None
    assert "'?'" in done.error.message
    json.dumps(done.to_dict(), ensure_ascii=False).encode()
