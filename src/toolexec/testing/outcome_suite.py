"""The contract suite for what a backend says of odd answers: what became of the call, and that it is not made twice.

The checks are plain async functions, free of any test framework. `check_outcomes` takes them all; to have each one as a
test of its own, go through `OUTCOME_CHECKS` with `run_outcome_check`.

You bring a service that misbehaves as you ask it to, and count its work. For each odd answer the suite gets a backend
that is pointed at such a service, and the outcome that is right: `not_sent` where the service never got the call,
`refused` where its answer says that it did nothing, `done` where its answer says that it did its work, though that may
be unreadable, and `unknown` for all else. The tool must not be marked read-only or idempotent.

A sandbox whose programs run elsewhere has such a service, too: that is a SandboxTrial.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from toolexec.backend.base import Backend
from toolexec.code.types import CodeResult
from toolexec.errors import Outcome, ToolExecError
from toolexec.exec import Exec
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.run.gate import Gate
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.retry import Retry
from toolexec.runtime.base import SandboxBackend
from toolexec.testing.report import Report

_CALLS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeTrial:
    """A started backend whose tool *tool_id* is answered oddly; `effects` counts how often its service has begun the
    work until now."""

    backend: Backend
    tool_id: str
    effects: Callable[[], int]
    args: JSONObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxTrial:
    """A sandbox that leaves the program *code* to a service which answers oddly; `effects` counts how often that has
    begun the program until now. *timeout* is the time limit of the program in seconds."""

    sandbox: SandboxBackend
    effects: Callable[[], int]
    code: str = "1"
    timeout: float = 5.0


Trial: TypeAlias = OutcomeTrial | SandboxTrial
MakeTrial: TypeAlias = Callable[[str], AbstractAsyncContextManager[Trial]]
"""Makes a trial of its own for the odd answer of this name; leaving the context ends all of it."""


async def the_outcome_is_right(trial: Trial, outcome: Outcome) -> None:
    """Require that the failure states the outcome, that the work was begun once at most, and not where it says so."""
    if isinstance(trial, SandboxTrial):
        error = (await _run(trial)).error
    else:
        async with Exec() as ex:
            ex.add_backends(trial.backend)
            error = await _failure(ex, trial.tool_id, trial.args)
    assert error is not None, "the call succeeded; an odd answer must be an error"
    assert error.outcome is outcome, f"the outcome is {error.outcome.value}, not {outcome.value}: {error!r}"
    _judge(trial.effects(), outcome)


async def nothing_is_done_twice(trial: Trial, outcome: Outcome) -> None:
    """Require that a call that is made again and again with one idempotency key, with retries, does its work once. A
    program is run by a tool here."""

    async def program() -> JSONValue:
        assert isinstance(trial, SandboxTrial)
        return (await _run(trial)).raise_for_error().value

    with TemporaryDirectory() as directory:
        gate = Gate(ledger=Ledger(Path(directory) / "effects.db"), retry=Retry(sleep=_at_once))
        async with Exec(gate=gate) as ex:
            if isinstance(trial, SandboxTrial):
                tool_id, args = ex.add(program, "trial:program").id, {}
            else:
                ex.add_backends(trial.backend)
                tool_id, args = trial.tool_id, trial.args
            for _ in range(_CALLS):
                await _failure(ex, tool_id, args, key="one-effect")
    _judge(trial.effects(), outcome)


OutcomeCheck: TypeAlias = Callable[[Trial, Outcome], Awaitable[None]]
OUTCOME_CHECKS: Final[Mapping[str, OutcomeCheck]] = {
    check.__name__: check for check in (the_outcome_is_right, nothing_is_done_twice)
}
"""All checks, by name."""


async def run_outcome_check(make: MakeTrial, answer: str, outcome: Outcome, name: str) -> None:
    """Run one check with one odd answer; raises AssertionError, or what the backend raised."""
    async with make(answer) as trial:
        await OUTCOME_CHECKS[name](trial, outcome)


async def check_outcomes(make: MakeTrial, answers: Mapping[str, Outcome], *, known_gaps: Collection[str] = ()) -> None:
    """Take all checks with each of *answers*: the odd answers that *make* knows, with the right outcome of each.

    *known_gaps* are the checks that the backend is known to fail, as `answer: check`; one that passes after all is a
    failure too, so that the list stays true. Raises an ExceptionGroup with all failures.
    """
    names = {
        f"{answer}: {check}": partial(run_outcome_check, make, answer, outcome, check)
        for answer, outcome in answers.items()
        for check in OUTCOME_CHECKS
    }
    report = Report("outcomes", names, known_gaps)
    for name, check in names.items():
        with report.check(name):
            await check()
    report.conclude()


async def _run(trial: SandboxTrial) -> CodeResult:
    """Run the program, and return its result, whether there is one or it could not be run."""
    async with Exec(runtime_backends=[trial.sandbox]) as ex:
        try:
            return await ex.execute_code(trial.code, timeout=trial.timeout)
        except ToolExecError as error:
            return CodeResult(error=error)


async def _failure(ex: Exec, tool_id: str, args: JSONObject, *, key: str = "") -> ToolExecError | None:
    """Make the call, and return its failure, whether it was returned or raised."""
    failure: ToolExecError | None = None
    try:
        result = await ex.run_tool(tool_id, args, idempotency_key=key)
        failure = result.error
    except ToolExecError as error:
        failure = error
    return failure


def _judge(effects: int, outcome: Outcome) -> None:
    """Require what the outcome says of the number of effects."""
    allowed = {Outcome.DONE: (1,), Outcome.UNKNOWN: (0, 1)}.get(outcome, (0,))
    assert effects in allowed, f"the work was begun {effects} times; the outcome is {outcome.value}"


async def _at_once(_: float) -> None:
    """Wait for nothing."""
