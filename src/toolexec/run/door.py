"""The one door to the backends: what passes it was decided on, and each attempt is recorded once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from functools import partial
from types import CoroutineType
from typing import Any, Protocol, runtime_checkable

from toolexec.backend.attempt import Attempt, attempt_at
from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.errors import InputValidationError, ToolExecError
from toolexec.model.arguments import RefusedArgs, own_parts, own_parts_at_once
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.tree_size import has_many
from toolexec.run.large import walked
from toolexec.run.layer import CallEnd, Layer, ObserverLayer
from toolexec.run.resolve import Find, Resolution, Trail, resolved, still_bound, trail_of
from toolexec.run.runner import Runner, thread_runner
from toolexec.run.still import StillAllowed
from toolexec.run.types import Result


@runtime_checkable
class RecordsAttempts(Protocol):
    """A part of a gate that records every attempt, not only the first one at a call."""

    def begin_attempt(self, call: ToolCall, entry: Registered | None, number: int, after: str) -> CallEnd:
        """Record that attempt *number* at *call* begins, after one that ended as *after* says; what is returned is
        called once, at its end. Raises AuditError: then it is not made."""
        ...


# The next two have plain functions, which do not cost each call a coroutine.


class OwnArguments(Layer):
    """Stands outside of all rules: what looks at a call before it is made looks at arguments that are its own, and that
    are not too much to be walked; see `RefusedArgs`. Many values are copied off the event loop."""

    def stand_around(self, inner: Runner) -> None:
        """Pass the calls to *inner* from the next one on."""
        self.inner_in_thread = thread_runner(inner)
        self.inner = inner

    def run(self, call: ToolCall) -> CoroutineType[Any, Any, Result]:
        """Make the call; see `Runner.run`."""
        if call.args:
            args = own_parts_at_once(call.args, call.tool_id)
            if args is None:
                return self._run_large(call)
            call.args = args
        return self.inner.run(call)

    async def _run_large(self, call: ToolCall) -> Result:
        call.args = await walked(partial(own_parts, call.args or {}, call.tool_id))
        return await self.inner.run(call)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `Runner.stream`."""
        if call.args:
            args = own_parts_at_once(call.args, call.tool_id)
            if args is None:
                return self._stream_large(call)
            call.args = args
        return self.inner.stream(call)

    async def _stream_large(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        call.args = await walked(partial(own_parts, call.args or {}, call.tool_id))
        async with aclosing(self.inner.stream(call)) as events:
            async for event in events:
                yield event

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread; see `ThreadRunner.run_in_thread`."""
        if call.args:
            call.args = own_parts(call.args, call.tool_id)
        return self.inner_in_thread.run_in_thread(call, wait, within) if self.inner_in_thread is not None else None


class RefusesExcess(Layer):
    """Stands between the rules that record a call and those that decide on it: none of these walks the arguments."""

    def run(self, call: ToolCall) -> CoroutineType[Any, Any, Result]:
        """Make the call; see `Runner.run`. Raises InputValidationError for RefusedArgs."""
        if type(call.args) is RefusedArgs:
            raise call.args.error
        return self.inner.run(call)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `Runner.stream`. Its first step raises as `run` does."""
        return _raising(call.args.error) if type(call.args) is RefusedArgs else self.inner.stream(call)

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread; see `ThreadRunner.run_in_thread`. Raises as `run` does."""
        if type(call.args) is RefusedArgs:
            raise call.args.error
        return self.inner_in_thread.run_in_thread(call, wait, within) if self.inner_in_thread is not None else None


class Admitting(Layer):
    """Stands behind the rules that decide: what comes here, they have all let pass.

    With *keeps* it keeps a copy of the arguments: layers of the user stand between here and the door, and may change
    them in place. *still* raises where the rules have changed since they decided, and forbid the call now.
    """

    def __init__(self, inner: Runner, find: Find, *, keeps: bool = False, still: StillAllowed | None = None) -> None:
        super().__init__(inner)
        self._find = find
        self._keeps = keeps
        self._still = still

    def before(self, call: ToolCall) -> Coroutine[Any, Any, None] | None:
        """Admit the call, with this tool, this binding and these arguments; many are copied off the event loop."""
        if self._keeps and has_many(call.args):
            return walked(partial(self._admit, call))
        self._admit(call)
        return None

    def _admit(self, call: ToolCall) -> None:
        entry = resolved(call, self._find)
        if self._still is not None:
            self._still(entry, call)
        if (used := call.origin.used_tools) is not None:
            used.add(entry.tool.id)
        known = call.resolution
        if not isinstance(known, Resolution) or known.find != self._find:
            call.resolution = known = Resolution(self._find, entry)
        known.admit(call, entry, own_parts(call.args, call.tool_id) if self._keeps and call.args else None)


class Door(Layer):
    """Makes admitted calls, each as an Attempt; what was not decided on goes through the rules first.

    That is the case where a layer of the user has changed the call after the rules, and where the tool has changed
    between two attempts. With *keeps* the arguments are compared with the copy that `Admitting` kept. Attempts after
    the first one at a call are recorded here; the first is recorded as the call itself.
    """

    undecided: Runner
    """The rules that decide, with this door behind them."""

    def __init__(self, inner: Runner, find: Find, records: RecordsAttempts | None, *, keeps: bool = False) -> None:
        super().__init__(inner)
        self._find = find
        self._records = records
        self._keeps = keeps

    def run(self, call: ToolCall) -> CoroutineType[Any, Any, Result]:
        """Make the call; see `Runner.run`."""
        if self._keeps and has_many(call.args):
            return self._run_large(call)
        return self._run_attempt(call, self._attempt(call))

    async def _run_large(self, call: ToolCall) -> Result:
        """Compare many values with the copy of them off the event loop."""
        return await self._run_attempt(call, await walked(partial(self._attempt, call)))

    def _run_attempt(self, call: ToolCall, attempt: Attempt | None) -> CoroutineType[Any, Any, Result]:
        if attempt is None:
            return self.undecided.run(self._unknown(call))
        if self._records is None:
            return self.inner.run(attempt)
        return self._run_recorded(attempt, self._records)

    async def _run_recorded(self, attempt: Attempt, records: RecordsAttempts) -> Result:
        trail = trail_of(attempt)
        end = self._begin(attempt, trail, records)
        try:
            result = await self.inner.run(attempt)
        except BaseException as error:
            trail.last = ending_of(None, error)
            end(None, error)
            raise
        trail.last = ending_of(result, None)
        end(result, None)
        return result

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `Runner.stream`."""
        is_large = self._keeps and has_many(call.args)
        attempt = await walked(partial(self._attempt, call)) if is_large else self._attempt(call)
        if attempt is None:
            events = self.undecided.stream(self._unknown(call))
        elif self._records is None:
            events = self.inner.stream(attempt)
        else:
            events = _Streamed(self.inner, self._begin(attempt, trail_of(attempt), self._records)).stream(attempt)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread; see `ThreadRunner.run_in_thread`. Where attempts are recorded, none comes here:
        that needs the event loop."""
        inner = self.inner_in_thread
        if inner is None or not self.runs_in_thread(call, within):
            return None
        attempt = self._attempt(call)
        if attempt is None:
            return wait(self.undecided.run(self._unknown(call)))
        return inner.run_in_thread(attempt, wait, within)

    def _attempt(self, call: ToolCall) -> Attempt | None:
        """Return the attempt to make the call; None where it must be decided on first."""
        known = call.resolution
        entry = known.admitted(call) if isinstance(known, Resolution) and known.find == self._find else None
        if entry is None or not isinstance(known, Resolution):
            return None
        trail = known.trail
        if trail.attempts and not self._is_current(entry):
            return None
        trail.attempts += 1
        return attempt_at(call, entry, trail.attempts)

    def _is_current(self, entry: Registered) -> bool:
        """Return whether the tool is still what was decided on; there may be seconds between two attempts."""
        try:
            now = still_bound(self._find, entry)
        except ToolExecError:
            return False
        return now.tool is entry.tool and now.binding == entry.binding

    def _unknown(self, call: ToolCall) -> ToolCall:
        """Return the call as one that no rule has seen yet."""
        known = call.resolution
        call.resolution = Resolution(self._find, None, known.trail if isinstance(known, Resolution) else None)
        return call

    def _begin(self, attempt: Attempt, trail: Trail, records: RecordsAttempts) -> CallEnd:
        record, trail.record = trail.record, None
        return record or records.begin_attempt(attempt, attempt.entry, attempt.number, trail.last)


class RecordedAttempt(ObserverLayer):
    """Records what a rule does in place of the call, or for it: a fallback, or a check of the ledger. It is recorded
    also where a rule refuses it."""

    in_thread = False  # records are written in the order of the event loop

    def __init__(self, inner: Runner, find: Find, records: RecordsAttempts) -> None:
        super().__init__(inner)
        self._find = find
        self._records = records

    def begin(self, call: ToolCall) -> CallEnd:
        """Record the beginning; see `ObserverLayer.begin`."""
        try:
            entry = resolved(call, self._find)
        except ToolExecError:
            entry = None  # the call itself raises it again
        trail = trail_of(call)
        trail.record = end = self._records.begin_attempt(call, entry, trail.attempts + 1, trail.last)

        def ended(result: Result | None, failure: BaseException | None) -> None:
            if trail.record is end:  # it got no further than the rules
                trail.record = None
                trail.last = ending_of(result, failure)
                end(result, failure)

        return ended


class _Streamed(ObserverLayer):
    """Observes one stream with a CallEnd that is there already."""

    def __init__(self, inner: Runner, end: CallEnd) -> None:
        super().__init__(inner)
        self._end = end

    def begin(self, call: ToolCall) -> CallEnd:
        def ended(result: Result | None, failure: BaseException | None) -> None:
            trail_of(call).last = ending_of(result, failure)
            self._end(result, failure)

        return ended


def ending_of(result: Result | None, failure: BaseException | None) -> str:
    """Return how an attempt ended in one word: `ok`, the error's code, or `cancelled`."""
    error = failure if result is None else result.error
    if error is None:
        return "ok"
    return error.code if isinstance(error, ToolExecError) else "cancelled"


async def _raising(error: InputValidationError) -> AsyncGenerator[StreamEvent, None]:
    raise error
    yield  # what makes it a generator
