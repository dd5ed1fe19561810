"""The errors for calls and runs that a policy does not let begin."""

from __future__ import annotations

from typing import Final

from toolexec.discovery.index import Registered
from toolexec.errors import ApprovalRequiredError, PolicyError
from toolexec.run.policy_rules import Verdict
from toolexec.run.run_request import RunRequest


def denied(entry: Registered, verdict: Verdict) -> PolicyError:
    """Return the error for a call that a rule forbids."""
    return _denied(entry, verdict, "the policy")


_OUT: Final = "since it was asked for, the key of its caller has been taken out, or the key or token has expired"


def out_since(entry: Registered) -> PolicyError:
    """Return the error for a call whose caller had its key taken away, or whose key or token expired, before it was
    made."""
    return PolicyError(f"{entry.tool.id} is not called: {_OUT}", tool_id=entry.tool.id, op="policy")


def out_since_run(run: RunRequest) -> PolicyError:
    """Return the same error for a run that waited before it began."""
    return PolicyError(f"{run} is not run: {_OUT}", op="policy")


def _denied(entry: Registered, verdict: Verdict, who: str) -> PolicyError:
    reason = f": {verdict.reason}" if verdict.reason else ""
    return PolicyError(
        f"{who} ({verdict.rule}) forbids this call of {entry.tool.id}{reason}; do not repeat it, but use another "
        "tool, or ask whoever set up the policy",
        tool_id=entry.tool.id,
        op="policy",
        details={"rule": verdict.rule, "reason": verdict.reason},
    )


def denied_since(entry: Registered, verdict: Verdict) -> PolicyError:
    """Return the error for a call that was let pass, and that a rule forbids which came before it was made."""
    return _denied(entry, verdict, "the policy or the caller's roles have changed since this call began: the policy")


def denied_run(run: RunRequest, verdict: Verdict) -> PolicyError:
    """Return the error for a run that a rule forbids."""
    reason = f": {verdict.reason}" if verdict.reason else ""
    return PolicyError(
        f"the policy ({verdict.rule}) forbids running {run}{reason}; do not repeat it, but call the tools one by one, "
        "or ask the administrator of the policy",
        op="policy",
        details={"rule": verdict.rule, "reason": verdict.reason},
    )


def unapproved(run: RunRequest, verdict: Verdict) -> ApprovalRequiredError:
    """Return the error for a run that no approver can be asked about."""
    reason = f": {verdict.reason}" if verdict.reason else f" (the policy's {verdict.rule})"
    return ApprovalRequiredError(
        f"running {run} needs an approval{reason}, and there is no approver to ask here; have the policy allow it, or "
        "run it where an approver can be asked",
        op="approval",
        details={"rule": verdict.rule, "reason": verdict.reason},
    )
