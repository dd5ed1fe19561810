"""Streams: progress and chunks, then exactly one `done` or `error`, on every path; leaving early stops the work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from toolexec.errors import (
    ExecutionError,
    HandlerError,
    InputValidationError,
    InvalidResultError,
    OutputValidationError,
    StreamNotSupportedError,
)
from toolexec.model import ToolContext, ToolReply
from toolexec.run import StreamEvent, ToolCall

ANY = {"type": "object"}


def _kinds(events: list[StreamEvent]) -> list[str]:
    return [event.kind for event in events]


async def _three(start: int = 0) -> AsyncIterator[int]:
    for number in range(start, start + 3):
        yield number
        await asyncio.sleep(0)


class TestGenerators:
    """Generator handlers give chunks."""

    async def test_an_async_generator(self, workshop: Any) -> None:
        """Each value is a chunk; `done` has all of them."""
        workshop.add(_three, "t")
        events = await workshop.stream("t", {"start": 5})
        assert [(e.kind, e.data) for e in events] == [("chunk", 5), ("chunk", 6), ("chunk", 7), ("done", [5, 6, 7])]

    @pytest.mark.parametrize("inline", [True, False])
    async def test_a_sync_generator(self, workshop: Any, inline: bool) -> None:
        """A sync generator runs in a thread, or inline, value by value."""
        threads: set[Any] = set()

        def numbers() -> Iterator[int]:
            for number in range(3):
                threads.add(threading.current_thread())
                yield number

        workshop.add(numbers, "t", inline=inline)
        assert [e.data for e in await workshop.stream("t")] == [0, 1, 2, [0, 1, 2]]
        assert (threads == {threading.current_thread()}) is inline

    async def test_it_can_also_be_run(self, workshop: Any) -> None:
        """`run` gives all values of a generator as one list."""
        workshop.add(_three, "t")
        assert (await workshop.run("t")).value == [0, 1, 2]

    async def test_an_empty_generator(self, workshop: Any) -> None:
        """No chunks, one `done`."""

        async def nothing() -> AsyncIterator[int]:
            for number in ():
                yield number

        workshop.add(nothing, "t")
        assert [(e.kind, e.data) for e in await workshop.stream("t")] == [("done", [])]

    async def test_its_own_events(self, workshop: Any) -> None:
        """A generator may yield events: progress, and a `done` with a value of its own choice, which ends it."""
        ended: list[bool] = []

        async def events() -> AsyncIterator[Any]:
            try:
                yield StreamEvent(kind="progress", data={"progress": 1, "total": 2})
                yield StreamEvent(kind="chunk", data="a", tool_id="kept")
                yield StreamEvent(kind="done", data=["whole"])
                yield "never seen"
            finally:
                ended.append(True)

        workshop.add(events, "t")
        got = await workshop.stream("t")
        assert [(e.kind, e.tool_id) for e in got] == [("progress", "t"), ("chunk", "kept"), ("done", "t")]
        assert got[-1].data == ["whole"]
        assert ended == [True]

    async def test_its_own_error_event(self, workshop: Any) -> None:
        """A generator may end with an `error` event, and nothing follows it."""

        async def events() -> AsyncIterator[Any]:
            yield "a"
            yield StreamEvent(kind="error", data={"message": "no"}, error=ExecutionError("no"))
            yield "never seen"

        workshop.add(events, "t")
        assert _kinds(await workshop.stream("t")) == ["chunk", "error"]

    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
    async def test_one_that_raises(self, workshop: Any, error: BaseException) -> None:
        """An exception mid-stream is the one `error` event; the chunks before it arrived."""

        async def broken() -> AsyncIterator[int]:
            yield 0
            raise error

        workshop.add(broken, "t")
        events = await workshop.stream("t")
        assert _kinds(events) == ["chunk", "error"]
        assert isinstance(events[-1].error, HandlerError)
        assert events[-1].error.__cause__ is error
        assert events[-1].data["code"] == "handler_failed"

    async def test_scopes_across_yields(self, workshop: Any) -> None:
        """A generator may hold asyncio and anyio scopes open while it yields."""

        async def scoped() -> AsyncIterator[int]:
            async with asyncio.timeout(60):
                with anyio.move_on_after(60):
                    yield 1
                    await asyncio.sleep(0)
                    yield 2

        workshop.add(scoped, "t")
        assert _kinds(await workshop.stream("t")) == ["chunk", "chunk", "done"]


class TestPlainHandlers:
    """Handlers that answer in one piece."""

    async def test_without_fallback(self, workshop: Any) -> None:
        """Plain handlers refuse to stream."""
        workshop.add(lambda: 1, "t")
        with pytest.raises(StreamNotSupportedError) as caught:
            await workshop.stream("t")
        assert caught.value.tool_id == "t"

    async def test_with_fallback(self, workshop: Any) -> None:
        """Plain handlers give one event."""
        workshop.add(lambda: 1, "t")
        assert [(e.kind, e.data) for e in await workshop.stream("t", fallback=True)] == [("done", 1)]

    async def test_progress(self, workshop: Any) -> None:
        """One that reports progress streams that, then its value."""

        async def work(ctx: ToolContext) -> str:
            ctx.report(1, 2, "half")
            await asyncio.sleep(0)
            ctx.report(2, 2)
            return "ready"

        workshop.add(work, "t")
        events = await workshop.stream("t")
        assert [e.data for e in events] == [
            {"progress": 1, "total": 2, "message": "half"},
            {"progress": 2, "total": 2},
            "ready",
        ]

    async def test_failure(self, workshop: Any) -> None:
        """A failing one gives one `error`."""
        workshop.add(lambda: 1 / 0, "t")
        events = await workshop.stream("t", fallback=True)
        assert _kinds(events) == ["error"]
        assert isinstance(events[0].error, HandlerError)


class TestChecks:
    """A stream is checked as a call is."""

    async def test_wrong_arguments(self, workshop: Any) -> None:
        """Wrong arguments raise at the first step."""
        workshop.add(_three, "t")
        with pytest.raises(InputValidationError):
            await workshop.stream("t", {"start": "x"})

    async def test_checks_can_be_switched_off(self, workshop: Any) -> None:
        """Then the handler meets what it gets, and its failure is an `error`."""
        workshop.add(_three, "t")
        assert _kinds(await workshop.stream("t", {"begin": 1}, validate_input=False)) == ["error"]

    async def test_the_whole_is_checked(self, workshop: Any) -> None:
        """A `done` value that breaks the output schema turns into an `error`."""

        async def liar() -> AsyncIterator[int]:
            yield "text"  # type: ignore[misc]

        workshop.add(liar, "t")
        events = await workshop.stream("t")
        assert _kinds(events) == ["chunk", "error"]
        assert isinstance(events[-1].error, OutputValidationError)
        assert _kinds(await workshop.stream("t", validate_output="warn")) == ["chunk", "done"]

    async def test_a_whole_that_is_not_json(self, workshop: Any) -> None:
        """Such a value turns into an `error`."""

        async def odd() -> AsyncIterator[Any]:
            yield StreamEvent(kind="done", data=object())

        workshop.add(odd, "t")
        events = await workshop.stream("t")
        assert isinstance(events[-1].error, InvalidResultError)

    async def test_a_reported_error(self, workshop: Any) -> None:
        """A `done` reply with `isError` turns into an `error`."""

        async def refuse() -> AsyncIterator[Any]:
            yield StreamEvent(kind="done", data=ToolReply(is_error=True))

        workshop.add(refuse, "t")
        assert _kinds(await workshop.stream("t")) == ["error"]


class TestLeavingEarly:
    """Who leaves takes the tool along."""

    @pytest.mark.parametrize("kind", ["async generator", "sync generator", "progress"])
    async def test_closing(self, workshop: Any, kind: str) -> None:
        """Closing the stream after its first event ends the handler, with its cleanup."""
        ended: list[str] = []

        async def pieces() -> AsyncIterator[int]:
            try:
                while True:
                    yield 0
            finally:
                await asyncio.sleep(0)
                ended.append("async generator")

        def sync_pieces() -> Iterator[int]:
            try:
                while True:
                    yield 0
            finally:
                ended.append("sync generator")

        async def progress(ctx: ToolContext) -> None:
            try:
                ctx.report(1)
                await asyncio.Event().wait()
            finally:
                ended.append("progress")

        handlers = {"async generator": pieces, "sync generator": sync_pieces, "progress": progress}
        workshop.add(handlers[kind], "t")
        async with aclosing(workshop.runner().stream(ToolCall("t"))) as events:
            await anext(events)
        assert ended == [kind]

    async def test_before_the_first_event(self, workshop: Any) -> None:
        """A stream that is closed before its first step never calls the tool."""
        called: list[bool] = []

        async def pieces() -> AsyncIterator[int]:
            called.append(True)
            yield 0

        workshop.add(pieces, "t")
        await workshop.runner().stream(ToolCall("t")).aclose()
        assert called == []

    async def test_cancelling(self, workshop: Any) -> None:
        """A cancelled consumer gets its cancellation, and the generator is closed by then."""
        ended: list[str] = []
        waiting = asyncio.Event()

        async def pieces() -> AsyncIterator[int]:
            try:
                yield 0
                waiting.set()
                await asyncio.Event().wait()
            finally:
                ended.append("closed")

        workshop.add(pieces, "t")
        task = asyncio.create_task(workshop.stream("t"))
        await waiting.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert ended == ["closed"]

    async def test_an_exception_of_the_consumer(self, workshop: Any) -> None:
        """Such an exception is the consumer's own and never turns into an event."""
        workshop.add(_three, "t")
        with pytest.raises(LookupError):
            async with aclosing(workshop.runner().stream(ToolCall("t"))) as events:
                async for _ in events:
                    raise LookupError
