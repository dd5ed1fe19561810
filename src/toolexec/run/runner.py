"""One tool call, start to finish: resolve → check → dispatch → normalise → check."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from toolexec.backend.attempt import Attempt, attempt_at
from toolexec.backend.base import Backend, StreamingBackend
from toolexec.backend.failures import backend_failure, located, result_not_json
from toolexec.backend.here import Wait, step_here
from toolexec.backend.local import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.index import Index, Registered
from toolexec.errors import (
    ExecutionError,
    InputValidationError,
    InvalidSchemaError,
    LoginRequiredError,
    OutputValidationError,
    StreamNotSupportedError,
    ToolExecError,
    Violation,
)
from toolexec.model.arguments import bounded_args, without_nulls
from toolexec.model.call import ToolCall
from toolexec.model.content import ToolReply
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONDict, JSONObject, NotJSONError, own_args, to_json, to_json_lossy
from toolexec.model.origin import Origin
from toolexec.model.protocols import provides
from toolexec.model.schema import Schema
from toolexec.model.settings import checked
from toolexec.model.tool import Tool
from toolexec.model.tree_size import FLAT, MANY, has_many, is_named
from toolexec.run.large import walked
from toolexec.run.normalize import as_reply, reply_error, reply_value
from toolexec.run.resolve import Resolution, Resolver
from toolexec.run.types import Result

OutputValidation: TypeAlias = Literal["strict", "warn", "off"]
"""What happens to a value that does not fit the output schema: an error, a warning in the log, or nothing."""
_NO_ARGS: Final[JSONDict] = {}
_ANY: Final = Schema.of(True)
_NO_MAPPING: Final = Violation(
    path="", keyword="type", message="arguments must be a mapping of names to values", expected="object"
)


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

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether `run_in_thread` would make the call."""
        ...

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call as `Runner.run` does, or give None, with nothing done, when it needs the event loop.

        The caller stops waiting after *within* seconds; a call that must be stopped earlier needs the loop, too.
        """
        ...


def thread_runner(runner: Runner) -> ThreadRunner | None:
    """Return *runner* as one that makes calls in the caller's own thread, or None when it cannot."""
    return runner if provides(runner, ThreadRunner) else None


