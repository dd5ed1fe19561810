"""The contract suite for odd answers against both protocols of remote runtimes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from packages.remote.tests.contract.run_trials import READ, REMOTE_RUN, remote_run_trial
from packages.remote.tests.contract.trials import REMOTE_DUPLEX, REMOTE_POST, remote_duplex_trial, remote_post_trial

from toolexec import Exec
from toolexec.errors import Outcome
from toolexec.testing.outcome_suite import OUTCOME_CHECKS, MakeTrial, run_outcome_check

TRANSPORTS: Mapping[str, tuple[MakeTrial, Mapping[str, Outcome]]] = {
    "remote runtime by post": (remote_post_trial, REMOTE_POST),
    "remote runtime": (remote_duplex_trial, REMOTE_DUPLEX),
    "run on a remote runtime": (remote_run_trial, REMOTE_RUN),
}
CASES = [(kind, answer) for kind, (_, answers) in TRANSPORTS.items() for answer in answers]


@pytest.mark.parametrize("check", OUTCOME_CHECKS)
@pytest.mark.parametrize(("kind", "answer"), CASES)
async def test_an_odd_answer(kind: str, answer: str, check: str) -> None:
    """Every transport states the right outcome of an odd answer, and the work is never done twice."""
    make, answers = TRANSPORTS[kind]
    await run_outcome_check(make, answer, answers[answer], check)


@pytest.mark.parametrize("answer", READ)
async def test_the_first_result_counts(answer: str) -> None:
    """The value stays, whatever a remote runtime sends after it, and although a call has no answer yet."""
    async with remote_run_trial(answer) as trial, Exec(runtime_backends=[trial.sandbox]) as ex:
        result = await ex.execute_code(trial.code, timeout=trial.timeout)
        assert result.raise_for_error().value == 5
        assert trial.effects() == 1
