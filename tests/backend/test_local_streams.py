"""Local tools piece by piece."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec, LocalBackend, Progress, Step, StreamEvent, ToolContext, tool
from toolexec.backend import local
from toolexec.errors import (
    BackendDisabledError,
    BackendNotFoundError,
    HandlerError,
    InputValidationError,
    InvalidResultError,
    RemoteToolError,
    StreamNotSupportedError,
)
from toolexec.model.call import ToolCall
from toolexec.model.handler import Handler


@pytest.fixture
async def backend() -> Any:
    """A local backend that is closed in the end."""
    backend = LocalBackend()
    yield backend
    await backend.aclose()


async def events(backend: LocalBackend, function: Any, args: Any = None, *, fallback: bool = False) -> list[Any]:
    """All events of a tool, as kind and data."""
    added = backend.add(function if hasattr(function, "handler") else tool(function))
    async with aclosing(backend.stream(added.id, ToolCall(added.id, args, fallback=fallback))) as stream:
        return [(event.kind, event.data) async for event in stream]


@dataclass
class Point:
    """A chunk with a type."""

    x: int


def count(to: int) -> Iterator[int]:
    """A sync generator."""
    yield from range(to)


async def acount(to: int) -> AsyncIterator[int]:
    """An async generator."""
    for number in range(to):
        yield number


@pytest.mark.parametrize("function", [count, acount, tool("inline", inline=True)(count)])
async def test_a_generator_streams_its_values(backend: LocalBackend, function: Any) -> None:
    """Chunks, then done with all of them."""
    assert await events(backend, function, {"to": 2}) == [("chunk", 0), ("chunk", 1), ("done", [0, 1])]
    assert await events(backend, function, {"to": 0}) == [("done", [])]


async def test_a_sync_generator_does_not_block_the_loop(backend: LocalBackend) -> None:
    """Each step runs in a thread, and each value is there before the next step."""
    gate = threading.Event()

    @tool
    def work() -> Iterator[int]:
        yield threading.get_ident()
        gate.wait(30)
        yield 2

    backend.add(work)
    async with aclosing(backend.stream("work", ToolCall("work"))) as stream:
        assert (await anext(stream)).data != threading.get_ident()
        step = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.01)
        assert not step.done()
        gate.set()
        assert (await step).data == 2


async def test_progress_comes_while_a_handler_works(backend: LocalBackend) -> None:
    """A handler of any kind with a context streams its progress."""
    gate = asyncio.Event()

    async def wait(ctx: ToolContext) -> str:
        ctx.report(1, 2, "half")
        await gate.wait()
        return "done"

    def block(ctx: ToolContext) -> str:
        ctx.report(1)
        ctx.report(2)
        return "done"

    async def generate(ctx: ToolContext) -> AsyncIterator[str]:
        ctx.report(1)
        yield "a"
        yield Progress(done=2)  # type: ignore[misc]
        ctx.report(3)

    backend.add(tool(wait))
    async with aclosing(backend.stream("wait", ToolCall("wait"))) as stream:
        event = await anext(stream)
        assert (event.kind, event.data) == ("progress", {"progress": 1, "total": 2, "message": "half"})
        gate.set()
        assert (await anext(stream)).data == "done"
    assert await events(backend, block) == [
        ("progress", {"progress": 1}),
        ("progress", {"progress": 2}),
        ("done", "done"),
    ]
    assert await events(backend, generate) == [
        ("progress", {"progress": 1}),
        ("chunk", "a"),
        ("progress", {"progress": 2}),
        ("progress", {"progress": 3}),
        ("done", ["a"]),
    ]


async def test_a_handler_may_yield_events(backend: LocalBackend) -> None:
    """Events go out as they are; done ends the stream with its own value."""

    def work(how: str) -> Iterator[Any]:
        yield StreamEvent(kind="progress", data={"progress": 1})
        yield StreamEvent(kind="chunk", data="a")
        if how == "done":
            yield StreamEvent(kind="done", data="all")
        if how == "error":
            yield StreamEvent(kind="error", error=RemoteToolError("down"))
        yield "b"

    first = [("progress", {"progress": 1}), ("chunk", "a")]
    assert await events(backend, work, {"how": "end"}) == [*first, ("chunk", "b"), ("done", ["a", "b"])]
    assert await events(backend, work, {"how": "done"}) == [*first, ("done", "all")]
    with pytest.raises(RemoteToolError):
        await events(backend, work, {"how": "error"})


async def test_typed_chunks_and_the_list_of_them(backend: LocalBackend) -> None:
    """The value of done is JSON; one that cannot be made so is a failure."""

    def points() -> Iterator[Point]:
        yield Point(1)

    def lies() -> Iterator[Point]:
        yield "no point"  # type: ignore[misc]
        yield object()  # type: ignore[misc]

    assert (await events(backend, points))[-1] == ("done", [{"x": 1}])
    with pytest.raises(InvalidResultError):
        await events(backend, lies)


async def test_a_plain_handler_does_not_stream(backend: LocalBackend) -> None:
    """Unless that is asked for; then it gives one event, or fails as a call does."""

    async def plain() -> int:
        return 1

    async def fails() -> int:
        raise ValueError("no")

    with pytest.raises(StreamNotSupportedError, match="make its handler a generator"):
        await events(backend, plain)
    assert await events(backend, plain, fallback=True) == [("done", 1)]
    with pytest.raises(HandlerError, match="no"):
        await events(backend, fails, fallback=True)


async def test_a_killable_handler_as_a_stream(backend: LocalBackend, killable: ModuleType) -> None:
    """One event, on request."""
    assert await events(backend, killable.add, {"a": 1}, fallback=True) == [("done", 2)]


@pytest.mark.parametrize("function", [count, acount])
async def test_what_cannot_be_called_raises_at_the_first_step(backend: LocalBackend, function: Any) -> None:
    """As a call would."""
    with pytest.raises(BackendNotFoundError):
        await anext(backend.stream("nothing", ToolCall("nothing")))
    with pytest.raises(HandlerError, match="TypeError"):
        await events(backend, function, {"nonsense": 1})

    def typed(point: Point, ctx: ToolContext) -> Iterator[int]:
        yield 1

    with pytest.raises(InputValidationError):
        await events(backend, typed, {"point": {"x": "one"}})
    backend.enabled = False
    with pytest.raises(BackendDisabledError):
        await events(backend, function, {"to": 1})


@pytest.mark.parametrize("inline", [True, False])
async def test_closing_early_closes_a_sync_generator(backend: LocalBackend, inline: bool) -> None:
    """Its cleanup runs, in a thread unless it is inline, and is over when the closing is."""
    closed: list[int] = []

    @tool(inline=inline)
    def work() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(threading.get_ident())

    backend.add(work)
    async with aclosing(backend.stream("work", ToolCall("work"))) as stream:
        await anext(stream)
    assert len(closed) == 1
    assert (closed[0] == threading.get_ident()) is inline


@pytest.mark.full
@pytest.mark.parametrize("context", [True, False])
async def test_closing_early_closes_an_async_generator(backend: LocalBackend, context: bool) -> None:
    """Closing early also closes a generator that reports progress, and so runs in a task of its own."""
    closed: list[str] = []

    async def plain() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            closed.append("yes")

    async def reporting(ctx: ToolContext) -> AsyncIterator[int]:
        async for item in plain():
            yield item

    added = backend.add(tool("work")(reporting if context else plain))
    async with aclosing(backend.stream(added.id, ToolCall(added.id))) as stream:
        assert (await anext(stream)).data == 1
    gc.collect()
    await asyncio.sleep(0.01)
    assert closed == ["yes"]


@pytest.mark.full
async def test_a_generator_that_is_left_while_a_thread_is_inside(backend: LocalBackend) -> None:
    """The consumer goes at once; the generator is closed when the thread comes out."""
    started, gate, closed = threading.Event(), threading.Event(), threading.Event()

    @tool
    def work() -> Iterator[int]:
        try:
            started.set()
            gate.wait(30)
            yield 1
        finally:
            closed.set()

    backend.add(work)
    task = asyncio.ensure_future(anext(backend.stream("work", ToolCall("work"))))
    await until(started.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gate.set()
    async with asyncio.timeout(30):
        while not closed.is_set():
            gc.collect()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["sync", "async", "inline"])
async def test_a_cleanup_that_fails_is_logged(
    backend: LocalBackend, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A listener that has left is not notified."""

    def work() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise SystemExit(9)

    async def awork() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise SystemExit(9)

    backend.add(tool("work", inline=kind == "inline")(awork if kind == "async" else work))
    async with aclosing(backend.stream("work", ToolCall("work"))) as stream:
        await anext(stream)
    assert "work did not end cleanly when it was left early" in caplog.text
    assert "SystemExit 9" in caplog.text


