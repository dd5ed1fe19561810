"""Runs whose results are large together, with the settings that everybody has: they end, and say why they fail."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from typing import Any

import pytest
from packages.temporal.tests.server.test_runs import running
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from tests.waiting import until

from toolexec import Exec, Step
from toolexec_temporal import TemporalEngine, TemporalSettings

_MANY = 6
_EACH = 300_000


def _random(n: int) -> str:
    """Return text of 600 kB that does not compress to less than half."""
    return random.Random(n).randbytes(_EACH).hex()


_CODE = f"""import asyncio
parts = await asyncio.gather(*[tools.t.part(n=n) for n in range({_MANY})])
tools.run("run:signal", {{"name": "go"}})
return [len(part) for part in parts]
"""
_WORKFLOW = f"""parts := parallel for n in range({_MANY + 4}) limit 2 {{ run("t:part", {{n: n}}) }}
return parts[0]
"""


async def test_code_with_large_results_ends(settings: TemporalSettings) -> None:
    """Results that come together and go to a sandbox that was started again: page by page."""
    async with running(settings) as ex, asyncio.timeout(90):
        ex.add(_random, "t:part")
        result = await ex.execute_code(_CODE, durable="large", timeout=120)
        assert result.error is not None
        assert result.error.code == "run_waiting"
        await ex.runs.signal("large", "go")
        result = await ex.runs.follow("large")
        calls, signals = await ex.runs.calls("large"), await ex.runs.signals("large")
    assert result.raise_for_error().value == [2 * _EACH] * _MANY
    assert len(calls) == _MANY + 1
    assert [(signal.name, bool(signal.taken_by)) for signal in signals] == [("go", True)]


async def test_a_workflow_and_a_chain_with_large_results_end(settings: TemporalSettings) -> None:
    """The calls are read from the history, also by another caller later."""
    async with running(settings) as ex, asyncio.timeout(90):
        ex.add(_random, "t:part")
        flow = await ex.run_workflow(_WORKFLOW, durable="flow")
        chain = await ex.run_chain([Step("t:part", {"n": n}) for n in range(10)], durable="chain")
        calls = await ex.runs.calls("flow")
    assert flow.raise_for_error().value == _random(0)
    assert len(calls) == len(flow.tool_calls) == _MANY + 4
    assert [step.value for step in chain.steps] == [_random(n) for n in range(10)]


@pytest.mark.parametrize("kind", ["chain", "workflow", "code"])
async def test_what_goes_nowhere_is_an_error(settings: TemporalSettings, kind: str) -> None:
    """A value or arguments that no history takes fail the run at once, and say what to set."""
    references: Any = {str(n): {"$ref": f"steps.{n}"} for n in range(7)}
    many = "return [tools.t.part(n=n) for n in range(7)]"
    async with running(settings) as ex, asyncio.timeout(90):
        ex.add(_random, "t:part")
        ex.add(lambda parts: len(parts), "t:count")
        result: Any
        if kind == "chain":
            steps = [*(Step("t:part", {"n": n}) for n in range(7)), Step("t:count", {"parts": references})]
            result = await ex.run_chain(steps, durable="chain")
            assert result.error is not None
            assert (result.error.code, len(result.steps)) == ("validation_input", 8)
            return
        if kind == "workflow":
            source = 'return parallel for n in range(7) limit 2 { run("t:part", {n: n}) }'
            with pytest.raises(Exception, match="large_directory"):
                await ex.run_workflow(source, durable="flow")
            return
        with pytest.raises(Exception, match="large_directory"):
            await ex.execute_code(many, durable="code", timeout=120)


async def test_a_server_that_is_away_for_a_moment_fails_no_run(
    settings: TemporalSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exchange of the sandbox is repeated under the same ID, so that its calls are made once."""
    send = WorkflowHandle[Any, Any].execute_update
    failures = iter([RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED])
    made: list[int] = []

    async def execute(self: WorkflowHandle[Any, Any], update: Any, *args: Any, **options: Any) -> Any:
        answer = await send(self, update, *args, **options)
        for status in failures if update == "exchange" else ():
            raise RPCError("away", status, b"")
        return answer

    monkeypatch.setattr(WorkflowHandle, "execute_update", execute)
    async with running(settings) as ex:
        ex.add(lambda n: made.append(n) or n, "t:note")
        result = await ex.execute_code("return [tools.t.note(n=n) for n in range(3)]", durable="away", timeout=120)
    assert result.raise_for_error().value == made == [0, 1, 2]
    assert [*failures] == []


async def test_a_list_leaves_out_what_it_cannot_read(
    settings: TemporalSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs of another key are named in the log, and the others are listed."""
    keyed = replace(settings, key="a secret of more than sixteen characters")
    async with Exec(journal=TemporalEngine(keyed)) as other, running(settings) as ex:
        begun = asyncio.create_task(other.run_chain([Step("math:add", {"a": 1, "b": 2})], durable="theirs"))
        await ex.run_chain([Step("math:add", {"a": 1, "b": 2})], durable="mine")

        async def listed() -> bool:
            with caplog.at_level(logging.WARNING):
                return [run.id for run in await ex.runs.list()] == ["mine"] and "theirs" in caplog.text

        await until(listed, 0.2)
        begun.cancel()
        await asyncio.wait([begun])
