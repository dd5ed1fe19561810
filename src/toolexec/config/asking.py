"""Approval that the caller itself is never asked for."""

from __future__ import annotations

from dataclasses import replace

from toolexec.model.call import ToolCall
from toolexec.run.gate import GatePart
from toolexec.run.layer import Layer
from toolexec.run.layers.approval import Approval
from toolexec.run.policy_rules import Decide
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner


class CallerIsNotAsked:
    """Takes `Origin.ask` from every call before *approval* sees it: then only an operator is asked, if any."""

    def __init__(self, approval: GatePart) -> None:
        self.approval = approval

    def by(self, decide: Decide) -> CallerIsNotAsked:
        """Return the same by another policy; see `Approval.by`."""
        known = self.approval
        return CallerIsNotAsked(known.by(decide) if isinstance(known, Approval) else known)

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that keeps the rule around *inner*."""
        return _WithoutAsking(self.approval.wrap(inner, find))


class _WithoutAsking(Layer):
    def before(self, call: ToolCall) -> ToolCall:
        return _silenced(call)

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        return super().runs_in_thread(_silenced(call), within)


def _silenced(call: ToolCall) -> ToolCall:
    if call.origin.ask is None:
        return call
    call.identify()  # the copy is the same run
    silenced = replace(call, origin=replace(call.origin, ask=None))
    silenced.resolution = call.resolution  # policies ask who calls, not how that can be asked
    return silenced
