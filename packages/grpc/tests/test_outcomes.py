"""The contract suite for odd answers against both kinds of gRPC methods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from packages.grpc.tests.grpc_stream_trials import GRPC_STREAMS, grpc_stream_trial
from packages.grpc.tests.grpc_trials import GRPC, grpc_trial

from toolexec.errors import Outcome
from toolexec.testing.outcome_suite import OUTCOME_CHECKS, MakeTrial, run_outcome_check

TRANSPORTS: Mapping[str, tuple[MakeTrial, Mapping[str, Outcome]]] = {
    "grpc": (grpc_trial, GRPC),
    "grpc streams": (grpc_stream_trial, GRPC_STREAMS),
}
CASES = [(kind, answer) for kind, (_, answers) in TRANSPORTS.items() for answer in answers]


@pytest.fixture(scope="module", autouse=True)
def grpc_machinery() -> None:
    """Start the threads of gRPC before the first test: they keep their file descriptors."""

    async def start() -> None:
        async with grpc_trial("an exception"):
            pass

    asyncio.run(start())


@pytest.mark.parametrize("check", OUTCOME_CHECKS)
@pytest.mark.parametrize(("kind", "answer"), CASES)
async def test_an_odd_answer(kind: str, answer: str, check: str) -> None:
    """Each states the right outcome of an odd answer, and the work is never done twice."""
    make, answers = TRANSPORTS[kind]
    await run_outcome_check(make, answer, answers[answer], check)
