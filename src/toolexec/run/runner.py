"""One tool call, start to finish: resolve → check → dispatch → normalise → check."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from time import perf_counter
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from toolexec.backend.base import Backend, StreamingBackend
from toolexec.backend.failures import handler_failure
from toolexec.backend.here import Wait, step_here
from toolexec.backend.local import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.index import Index, Registered
from toolexec.errors import (
    ExecutionError,
    InputValidationError,
    InvalidResultError,
    InvalidSchemaError,
    OutputValidationError,
    StreamNotSupportedError,
    ToolExecError,
    Violation,
)
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import explain_not_json, is_json
from toolexec.model.tool import Tool
from toolexec.run.normalize import as_reply, reply_error, reply_value
from toolexec.run.resolve import Resolver
from toolexec.run.types import Result

__all__ = ["DefaultRunner", "OutputValidation", "Runner", "ThreadRunner"]

OutputValidation: TypeAlias = Literal["strict", "warn", "off"]
_NO_ARGS: Final[dict[str, Any]] = {}


class Runner(Protocol):
    """Runs one call. Timeout, tracing and every other rule are runners around a runner; all paths use the outermost."""

    async def run(self, call: ToolCall) -> Result:
        """Make the call.

        A tool that was called and failed is a Result with `error`. Raises when it could not be called:
        InvalidToolIDError, ToolNotFoundError, NoBackendsError, InputValidationError, InvalidSchemaError, BackendError.
        Cancellation passes through and stops the work.
        """
        ...

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece: `progress` and `chunk` events, then exactly one `done` or `error`.

        The first step raises as `run` does, and StreamNotSupportedError when the tool answers in one piece and
        `call.fallback` is not set. Closing the iterator stops the work.
        """
        ...


