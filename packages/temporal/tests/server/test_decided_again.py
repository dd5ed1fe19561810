"""A run on Temporal is decided on by the rules of each worker that goes on with it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
from packages.temporal.tests.server.test_engine import FLOW, WAITS, Worker

from toolexec import Exec, Gate, Policy, Rule
from toolexec.errors import ToolExecError
from toolexec_temporal import TemporalSettings

CODE = "tools.t.note(n=1)\ntools.run('run:signal', {'name': 'go'})\nreturn tools.t.note(n=2)"
KINDS = ("chain", "workflow", "code")


@pytest.fixture
def worker(settings: TemporalSettings) -> Worker:
    """A worker's tools."""
    return Worker(settings)


async def begin(ex: Exec, kind: str) -> Any:
    """Begin a run that waits for a signal between two calls."""
    if kind == "chain":
        return await ex.run_chain(WAITS, durable="run")
    if kind == "workflow":
        return await ex.run_workflow(FLOW, durable="run")
    return await ex.execute_code(CODE, durable="run", timeout=120)


async def error_of(run: Awaitable[Any]) -> str:
    """Return why a run failed; one of code is refused as a whole."""
    try:
        return str((await run).error)
    except ToolExecError as error:
        return str(error)


@pytest.mark.parametrize("effect", ["deny", "ask"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_rule_of_today_stops_a_run_of_yesterday(worker: Worker, kind: str, effect: Any) -> None:
    """A worker whose rules deny the run, or ask about one that was not approved, makes no more of its calls."""
    async with worker.open() as ex:
        assert "suspended until" in await error_of(begin(ex, kind))
    gate = Gate(policy=Policy([Rule(effect, runs=kind)]))
    async with worker.open(gate=gate) as ex:
        await ex.runs.signal("run", "go")
        error = await error_of(ex.runs.follow("run"))
    assert {"deny": "forbids running", "ask": "needs an approval"}[effect] in error
    assert worker.done == [1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_decides_on_what_a_caller_without_rules_begins(worker: Worker, kind: str) -> None:
    """The rules of the machine hold where a caller has none."""
    gate = Gate(policy=Policy([Rule("deny", runs=kind)]))
    async with worker.open(gate=gate), worker.exec() as caller:
        assert "forbids running" in await error_of(begin(caller, kind))
    assert worker.done == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rule_of_today_stops_a_call_of_a_run_of_yesterday(worker: Worker, kind: str) -> None:
    """Calls are decided on one by one, by the rules of the worker that makes them."""
    async with worker.open() as ex:
        assert "suspended until" in await error_of(begin(ex, kind))
    gate = Gate(policy=Policy([Rule("deny", tools="t:note", when={"n": {"equals": 2}}), Rule("allow")]))
    async with worker.open(gate=gate) as ex:
        await ex.runs.signal("run", "go")
        error = await error_of(ex.runs.follow("run"))
    assert "forbids this call of t:note" in error
    assert worker.done == [1]
