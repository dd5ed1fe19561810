"""Which runs of code, workflows, chains and skills may begin: decided here, whatever path they come on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from toolexec.errors import ApprovalRequiredError, PolicyError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Origin
from toolexec.run.gate import RECORDED

if TYPE_CHECKING:
    from toolexec.run.gate import Gate, GroupScope
    from toolexec.run.policy_rules import Verdict

__all__ = [
    "PROFILES",
    "RUN_KINDS",
    "ApprovesRuns",
    "DecidesRuns",
    "Profile",
    "RunKind",
    "RunRequest",
    "admit",
    "admit_durable",
    "asks_about",
    "begun",
    "unapproved",
]

Profile: TypeAlias = Literal["dev", "standard", "hardened"]
PROFILES: tuple[str, ...] = get_args(Profile)

RunKind: TypeAlias = Literal["code", "workflow", "chain", "skill"]
RUN_KINDS: tuple[str, ...] = get_args(RunKind)

_NAMES: Final = {"code": "execute_code", "workflow": "run_workflow", "chain": "run_chain", "skill": "run_workflow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run that is about to begin.

    `profile` is the one that code will run in, and `language` what it is in, as `base_language` names it; only code has
    them. `details` are facts without secrets, for audit and traces; `args` are what an approver is shown.
    """

    kind: RunKind
    origin: Origin
    profile: str = ""
    language: str = ""
    details: JSONObject = field(default_factory=JSONDict)
    args: JSONObject = field(default_factory=JSONDict)

    @property
    def name(self) -> str:
        """What the run is called where calls have the ID of their tool."""
        return _NAMES[self.kind]

    def __str__(self) -> str:
        words = {"code": "code", "workflow": "a workflow", "chain": "a chain", "skill": "a skill"}[self.kind]
        if self.kind == "code" and self.language:
            words = f"{self.language} code"
        return f"{words} in the profile {self.profile}" if self.profile else words


@runtime_checkable
class DecidesRuns(Protocol):
    """A part of a gate that decides on runs, as a policy does."""

    def decide_run(self, run: RunRequest) -> Verdict:
        """Return whether the run may begin."""
        ...


@runtime_checkable
class ApprovesRuns(Protocol):
    """A part of a gate that can ask an approver about a run."""

    async def approve_run(self, run: RunRequest, verdict: Verdict) -> None:
        """Return once the run is approved. Raises ApprovalRequiredError and ApprovalDeniedError."""
        ...


@asynccontextmanager
async def begun(
    gate: Gate, run: RunRequest, *, asks: bool = True, counts: bool = True
) -> AsyncGenerator[GroupScope, None]:
    """Open the scope of a run that may begin; see `Gate.group`. Raises as `admit` does, and RateLimitedError.

    A refused run is on record, too. With *asks* false, as for a durable run that was approved, an approval counts as
    given.
    With *counts* false the run takes no share of its caller's.
    """
    if RECORDED.get():  # it was decided on when it began; what is repeated must go the same way again
        with gate.group(_path(run), run.origin, run.details) as scope:
            yield scope
        return
    with gate.group(_path(run), run.origin, run.details) as scope:
        await admit(gate, run, asks=asks)
        shares = gate.code_shares
        with shares.taken(run) if shares is not None and counts else nullcontext():
            yield scope


async def admit(gate: Gate, run: RunRequest, *, asks: bool = True) -> bool:
    """Return if the policy of *gate* lets the run begin, and say whether an approver was asked for that. Raises
    PolicyError, and where the run has to be approved first, ApprovalRequiredError and ApprovalDeniedError."""
    if not isinstance(gate.policy, DecidesRuns):
        return False
    verdict = gate.policy.decide_run(run)
    if verdict.effect == "deny":
        raise _denied(run, verdict)
    if verdict.effect == "allow" or not asks:
        return False
    if not isinstance(gate.approval, ApprovesRuns):
        raise unapproved(run, verdict)
    await gate.approval.approve_run(run, verdict)
    return True


def asks_about(gate: Gate, run: RunRequest) -> bool:
    """Return whether the policy of *gate* has an approver asked before the run begins."""
    return isinstance(gate.policy, DecidesRuns) and gate.policy.decide_run(run).effect == "ask"


async def admit_durable(gate: Gate, run: RunRequest, *, asks: bool = True) -> bool:
    """Do what `admit` does for a run that goes on by itself afterwards; a refusal is on record."""
    try:
        return await admit(gate, run, asks=asks)
    except ToolExecError as error:
        with gate.group(_path(run), run.origin, run.details) as scope:
            scope.failure = error
        raise


def _path(run: RunRequest) -> Literal["chain", "code"]:
    return "chain" if run.kind == "chain" else "code"


def unapproved(run: RunRequest, verdict: Verdict) -> ApprovalRequiredError:
    """Return the error for a run that no approver can be asked about."""
    reason = f": {verdict.reason}" if verdict.reason else f" (the policy's {verdict.rule})"
    return ApprovalRequiredError(
        f"running {run} needs an approval{reason}, and there is no approver to ask here; have the policy allow it, or "
        "run it where an approver can be asked",
        op="approval",
        details={"rule": verdict.rule, "reason": verdict.reason},
    )


def _denied(run: RunRequest, verdict: Verdict) -> PolicyError:
    reason = f": {verdict.reason}" if verdict.reason else ""
    return PolicyError(
        f"the policy ({verdict.rule}) forbids running {run}{reason}; do not repeat it, but call the tools one by one, "
        "or ask the administrator of the policy",
        op="policy",
        details={"rule": verdict.rule, "reason": verdict.reason},
    )
