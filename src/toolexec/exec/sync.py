"""Blocking versions of an `Exec`'s methods, for code without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from toolexec.discovery.docs import DetailLevel, ToolDoc
from toolexec.discovery.summary import Filters, Summary
from toolexec.exec.chain import ChainResult, Step
from toolexec.exec.facade import Exec
from toolexec.model.call import ProgressCallback
from toolexec.model.events import StreamEvent
from toolexec.run.types import Result

__all__ = ["SyncExec"]

T = TypeVar("T")


class SyncExec:
    """An Exec whose methods block. Use it as `with`, or call `close`; tools are added through `exec`.

    >>> with Exec().sync as ex:
    ...     _ = ex.exec.add(lambda a, b: a + b, "math:add")
    ...     ex.run_tool("math:add", {"a": 5, "b": 3}).value
    8

    The event loop runs in a thread of its own. Every method raises what its async twin raises, and may be called from
    several threads.
    """

    def __init__(self, exec: Exec | None = None) -> None:
        self.exec = exec if exec is not None else Exec()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start all backends; see `Exec.start`."""
        self._wait(self.exec.start())

    def close(self) -> None:
        """Stop all backends and the event loop."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self.exec.aclose(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def search_tools(self, query: str, limit: int = 10, *, filters: Filters | None = None) -> list[Summary]:
        """The best tools for *query*; see `Exec.search_tools`."""
        return self._wait(self.exec.search_tools(query, limit, filters=filters))

    def get_tool_doc(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """A tool's documentation; see `Exec.get_tool_doc`."""
        return self._wait(self.exec.get_tool_doc(tool_id, level))

    def run_tool(
        self,
        tool_id: str,
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Result:
        """Run one tool; see `Exec.run_tool`. *on_progress* is called in the event loop's thread."""
        return self._wait(self.exec.run_tool(tool_id, args, timeout=timeout, on_progress=on_progress))

    def run_chain(self, steps: Sequence[Step], *, on_progress: ProgressCallback | None = None) -> ChainResult:
        """Run tools one after the other; see `Exec.run_chain`."""
        return self._wait(self.exec.run_chain(steps, on_progress=on_progress))

    def stream_tool(
        self,
        tool_id: str,
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        fallback: bool = True,
    ) -> Iterator[StreamEvent]:
        """Run one tool piece by piece; see `Exec.stream_tool`. Closing the iterator stops the tool."""
        events = self.exec.stream_tool(tool_id, args, timeout=timeout, fallback=fallback)
        try:
            while (event := self._wait(_next(events))) is not None:
                yield event
        finally:
            self._wait(_close(events))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()  # on Ctrl-C the work must not go on unseen
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="toolexec-loop", daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _next(events: Any) -> StreamEvent | None:
    return await anext(events, None)


async def _close(events: Any) -> None:
    await events.aclose()