async def test_a_cleanup_that_blocks_is_not_waited_for(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Leaving a stream has an end, too."""
    monkeypatch.setattr(local, "_CLOSE_SECONDS", 0.01)
    gate = threading.Event()

    @tool
    def work() -> Iterator[int]:
        try:
            yield 1
        finally:
            gate.wait(30)

    backend.add(work)
    async with aclosing(backend.stream("work", ToolCall("work"))) as stream:
        await anext(stream)
    gate.set()
    assert "raised TimeoutError" in caplog.text


async def test_cancelling_the_consumer_stops_the_handler(backend: LocalBackend) -> None:
    """A plain handler with a context runs in a task of its own; it is cancelled as well."""
    started = asyncio.Event()
    stopped: list[str] = []

    @tool
    async def work(ctx: ToolContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("yes")

    backend.add(work)
    task = asyncio.ensure_future(anext(backend.stream("work", ToolCall("work"))))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped == ["yes"]


async def test_an_iterator_that_is_no_generator(backend: LocalBackend) -> None:
    """A handler made by hand may give any iterator; there is nothing to close."""
    backend.register("work", Handler(call=lambda _: iter([1, 2]), kind="generator"))
    async with aclosing(backend.stream("work", ToolCall("work"))) as stream:
        assert [event.data async for event in stream] == [1, 2, [1, 2]]


ENDLESS = 2_000_000
"""So many items take far longer than the time limits below, and the test still ends where these are not kept."""


@pytest.mark.parametrize("path", ["call", "stream", "chain", "code"])
@pytest.mark.parametrize("kind", ["async", "inline", "context"])
async def test_a_generator_that_never_waits_is_stopped_at_its_time_limit(kind: str, path: str) -> None:
    """Its items come as fast as they are taken: the time limit ends it all the same, and others are served."""
    ended: list[str] = []

    async def endless() -> AsyncIterator[int]:
        for number in range(ENDLESS):
            yield number
        ended.append("async")

    async def with_context(context: ToolContext) -> AsyncIterator[int]:
        for number in range(ENDLESS):
            yield number
        ended.append("context")

    @tool("t:inline", inline=True)
    def inline() -> Iterator[int]:
        yield from range(ENDLESS)
        ended.append("inline")

    async def other() -> None:
        ended.append("other")

    async with Exec() as ex:
        ex.add(endless, "t:async")
        ex.add(with_context, "t:context")
        ex.add(inline)
        ex.add(other, "t:other")
        await ex.execute_code("1")  # so that the sandbox is there
        others = asyncio.create_task(ex.run_tool("t:other"))
        tool_id = f"t:{kind}"
        if path == "call":
            error: Any = (await ex.run_tool(tool_id, timeout=0.1)).error
        elif path == "stream":
            error = [event async for event in ex.stream_tool(tool_id, timeout=0.1)][-1].error
        elif path == "chain":
            error = (await ex.run_chain([Step(tool_id, timeout=0.1)])).error
        else:
            error = (await ex.execute_code(f"tools.run({tool_id!r}, {{}}, timeout=0.1)")).error
        assert "within 0.1 s" in str(error) or getattr(error, "code", "") == "timeout"
        await others
    assert ended == ["other"]
