"""One model of durable runs: whatever happens to a run, it comes to what the plain run of its program comes to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.durable.model.local import LocalDriver
from tests.durable.model.mortal import Machine, MortalSQLite
from tests.durable.model.plans import Action, Op, Plan
from tests.durable.model.trial import Trial

from toolexec.runtime.wasm import WasmBackend


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """Processes of one machine that share a file."""
    machine = Machine(monkeypatch)
    sandbox = WasmBackend()

    def opened() -> MortalSQLite:
        return MortalSQLite(tmp_path / "runs.db", clock=machine.time.time, keep=None)

    return Trial(lambda plan, run_id: LocalDriver(machine, opened, plan, sandbox, run_id))


async def test_a_few_runs_in_a_file(trial: Trial) -> None:
    """Runs of each kind have the value of the plain run, and each effect once."""
    await trial.hold(range(388, 392))


@pytest.mark.full
@pytest.mark.parametrize("first", [0, 30])
async def test_runs_in_a_file(first: int, trial: Trial) -> None:
    """Chance finds cases that no author thought of."""
    await trial.hold(range(first, first + 30))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(10_000, 12_000, 100))
async def test_many_runs_in_a_file(first: int, trial: Trial) -> None:
    """Two thousand sequences hold."""
    await trial.hold(range(first, first + 100))


async def test_a_call_that_was_refused_has_not_begun(trial: Trial) -> None:
    """A process that dies anywhere after the no leaves no question about whether the call did its work."""
    for number in range(1, 7):
        await trial.play(
            Plan(
                seed=number,
                kind="chain",
                statements=(((Op("guarded", 1),),),),
                answers={},
                allowed={1: False},
                actions=(Action("go"), Action("answer"), Action("die", number, where="after a write")),
            )
        )


async def test_a_slow_effect_is_waited_for(trial: Trial) -> None:
    """No time passes for a process that is making a call, however long the machine takes for it."""
    for seed in range(2):
        await trial.play(
            Plan(
                seed=seed,
                kind="python",
                statements=(((Op("nap", 1, 3600.0),), (Op("do", 2),)),),
                answers={},
                allowed={},
                actions=(Action("go"), Action("jump", seconds=7200.0), Action("rival"), Action("answer", 0)),
                same_machine=False,
                lingers=True,
                takes=0.5,
            )
        )
