"""Tools that are Python functions in this process."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from time import monotonic
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any

from toolexec.backend.base import BackendStatus
from toolexec.backend.failures import handler_failure, result_not_json
from toolexec.backend.here import here
from toolexec.backend.weave import weave
from toolexec.errors import (
    BackendBusyError,
    BackendDisabledError,
    BackendNotFoundError,
    ConfigurationError,
    ExecutionError,
    HandlerError,
    InputValidationError,
    Outcome,
    StreamNotSupportedError,
)
from toolexec.model.binding import BindingKind, LocalBinding
from toolexec.model.call import Progress, ProgressCallback, ToolCall, tell
from toolexec.model.events import StreamEvent
from toolexec.model.handler import Handler, ToolContext, mapping_handler
from toolexec.model.json_value import JSONObject, NotJSONError, own_args, shorten, to_json
from toolexec.model.settings import checked
from toolexec.model.tool import Tool
from toolexec.process.threads import NoThreadError, WorkerThreads

if TYPE_CHECKING:
    from toolexec.model.declare import FunctionTool
    from toolexec.process.workers import WorkerProcesses

logger: logging.Logger = logging.getLogger(__name__)
_END = object()
_GENERATORS = ("generator", "async_generator")
_CLOSE_SECONDS = 5.0
_TURN = 0.005
"""How long a generator may give items without a turn of the event loop for all others, in seconds."""


@checked("LocalBackend")
class LocalBackend:
    """Runs handlers: async functions on the event loop, sync ones in worker threads (or inline, or in a process that is
    killed on cancellation), generators piece by piece.

    A handler cannot harm its neighbours: whatever it raises, `SystemExit` included, is a failure of its own call, and
    one that blocks holds up no more than its thread. *handlers* maps names to functions that take all arguments as one
    dict; it is looked up at each call, so entries may be added to it later. *threads* bounds the worker threads. A
    thread whose call was given up (at its time limit, or cancelled) is lost and replaced, up to 256 at a time; calls
    for which there is no thread left are refused with BackendBusyError.

    >>> from toolexec import Exec
    >>> from toolexec import LocalBinding, Tool
    >>> tool = Tool(name="double", namespace="math", input_schema={"type": "object"})
    >>> handlers = {"double": lambda args: args["x"] * 2}
    >>> with Exec(local_handlers=handlers).sync as ex:
    ...     _ = ex.add(tool, binding=LocalBinding("double"))
    ...     ex.run_tool("math:double", {"x": 4}).value
    8
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

        A plain function takes all arguments as one dict; for a typed one use `add`. Raises ConfigurationError for a
        handler that cannot be called, or that is to run in a process but does not say where to import it.
        """
        if not isinstance(handler, Handler):
            if not callable(handler):
                raise ConfigurationError(f"the handler of {name} must be a function, not {handler!r}")
            handler, declared = _read(handler)
            tool = tool or declared
        if handler.mode == "process" and handler.source is None:
            raise ConfigurationError(f"the handler of {name} has mode 'process' but no source to import it from")
        self._handlers[name] = handler
        if tool is not None:
            self._tools[name] = tool

    def add(self, function_tool: FunctionTool[..., Any]) -> Tool:
        """Host a function declared with `@tool`, under its tool's ID; returns the tool. Raises InvalidSchemaError."""
        self.register(function_tool.tool.id, function_tool.handler, function_tool.tool.check_schemas())
        return function_tool.tool

    def unregister(self, name: str) -> None:
        """Forget a handler and its tool; unknown names are ignored."""
        self._handlers.pop(name, None)
        self._tools.pop(name, None)

    def has(self, name: str) -> bool:
        """Return whether a handler is registered under *name*, or its tool is called that."""
        return self._find(name) is not None

    def runs_here(self, name: str) -> bool:
        """Return whether the handler is a sync function for which any thread will do, so that no call needs the loop.
        A handler that reports progress or messages needs the loop, which delivers them.
        """
        handler = self._handlers.get(name) or self._find(name)
        if handler is None or not self.enabled or handler.wants_context:
            return False
        return handler.kind == "sync" and handler.mode == "thread"

    def status(self) -> BackendStatus:
        """Return how the backend is; `info` counts lost threads, those that hang in calls which were given up."""
        reason = None if self.enabled else "switched off"
        lost = self._threads.lost
        return BackendStatus(
            name=self.name,
            kind="local",
            enabled=self.enabled,
            available=self.enabled,
            reason=reason,
            tools=len(self._handlers.keys() | self._live.keys()),
            info={"lost_threads": lost} if lost else {},
        )

    async def start(self) -> None:
        """Do nothing: threads and processes start at their first use."""

    async def aclose(self) -> None:
        """End idle threads and all processes, those at work too. A later call starts new ones."""
        self._threads.close()
        processes, self._processes = self._processes, None
        if processes is not None:
            await processes.aclose()

    async def list_tools(self) -> Sequence[Tool]:
        """Return the tools registered with a definition, in order of registration."""
        return list(self._tools.values())

    def bind(self, tool: Tool) -> LocalBinding:
        """Return the binding of one of these tools, also under the namespace that an index gave it: the backend's
        name.
        """
        name = tool.id
        if name not in self._tools:
            bare = tool.replace(namespace="", version="").id if tool.namespace == self.name else tool.id
            name = next((key for key, known in self._tools.items() if known.id in (tool.id, bare)), tool.id)
        return LocalBinding(name if self.name == "local" else f"{self.name}:{name}")

    async def call(self, name: str, call: ToolCall) -> Any:
        """Run the handler; see `Backend.call`."""
        try:
            handler = self._handlers[name]
        except KeyError:
            handler = self._find(name)
        if handler is None or not self.enabled:
            raise self._refusal(name)
        args: JSONObject = call.args if call.args is not None else {}
        if handler.plain is not None:  # most async functions
            try:
                return await handler.plain({**args})
            except BaseException as error:
                raise handler_failure(name, error, generating=False)  # noqa: B904 - it has its cause
        if handler.convert is not None or handler.mode == "process":
            args = _converted(name, handler, args)
        try:
            if handler.kind == "async" and not handler.wants_context:
                value = await handler.call(args)
            else:
                value = await self._run(name, handler, args, call)
            return value if handler.finish is None or handler.mode == "process" else _finished(name, handler, value)
        except NoThreadError:
            raise self._busy(name) from None
        except BaseException as error:
            if handler.mode == "process" and isinstance(error, ExecutionError):
                raise  # the backend's own word, as nothing else comes out of a worker process
            raise handler_failure(name, error, generating=False)  # noqa: B904 - it has its cause

    async def stream(self, name: str, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Run the handler piece by piece; see `StreamingBackend.stream`.

        A generator's values are chunks, each as plain JSON, and the value of `done` is the list of them. It may also
        yield Progress, and StreamEvents as they are: a `done` among them ends it with another value.
        """
        handler = self._find(name)
        if handler is None or not self.enabled:
            raise self._refusal(name)
        generates = handler.kind in _GENERATORS
        if not generates and not handler.wants_context and not call.fallback:
            raise StreamNotSupportedError(
                f"{call.tool_id} answers in one piece; make its handler a generator, or pass fallback=True",
                tool_id=call.tool_id,
                op="stream",
            )

        def start(report: ProgressCallback | None = None) -> AsyncGenerator[Any, None]:
            stream_call = call
            if report is not None:
                stream_call = ToolCall(call.tool_id, call.args, on_progress=report, origin=call.origin, step=call.step)
                stream_call.run_id, stream_call.idempotency_key = call.identify(), call.idempotency_key
            return self._items(name, handler, stream_call) if generates else self._whole(name, stream_call)

        chunks: list[Any] = []
        own_id = ""
        async with aclosing(weave(start) if handler.wants_context else start()) as items:
            async for item in items:
                event = _event(item)
                if event.kind == "done":
                    value, own_id = event.data, event.tool_id
                    break
                if event.kind == "chunk":
                    data = _chunk(name, handler, event.data)
                    if data is not event.data:
                        event = StreamEvent(kind="chunk", data=data, tool_id=event.tool_id, error=event.error)
                    chunks.append(data)
                yield event
            else:
                value = chunks
        yield StreamEvent(kind="done", data=value, tool_id=own_id)

    async def _whole(self, name: str, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        yield StreamEvent(kind="done", data=await self.call(name, call))

    async def _run(self, name: str, handler: Handler, args: JSONObject, call: ToolCall) -> Any:
        if handler.kind in _GENERATORS:
            return await self._collect(name, handler, call)
        if here.wait is not None and handler.mode == "thread":
            value = handler.call(args)
            return here.wait(value) if inspect.isawaitable(value) else value
        with _context(handler, call) as context:
            if handler.kind == "async":
                return await handler.call(args, *context)
            if handler.mode == "inline":
                value = handler.call(args, *context)
            elif handler.mode == "process" and handler.source is not None:
                if self._processes is None:
                    from toolexec.process.workers import WorkerProcesses

                    self._processes = WorkerProcesses()
                value = await self._processes.run(name, handler.source, args, call)
            else:
                value = await self._threads.run(handler.call, args, *context, tool_call=call)
            return await value if inspect.isawaitable(value) else value

    async def _collect(self, name: str, handler: Handler, call: ToolCall) -> Any:
        """Return a generator's chunks as a list, for a caller that does not stream; its progress goes to the
        callback.
        """
        chunks: list[Any] = []
        async with aclosing(self._items(name, handler, call)) as items:
            async for item in items:
                event = _event(item)
                if event.kind == "done":
                    return event.data
                if event.kind == "chunk":
                    chunks.append(_chunk(name, handler, event.data))
                elif call.on_progress is not None:
                    tell(call.on_progress, _progress(event.data))
        return chunks

    async def _items(self, name: str, handler: Handler, call: ToolCall) -> AsyncGenerator[Any, None]:
        """Yield what a generator yields, one by one; raises its failure, which an `error` event is too."""
        args = _converted(name, handler, call.args if call.args is not None else {})
        with _context(handler, call) as context:
            try:
                generator = handler.call(args, *context)
            except BaseException as error:
                raise handler_failure(name, error, generating=False)  # noqa: B904 - it has its cause
            began: ToolCall | None = call  # the call begins with the first step of the generator
            turn = monotonic() + _TURN
            try:
                while (item := await self._next(name, handler, generator, began)) is not _END:
                    began = None
                    if isinstance(item, StreamEvent) and item.kind == "error":
                        raise _failure_of(name, item)
                    if monotonic() > turn:  # a generator may never wait, and neither its time limit would pass
                        await asyncio.sleep(0)
                        turn = monotonic() + _TURN
                    yield item
            finally:
                await self._close(name, handler, generator)

    async def _next(self, name: str, handler: Handler, generator: Any, call: ToolCall | None) -> Any:
        try:
            if handler.kind == "async_generator":
                return await anext(generator, _END)
            if handler.mode == "inline":
                return next(generator, _END)
            return await self._threads.run(next, generator, _END, tool_call=call)
        except NoThreadError:
            if call is not None:
                raise self._busy(name) from None
            raise ExecutionError(f"{name} was left in the middle: every worker thread hangs") from None
        except BaseException as error:
            raise handler_failure(name, error, generating=False)  # noqa: B904 - it has its cause

    async def _close(self, name: str, handler: Handler, generator: Any) -> None:
        """End a generator that was left early. If a thread is still inside, it ends when that thread comes out."""

        async def close() -> None:
            try:
                await self._threads.run(generator.close)
            except BaseException as error:  # a SystemExit must not get into a task of its own: it would end the loop
                raise handler_failure(name, error, generating=False)  # noqa: B904 - it has its cause

        try:
            if isinstance(generator, AsyncGeneratorType):
                await generator.aclose()
            elif isinstance(generator, GeneratorType) and inspect.getgeneratorstate(generator) == "GEN_SUSPENDED":
                if handler.mode == "inline":
                    generator.close()
                else:
                    await asyncio.wait_for(close(), _CLOSE_SECONDS)
        except BaseException as error:
            failure = handler_failure(name, error, generating=False)
            logger.warning("%s did not end cleanly when it was left early: %s", name, failure)

    def _find(self, name: str) -> Handler | None:
        bare = name.removeprefix(f"{self.name}:")
        found = self._handlers.get(name) or self._handlers.get(bare)
        if found is not None:
            return found
        function = self._live.get(name)
        if function is not None:
            kept = self._wrapped.get(name)
            if kept is None or kept[0] is not function:
                kept = self._wrapped[name] = (function, _read(function)[0])
            return kept[1]
        keys = [key for key, tool in self._tools.items() if name in (tool.id, tool.name) or bare in (key, tool.name)]
        return self._handlers.get(keys[0]) if len(keys) == 1 else None

    def _busy(self, name: str) -> BackendBusyError:
        return BackendBusyError(
            f"{name} was not called: all threads of backend {self.name} hang in {self._threads.lost} calls that were "
            "given up; call again when some have ended, or declare the hanging tools async or killable",
            backend=self.name,
            details={"lost_threads": self._threads.lost},
        )

    def _refusal(self, name: str) -> Exception:
        if not self.enabled:
            return BackendDisabledError(f"backend {self.name} is switched off", backend=self.name)
        known = sorted(self._handlers.keys() | self._live.keys())
        shown = f"it has {', '.join(known[:10])}{', ...' if len(known) > 10 else ''}" if known else "it has none"
        return BackendNotFoundError(f"backend {self.name} has no handler {name!r}; {shown}", backend=self.name)


class _Reporter:
    """Carries a handler's progress and messages to the caller: on the event loop, and as long as the call lasts."""

    def __init__(self, call: ToolCall) -> None:
        self._callback = call.on_progress
        self._listener = call.origin.hear
        self._loop = asyncio.get_running_loop()
        self.over = False

    def context(self, call: ToolCall) -> ToolContext:
        """Return what the handler is given."""
        report = None if self._callback is None else partial(self._carry, self._tell)
        say = None if self._listener is None else partial(self._carry, self._say)
        return ToolContext(call.tool_id, report, say, call)

    def _carry(self, deliver: Callable[..., None], *what: Any) -> None:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            deliver(*what)
        else:
            with suppress(RuntimeError):  # the loop is closed: there are no listeners any more
                self._loop.call_soon_threadsafe(deliver, *what)

    def _tell(self, progress: Progress) -> None:
        if not self.over and self._callback is not None:
            tell(self._callback, progress)

    def _say(self, level: str, message: str) -> None:
        if not self.over and self._listener is not None:
            try:
                self._listener(level, message)
            except Exception:
                logger.exception("a listener for messages failed")


def _read(function: Callable[..., Any]) -> tuple[Handler, Tool | None]:
    """Return the handler of a function, and the tool of one that is declared with `@tool`."""
    from toolexec.model.declare import FunctionTool  # a program that only searches needs nothing of it

    if isinstance(function, FunctionTool):
        return function.handler, function.tool
    return mapping_handler(function), None


@contextmanager
def _context(handler: Handler, call: ToolCall) -> Generator[tuple[ToolContext, ...]]:
    """Yield what *handler* gets beside its arguments; its progress and messages are delivered until the block ends."""
    if not handler.wants_context:
        yield ()
    elif call.on_progress is None and call.origin.hear is None:
        yield (ToolContext(call.tool_id, call=call),)
    else:
        reporter = _Reporter(call)
        try:
            yield (reporter.context(call),)
        finally:
            reporter.over = True


def _converted(name: str, handler: Handler, args: JSONObject) -> JSONObject:
    """Return the arguments as the handler's types want them; a worker process gets JSON and converts it there."""
    if handler.mode == "process":
        try:
            args = own_args(args)
        except NotJSONError as error:
            raise InputValidationError(error.violations, op="validate_input") from None
    if handler.convert is None:
        return args
    try:
        converted = handler.convert(args)
    except InputValidationError:
        raise
    except BaseException as error:
        raise handler_failure(name, error, generating=False)  # noqa: B904 - it has its cause
    return args if handler.mode == "process" else converted


def _failure_of(name: str, event: StreamEvent) -> ExecutionError:
    """Return the failure that an `error` event of a generator reports, with the tool's ID that it came with."""
    error: Exception | None = event.error
    if error is None:
        error = HandlerError(f"{name} ended with the error {shorten(str(event.data), 2000)}")
    return handler_failure(name, error, generating=False).locate(tool_id=event.tool_id or None)


def _finished(name: str, handler: Handler, value: Any) -> Any:
    try:
        return value if handler.finish is None else handler.finish(value)
    except BaseException as error:
        failure = handler_failure(name, error, generating=False)
        failure.outcome, failure.retryable = Outcome.DONE, False  # only its value cannot be written
        raise failure  # noqa: B904 - it has its cause


def _chunk(name: str, handler: Handler, value: Any) -> Any:
    """Return one value of a generator as plain JSON; written at once, as the generator may change it before the next
    one."""
    if handler.finish is not None:
        (value,) = _finished(name, handler, [value])
    try:
        return to_json(value)
    except NotJSONError as error:
        raise result_not_json(name, error, "yielded something") from None


def _event(item: Any) -> StreamEvent:
    if isinstance(item, StreamEvent):
        return item
    if isinstance(item, Progress):
        return StreamEvent(kind="progress", data=item.to_dict())
    return StreamEvent(kind="chunk", data=item)


def _progress(data: Any) -> Progress:
    """Return the progress in the data of an event that a handler made."""
    if isinstance(data, Progress):
        return data
    if isinstance(data, Mapping):
        return Progress(done=data.get("progress", 0), total=data.get("total"), message=data.get("message", ""))
    return Progress(done=0, message=str(data))