@checked("DefaultRunner")
class DefaultRunner:
    """The pipeline itself, without any layer.

    Arguments and results become plain JSON, as `to_json` has it, and share no nested dict or list with what they are
    made of: a handler cannot change its caller's data, nor a caller a handler's.

    Arguments are checked unless *validate_input* is false. *validate_output* decides what a breach of the output schema
    means: `strict` makes it the call's error (the value stays in the result), `warn` lists it in `Result.warnings`,
    `off` does not look; None means strict for local tools and warn for remote ones. Where nothing is checked, what has
    no JSON form is passed on as it is. *schema_of* gives the schema to check arguments by, where that is not the
    tool's own. The runner keeps no state of its own.
    """

    def __init__(
        self,
        index: Index | None,
        backends: BackendRegistry,
        *,
        resolver: Resolver | None = None,
        validate_input: bool = True,
        validate_output: OutputValidation | None = None,
        schema_of: Callable[[Tool], Schema] | None = None,
    ) -> None:
        self.index = index
        self._find = index.find if index is not None else _nothing
        self._backends = backends
        self._resolve = (resolver or Resolver(index, backends)).resolve
        self._validate_input = validate_input
        self._validate_output = validate_output
        self._schema_of = schema_of
        self._takes_anything = validate_output == "off"

    async def run(self, call: ToolCall) -> Result:
        """Make the call; see `Runner.run`."""
        started = perf_counter()
        attempt = call if type(call) is Attempt else self._attempt(call)
        entry = attempt.entry
        if (checked := self._check(entry.tool, attempt)) is not None:
            await checked
        if (effect := attempt.origin.on_effect) is not None and (kept := effect()) is not None:
            await kept
        try:
            raw = await self._backends.resolve(entry.binding).call(entry.target, attempt)
        except ExecutionError as error:
            located(error, tool_id=entry.tool.id, op="execute", backend=entry.binding.backend)
            return Result(entry.tool.id, None, error, perf_counter() - started, entry.binding)
        except LoginRequiredError as error:
            raise _with_login_link(
                located(error, tool_id=entry.tool.id, op="execute"), attempt.origin
            ) from error.__cause__
        except ToolExecError as error:
            located(error, tool_id=entry.tool.id, op="execute", backend=entry.binding.backend)
            raise
        except BaseException as error:
            failure = located(backend_failure(entry.tool.id, error), tool_id=entry.tool.id, op="execute")
            return Result(entry.tool.id, None, failure, perf_counter() - started, entry.binding)
        if type(raw) is dict and len(raw) <= MANY:
            value = raw.copy()  # before a look at it, as another thread may change it at any time
            if is_named(value) if self._takes_anything else (entry.tool.output_schema or _ANY).conforms_flat(value):
                return Result(entry.tool.id, value, None, perf_counter() - started, entry.binding)  # most calls
        elif self._takes_anything and type(raw) in FLAT:
            return Result(entry.tool.id, raw, None, perf_counter() - started, entry.binding)
        if _is_large(raw):
            return await walked(partial(self._finish, entry, raw, started))
        return self._finish(entry, raw, started)

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether the call is one of a local tool with a sync handler; see `ThreadRunner.runs_in_thread`."""
        if type(call) is Attempt:
            entry: Registered | None = call.entry
        else:
            known = call.resolution
            shared = known if isinstance(known, Resolution) and known.find == self._resolve else None
            entry = shared.entry if shared is not None and shared.entry is not None else self._find(call.tool_id)
            if shared is not None:
                shared.entry = entry
        if entry is None or entry.binding.kind != "local":
            return False
        try:
            backend = self._backends.resolve(entry.binding)
        except ToolExecError:
            return False  # the call on the loop raises it
        return isinstance(backend, LocalBackend) and backend.runs_here(entry.target)

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call of a local tool with a sync handler; see `ThreadRunner.run_in_thread`."""
        if not self.runs_in_thread(call, within):
            return None
        if (effect := call.origin.on_effect) is not None and (kept := effect()) is not None:
            wait(kept)
        return step_here(self.run(call), wait)

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `Runner.stream`."""
        started = perf_counter()
        attempt = call if type(call) is Attempt else self._attempt(call)
        entry = attempt.entry
        if (checked := self._check(entry.tool, attempt)) is not None:
            await checked
        backend = self._backend(entry)
        tool_id = entry.tool.id
        if not isinstance(backend, StreamingBackend):
            if not attempt.fallback:
                raise StreamNotSupportedError(
                    f"{tool_id} is hosted by {backend.name}, which does not stream; pass fallback=True for one event",
                    tool_id=tool_id,
                    op="stream",
                )
            yield last_event(await self.run(attempt))
            return
        if (effect := attempt.origin.on_effect) is not None and (kept := effect()) is not None:
            await kept
        events = backend.stream(entry.binding.tool, attempt)
        try:
            async for event in events:
                if event.kind == "done":
                    finish = partial(self._finish, entry, event.data, started)
                    yield last_event(await walked(finish) if _is_large(event.data) else finish(), event.tool_id)
                    return
                yield self._own_event(event, tool_id)
                if event.kind == "error":
                    return
            yield _error_event(ExecutionError(f"{tool_id} ended its stream without a result", tool_id=tool_id))
        except ExecutionError as error:
            yield _error_event(located(error, tool_id=tool_id, op="stream", backend=backend.name))
        except LoginRequiredError as error:
            raise _with_login_link(located(error, tool_id=tool_id, op="stream"), attempt.origin) from error.__cause__
        except ToolExecError as error:
            located(error, tool_id=tool_id, op="stream", backend=backend.name)
            raise
        except BaseException as error:
            yield _error_event(located(backend_failure(tool_id, error), tool_id=tool_id, op="stream"))
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    def _attempt(self, call: ToolCall) -> Attempt:
        """Return the attempt at a call that no gate has decided on; see `Runner.run` for what is raised."""
        return attempt_at(call, self._find(call.tool_id) or self._resolve(call.tool_id))

    def _check(self, tool: Tool, attempt: Attempt) -> Coroutine[Any, Any, None] | None:
        """Give the attempt arguments of its own that are plain JSON and fit the schema; flat ones stay as they are.
        What is returned for many values does so once it is awaited. Raises InputValidationError."""
        given = _NO_ARGS if attempt.args is None else attempt.args
        schema = tool.input_schema if self._schema_of is None else self._schema_of(tool)
        if type(given) is dict and len(given) <= MANY:
            if not self._validate_input:
                if is_named(given):
                    return None  # what is not JSON is passed on as it is
            elif schema.conforms_flat(given):
                attempt.is_json = True
                return None  # most calls
        if has_many(given):
            return self._check_later(tool, attempt, given, schema)
        self._check_all(tool, attempt, given, schema)
        return None

    async def _check_later(self, tool: Tool, attempt: Attempt, given: JSONObject, schema: Schema) -> None:
        attempt.waiting = "its arguments to be checked"
        try:
            await walked(partial(self._check_all, tool, attempt, given, schema))
        except Exception:
            attempt.waiting = ""
            raise
        attempt.waiting = ""  # not where it is cancelled: then the time limit says what it waited for

    def _check_all(self, tool: Tool, attempt: Attempt, given: JSONObject, schema: Schema) -> None:
        violations: Sequence[Violation] = ()
        if type(given) is dict or isinstance(given, Mapping):  # the first costs a tenth of the second
            try:
                args = own_args(given)
            except NotJSONError as error:
                violations = error.violations
                bounded_args(given, tool.id)  # whether arguments are validated or not
            else:
                if args is not given:
                    attempt.args = args
                attempt.is_json = True
                try:
                    if not self._validate_input or schema.conforms(args):
                        return
                    violations = schema.violations(args)
                    fewer = without_nulls(args, schema, violations)
                    if fewer is not args:
                        attempt.args = args = fewer
                        violations = schema.violations(args)
                except InvalidSchemaError:
                    tool.check_schemas()  # the same error, which names the tool and the schema
                    raise
        else:
            violations = (_NO_MAPPING,)
        if violations and self._validate_input:
            raise InputValidationError(violations, tool_id=tool.id, op="validate_input")

    def _own_event(self, event: StreamEvent, tool_id: str) -> StreamEvent:
        """Return a `progress`, `chunk` or `error` event with data of its own that is plain JSON; raises
        InvalidResultError."""
        try:
            data = to_json(event.data)
        except NotJSONError as error:
            if event.kind == "error":
                data = to_json_lossy(event.data)
            elif not self._takes_anything:
                raise result_not_json(tool_id, error, f"streamed a {event.kind}") from None
            else:
                data = event.data
        if data is event.data and event.tool_id:
            return event
        return StreamEvent(kind=event.kind, data=data, tool_id=event.tool_id or tool_id, error=event.error)

    def _backend(self, entry: Registered) -> Backend:
        try:
            return self._backends.resolve(entry.binding)
        except ToolExecError as error:
            error.locate(tool_id=entry.tool.id, op="execute")
            raise

    def _finish(self, entry: Registered, raw: Any, started: float) -> Result:
        """Normalise and check an answer."""
        tool = entry.tool
        schema = tool.output_schema
        reply = None
        value = raw
        if type(raw) not in _PLAIN and (reply := as_reply(raw)) is not None:
            reply = _own_reply(reply)
            if reply.is_error:
                error = reply_error(tool.id, reply)
                error.backend = entry.binding.backend
                return Result(tool.id, None, error, perf_counter() - started, entry.binding, reply)
            value = reply_value(reply)
        try:
            value = to_json(value)
        except NotJSONError as error:
            if not self._takes_anything:
                failure = result_not_json(tool.id, error).locate(tool_id=tool.id)
                return Result(tool.id, None, failure, perf_counter() - started, entry.binding, reply)
        result = Result(tool.id, value, None, perf_counter() - started, entry.binding, reply)
        if schema is not None and not self._takes_anything:
            self._check_output(entry, schema, result)
        return result

    def _check_output(self, entry: Registered, schema: Schema, result: Result) -> None:
        try:
            if schema.conforms(result.value):
                return
            violations = schema.violations(result.value)
        except InvalidSchemaError as error:
            violations = (Violation(path="", keyword="$schema", message=f"the output schema is unusable: {error}"),)
        if (self._validate_output or ("strict" if entry.binding.kind == "local" else "warn")) == "warn":
            result.warnings = violations
        else:
            result.error = OutputValidationError(
                violations, tool_id=entry.tool.id, op="validate_output", value=result.value
            )


_PLAIN: Final = FLAT | {dict, list}
_LONG: Final = 1 << 16


def _is_large(raw: object) -> bool:
    """Return whether an answer is so large that the event loop should not wait until it is read and checked."""
    if not isinstance(raw, ToolReply):
        return has_many(raw)
    strings = [part.get("text") for part in raw.content]
    return has_many(raw.structured) or any(isinstance(text, str) and len(text) > _LONG for text in strings)


def _nothing(tool_id: str) -> None:
    """Stand in for the index of a runner without one."""


def _with_login_link(error: LoginRequiredError, origin: Origin) -> LoginRequiredError:
    """Return *error* with the link at which its caller logs in, where *origin* has one and each caller has a login;
    else itself."""
    details = error.details
    if origin.login_link is None or not details.get("caller") or details.get("flow") != "code":
        return error
    scopes = details.get("scopes") or ()
    link = origin.login_link(error.backend or "", tuple(str(each) for each in scopes))
    return error.at(link) if link else error


def _own_reply(reply: ToolReply) -> ToolReply:
    """The reply as plain JSON of its own, but for the structured value, which becomes the result's; text in place of
    what has no JSON form."""
    content = [to_json_lossy(part) for part in reply.content]
    meta = to_json_lossy(reply.meta) if reply.meta else reply.meta
    return replace(reply, content=content, meta=meta)


def last_event(result: Result, tool_id: str = "") -> StreamEvent:
    """Return the last event of a stream; a `done` that came with a tool's ID keeps it."""
    if result.error is not None:
        return _error_event(result.error)
    return StreamEvent(kind="done", data=result.value, tool_id=tool_id or result.tool_id, cached=result.cached)


def _error_event(error: ToolExecError) -> StreamEvent:
    return StreamEvent(kind="error", data=error.to_dict(), tool_id=error.tool_id or "", error=error)
