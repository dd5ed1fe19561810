"""One model of durable runs: whatever happens to a run, it comes to what the plain run of its program comes to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from tests.durable.model.local import LocalDriver, Machine, MortalSQLite
from tests.durable.model.plans import Action, Op, Plan, make_plan, smaller
from tests.durable.model.play import play

from toolexec.runtime.wasm import WasmBackend


class Trial:
    """Plays plans on journals that *opened* opens, and shows the smallest one that fails."""

    def __init__(self, machine: Machine, opened: Callable[[], MortalSQLite]) -> None:
        self._machine = machine
        self._opened = opened
        self._sandbox = WasmBackend()
        self._numbers = count()

    async def hold(self, seeds: range) -> None:
        """Play the plans of *seeds*; raise AssertionError for one that fails."""
        for seed in seeds:
            await self.play(make_plan(seed))

    async def play(self, plan: Plan) -> None:
        """Play one plan; raise AssertionError if it fails."""
        error = await self._failure(plan)
        if error is not None:
            plan, error = await self._least(plan, error)
            raise AssertionError(f"{error}\n{plan.text()}") from error

    async def _failure(self, plan: Plan) -> Exception | None:
        driver = LocalDriver(self._machine, self._opened, plan, self._sandbox, f"r{next(self._numbers)}")
        try:
            await play(plan, driver)
        except Exception as error:
            return error
        finally:
            await driver.aclose()
        return None

    async def _least(self, plan: Plan, error: Exception) -> tuple[Plan, Exception]:
        """Leave out of a plan that fails whatever it fails without."""
        for less in smaller(plan):
            found = await self._failure(less)
            if found is not None:
                return await self._least(less, found)
        return plan, error


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """Processes of one machine that share a file."""
    machine = Machine(monkeypatch)
    return Trial(machine, lambda: MortalSQLite(tmp_path / "runs.db", clock=machine.time.time, keep=None))


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
