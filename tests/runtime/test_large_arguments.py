"""Arguments with more lists and objects than the host takes are the program's own error, in each way to the host."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import Exec
from toolexec.errors import ProtocolError
from toolexec.model.declare import declare
from toolexec.runtime.protocol import messages
from toolexec.runtime.protocol.messages import Message, decode_frame
from toolexec.runtime.unsafe_host import UnsafeHostBackend

MOST = 20_000
MANY = f"[[]] * {MOST + 1}"
SENTENCE = "what is sent is too large: there are more than 20,000 lists and objects in it; send less, or send text"


@pytest.fixture(autouse=True)
def less_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is lower here, so that these tests are quick."""
    assert messages.MAX_CONTAINERS == 1_000_000
    monkeypatch.setattr(messages, "MAX_CONTAINERS", MOST)


def message(number: int, containers: int) -> str:
    """A request with so many lists in it."""
    payload = f'{{"args":{{"x":[{"[]," * containers}"]}}"]}}}}'
    return f'{{"type": "run_tool", "id": "{number}", "payload": {payload}}}'


def test_only_the_messages_that_are_too_large_are_refused() -> None:
    """By themselves, or with those before them; each keeps its type and its ID."""
    sizes = [1, MOST, 2, 12_000, 10_000, 3]
    found = decode_frame(f"[{', '.join(message(number, size) for number, size in enumerate(sizes))}]")
    assert [(one.type, one.id) for one in found] == [("run_tool", str(number)) for number in range(6)]
    assert [one.refused is not None for one in found] == [False, True, False, False, True, False]
    assert [len(one.payload["args"]["x"]) for one in found if one.refused is None] == [2, 3, 12_001, 4]
    assert str(found[1].refused) == SENTENCE
    (alone,) = decode_frame(message(7, MOST))
    assert (alone.id, alone.payload, str(alone.refused)) == ("7", {}, SENTENCE)


def test_what_is_no_message_breaks_the_protocol() -> None:
    """However large it is."""
    with pytest.raises(ProtocolError, match="not JSON"):
        decode_frame(f"[{{{'[],' * MOST}}}]")
    assert decode_frame('{"type": "bye"}') == [Message("bye", "", {})]


def exec_in(kind: str) -> Exec:
    """An `Exec` whose code runs over host calls, or over a stream."""

    async def count(x: Any) -> int:
        """Count items."""
        return len(x)

    def count_here(x: Any) -> int:
        """Count items."""
        return len(x)

    ex = (
        Exec()
        if kind == "wasm"
        else Exec(runtime_backends=[UnsafeHostBackend()], security_profile="dev", unsafe_opt_in=True)
    )
    ex.add(declare(count, "kit:count"))
    ex.add(declare(count_here, "kit:here", inline=True))
    return ex


@pytest.mark.full
@pytest.mark.parametrize("kind", ["wasm", "unsafe_host"])
async def test_a_call_is_refused_and_the_program_goes_on(kind: str) -> None:
    """One call after the other, and among calls that are made at the same time: each gets its answer."""
    code = f"""
import asyncio
many, out = {MANY}, []
for name in ("count", "here"):
    try:
        await getattr(tools.kit, name)(x=many)
    except ToolError as error:
        out.append([error.code, error.message, error.retryable])
    found = await asyncio.gather(*(getattr(tools.kit, name)(x=x) for x in ([1], many, [1, 2], many)), return_exceptions=True)
    out.append([item if isinstance(item, int) else item.code for item in found])
try:
    await tools.run_chain([{{"tool_id": "kit:count", "args": {{"x": many}}}}])
except ToolError as error:
    out.append(error.code)
return [out, await tools.kit.count(x=[1, 2, 3])]
"""
    async with exec_in(kind) as ex:
        result = await ex.execute_code(code, timeout=60)
    error = ["invalid_request", SENTENCE, False]
    batch = [1, "invalid_request", 2, "invalid_request"]
    assert result.error is None, result.error
    assert result.value == [[error, batch, error, batch, "invalid_request"], 3]


@pytest.mark.parametrize("kind", ["wasm", "unsafe_host"])
async def test_a_value_with_too_many_parts_fails_the_program(kind: str) -> None:
    """With the same sentence."""
    async with exec_in(kind) as ex:
        result = await ex.execute_code(f"return {MANY}", timeout=60)
    assert result.error is not None
    assert (result.error.code, "more than 20,000 lists and objects" in str(result.error)) == ("code_error", True)
