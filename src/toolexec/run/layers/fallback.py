"""Make a call elsewhere when the backend of its tool is not available."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.errors import BackendError, ConfigurationError, ExecutionError, Outcome, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.settings import checked
from toolexec.run.layer import Layer
from toolexec.run.policy_rules import plain_id
from toolexec.run.repeating import may_repeat
from toolexec.run.resolve import Find, copied, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result

__all__ = ["Fallback"]


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
        self._tools = [(pattern, _ids(pattern, ids)) for pattern, ids in (tools or {}).items()]
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
            if fnmatchcase(tool.id, pattern) or fnmatchcase(plain_id(tool), pattern):
                for each in ids:
                    other = each.replace("*", tool.name)
                    if other not in (tool.id, plain_id(tool)):
                        yield other


class _Elsewhere(Layer):
    def __init__(self, rules: Fallback, inner: Runner, find: Find, others: Runner) -> None:
        super().__init__(inner)
        self._rules = rules
        self._find = find
        self._others = others

    async def run(self, call: ToolCall) -> Result:
        entry = resolved(call, self._find)
        started = self._rules.clock()
        try:
            result = await self.inner.run(call)
        except ToolExecError as error:
            if not _is_unavailable(entry, error):
                raise
            other = await self._elsewhere(call, entry, started)
            if other is None:
                raise
            return other
        if result.error is None or not _is_unavailable(entry, result.error):
            return result
        return await self._elsewhere(call, entry, started) or result

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        entry = resolved(call, self._find)
        started = self._rules.clock()
        choices = self._choices(call, entry, started)
        first: StreamEvent | ToolExecError | None = None
        choice: tuple[Runner, ToolCall] | None = (self.inner, call)
        while choice is not None:
            runner, attempt = choice
            given = False
            failed = False
            events = runner.stream(attempt)
            try:
                async for event in events:
                    if event.kind == "error" and not given and _is_unavailable(entry, _error_of(event)):
                        first = first or event
                        failed = True
                        break
                    given = given or event.kind == "chunk"
                    yield event
            except ToolExecError as error:
                if given or (first is None and not _is_unavailable(entry, error)):
                    raise
                first = first or error
                failed = True
            finally:
                await events.aclose()
            if not failed:
                return
            choice = next(choices, None)
        if isinstance(first, ToolExecError):
            raise first
        if first is not None:
            yield first

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        inner = self.inner_in_thread
        if inner is None or not self.runs_in_thread(call, within):
            return None
        entry = resolved(call, self._find)
        started = self._rules.clock()
        try:
            result = inner.run_in_thread(call, wait, within)
        except ToolExecError as error:
            if not _is_unavailable(entry, error):
                raise
            other = wait(self._elsewhere(call, entry, started))
            if other is None:
                raise
            return other
        if result is None or result.error is None or not _is_unavailable(entry, result.error):
            return result
        return wait(self._elsewhere(call, entry, started)) or result

    async def _elsewhere(self, call: ToolCall, entry: Registered, started: float) -> Result | None:
        """Make the call where it can be made; None where that is nowhere."""
        for runner, attempt in self._choices(call, entry, started):
            try:
                result = await runner.run(attempt)
            except ToolExecError:
                continue
            tried = resolved(attempt, self._find)  # its own marks say whether what it may have done can be done again
            if result.error is None or not all(_is_unavailable(each, result.error) for each in (entry, tried)):
                return result
        return None

    def _choices(self, call: ToolCall, entry: Registered, started: float) -> Iterator[tuple[Runner, ToolCall]]:
        """Yield the other ways to make the call, as long as there is time."""
        if self._rules.bindings:
            for binding in entry.bindings:
                if binding != entry.binding and self._has_time(call, started):
                    other = Registered(entry.tool, entry.bindings, binding)
                    yield self._others, copied(call, self._find, other, timeout=self._left(call, started))
        for tool_id in self._rules.ids(entry):
            if not self._has_time(call, started):
                return
            try:
                other = self._find(tool_id)
            except ToolExecError:
                continue
            yield self._others, copied(call, self._find, other, tool_id=tool_id, timeout=self._left(call, started))

    def _left(self, call: ToolCall, started: float) -> float | None:
        return None if call.timeout is None else call.timeout - (self._rules.clock() - started)

    def _has_time(self, call: ToolCall, started: float) -> bool:
        left = self._left(call, started)
        return left is None or left > 0


def _is_unavailable(entry: Registered, failure: ToolExecError) -> bool:
    """Return whether the call may be made elsewhere after this failure."""
    if entry.tool.annotations.destructive:
        return False
    return may_repeat(entry.tool, failure) or (
        isinstance(failure, BackendError) and failure.outcome is Outcome.NOT_SENT
    )


def _error_of(event: StreamEvent) -> ToolExecError:
    return event.error or ExecutionError("the stream ended with an error")


def _ids(pattern: str, ids: str | Sequence[str]) -> tuple[str, ...]:
    found = (ids,) if isinstance(ids, str) else tuple(ids)
    if not found or not all(found):
        raise ConfigurationError(f"the fallback of {pattern!r} names no tool")
    return found
