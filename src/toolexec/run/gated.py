"""The outermost step of a gate: each call gets what its parts share, or none of it where they have nothing to do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import CoroutineType
from typing import Any, TypeAlias

from toolexec.backend.attempt import attempt_at
from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.errors import ToolExecError
from toolexec.model.arguments import RefusedArgs
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.origin import Caller
from toolexec.run.layer import Layer
from toolexec.run.resolve import Find, Resolution
from toolexec.run.runner import Runner, thread_runner
from toolexec.run.types import Result

Allows: TypeAlias = Callable[[Registered, Caller], bool]
"""Returns whether a caller may call a tool whatever the arguments are, without asking an approver."""

# What follows has plain functions, which do not cost each call a coroutine.


class Gated(Layer):
    """Begins the `Resolution` that all parts share, again for each call: a ToolCall may be made twice."""

    def __init__(self, inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._find = find

    def run(self, call: ToolCall) -> CoroutineType[Any, Any, Result]:
        """Make the call; see `Runner.run`."""
        call.resolution = Resolution(self._find)
        return self.inner.run(call)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `Runner.stream`."""
        call.resolution = Resolution(self._find)
        return self.inner.stream(call)

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether `run_in_thread` would make the call; see `ThreadRunner.runs_in_thread`."""
        call.resolution = Resolution(self._find)
        return super().runs_in_thread(call, within)

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread; see `ThreadRunner.run_in_thread`."""
        call.resolution = Resolution(self._find)
        return self.inner_in_thread.run_in_thread(call, wait, within) if self.inner_in_thread is not None else None


class GatedByPolicy(Gated):
    """Makes calls that *allows* lets pass by *direct*, as the rules would, and all others through *inner*: where a gate
    has a policy and an approval only, these have nothing else to do with such a call."""

    def __init__(self, inner: Runner, find: Find, direct: Runner, allows: Allows) -> None:
        super().__init__(inner, find)
        self.rules = Gated(inner, find)
        """Makes all calls through *inner*."""
        self._direct = direct
        self._direct_in_thread = thread_runner(direct)
        self._allows = allows

    def run(self, call: ToolCall) -> CoroutineType[Any, Any, Result]:
        """Make the call; see `Runner.run`."""
        entry = self._allowed(call)
        return self.inner.run(call) if entry is None else self._direct.run(attempt_at(call, entry))

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece; see `Runner.stream`."""
        entry = self._allowed(call)
        return self.inner.stream(call) if entry is None else self._direct.stream(attempt_at(call, entry))

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread; see `ThreadRunner.run_in_thread`."""
        direct = self._direct_in_thread
        if direct is None or not direct.runs_in_thread(call, within):
            return None
        entry = self._allowed(call)
        if entry is not None:
            return direct.run_in_thread(attempt_at(call, entry), wait, within)
        return self.inner_in_thread.run_in_thread(call, wait, within) if self.inner_in_thread is not None else None

    def _allowed(self, call: ToolCall) -> Registered | None:
        """Return the tool of a call that needs no rule; None for one that does, whose resolution has begun then."""
        try:
            entry = self._find(call.tool_id)
        except ToolExecError:  # which the rules raise
            entry = None
        if entry is not None and type(call.args) is not RefusedArgs and self._allows(entry, call.origin.caller):
            call.resolution = None
            if (used := call.origin.used_tools) is not None:
                used.add(entry.tool.id)
            return entry
        call.resolution = Resolution(self._find, entry)
        return None