@runtime_checkable
class ThreadRunner(Protocol):
    """A runner that can make some calls in the caller's own thread, without an event loop.

    Not every runner is one: a layer that uses the event loop simply does not have the method, and then all calls go to
    the loop.
    """

    def runs_here(self, call: ToolCall, within: float) -> bool:
        """Whether `run_here` would make the call."""
        ...

    def run_here(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call as `Runner.run` does, or give None, with nothing done, when it needs the event loop.

        The caller stops waiting after *within* seconds; a call that must be stopped earlier needs the loop, too.
        """
        ...


class DefaultRunner:
    """The pipeline itself, without any layer.

    Arguments are checked unless *validate_input* is false. *validate_output* decides what a breach of the output schema
    means: `strict` makes it the call's error (the value stays in the result), `warn` lists it in `Result.warnings`,
    `off` takes any result unchecked, be it JSON or not; None means strict for local tools and warn for remote ones. The
    runner keeps no state of its own.
    """

    def __init__(
        self,
        index: Index | None,
        backends: BackendRegistry,
        *,
        resolver: Resolver | None = None,
        validate_input: bool = True,
        validate_output: OutputValidation | None = None,
    ) -> None:
        self._find = index.find if index is not None else _nothing
        self._backends = backends
        self._resolver = resolver or Resolver(index, backends)
        self._validate_input = validate_input
        self._validate_output = validate_output

    async def run(self, call: ToolCall) -> Result:
        """Make the call; see `Runner.run`."""
        started = perf_counter()
        entry = self._find(call.tool_id) or self._resolver.resolve(call.tool_id)
        if self._validate_input:
            _check_input(entry.tool, call.args)
        try:
            raw = await self._backends.resolve(entry.binding).call(entry.target, call)
        except ExecutionError as error:
            error.locate(tool_id=entry.tool.id, op="execute", backend=entry.binding.backend)
            return Result(entry.tool.id, None, error, perf_counter() - started, entry.binding)
        except ToolExecError as error:
            error.locate(tool_id=entry.tool.id, op="execute", backend=entry.binding.backend)
            raise
        except BaseException as error:
            failure = handler_failure(entry.tool.id, error).locate(tool_id=entry.tool.id, op="execute")
            return Result(entry.tool.id, None, failure, perf_counter() - started, entry.binding)
        if self._validate_output == "off" and type(raw) in _PLAIN:
            return Result(entry.tool.id, raw, None, perf_counter() - started, entry.binding)
        return self._finish(entry, raw, started)

    def runs_here(self, call: ToolCall, within: float) -> bool:
        """Whether the call is one of a local tool with a sync handler; see `ThreadRunner.runs_here`."""
        entry = self._find(call.tool_id)
        if entry is None or entry.binding.kind != "local":
            return False
        try:
            backend = self._backends.resolve(entry.binding)
        except ToolExecError:
            return False  # the usual road says it better
        return isinstance(backend, LocalBackend) and backend.runs_here(entry.target)

    def run_here(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call of a local tool with a sync handler; see `ThreadRunner.run_here`."""
        return step_here(self.run(call), wait) if self.runs_here(call, within) else None

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `Runner.stream`."""
        started = perf_counter()
        entry = self._find(call.tool_id) or self._resolver.resolve(call.tool_id)
        if self._validate_input:
            _check_input(entry.tool, call.args)
        backend = self._backend(entry)
        tool_id = entry.tool.id
        if not isinstance(backend, StreamingBackend):
            if not call.fallback:
                raise StreamNotSupportedError(
                    f"{tool_id} is hosted by {backend.name}, which does not stream; pass fallback=True for one event",
                    tool_id=tool_id,
                    op="stream",
                )
            yield _last_event(await self.run(call))
            return
        events = backend.stream(entry.binding.tool, call)
        try:
            async for event in events:
                if event.kind == "done":
                    yield _last_event(self._finish(entry, event.data, started))
                    return
                yield (
                    event
                    if event.tool_id
                    else StreamEvent(kind=event.kind, data=event.data, tool_id=tool_id, error=event.error)
                )
                if event.kind == "error":
                    return
            yield _error_event(ExecutionError(f"{tool_id} ended its stream without a result", tool_id=tool_id))
        except ExecutionError as error:
            yield _error_event(error.locate(tool_id=tool_id, op="stream", backend=backend.name))
        except ToolExecError as error:
            error.locate(tool_id=tool_id, op="stream", backend=backend.name)
            raise
        except BaseException as error:
            yield _error_event(handler_failure(tool_id, error).locate(tool_id=tool_id, op="stream"))
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    def _backend(self, entry: Registered) -> Backend:
        try:
            return self._backends.resolve(entry.binding)
        except ToolExecError as error:
            error.locate(tool_id=entry.tool.id, op="execute")
            raise

    def _finish(self, entry: Registered, raw: Any, started: float) -> Result:
        """Normalise and check an answer."""
        tool = entry.tool
        reply = None
        value = raw
        if type(raw) not in _PLAIN and (reply := as_reply(raw)) is not None:
            if reply.is_error:
                error = reply_error(tool.id, reply)
                error.backend = entry.binding.backend
                return Result(tool.id, None, error, perf_counter() - started, entry.binding, reply)
            value = reply_value(reply)
        if self._validate_output == "off":
            return Result(tool.id, value, None, perf_counter() - started, entry.binding, reply)
        if not is_json(value):
            problem = explain_not_json(value)[0]
            failure = InvalidResultError(
                f"{tool.id} returned something that is not JSON at {problem.path or 'its root'}: {problem.message}",
                tool_id=tool.id,
                op="normalize",
            )
            return Result(tool.id, None, failure, perf_counter() - started, entry.binding, reply)
        result = Result(tool.id, value, None, perf_counter() - started, entry.binding, reply)
        if tool.output_schema is not None:
            self._check_output(entry, result)
        return result

    def _check_output(self, entry: Registered, result: Result) -> None:
        schema = entry.tool.output_schema
        assert schema is not None
        try:
            if schema.conforms(result.value):
                return
            violations = schema.violations(result.value)
        except InvalidSchemaError as error:
            violations = (Violation(path="", keyword="$schema", message=f"the output schema is unusable: {error}"),)
        if (self._validate_output or ("strict" if entry.binding.kind == "local" else "warn")) == "warn":
            result.warnings = violations
        else:
            result.error = OutputValidationError(violations, tool_id=entry.tool.id, op="validate_output")


_PLAIN: Final = frozenset({dict, list, str, int, float, bool, type(None)})


def _nothing(tool_id: str) -> None:
    """The index of a runner that has none."""


def _check_input(tool: Tool, args: Mapping[str, Any] | None) -> None:
    values = _NO_ARGS if args is None else args
    if type(values) is dict and is_json(values) and tool.input_schema.conforms(values):
        return
    if isinstance(values, Mapping):
        violations = tool.input_schema.violations(dict(values))
    else:
        violations = (
            Violation(
                path="", keyword="type", message="arguments must be a mapping of names to values", expected="object"
            ),
        )
    if violations:
        raise InputValidationError(violations, tool_id=tool.id, op="validate_input")


def _last_event(result: Result) -> StreamEvent:
    if result.error is not None:
        return _error_event(result.error)
    return StreamEvent(kind="done", data=result.value, tool_id=result.tool_id)


def _error_event(error: ToolExecError) -> StreamEvent:
    return StreamEvent(kind="error", data=error.to_dict(), tool_id=error.tool_id or "", error=error)
