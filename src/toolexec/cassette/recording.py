"""Write each call that is made into a cassette, below all rules and around its time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from time import perf_counter
from typing import Final

from toolexec.backend.attempt import Attempt
from toolexec.backend.offering import is_offer_id
from toolexec.cassette.cassette import Cassette
from toolexec.cassette.matching import call_key, kept_args
from toolexec.cassette.records import CassetteCall
from toolexec.discovery.index import Registered
from toolexec.errors import (
    CassetteDriftError,
    CassetteError,
    ConfigurationError,
    ExecutionError,
    InputValidationError,
    InvalidLimitsError,
    InvalidSchemaError,
    InvalidToolIDError,
    NoBackendsError,
    StreamNotSupportedError,
    ToolExecError,
    ToolNotFoundError,
)
from toolexec.model.bound import Bound
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONObject, JSONValue, NotJSONError
from toolexec.model.tool import Tool
from toolexec.run.layer import Layer, last_result
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result

_NOT_CALLED: Final = (
    CassetteError,
    ConfigurationError,
    InputValidationError,
    InvalidLimitsError,
    InvalidSchemaError,
    InvalidToolIDError,
    NoBackendsError,
    StreamNotSupportedError,
    ToolNotFoundError,
)
"""Refusals that need no backend: a replay, which has the same tools, refuses the same."""

_RECORDS: ContextVar[tuple[Cassette, ...]] = ContextVar("toolexec_cassettes", default=())
"""The cassettes that record the call which the present work is done for."""


class Recording(Layer):
    """Records the calls of *inner*. With *replaying*, those that the cassette has are made by that instead.

    Tools that *runs_here* says so for are not recorded, but make the calls that are. What a recorded tool calls is a
    part of its own call, and not recorded: no replay would call it. *own* gives the definition of a tool that is shown
    in another form.
    """

    in_thread = False  # calls are recorded in the order of the event loop

    def __init__(
        self,
        inner: Runner,
        cassette: Cassette,
        find: Find,
        *,
        replaying: Runner | None,
        runs_here: Callable[[str], bool],
        own: Callable[[Tool], Tool],
    ) -> None:
        super().__init__(inner)
        self._cassette = cassette
        self._find = find
        self._replaying = replaying
        self._runs_here = runs_here
        self._own = own
        self._held: set[Hashable] = set()

    # -- what is answered, for rules that keep outcomes ---------------------------------------------------------

    def identity(self, call: ToolCall) -> Hashable | None:
        """Implement `AnswersSome.identity`."""
        tool = self._replayable(call)
        if tool is None:
            return None
        caller = call.origin.caller
        try:
            what = call.idempotency_key or call_key(tool.id, kept_args(tool, call.args, self._cassette.redact))
        except (NotJSONError, InvalidSchemaError):
            return None
        return tool.id, caller.realm, caller.id, what

    def is_left(self, call: ToolCall) -> bool:
        """Implement `AnswersSome.is_left`."""
        tool = self._replayable(call)
        if tool is None or (call.run_id, tool.id) in self._held:
            return tool is not None
        try:
            return self._cassette.is_left(tool, call.args)
        except (NotJSONError, InvalidSchemaError, CassetteDriftError):
            return False

    @contextmanager
    def held(self, call: ToolCall) -> Generator[bool, None, None]:
        """Implement `AnswersSome.held`."""
        tool = self._replayable(call)
        if tool is None or not self.is_left(call):
            yield False
            return
        key = call.run_id, tool.id
        if key in self._held:  # for a rule further out
            yield True
            return
        self._cassette.reserve(tool, call.args)
        self._held.add(key)
        try:
            yield True
        finally:
            if key in self._held:  # it came to no attempt
                self._held.discard(key)
                self._cassette.unreserve(tool, call.args)

    def _replayable(self, call: ToolCall) -> Tool | None:
        """Return the tool of a call that the cassette answers or records; None where all is made in any case."""
        entry = self._entry(call) if self._replaying is not None else None
        return self._own(entry.tool) if entry is not None and self._is_kept(entry) else None

    def _is_kept(self, entry: Registered) -> bool:
        if entry.binding.kind == "local" and self._runs_here(entry.binding.tool):
            return False
        return not is_offer_id(entry.tool.id) and self._cassette not in _RECORDS.get()  # a cassette has tools

    # -- calls --------------------------------------------------------------------------------------------------

    async def run(self, call: ToolCall) -> Result:
        """Make the call and record it, or replay it; see `Runner.run`."""
        runner, kept, tool = self._begin(call)
        if kept is None or tool is None:
            return await runner.run(call)
        started = perf_counter()
        try:
            with self._recording():
                result = await runner.run(call)
        except BaseException as error:
            self._failed(kept, error, perf_counter() - started)
            raise
        kept.end(result, None, self._cassette.redact, _output(tool))
        return result

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece and record it, or replay it; see `Runner.stream`."""
        runner, kept, tool = self._begin(call)
        started = perf_counter()
        chunks: list[JSONValue] = []
        result: Result | None = None
        events = runner.stream(call)
        try:
            while True:
                with self._recording() if kept is not None else nullcontext():
                    event = await anext(events, None)
                if event is None:
                    return
                if event.kind == "chunk":
                    chunks.append(event.data)
                elif event.kind in ("done", "error"):
                    result = last_result(event, call)
                    result.duration = perf_counter() - started
                    if kept is not None and tool is not None:  # the caller may not ask for another event
                        pieces = chunks if chunks or not call.fallback else None
                        kept.end(result, pieces, self._cassette.redact, _output(tool))
                yield event
        except BaseException as error:
            if kept is not None and tool is not None and result is None:
                kept.keep(chunks or None, self._cassette.redact, _output(tool))
                self._failed(kept, error, perf_counter() - started)
            raise
        finally:
            await events.aclose()

    def _begin(self, call: ToolCall) -> tuple[Runner, CassetteCall | None, Tool | None]:
        """Return what makes the call, and where it is recorded, if it is."""
        entry = self._entry(call)
        if entry is None or not self._is_kept(entry):
            return self.inner, None, None
        tool = self._own(entry.tool)
        if self._replaying is not None and (call.run_id, tool.id) in self._held:
            self._held.discard((call.run_id, tool.id))
            return self._replaying, None, None
        try:
            if self._replaying is not None and self._cassette.reserve(tool, call.args):
                return self._replaying, None, None
            return self.inner, self._cassette.begin(entry, tool, call.args), tool
        except (NotJSONError, InvalidSchemaError):
            return self.inner, None, None  # the runner refuses it, with the reason

    @contextmanager
    def _recording(self) -> Generator[None, None, None]:
        """Do work for a recorded call. It is left at each event of a stream, as what follows is the caller's."""
        with Bound(_RECORDS, (*_RECORDS.get(), self._cassette)):
            yield

    def _entry(self, call: ToolCall) -> Registered | None:
        if type(call) is Attempt:
            return call.entry
        try:
            return resolved(call, self._find)
        except ToolExecError:
            return None  # the runner raises it again

    def _failed(self, kept: CassetteCall, error: BaseException, seconds: float) -> None:
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            given_up = ExecutionError(
                f"the caller gave up this call of {kept.tool} before it ended", tool_id=kept.tool, op="execute"
            )
            kept.fail(given_up, self._cassette.redact, seconds)
        elif isinstance(error, ToolExecError) and not isinstance(error, _NOT_CALLED):
            kept.fail(error, self._cassette.redact, seconds)
        else:
            self._cassette.leave_out(kept)


def _output(tool: Tool) -> JSONObject | None:
    schema = tool.output_schema.to_json() if tool.output_schema is not None else None
    return schema if isinstance(schema, Mapping) else None
