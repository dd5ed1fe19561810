"""Approval by an approver other than the caller."""

from __future__ import annotations

from typing import Any

from toolexec import Exec
from toolexec.backend.here import Wait
from toolexec.config.asking import CallerIsNotAsked
from toolexec.model.call import ToolCall
from toolexec.model.origin import Origin, acting
from toolexec.run.gate import Gate
from toolexec.run.runner import Runner


class Notes:
    """A part that notes whether the caller of each call could be asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, str]] = []

    def wrap(self, inner: Runner, find: Any) -> Runner:
        return _Noting(inner, self.seen)


class _Noting:
    def __init__(self, inner: Any, seen: list[tuple[bool, str]]) -> None:
        self.inner = inner
        self.seen = seen

    async def run(self, call: ToolCall) -> Any:
        self.seen.append((call.origin.ask is not None, call.origin.caller.id))
        return await self.inner.run(call)

    async def stream(self, call: ToolCall) -> Any:
        self.seen.append((call.origin.ask is not None, call.origin.caller.id))
        async for event in self.inner.stream(call):
            yield event

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        return call.origin.ask is None

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Any:
        return self.inner.run_in_thread(call, wait, within)


async def test_nobody_can_be_asked_on_any_path() -> None:
    """Neither when a call is run nor when it is streamed; all else of the origin stays."""
    notes = Notes()
    ex = Exec(gate=Gate(approval=CallerIsNotAsked(notes)))

    async def pieces() -> Any:
        yield 1

    ex.add(lambda: 1, "own:one")
    ex.add(pieces, "own:pieces")
    async with ex:
        with acting(Origin(ask=lambda _: "always")):
            assert (await ex.run_tool("own:one")).value == 1
            assert [event.kind async for event in ex.stream_tool("own:pieces")] == ["chunk", "done"]
        assert (await ex.run_tool("own:one")).value == 1
    assert notes.seen == [(False, ""), (False, ""), (False, "")]


def test_calls_in_a_thread_pass_too() -> None:
    """Where the parts inside can do that."""
    runner: Any = CallerIsNotAsked(Notes()).wrap(Exec().runner, lambda _: None)  # type: ignore[arg-type,return-value]
    call = ToolCall("own:one", {}, None, None, False, Origin(ask=lambda _: "always"))
    assert runner.runs_in_thread(call, 1.0)
