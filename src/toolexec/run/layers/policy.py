"""Refuse what a policy denies."""

from __future__ import annotations

from collections.abc import Callable

from toolexec.discovery.index import Registered
from toolexec.discovery.view import without_hidden
from toolexec.errors import PolicyError, ToolExecError, ToolNotFoundError
from toolexec.model.call import ToolCall
from toolexec.model.origin import Origin
from toolexec.run.layer import Layer
from toolexec.run.policy_rules import Decide, Verdict
from toolexec.run.resolve import Find, decided, resolved
from toolexec.run.runner import Runner

__all__ = ["Authorize", "denied"]


class Authorize(Layer):
    """Asks *decide* about the tool that each call leads to, and raises PolicyError for what is denied, before anything
    runs. Tools that *shows* hides are not suggested in place of one that is misspelt."""

    def __init__(self, inner: Runner, find: Find, decide: Decide, shows: Callable[[Registered, Origin], bool]) -> None:
        super().__init__(inner)
        self._find = find
        self._decide = decide
        self._shows = shows

    def before(self, call: ToolCall) -> None:
        """Refuse a call that is denied; see `Layer.before`."""
        try:
            entry = resolved(call, self._find)
        except ToolNotFoundError as error:
            if not error.details.get("close"):
                raise
            raise without_hidden(error, lambda tool_id: self._visible(tool_id, call.origin)) from None
        verdict = decided(call, entry, self._decide)
        if verdict.effect == "deny":
            raise denied(entry, verdict)

    def _visible(self, tool_id: str, origin: Origin) -> Registered | None:
        try:
            entry = self._find(tool_id)
        except ToolExecError:
            return None
        return entry if self._shows(entry, origin) else None


def denied(entry: Registered, verdict: Verdict) -> PolicyError:
    """The error for a call that a rule forbids."""
    reason = f": {verdict.reason}" if verdict.reason else ""
    return PolicyError(
        f"the policy ({verdict.rule}) forbids this call of {entry.tool.id}{reason}; do not repeat it, but use another "
        "tool, or ask whoever set up the policy",
        tool_id=entry.tool.id,
        op="policy",
        details={"rule": verdict.rule, "reason": verdict.reason},
    )
