"""Make a call elsewhere when the backend of its tool is not available."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.errors import BackendError, ConfigurationError, ExecutionError, Outcome, PolicyError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.ids import without_version
from toolexec.model.settings import checked
from toolexec.run.layer import Layer
from toolexec.run.repeating import may_repeat
from toolexec.run.resolve import Find, copied, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result


@checked("Fallback")
class Fallback:
    """A part of a `Gate`: makes a call elsewhere when the tool's own backend is not available.

    First the other bindings of the same tool are tried, in order of registration (unless *bindings* is false), then the
    tools that *tools* names: it maps patterns of tool IDs to other IDs, where `*` stands for the tool's name
    (`{"maps:*": ["osm:*"]}`). These get the same arguments. Either is a call of its own for policy, pinning, approval,
    rate limits, the ledger and audit. `Result.tool_id` and `Result.binding` say which one answered.

    A call goes elsewhere when it certainly never began, or, for tools that are marked read-only or idempotent, when its
    failure is `retryable`; one of a destructive tool stays where it is. If none of the others can be called either, the
    first failure is the outcome. A stream goes elsewhere until its first chunk was given. All have the time of the
    call's own `timeout` together. Raises ConfigurationError for an ID that makes no sense.
    """

    def __init__(
        self,
        tools: Mapping[str, str | Sequence[str]] | None = None,
        *,
        bindings: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        given = (tools or {}).items()
        self._tools = [(IDPatterns("a Fallback", [pattern]), _ids(pattern, ids)) for pattern, ids in given]
        self.bindings = bindings
        self.clock = clock

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that makes calls of *inner* elsewhere if need be."""
        return _Elsewhere(self, inner, find, inner)

    def wrap_with(self, inner: Runner, find: Find, others: Runner) -> Runner:
        """Implement `CallsOthers.wrap_with`."""
        return _Elsewhere(self, inner, find, others)

    def ids(self, entry: Registered) -> Iterator[str]:
        """Yield the IDs of the tools that may answer in place of this one."""
        tool = entry.tool
        for pattern, ids in self._tools:
            if pattern.match(tool.id):
                for each in ids:
                    other = each.replace("*", tool.name)
                    if other not in (tool.id, without_version(tool.id)):
                        yield other


