"""Tools that are Python functions in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from toolexec.backend.base import BackendStatus
from toolexec.backend.failures import handler_failure
from toolexec.backend.processes import WorkerProcesses
from toolexec.backend.threads import WorkerThreads
from toolexec.errors import (
    BackendDisabledError,
    BackendNotFoundError,
    StreamNotSupportedError,
)
from toolexec.model.binding import BindingKind, LocalBinding
from toolexec.model.call import Progress, ToolCall, tell
from toolexec.model.declare import FunctionTool
from toolexec.model.events import StreamEvent
from toolexec.model.handler import Handler, ToolContext, mapping_handler
from toolexec.model.tool import Tool

__all__ = ["LocalBackend"]

_END = object()


class LocalBackend:
    """Runs handlers: async functions on the event loop, sync ones in worker threads (or inline, or in a process that is
    killed on cancellation), generators piece by piece.

    A handler cannot harm its neighbours: whatever it raises, `SystemExit` included, is a failure of its own call, and
    one that blocks holds up no more than its thread. *handlers* maps names to functions that take all arguments as one
    dict; it is looked up at each call, so entries may be added to it later. *threads* bounds the worker threads.
    """

    kind: BindingKind = "local"

    def __init__(
        self, name: str = "local", *, handlers: Mapping[str, Callable[..., Any]] | None = None, threads: int = 64
    ) -> None:
        self.name = name
        self.enabled = True
        self._live = handlers if handlers is not None else {}
        self._wrapped: dict[str, tuple[Callable[..., Any], Handler]] = {}
        self._handlers: dict[str, Handler] = {}
        self._tools: dict[str, Tool] = {}
        self._threads = WorkerThreads(threads)
        self._processes: WorkerProcesses | None = None

    def register(self, name: str, handler: Handler | Callable[..., Any], tool: Tool | None = None) -> None:
        """Host a handler under *name*, in place of an earlier one; with *tool*, `list_tools` shows it.

        A plain function takes all arguments as one dict; for a typed one use `add`.
        """
        if isinstance(handler, FunctionTool):
            handler, tool = handler.handler, tool or handler.tool
        self._handlers[name] = handler if isinstance(handler, Handler) else mapping_handler(handler)
        if tool is not None:
            self._tools[name] = tool

    def add(self, function_tool: FunctionTool[..., Any]) -> Tool:
        """Host a function declared with `@tool`, under its tool's ID; returns the tool."""
        self.register(function_tool.tool.id, function_tool.handler, function_tool.tool)
        return function_tool.tool

    def unregister(self, name: str) -> None:
        """Forget a handler and its tool; unknown names are ignored."""
        self._handlers.pop(name, None)
        self._tools.pop(name, None)

    def has(self, name: str) -> bool:
        """Whether a handler is registered under *name*, or its tool is called that."""
        return self._find(name) is not None

    def status(self) -> BackendStatus:
        """How the backend is."""
        reason = None if self.enabled else "switched off"
        return BackendStatus(
            name=self.name,
            kind="local",
            enabled=self.enabled,
            available=self.enabled,
            reason=reason,
            tools=len(self._handlers.keys() | self._live.keys()),
        )

    async def start(self) -> None:
        """Nothing to do: threads and processes start at their first use."""

    async def aclose(self) -> None:
        """End idle threads and processes."""
        self._threads.close()
        if self._processes is not None:
            await self._processes.aclose()

    async def list_tools(self) -> Sequence[Tool]:
        """The tools registered with a definition, in order of registration."""
        return list(self._tools.values())

    def bind(self, tool: Tool) -> LocalBinding:
        """The binding of one of these tools."""
        name = next((name for name, known in self._tools.items() if known.id == tool.id), tool.id)
        return LocalBinding(name if self.name == "local" else f"{self.name}:{name}")

    async def call(self, name: str, call: ToolCall) -> Any:
        """Run the handler; see `Backend.call`."""
        handler = self._handlers.get(name) or self._find(name)
        if handler is None or not self.enabled:
            raise self._refusal(name)
        args: Mapping[str, Any] = call.args if call.args is not None else {}
        if handler.convert is not None:
            converted = handler.convert(args)
            args = args if handler.mode == "process" else converted
        try:
            if handler.kind == "async" and not handler.wants_context:
                value = await handler.call(args)
            else:
                value = await self._run(name, handler, args, call)
            return value if handler.finish is None or handler.mode == "process" else handler.finish(value)
        except BaseException as error:
            failure = handler_failure(name, error)
            raise failure from failure.__cause__

    async def stream(self, name: str, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Run the handler piece by piece; see `StreamingBackend.stream`."""
        handler = self._find(name)
        if handler is None or not self.enabled:
            raise self._refusal(name)
        generates = handler.kind in ("generator", "async_generator")
        if not generates and not handler.wants_context and not call.fallback:
            raise StreamNotSupportedError(
                f"{call.tool_id} answers in one piece; make its handler a generator, or pass fallback=True",
                tool_id=call.tool_id,
                op="stream",
            )
        source = self._pieces(name, handler, call) if generates else self._whole(name, call)
        try:
            async for event in source:
                yield event
        finally:
            await source.aclose()

    async def _whole(self, name: str, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """A plain handler's progress, then its value."""
        queue: asyncio.Queue[Progress | None] = asyncio.Queue()
        listening = ToolCall(call.tool_id, call.args, on_progress=queue.put_nowait)
        task = asyncio.ensure_future(self.call(name, listening))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (progress := await queue.get()) is not None:
                yield StreamEvent(kind="progress", data=progress.to_dict())
            yield StreamEvent(kind="done", data=task.result())
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _pieces(self, name: str, handler: Handler, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """A generator's values as chunks, its own events as they are, then all chunks as one list."""
        args: Mapping[str, Any] = call.args if call.args is not None else {}
        if handler.convert is not None:
            args = handler.convert(args)
        chunks: list[Any] = []
        items = self._items(handler, args, call)
        try:
            async for item in items:
                if isinstance(item, StreamEvent):
                    if item.kind in ("done", "error"):
                        yield item
                        return
                    yield item
                    chunks += [item.data] if item.kind == "chunk" else []
                else:
                    chunks.append(item)
                    yield StreamEvent(kind="chunk", data=item)
            value = chunks if handler.finish is None else handler.finish(chunks)
        except BaseException as error:
            failure = handler_failure(name, error)
            raise failure from failure.__cause__
        finally:
            await items.aclose()
        yield StreamEvent(kind="done", data=value)

    async def _run(self, name: str, handler: Handler, args: Mapping[str, Any], call: ToolCall) -> Any:
        if handler.kind in ("generator", "async_generator"):
            return await self._collect(handler, args, call)
        given = (args, self._context(call)) if handler.wants_context else (args,)
        if handler.kind == "async":
            return await handler.call(*given)
        if handler.mode == "inline":
            return handler.call(*given)
        if handler.mode == "process" and handler.source is not None:
            if self._processes is None:
                self._processes = WorkerProcesses()
            return await self._processes.run(name, handler.source, args)
        return await self._threads.run(handler.call, *given)

    async def _collect(self, handler: Handler, args: Mapping[str, Any], call: ToolCall) -> Any:
        """A generator's chunks as a list, for a caller that does not stream; its progress goes to the callback."""
        chunks: list[Any] = []
        items = self._items(handler, args, call)
        try:
            async for item in items:
                if not isinstance(item, StreamEvent):
                    chunks.append(item)
                elif item.kind == "progress" and call.on_progress is not None:
                    tell(call.on_progress, Progress(done=item.data.get("progress", 0), total=item.data.get("total")))
                elif item.kind == "chunk":
                    chunks.append(item.data)
                elif item.kind == "done":
                    return item.data
                elif item.kind == "error" and item.error is not None:
                    raise item.error
        finally:
            await items.aclose()
        return chunks

    async def _items(self, handler: Handler, args: Mapping[str, Any], call: ToolCall) -> AsyncGenerator[Any, None]:
        given = (args, self._context(call)) if handler.wants_context else (args,)
        generator = handler.call(*given)
        try:
            if handler.kind == "async_generator":
                async for item in generator:
                    yield item
            elif handler.mode == "inline":
                for item in generator:
                    yield item
            else:
                while (item := await self._threads.run(next, generator, _END)) is not _END:
                    yield item
        finally:
            if isinstance(generator, AsyncIterator):
                await generator.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            elif not generator.gi_running:  # a thread that is still inside keeps it; it closes when collected
                generator.close()

    def _context(self, call: ToolCall) -> ToolContext:
        if call.on_progress is None:
            return ToolContext(call.tool_id)
        loop, callback = asyncio.get_running_loop(), call.on_progress

        def report(progress: Progress) -> None:
            try:
                here = asyncio.get_running_loop()
            except RuntimeError:
                here = None
            if here is loop:
                tell(callback, progress)
            else:
                loop.call_soon_threadsafe(tell, callback, progress)

        return ToolContext(call.tool_id, report)

    def _find(self, name: str) -> Handler | None:
        bare = name.removeprefix(f"{self.name}:")
        found = self._handlers.get(name) or self._handlers.get(bare)
        if found is not None:
            return found
        function = self._live.get(name)
        if function is not None:
            kept = self._wrapped.get(name)
            if kept is None or kept[0] is not function:
                handler = function.handler if isinstance(function, FunctionTool) else mapping_handler(function)
                kept = self._wrapped[name] = (function, handler)
            return kept[1]
        keys = [key for key, tool in self._tools.items() if name in (tool.id, tool.name) or bare in (key, tool.name)]
        return self._handlers.get(keys[0]) if len(keys) == 1 else None

    def _refusal(self, name: str) -> Exception:
        if not self.enabled:
            return BackendDisabledError(f"backend {self.name} is switched off", backend=self.name)
        known = sorted(self._handlers.keys() | self._live.keys())
        shown = f"it has {', '.join(known[:10])}{', ...' if len(known) > 10 else ''}" if known else "it has none"
        return BackendNotFoundError(f"backend {self.name} has no handler {name!r}; {shown}", backend=self.name)
