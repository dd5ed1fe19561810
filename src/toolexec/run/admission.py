"""Which runs of code, workflows, chains and skills may begin: decided here, whatever path they come on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Literal, Protocol, runtime_checkable

from toolexec.discovery.index import Registered
from toolexec.errors import PolicyError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.run.gate import RECORDED, Gate, GroupScope
from toolexec.run.policy_rules import Verdict
from toolexec.run.refusals import denied, denied_run, out_since_run, unapproved
from toolexec.run.run_request import RunRequest


@runtime_checkable
class DecidesRuns(Protocol):
    """A part of a gate that decides on runs, as a policy does."""

    def decide_run(self, run: RunRequest) -> Verdict:
        """Return whether the run may begin."""
        ...


@runtime_checkable
class DecidesCalls(Protocol):
    """A part of a gate that decides on calls, as a policy does."""

    def decide(self, entry: Registered, call: ToolCall) -> Verdict:
        """Return what becomes of *call*."""
        ...


@runtime_checkable
class ChecksDefinitions(Protocol):
    """A part of a gate that refuses tools by their definition, as pins do."""

    def check(self, entry: Registered) -> None:
        """Raise DefinitionChangedError for a tool that is not accepted."""
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
        raise denied_run(run, verdict)
    if verdict.effect == "allow" or not asks:
        return False
    if (present := _present(gate, run)) is not run:  # no approver is asked about what is refused then
        return await admit(gate, present)
    if not isinstance(gate.approval, ApprovesRuns):
        raise unapproved(run, verdict)
    await gate.approval.approve_run(run, verdict)
    await admit(gate, _present(gate, run), asks=False)  # the rules may have changed before the answer
    return True


def _present(gate: Gate, run: RunRequest) -> RunRequest:
    """Return the run as one of its caller with the rights of this moment. Raises PolicyError where there are none."""
    origin = run.origin
    caller = gate.present(origin.caller)
    if caller is None:
        raise out_since_run(run)
    return run if caller == origin.caller else replace(run, origin=replace(origin, caller=caller))


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


def check_denied(
    gate: Gate,
    entry: Registered,
    call: ToolCall,
    refusal: Callable[[Registered, Verdict], PolicyError] = denied,
) -> None:
    """Raise *refusal*, a PolicyError, where the policy of *gate* forbids *call*, a call of *entry* that it did not
    decide on, and DefinitionChangedError where its pins hold *entry*. One that has to be approved is not forbidden."""
    if isinstance(gate.policy, DecidesCalls):
        verdict = gate.policy.decide(entry, call)
        if verdict.effect == "deny":
            raise refusal(entry, verdict)
    if isinstance(gate.pinning, ChecksDefinitions):
        gate.pinning.check(entry)


def _path(run: RunRequest) -> Literal["chain", "code"]:
    return "chain" if run.kind == "chain" else "code"
