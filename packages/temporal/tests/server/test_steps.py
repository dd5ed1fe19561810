"""The names of steps on Temporal: all that a run does there is named by one key, and no two things at a time alike."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from packages.temporal.tests.server.test_runs import running
from temporalio import workflow
from temporalio.client import WorkflowHandle
from tests.waiting import until

from toolexec import Exec, Gate, Policy, Rule, Step
from toolexec.errors import RunError
from toolexec_temporal import TemporalEngine, TemporalSettings
from toolexec_temporal.workflows import ChainWorkflow

_APPROVALS = """total = 0
for n in range(4):
    total = tools.math.add(a=total, b=n)
return total
"""


async def _handle(ex: Exec, settings: TemporalSettings, run_id: str) -> WorkflowHandle[Any, Any]:
    engine = ex.options.journal
    assert isinstance(engine, TemporalEngine)
    return (await engine.client()).get_workflow_handle(f"{settings.prefix}{run_id}")


async def test_code_goes_on_after_many_approvals(settings: TemporalSettings) -> None:
    """Each approval stops the sandbox and starts it again; that never has the name of a call that is under way."""
    gate = Gate(policy=Policy([Rule("ask", tools="math:*")]))
    async with running(settings, gate=gate) as ex:
        result = await ex.execute_code(_APPROVALS, durable="asks", timeout=120)
        handle = await _handle(ex, settings, "asks")

        async def is_stopped() -> bool:
            return not (await handle.describe()).raw_description.pending_activities

        for _ in range(4):
            assert result.error is not None
            assert result.error.code == "run_waiting"
            await until(is_stopped, 0.1)
            [wait] = (await ex.runs.get("asks")).waits
            assert await ex.runs.signal("asks", wait.name, "once")
            async with asyncio.timeout(60):
                result = await ex.runs.resume("asks")
        history = await handle.fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    names = {(each.activity_type.name, each.activity_id) for each in scheduled if each.activity_id}
    assert result.raise_for_error().value == 6
    assert {step for kind, step in names if kind == "run_code"} >= {"?code.1", "?code.2", "?code.5"}
    assert all(step.isdigit() for kind, step in names if kind == "call_tool")


@pytest.mark.parametrize("kind", ["chain", "code"])
async def test_a_run_that_fails_has_failed_on_the_server(settings: TemporalSettings, kind: str) -> None:
    """Temporal's own list says so, as do `list` and `get`; result and calls are those of any run."""
    async with running(settings) as ex:
        result: Any
        if kind == "chain":
            result = await ex.run_chain([Step("math:add", {"a": 1, "b": "x"})], durable="fails")
        else:
            result = await ex.execute_code("tools.math.add(a=1, b=2)\nreturn 1 / 0", durable="fails", timeout=120)
        again = await ex.runs.resume("fails")
        described = await (await _handle(ex, settings, "fails")).describe()
        calls = await ex.runs.calls("fails")

        async def listed() -> bool:
            return [run.id for run in await ex.runs.list(["failed"])] == ["fails"]

        await until(listed, 0.2)
    assert result.error is not None
    assert again.error is not None
    assert str(again.error) == str(result.error)
    assert described.status is not None
    assert described.status.name == "FAILED"
    assert [call.tool for call in calls] == ["math:add"]


async def test_a_run_that_is_stuck_can_be_cancelled(
    settings: TemporalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workflow that fails whenever it is tried takes in nothing: cancelling ends it all the same."""

    async def run(self: ChainWorkflow) -> dict[str, Any]:
        try:
            await workflow.sleep(0.05)
        finally:
            raise RuntimeError("a mistake in the workflow")

    monkeypatch.setattr(ChainWorkflow, "_run", run)
    async with running(settings) as ex:
        begun = asyncio.create_task(ex.run_chain([Step("math:add", {"a": 1, "b": 2})], durable="stuck"))

        async def is_ended() -> bool:
            with suppress(RunError):  # it has not begun
                return await ex.runs.cancel("stuck")
            return False

        await until(is_ended, 0.5)
        result = await begun
        record = await ex.runs.get("stuck")
    assert result.error is not None
    assert (result.error.code, record.state) == ("run_cancelled", "cancelled")
