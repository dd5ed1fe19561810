"""The model of durable runs, on Temporal."""

from __future__ import annotations

import pytest
from packages.temporal.tests.server.model import TemporalDriver, shortened
from tests.durable.model.trial import Trial

from toolexec.runtime import wasm
from toolexec_temporal import TemporalSettings


@pytest.fixture
def trial(settings: TemporalSettings) -> Trial:
    """Workers and callers of one server, each run with task queues of its own."""
    sandbox = wasm.WasmBackend()
    return Trial(lambda plan, run_id: TemporalDriver(settings, plan, sandbox, run_id), shortened)


@pytest.mark.parametrize("first", range(8, 18, 2))
async def test_runs_on_temporal(first: int, trial: Trial) -> None:
    """Runs of each kind have the value of the plain run, and each effect once, as with a journal."""
    await trial.hold(range(first, first + 2))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(30_000, 30_200, 20))
async def test_many_runs_on_temporal(first: int, trial: Trial) -> None:
    """Two hundred sequences hold."""
    await trial.hold(range(first, first + 20))
