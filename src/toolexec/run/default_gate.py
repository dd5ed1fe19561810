"""The rules around calls where none are given: ask before what is marked as destructive and runs elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import cached_property
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from toolexec.backend.attempt import attempt_at
from toolexec.discovery.index import Index
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.layer import Layer
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner
from toolexec.run.types import Result

if TYPE_CHECKING:
    from toolexec.model.origin import Approver, Caller
    from toolexec.run.gate import Gate


class DefaultGate:
    """The gate of an `Exec` that is given none: it asks before calls of tools that are marked as destructive (by their
    annotation, by HTTP DELETE, by a destructive command) and live outside of this program.

    *approver* gives what is asked where the caller cannot be, or None; without one such calls are refused. A call of a
    tool in this program passes no rule and costs 0.2 µs; what other calls need is imported with the first of them.
    """

    def __init__(self, approver: Callable[[], Approver | None] | None = None) -> None:
        self.approver = approver
        self.present: Callable[[Caller], Caller | None] | None = None
        """Gives the `Gate.present` of the full gate; None where callers have the rights that they had."""
        self._full: Gate | None = None

    def wrap(
        self, runner: Runner, find: Find, layers: Sequence[Callable[[Runner], Runner]] = (), *, index: Index
    ) -> Runner:
        """Return *runner* with the rules around it, and *layers* inside of those; *index* is what *find* asks first."""
        # A layer may change what is called: then every call passes the rules.
        return self.full().wrap(runner, find, layers) if layers else _ForLocalTools(self, runner, find, index)

    def full(self) -> Gate:
        """Return the gate for what is not a tool of this program, always the same: it remembers approvals."""
        if self._full is not None:
            return self._full
        from toolexec.run.gate import Gate, default_policy
        from toolexec.run.layers.approval import Approval

        policy = default_policy()
        ask = self.approver() if self.approver is not None else None
        self._full = Gate(policy=policy, approval=Approval(policy.decide, ask=ask))
        self._full.present = self.present or self._full.present
        return self._full


class _ForLocalTools(Layer):
    """Makes calls of local tools as they are, and all others through the rules."""

    def __init__(self, gate: DefaultGate, inner: Runner, find: Find, index: Index) -> None:
        super().__init__(inner)
        self._gate = gate
        self._find = find
        self._known = index.find

    @cached_property
    def _gated(self) -> Runner:
        return self._gate.full().wrap(self.inner, self._find)

    # Plain functions with no call that can be saved: every call passes here, and a coroutine of its own costs 0.3 µs.

    def run(self, call: ToolCall) -> CoroutineType[Any, Any, Result]:
        entry = self._known(call.tool_id)
        if entry is not None and entry.binding.kind == "local":
            return self.inner.run(attempt_at(call, entry))
        return self._gated.run(call)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        entry = self._known(call.tool_id)
        if entry is not None and entry.binding.kind == "local":
            return self.inner.stream(attempt_at(call, entry))
        return self._gated.stream(call)
