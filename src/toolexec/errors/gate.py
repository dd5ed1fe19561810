"""Errors of the gate: what stands between a call and its tool said no."""

from __future__ import annotations

from typing import ClassVar

from toolexec.errors.base import ConfigurationError, ToolExecError
from toolexec.errors.outcome import Outcome


class PolicyError(ToolExecError):
    """A rule forbids the call; nothing has run. With the code `outcome_unknown` the same call was made before, and may
    have done its work (`details["effect"]` is the ID of its record in the ledger of effects); with
    `effect_in_progress` it is still under way. With `no_credentials` the tool is called with credentials of its caller,
    and this one has none; with `no_caller` the server keeps state of each session or caller, or has a login of each
    caller, and that is not known."""

    code = "policy_denied"
    further_codes: ClassVar[tuple[str, ...]] = ("effect_in_progress", "no_caller", "no_credentials", "outcome_unknown")
    default_outcome = Outcome.NOT_SENT

    @property
    def rule(self) -> str:
        """The name of the rule that counts; empty where it was none."""
        return str(self.details.get("rule", ""))

    @property
    def reason(self) -> str:
        """Why the rule is there, as it says itself; may be empty."""
        return str(self.details.get("reason", ""))


class ApprovalRequiredError(PolicyError):
    """The call needs approval, and there is no way to ask for it; nothing has run."""

    code = "approval_required"


class ApprovalDeniedError(PolicyError):
    """The approver refused the call, or did not answer in time; nothing has run."""

    code = "approval_denied"


class DefinitionChangedError(PolicyError):
    """The tool is not the one that was accepted; it is in quarantine until its new definition is accepted."""

    code = "definition_changed"


class RateLimitedError(ToolExecError):
    """Too many calls in too short a time; nothing has run. `details["retry_after"]` says in how many seconds to try."""

    code = "rate_limited"
    default_outcome = Outcome.NOT_SENT
    default_retryable = True

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait; None where they are unknown."""
        return self.details.get("retry_after")


class ContextBudgetError(ToolExecError):
    """The conversation, or its caller, has cost as many tokens as the operator allows; nothing has run.
    `details["scope"]` says which (`session` or `caller`), and `details["causes"]` what they went into."""

    code = "context_budget"
    default_outcome = Outcome.NOT_SENT

    @property
    def used(self) -> int:
        """How many tokens there are."""
        return int(self.details.get("used", 0))

    @property
    def limit(self) -> int:
        """How many there may be."""
        return int(self.details.get("limit", 0))


class ResultHeldError(ToolExecError):
    """The tool did its work, but what it answered is held for a person to read. `details["findings"]` says why, and
    `details["held"]` is the ID under which it is kept; empty where it could not be kept."""

    code = "result_held"
    default_outcome = Outcome.DONE

    @property
    def findings(self) -> list[str]:
        """What was found in the answer."""
        return list(self.details.get("findings", ()))

    @property
    def held(self) -> str:
        """The ID under which the answer is kept."""
        return str(self.details.get("held", ""))


class AuditError(ToolExecError):
    """The audit log cannot be written, or does not verify; a call that could not be logged was not made. With the code
    `ledger` it is the ledger of effects that cannot be used."""

    code = "audit"
    further_codes: ClassVar[tuple[str, ...]] = ("ledger",)


class ResultNotFoundError(ToolExecError):
    """No result is kept under this handle: it has expired, belongs to another caller, or never existed."""

    code = "result_not_found"


class SecretError(ConfigurationError):
    """A secret that the configuration refers to is not there; the message names where it is needed, never a value."""

    code = "secret"