_Ending = TypeVar("_Ending", Result | ToolExecError, StreamEvent | ToolExecError)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a call may be made, as what, and the tool that it is made with there."""

    runner: Runner
    call: ToolCall
    entry: Registered


class _Way(Generic[_Ending]):
    """Decides for one call, after each failure, where it goes next: the one place where that is decided."""

    def __init__(self, entry: Registered, choices: Iterator[_Place]) -> None:
        self._entry = entry
        self._choices = choices
        self.ending: _Ending | None = None
        """How the call ended, once there is nowhere to go: as the first try did, or as one that may have done it."""

    def after(self, ending: _Ending, place: _Place) -> _Place | None:
        """Return where to go after the call at *place* ended this way; None where that is the end."""
        failure = ending if isinstance(ending, ToolExecError) else _failure_of(ending)
        is_first, refused = self.ending is None, ending is failure
        if is_first:
            self.ending = ending
        if failure is None:
            self.ending = ending
            return None
        if refused and not is_first:  # no tool was called, and what refused it says nothing about the others
            return None if failure.code in PolicyError.further_codes else next(self._choices, None)
        # The marks of a tool say whether what it may have done can be done again: they all must.
        if all(_is_unavailable(each, failure) for each in (self._entry, place.entry)):
            return next(self._choices, None)
        self.ending = ending
        return None


class _Elsewhere(Layer):
    def __init__(self, rules: Fallback, inner: Runner, find: Find, others: Runner) -> None:
        super().__init__(inner)
        self._rules = rules
        self._find = find
        self._others = others

    async def run(self, call: ToolCall) -> Result:
        entry = resolved(call, self._find)
        way = _Way[Result | ToolExecError](entry, self._choices(call, entry, self._rules.clock()))
        return await _made(way, _Place(self.inner, call, entry))

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        entry = resolved(call, self._find)
        way = _Way[StreamEvent | ToolExecError](entry, self._choices(call, entry, self._rules.clock()))
        place: _Place | None = _Place(self.inner, call, entry)
        while place is not None:
            given = False
            ending: StreamEvent | ToolExecError | None = None
            events = place.runner.stream(place.call)
            try:
                async for event in events:
                    if event.kind == "error" and not given:
                        ending = event
                        break
                    given = given or event.kind == "chunk"
                    yield event
            except ToolExecError as error:
                if given:
                    raise
                ending = error
            finally:
                await events.aclose()
            if ending is None:
                return
            place = way.after(ending, place)
        if isinstance(way.ending, ToolExecError):
            raise way.ending
        if way.ending is not None:
            yield way.ending

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        inner = self.inner_in_thread
        if inner is None or not self.runs_in_thread(call, within):
            return None
        entry = resolved(call, self._find)
        way = _Way[Result | ToolExecError](entry, self._choices(call, entry, self._rules.clock()))
        try:
            ending = inner.run_in_thread(call, wait, within)
        except ToolExecError as error:
            ending = error
        if ending is None:
            return None
        place = way.after(ending, _Place(self.inner, call, entry))
        return _result_of(ending) if place is None else wait(_made(way, place))

    def _choices(self, call: ToolCall, entry: Registered, started: float) -> Iterator[_Place]:
        """Yield the other ways to make the call, as long as there is time."""
        if self._rules.bindings:
            for binding in entry.bindings:
                if binding != entry.binding and self._has_time(call, started):
                    other = Registered(entry.tool, entry.bindings, binding)
                    copy = copied(call, self._find, other, timeout=self._left(call, started))
                    yield _Place(self._others, copy, other)
        for tool_id in self._rules.ids(entry):
            if not self._has_time(call, started):
                return
            try:
                other = self._find(tool_id)
            except ToolExecError:
                continue
            copy = copied(call, self._find, other, tool_id=tool_id, timeout=self._left(call, started))
            yield _Place(self._others, copy, other)

    def _left(self, call: ToolCall, started: float) -> float | None:
        return None if call.timeout is None else call.timeout - (self._rules.clock() - started)

    def _has_time(self, call: ToolCall, started: float) -> bool:
        left = self._left(call, started)
        return left is None or left > 0


async def _made(way: _Way[Result | ToolExecError], place: _Place | None) -> Result:
    """Make the call at *place*, and then wherever *way* leads; raises what it ends with."""
    while place is not None:
        try:
            ending = await place.runner.run(place.call)
        except ToolExecError as error:
            ending = error
        place = way.after(ending, place)
    return _result_of(way.ending)


def _result_of(ending: Result | ToolExecError | None) -> Result:
    """Return what a call ended with, or raise it."""
    if isinstance(ending, Result):
        return ending
    raise ending or ExecutionError("the call was not made")


def _failure_of(ending: Result | StreamEvent) -> ToolExecError | None:
    """Return why a call that was made failed; None where it did not."""
    if isinstance(ending, StreamEvent) and ending.kind == "error" and ending.error is None:
        return ExecutionError("the stream ended with an error")
    return ending.error


def _is_unavailable(entry: Registered, failure: ToolExecError) -> bool:
    """Return whether the call may be made elsewhere after this failure."""
    if entry.tool.annotations.destructive:
        return False
    return may_repeat(entry.tool, failure) or (
        isinstance(failure, BackendError) and failure.outcome is Outcome.NOT_SENT
    )


def _ids(pattern: str, ids: str | Sequence[str]) -> tuple[str, ...]:
    found = (ids,) if isinstance(ids, str) else tuple(ids)
    if not found or not all(found):
        raise ConfigurationError(f"the fallback of {pattern!r} names no tool")
    return found
