"""One chain on every path: the same table of chains gives the same values, calls and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Tool, ToolAnnotations
from toolexec.errors import ToolExecError

ANY = {"type": "object"}
PATHS = ("direct", "python", "javascript", "durable")


class Kit:
    """An executor whose tools write down what they were called with."""

    def __init__(self, ex: Exec) -> None:
        self.ex = ex
        self.calls: list[list[Any]] = []
        ex.add(Tool(namespace="kit", name="fetch", input_schema=ANY), handler=self._fetch)
        ex.add(Tool(namespace="kit", name="mail", input_schema=ANY), handler=self._mail)
        ex.add(Tool(namespace="kit", name="fail", input_schema=ANY), handler=self._fail)
        hints = ToolAnnotations(read_only=True)
        ex.add(Tool(namespace="kit", name="flaky", input_schema=ANY, annotations=hints), handler=self._flaky)

    async def _fetch(self, args: dict[str, Any]) -> Any:
        self.calls.append(["fetch", args])
        return {"items": [{"id": 7}], "total": 1}

    async def _mail(self, args: dict[str, Any]) -> Any:
        self.calls.append(["mail", args])
        return args

    async def _fail(self, args: dict[str, Any]) -> Any:
        self.calls.append(["fail", args])
        raise ToolExecError("no")

    async def _flaky(self, args: dict[str, Any]) -> Any:
        self.calls.append(["flaky", args])
        if sum(name == "flaky" for name, _ in self.calls) < 3:
            raise ToolExecError("busy", retryable=True)
        return "worked"

    async def run(self, path: str, steps: list[Any]) -> tuple[Any, str]:
        """Return the value of a chain, or null and the message of its error."""
        try:
            if path == "direct":
                return (await self.ex.run_chain(steps)).raise_for_error().value, ""
            text = json.dumps(steps)
            if path == "javascript":
                result = await self.ex.execute_code(f"return await tools.runChain({text})", language="javascript")
            else:
                code = f"import json\nreturn tools.run_chain(json.loads({text!r}))"
                result = await self.ex.execute_code(code, durable="one" if path == "durable" else None)
            return result.raise_for_error().value, ""
        except Exception as error:
            return None, str(error)


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[Kit]:
    async with Exec(journal=tmp_path / "runs.db") as ex:
        yield Kit(ex)


FETCH = {"tool_id": "kit:fetch"}
WORK: dict[str, tuple[list[Any], Any, list[Any]]] = {
    "reference": (
        [FETCH, {"tool_id": "kit:mail", "args": {"to": {"$ref": "steps.0.items[0].id"}}}],
        {"to": 7},
        [["fetch", {}], ["mail", {"to": 7}]],
    ),
    "name": (
        [{**FETCH, "name": "got"}, {"tool": "kit:mail", "args": {"n": {"$ref": "got.total"}}}],
        {"n": 1},
        [["fetch", {}], ["mail", {"n": 1}]],
    ),
    "previous": (
        [FETCH, {"toolId": "kit:mail", "usePrevious": True}],
        {"items": [{"id": 7}], "total": 1},
        [["fetch", {}], ["mail", {"items": [{"id": 7}], "total": 1}]],
    ),
    "literal": ([{"tool_id": "kit:mail", "args": {"$literal": {"a": 1}}}], {"a": 1}, [["mail", {"a": 1}]]),
    "absent": (
        [FETCH, {"tool_id": "kit:mail", "args": {"x": {"$ref": "steps.0.next || `null`"}}}],
        {"x": None},
        [["fetch", {}], ["mail", {"x": None}]],
    ),
    "retries": ([{"tool_id": "kit:flaky", "retries": 2, "retry_pause": 0}], "worked", [["flaky", {}]] * 3),
    "going on": (
        [FETCH, {"tool_id": "kit:fail", "stop_on_error": False}, {"tool_id": "kit:mail", "args": {"a": 1}}],
        {"a": 1},
        [["fetch", {}], ["fail", {}], ["mail", {"a": 1}]],
    ),
}
FAILURES: dict[str, tuple[list[Any], str, int]] = {
    "wrong path": (
        [FETCH, {"tool_id": "kit:mail", "args": {"to": {"$ref": "steps.0.item[0].id"}}}],
        "did you mean items?",
        1,
    ),
    "wrong step": ([FETCH, {"tool_id": "kit:mail", "args": {"to": {"$ref": "steps.3.id"}}}], "has not run by then", 0),
    "unknown tool": ([FETCH, {"tool_id": "kit:mial"}], "kit:mail", 0),
    "unknown key": ([FETCH, {"tool_id": "kit:mail", "argz": {}}], "did you mean args?", 0),
    "wrong type": ([FETCH, {"tool_id": "kit:mail", "retries": "2"}], "retries", 0),
    "no step": ([FETCH, 5], "step 1", 0),
    "retries of a tool that acts": ([FETCH, {"tool_id": "kit:mail", "retries": 2}], "never retried", 0),
}


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("path", PATHS)
async def test_chains_that_work(kit: Kit, path: str, name: str) -> None:
    """The value and the calls are the same, however the chain was begun."""
    steps, value, calls = WORK[name]
    assert await kit.run(path, steps) == (value, "")
    assert kit.calls == calls


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("path", PATHS)
async def test_chains_that_fail(kit: Kit, path: str, name: str) -> None:
    """The error says what is wrong, and nothing runs that could have been refused before."""
    steps, text, calls = FAILURES[name]
    value, message = await kit.run(path, steps)
    assert value is None
    assert text in message
    assert len(kit.calls) == calls


async def test_each_attempt_counts(kit: Kit) -> None:
    """A retry of code's chain is a call of the run, and needs one that is left."""
    steps = [{"tool_id": "kit:flaky", "retries": 5, "retry_pause": 0}]
    result = await kit.ex.execute_code(f"return tools.run_chain({steps!r})", max_tool_calls=2)
    assert "max tool calls (2)" in str(result.error)
    assert len(kit.calls) == 2
