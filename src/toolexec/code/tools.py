"""What code may do with tools: every path from code to a tool goes through here."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from toolexec.backend.here import Wait
from toolexec.code.deliveries import Deliveries
from toolexec.code.fitting import fitted
from toolexec.code.gateway import checkpoint
from toolexec.code.handles import Handle, Handles
from toolexec.code.limits import DEFAULT_RESULT_BYTES, AllowList, CallCount, Limits
from toolexec.code.types import CodeEvent, Output, ToolCallRecord, snapshot
from toolexec.code.wrapped_arguments import WRAPPING, unwrapped
from toolexec.discovery.docs import DetailLevel, DocStore, ToolDoc
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.index import Index
from toolexec.discovery.preparing import off_loop_if_many, prepared
from toolexec.discovery.summary import Filters, Summary
from toolexec.discovery.view import browsable
from toolexec.errors import (
    ConnectionClosedError,
    InputValidationError,
    InvalidResultError,
    ToolExecError,
    ToolNotFoundError,
)
from toolexec.model.arguments import RefusedArgs, bounded
from toolexec.model.bound import Bound
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.model.origin import HERE, Origin
from toolexec.run.large import Budget, encode_large, is_small, off_loop
from toolexec.run.runner import Runner, thread_runner
from toolexec.run.steps import ChainResult, Step, execute_chain, unknown_step
from toolexec.run.types import Result, StepResult

logger: logging.Logger = logging.getLogger(__name__)
_MAX_RECORDS = 10_000
_MAX_NOTES = 20
_SCALARS = frozenset({int, float, bool, type(None)})
MAX_TRACE_BYTES = 64 << 20


class AdmittedCall:
    """A tool call that was counted and allowed, on its way to the runner."""

    __slots__ = ("call", "op", "record", "started", "text")

    def __init__(self, call: ToolCall, record: ToolCallRecord, started: float, op: str) -> None:
        self.call: ToolCall = call
        self.op: str = op
        self.record: ToolCallRecord = record
        self.started: float = started
        self.text: str = "null"
        """The value as JSON, once the call is over."""


ACTIVE: ContextVar[Tools | None] = ContextVar("toolexec_tools", default=None)
"""Holds the tools of the run that makes the current call. A tool that is itself a run can so be a part of that one."""


class Tools:
    """The tools as one run of code sees them: counted, limited to those that it may use, and traced.

    *limits* holds the caps on calls and on the steps of one chain (0: none). *allowed* are tool IDs or patterns such as
    `github:*`; none means all tools. *output* takes what `println` writes. *tell* receives each call's start and end,
    in the thread that makes it. *origin* is where all calls come from. *within* are the tools of the run that this one
    is a part of, whose cap counts the calls of both. With *undoes* a run that fails is undone, with *is_dry* tools that
    change something are only tried; both hold for the parts of a run, too. *deliveries* decides in which groups answers
    reach code that must be repeatable.

    This is the gateway (see `Gateway`) for code in this process; a call that is cancelled before it begins raises
    CancelledError and is not counted. Safe to use from several threads and tasks at once: the caps hold for all of them
    together.
    """

    def __init__(
        self,
        index: Index,
        docs: DocStore,
        runner: Runner,
        *,
        limits: Limits | None = None,
        allowed: Collection[str] | None = None,
        output: Output | None = None,
        tell: Callable[[CodeEvent], None] | None = None,
        result_bytes: int = DEFAULT_RESULT_BYTES,
        origin: Origin = HERE,
        within: Tools | None = None,
        undoes: bool = False,
        is_dry: bool = False,
        deliveries: Deliveries | None = None,
    ) -> None:
        self.origin = origin
        self.undoes = undoes
        self.is_dry = is_dry
        self.deliveries: Deliveries | None = deliveries
        self._within = within
        self.index = index
        self.limits: Limits = limits or Limits()
        self.output: Output = output or Output()
        self.result_bytes = result_bytes
        self._handles: Handles | None = None
        if result_bytes < 1:
            Handles(result_bytes)  # raises, and says why
        self._docs = docs
        self._runner = runner
        self._in_thread = thread_runner(runner)
        self._allowed = AllowList(index, allowed)
        self._tell = tell
        self._records: list[ToolCallRecord] = []
        self.unrecorded: int = 0
        """How many calls `tool_calls` leaves out."""
        self.notes: list[str] = []
        """What was understood in another way than it was written; see `note`."""
        self._count = self._new_count()
        self._room = [MAX_TRACE_BYTES]  # how much more the trace may hold, roughly
        self._lock = threading.Lock()
        self._began = perf_counter()
        self._closed = False

    # -- discovery ----------------------------------------------------------------------------------------------

    async def search_tools(self, query: str, limit: int = 10) -> list[Summary]:
        """Return the best tools for *query* among those that the code may call."""
        await checkpoint()
        await prepared(self.index)
        search = partial(self._search, query, limit)
        if self._allowed:  # it may look at all tools
            return await off_loop_if_many(self.index, search)
        return await asyncio.to_thread(search) if getattr(self.index, "search_blocks", False) else search()

    def _search(self, query: str, limit: int) -> list[Summary]:
        if not self._allowed or limit < 1:
            return self.index.search(query, limit)
        found: list[Summary] = []
        wanted = limit
        size = len(self.index)
        while True:  # a list of allowed tools is short beside a catalogue, so ask for more until enough are left
            wanted = min(wanted * 8, size)
            found = [summary for summary in self.index.search(query, wanted) if self.allows(summary.id)]
            if len(found) >= limit or wanted >= size:
                return found[:limit]

    async def list_namespaces(self) -> list[str]:
        """Return the namespaces of the tools that the code may call, in alphabetical order."""
        await checkpoint()
        return await off_loop_if_many(self.index, self._namespaces)

    def _namespaces(self) -> list[str]:
        if not self._allowed:
            return browsable(self.index).namespaces()
        return sorted({entry.tool.namespace for entry in self.index.tools() if self.allows(entry.tool.id)})

    async def list_tools(self, namespace: str) -> list[Summary]:
        """Return the tools of one namespace that the code may call, by ID."""
        found = self.index.search("", max(len(self.index), 1), filters=Filters(namespace=namespace))
        return [summary for summary in found if self.allows(summary.id)]

    async def describe_tool(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return a tool's documentation; raises as `DocStore.describe` does, and ToolNotAllowedError."""
        await checkpoint()
        self._allowed.check(tool_id, "describe")
        try:
            return self._docs.describe(tool_id, level).public()
        except ToolNotFoundError as error:
            raise self._allowed.without_hints(error) from None

    async def list_tool_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """Return a tool's examples; raises as `DocStore.list_examples` does, and ToolNotAllowedError."""
        await checkpoint()
        self._allowed.check(tool_id, "describe")
        try:
            return self._docs.list_examples(tool_id, limit)
        except ToolNotFoundError as error:
            raise self._allowed.without_hints(error) from None

    @property
    def is_durable(self) -> bool:
        """Whether the run may go on in another process."""
        return self.deliveries is not None and self.deliveries.is_durable

    def allows(self, tool_id: str) -> bool:
        """Return whether the code may call this tool."""
        return self._allowed.accepts(tool_id)

    # -- calls --------------------------------------------------------------------------------------------------

    async def run_tool(
        self,
        tool_id: str,
        args: JSONObject | None = None,
        *,
        timeout: float | None = None,
        at: tuple[int, int] | None = None,
        step: str = "",
    ) -> Result:
        """Run one tool; raises as `Runner.run` does, and ToolCallLimitError or ToolNotAllowedError, with nothing run.

        Whatever comes of it is in `tool_calls`, with *at*, except for a call over the cap. *step* names the call within
        the run; see `ToolCall`.
        """
        await checkpoint()
        self._check_open()
        self._count.reserve()
        call = ToolCall(tool_id, args, timeout, origin=self.origin, step=step, at=at)
        return await self.finish(self._admit(call, "run", at))

    def admit(
        self, tool_id: str, args: JSONObject | None = None, timeout: float | None = None, *, step: str = ""
    ) -> AdmittedCall:
        """Count a call and check that it is allowed; `run_here` or `finish` makes it. Raises as `run_tool` does."""
        self._check_open()
        self._count.reserve()
        return self._admit(ToolCall(tool_id, args, timeout, origin=self.origin, step=step), "run")

    async def finish(self, admitted: AdmittedCall) -> Result:
        """Make an admitted call, on the event loop."""
        with Bound(ACTIVE, self):
            try:
                try:
                    result = await self._runner.run(admitted.call)
                except InputValidationError as error:
                    if not self._fit(admitted, error):
                        raise
                    result = await self._runner.run(admitted.call)
                if result.error is None and (budget := self._budget_for(result.value)) is not None:
                    return await off_loop(lambda budget: self._end(admitted, result, budget), budget)
                return self._end(admitted, result)
            except BaseException as error:
                raise self._fail(admitted, error)  # noqa: B904 - it is the same error, or has fewer hints

    def runs_here(self, admitted: AdmittedCall, within: float) -> bool:
        """Return whether `run_here` would make an admitted call."""
        return self._in_thread is not None and self._in_thread.runs_in_thread(admitted.call, within)

    def run_here(self, admitted: AdmittedCall, wait: Wait, within: float) -> Result | None:
        """Make an admitted call in this very thread, or give None, with nothing done, when only `finish` can; see
        `ThreadRunner.run_in_thread`."""
        if self._in_thread is None:
            return None
        try:
            try:
                result = self._in_thread.run_in_thread(admitted.call, wait, within)
            except InputValidationError as error:
                if not self._fit(admitted, error):
                    raise
                result = self._in_thread.run_in_thread(admitted.call, wait, within)
            return self._end(admitted, result, self._budget_for(result.value)) if result is not None else None
        except BaseException as error:
            raise self._fail(admitted, error)  # noqa: B904 - it is the same error, or has fewer hints

    async def run_chain(self, steps: Sequence[Step], *, step: str = "") -> tuple[Result | None, list[StepResult]]:
        """Run a chain as `Exec.run_chain` does; each attempt counts as a call, steps not run are given back. They are
        the steps *step*.0, *step*.1 and so on of the run. Steps after the failure that stopped it are left out.

        Raises ChainStepLimitError, ToolCallLimitError or ToolNotAllowedError before the first step is run.
        """
        await checkpoint()
        if not steps:
            return None, []
        self._check_open()
        count = self._count  # `reset` begins another one, which this chain must not give back to
        count.reserve_chain(len(steps))
        begun = 0

        async def run(call: ToolCall) -> Result:
            nonlocal begun
            if "." in call.step:
                count.reserve()  # one more attempt; the steps are counted already
            else:
                begun += 1  # a step that is cancelled counts: it may have done its work
            call.origin, call.step = self.origin, f"{step}.{call.step}" if step else ""
            return await self.finish(self._admit(call, "chain"))

        try:
            for each in steps:
                if not self.allows(each.tool_id):
                    self._admit(ToolCall(each.tool_id, each.args), "chain")
            unknown = unknown_step(self.index, steps, self.index)
            if unknown is not None and isinstance(unknown[1], ToolNotFoundError):
                unknown = unknown[0], self._allowed.without_hints(unknown[1])
            outcome = ChainResult()
            await execute_chain(_StepRunner(run), self.index, steps, outcome, unknown=unknown)
        finally:
            count.give_back(len(steps) - begun)
        done = [each for each in outcome.steps if not each.skipped]
        if outcome.error is not None:
            return None, done
        last = done[-1]
        return last.result if last.ok and last.result is not None else Result(last.tool_id, last.value), done

    def println(self, *values: object) -> None:
        """Print values as `print` does: their `str`, one space between them, a line break at the end."""
        self.output.write(" ".join(map(str, values)) + "\n")

    def tool_calls(self) -> list[ToolCallRecord]:
        """Return the calls made so far in the order of their start; the first 10,000 of them.

        Together they hold 64 MiB of arguments and values; what did not fit is None, and `cut` says so.
        """
        with self._lock:
            return list(self._records)

    def replayed(self, runner: Runner) -> Tools:
        """Return tools that are as these are, and take *runner* for theirs; for a program that is run once more."""
        other = Tools(self.index, self._docs, runner, limits=self.limits, result_bytes=self.result_bytes)
        other._allowed = self._allowed
        return other

    @property
    def calls_made(self) -> int:
        """How many calls were counted."""
        return self._count.made

    def reset(self) -> None:
        """Forget the calls made so far: count and trace start again. Calls under way belong to the old count."""
        with self._lock:
            self._count = self._new_count()
            self._records = []
            self.unrecorded = 0
            self._room = [MAX_TRACE_BYTES]
            self._began = perf_counter()

    def count_earlier(self, calls: int) -> None:
        """Count calls that an earlier stretch of the run has made. Raises ToolCallLimitError."""
        self._count.reserve(calls)

    def _new_count(self) -> CallCount:
        return CallCount(self.limits, self._within._count if self._within else None)  # noqa: SLF001 - its own class

    def is_closed(self) -> bool:
        """Return whether the run is over."""
        return self._closed

    def close(self) -> None:
        """Refuse every call from now on: the run is over. Calls that are under way count as stopped, whatever comes of
        them later."""
        self._closed = True
        with self._lock:
            left = [record for record in self._records if record.is_open]
        for record in left:
            record.is_open = False
            text = f"{record.tool_id} was stopped: the run ended before the call did"
            record.error = ToolExecError(text, tool_id=record.tool_id)
            record.error_op = record.error_op or "run"
            record.duration = perf_counter() - self._began - record.started

    # -- large results ------------------------------------------------------------------------------------------

    @property
    def handles(self) -> Handles:
        """The results that stay on the host; made at the first use, as most runs have none."""
        with self._lock:
            if self._handles is None:
                self._handles = Handles(self.result_bytes)
            return self._handles

    @handles.setter
    def handles(self, handles: Handles) -> None:
        """Use those of an earlier run of the same session."""
        self._handles = handles

    def keep(self, value: JSONValue, text: str) -> Handle | None:
        """Return a handle for *value*, whose JSON is *text*; None when it fits. Raises as `Handles.keep`."""
        return self.handles.keep(value, text) if len(text) > self.result_bytes else None

    def resolve(self, value: JSONValue) -> JSONValue:
        """Return *value* with what the handles in it stand for. Raises as `Handles.resolve`."""
        return self._handles.resolve(value) if self._handles is not None and len(self._handles) else value

    # -- one call -----------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosedError("the run is over; its code cannot call tools any more")

    def _admit(self, call: ToolCall, op: str, at: tuple[int, int] | None = None) -> AdmittedCall:
        """Start the record of a call that is counted already."""
        started = perf_counter()
        if call.args:
            call.args = bounded(call.args, call.tool_id)
            if type(call.args) is not RefusedArgs and len(call.args) == 1 and not WRAPPING.isdisjoint(call.args):
                entry = self.index.find(call.tool_id)
                call.args = unwrapped(call.args, entry.tool) if entry is not None else call.args
        args, cut = snapshot(None if type(call.args) is RefusedArgs else call.args, self._room)
        record = ToolCallRecord(call.tool_id, args, started=started - self._began, at=at)
        record.cut = cut
        record.is_open = True
        with self._lock:
            if len(self._records) < _MAX_RECORDS:
                self._records.append(record)
            else:
                self.unrecorded += 1
        admitted = AdmittedCall(call, record, started, op)
        if self._tell is not None:
            self._say("call_start", record)
        try:
            if self._allowed:
                self._allowed.check(call.tool_id, op)
            if self._handles is not None and len(self._handles) and call.args and type(call.args) is not RefusedArgs:
                admitted.call = replace(call, args=bounded(self._handles.resolve(call.args), call.tool_id))
        except ToolExecError as error:
            raise self._fail(admitted, error)  # noqa: B904 - it is the same error
        return admitted

    def note(self, text: str) -> None:
        """Say once, in the notes of the run's result, what was understood in another way than it was written."""
        if text not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(text)

    def _fit(self, admitted: AdmittedCall, error: InputValidationError) -> bool:
        """Give a refused call the arguments that are certainly meant; says whether there are any. Steps of runs that
        are durable stay as they are: their journals have them."""
        call = admitted.call
        entry = self.index.find(call.tool_id)
        if self.is_durable or not call.args or entry is None or error.tool_id != entry.tool.id:
            return False
        if type(call.args) is RefusedArgs or entry.tool.input_schema.accepts(call.args):  # a tool within refused them
            return False
        found = fitted(call.args, entry.tool)
        if found is None:
            return False
        admitted.call = replace(call, args=found[0])
        admitted.record.args, admitted.record.cut = snapshot(found[0], self._room)
        for text in found[1]:
            self.note(text)
        return True

    def _budget_for(self, value: object) -> Budget | None:
        """Return what encoding a large value may take; None for a small one."""
        return None if type(value) in _SCALARS or is_small(value) else Budget(is_over=self.is_closed)

    def _end(self, admitted: AdmittedCall, result: Result, budget: Budget | None = None) -> Result:
        """Complete the record of a call. With a *budget* the value is large, and this is not the event loop."""
        record = admitted.record
        if not record.is_open:
            return result
        record.is_open = False
        if result.error is None or result.value is not None:
            try:
                value = result.value
                admitted.text = text = _encode(value) if budget is None else encode_large(value, budget)
            except (TypeError, ValueError, RecursionError) as error:
                result.error = InvalidResultError(f"{result.tool_id} returned something that is not JSON: {error}")
                result.value = None
            else:
                self._room[0] -= len(text)
                if self._room[0] >= 0:
                    record.settle(text)
                else:
                    self._room[0] += len(text)
                    record.cut = True
        record.tool_id = result.tool_id
        record.duration = perf_counter() - admitted.started
        if result.binding is not None:
            record.backend_kind = result.binding.kind
        if result.error is not None:
            record.error = result.error
            record.error_op = admitted.op
        if self._tell is not None:
            self._say("call_end", record)
        return result

    def _fail(self, admitted: AdmittedCall, error: BaseException) -> BaseException:
        """Record that a call has failed; gives the error that the code gets to see."""
        record = admitted.record
        if isinstance(error, ToolNotFoundError):
            error = self._allowed.without_hints(error)
        if not record.is_open:
            return error
        record.is_open = False
        if isinstance(error, ToolExecError):
            record.error = error
        else:
            record.error = ToolExecError(
                f"{record.tool_id} was stopped: {type(error).__name__}", tool_id=record.tool_id
            )
        record.error_op = admitted.op
        record.duration = perf_counter() - admitted.started
        found = self.index.find(record.tool_id)
        record.backend_kind = found.binding.kind if found is not None else ""
        if self._tell is not None:
            self._say("call_end", record)
        return error

    def _say(self, kind: Any, record: ToolCallRecord) -> None:
        if self._tell is not None:
            try:
                self._tell(CodeEvent(kind=kind, call=record))
            except Exception:
                logger.exception("a callback for events of code failed")


_encode = json.JSONEncoder(allow_nan=False).encode


class _StepRunner:
    """What a chain takes for a runner."""

    def __init__(self, run: Callable[[ToolCall], Awaitable[Result]]) -> None:
        self._run = run

    async def run(self, call: ToolCall) -> Result:
        return await self._run(call)

    def stream(self, call: ToolCall) -> Any:
        raise NotImplementedError("a chain does not stream its steps")
