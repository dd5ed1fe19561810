"""The contract suite for routers against the runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.runtime.router import Runtime
from toolexec.testing.runtime_suite import RUNTIME_CHECKS, check_runtime, run_runtime_check


@pytest.mark.parametrize("check", RUNTIME_CHECKS)
async def test_the_router_keeps_the_contract(check: str) -> None:
    """`Runtime` passes each check of the suite."""
    await run_runtime_check(Runtime, check)


async def test_the_suite_passes_as_a_whole() -> None:
    """`check_runtime` takes every check at once."""
    await check_runtime(Runtime)


class Careless(Runtime):
    """A router that lets everything onto the host and hands on what was asked for: a bad example."""

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run it anywhere."""
        backend = self.backends[0]
        return await backend.execute(replace(request, limits=request.limits))


GAPS = {
    "a_program_is_run",  # the trace is not in the result
    "a_failed_program_is_a_result",
    "a_request_needs_gateway_and_code",
    "an_unknown_profile_is_refused",
    "a_profile_without_a_sandbox_is_refused",
    "nothing_falls_back_to_the_host",
    "isolation_is_judged_by_what_is_underneath",
    "dev_can_be_denied",
    "candidates_are_tried_in_order",
    "an_unknown_language_is_refused",
    "the_sandbox_gets_what_holds",
    "a_limit_that_would_not_hold_is_refused",
    "runs_are_concurrent",
    "closing_stops_everything",
}


async def test_every_breach_is_reported_by_name() -> None:
    """A router that breaks the contract gets one failure for each check, with the check's name as a note."""
    with pytest.raises(ExceptionGroup) as caught:
        await check_runtime(Careless)
    notes = {note for error in caught.value.exceptions for note in error.__notes__}
    assert notes == {f"runtime check: {name}" for name in GAPS}


async def test_known_gaps_are_excused() -> None:
    """Gaps that are listed by name do not fail the suite."""
    await check_runtime(Careless, known_gaps=GAPS)


async def test_an_unknown_gap_is_refused() -> None:
    """A misspelt gap raises ValueError, with the names there are."""

    def make(*backends: Any, **options: Any) -> Runtime:
        return Runtime(*backends, **options)

    with pytest.raises(ValueError, match="a_program_is_run"):
        await check_runtime(make, known_gaps=["a_programme"])
