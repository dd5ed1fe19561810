"""The model of durable runs, with a journal on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from tests.durable.model.local import LocalDriver
from tests.durable.model.mortal import Machine, MortalPostgres
from tests.durable.model.trial import Trial
from tests.durable.postgres import Server, server

from toolexec.runtime.wasm import WasmBackend

pytestmark = pytest.mark.full
_numbers = count()


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    """Start a server for the tests of this module."""
    with server() as started:
        yield started


@pytest.fixture
def trial(database: Server, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """Processes that share a server, though the clock of all is the machine's."""
    machine, sandbox = Machine(monkeypatch), WasmBackend()
    schema = f"model_{next(_numbers)}"

    def opened() -> MortalPostgres:
        return MortalPostgres(database.dsn, schema=schema, keep=None)

    return Trial(lambda plan, run_id: LocalDriver(machine, opened, plan, sandbox, run_id))


@pytest.mark.parametrize("first", range(100, 120, 4))
async def test_runs_on_a_server(first: int, trial: Trial) -> None:
    """Runs of each kind have the value of the plain run, and each effect once, as with a file."""
    await trial.hold(range(first, first + 4))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(20_000, 21_000, 100))
async def test_many_runs_on_a_server(first: int, trial: Trial) -> None:
    """A thousand sequences hold."""
    await trial.hold(range(first, first + 100))
