"""The contract suite for what a backend says of odd answers: what became of the call, and that it is not made twice.

The checks are plain async functions, free of any test framework. `check_outcomes` takes them all; to have each one as a
test of its own, go through `OUTCOME_CHECKS` with `run_outcome_check`.

You bring a service that misbehaves as you ask it to, and count its work. For each odd answer the suite gets a backend
that is pointed at such a service, and the outcome that is right: `not_sent` where the service never got the call,
`refused` where its answer says that it did nothing, `done` where its answer says that it did its work, though that may
be unreadable, and `unknown` for all else. The tool must not be marked read-only or idempotent.
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
from toolexec.errors import Outcome, ToolExecError
from toolexec.exec import Exec
from toolexec.model.json_value import JSONObject
from toolexec.run.gate import Gate
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.retry import Retry
from toolexec.testing.report import Report

__all__ = ["OUTCOME_CHECKS", "MakeTrial", "OutcomeTrial", "check_outcomes", "run_outcome_check"]

_CALLS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeTrial:
    """A started backend whose tool *tool_id* is answered oddly; `effects` counts how often its service has begun the
    work until now."""

    backend: Backend
    tool_id: str
    effects: Callable[[], int]
    args: JSONObject = field(default_factory=dict[str, object])


MakeTrial: TypeAlias = Callable[[str], AbstractAsyncContextManager[OutcomeTrial]]
"""Makes a trial of its own for the odd answer of this name; leaving the context ends all of it."""


async def the_outcome_is_right(trial: OutcomeTrial, outcome: Outcome) -> None:
    """Require that the failure states the outcome, that the work was begun once at most, and not where it says so."""
    async with Exec() as ex:
        ex.add_backends(trial.backend)
        error = await _failure(ex, trial)
    assert error is not None, "the call succeeded; an odd answer must be an error"
    assert error.outcome is outcome, f"the outcome is {error.outcome.value}, not {outcome.value}: {error!r}"
    _judge(trial.effects(), outcome)


async def nothing_is_done_twice(trial: OutcomeTrial, outcome: Outcome) -> None:
    """Require that a call that is made again and again with one idempotency key, with retries, does its work once."""
    with TemporaryDirectory() as directory:
        gate = Gate(ledger=Ledger(Path(directory) / "effects.db"), retry=Retry(sleep=_at_once))
        async with Exec(gate=gate) as ex:
            ex.add_backends(trial.backend)
            for _ in range(_CALLS):
                await _failure(ex, trial, key="one-effect")
    _judge(trial.effects(), outcome)


OutcomeCheck: TypeAlias = Callable[[OutcomeTrial, Outcome], Awaitable[None]]
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


async def _failure(ex: Exec, trial: OutcomeTrial, *, key: str = "") -> ToolExecError | None:
    """Make the call, and return its failure, whether it was returned or raised."""
    failure: ToolExecError | None = None
    try:
        result = await ex.run_tool(trial.tool_id, trial.args, idempotency_key=key)
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
