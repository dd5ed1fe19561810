"""Around it all: blocking code, and hearing of every call."""

from __future__ import annotations

from toolexec import Exec
from toolexec.run import TraceEvent


def test_without_an_event_loop() -> None:
    """`sync` has the same methods, blocking."""
    with Exec().sync as ex:
        ex.add(lambda a, b: a + b, "math:add")
        assert ex.run_tool("math:add", {"a": 5, "b": 3}).value == 8
        assert [summary.id for summary in ex.search_tools("add")] == ["math:add"]


async def test_trace() -> None:
    """A hook receives the start and the end of every call, wherever it came from."""
    events: list[TraceEvent] = []
    async with Exec(trace=events.append) as ex:
        ex.add(lambda: 42, "answer")

        await ex.run_tool("answer")

        start, end = events
        assert (start.kind, start.call.tool_id) == ("start", "answer")
        assert (end.kind, end.call_number) == ("end", start.call_number)
        assert end.result is not None
        assert end.result.value == 42
