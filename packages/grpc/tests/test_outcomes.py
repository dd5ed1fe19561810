"""The contract suite for odd answers against both kinds of gRPC methods."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping
from typing import Any

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


@pytest.fixture(autouse=True)
async def late_events() -> None:
    """Let no event of an earlier test fail this one: gRPC hands what is left of a call to its loop some time after it,
    and raises in the loop of that time where the first one is closed."""
    loop = asyncio.get_running_loop()
    handle = loop.get_exception_handler()

    def handle_others(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        frames = traceback.extract_tb(getattr(context.get("exception"), "__traceback__", None))
        if not any(frame.name.endswith("PollerCompletionQueue._handle_events") for frame in frames):
            loop.default_exception_handler(context) if handle is None else handle(loop, context)

    loop.set_exception_handler(handle_others)


@pytest.mark.parametrize("check", OUTCOME_CHECKS)
@pytest.mark.parametrize(("kind", "answer"), CASES)
async def test_an_odd_answer(kind: str, answer: str, check: str) -> None:
    """Each states the right outcome of an odd answer, and the work is never done twice."""
    make, answers = TRANSPORTS[kind]
    await run_outcome_check(make, answer, answers[answer], check)
