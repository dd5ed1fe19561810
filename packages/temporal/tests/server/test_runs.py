"""Chains, workflows and code as durable runs on Temporal: the same calls and results as on one machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from packages.temporal.tests.server.programs import engine_of
from packages.temporal.tests.server.servers import DevServer
from temporalio.worker import Replayer
from tests.waiting import until

from toolexec import Exec, Gate, Policy, Rule, Step, tool
from toolexec.errors import JournalError, RunBusyError, RunError
from toolexec.exec import worker as workers
from toolexec_temporal import TemporalEngine, TemporalSettings

_REPLAYED = "replay-None"
"""The task queue that a Replayer says it works on."""


@asynccontextmanager
async def running(settings: TemporalSettings, **options: Any) -> AsyncIterator[Exec]:
    """Give an Exec with some tools whose runs are on Temporal, and a worker for them in this process."""
    ex = Exec(journal=TemporalEngine(settings), **options)
    ex.add(lambda a, b: a + b, "math:add")
    async with ex, ex.worker():
        yield ex


def chain_of(length: int) -> list[Step]:
    """Return a chain that adds one to the value before."""
    first = Step("math:add", {"a": 0, "b": 1})
    return [first, *(Step("math:add", {"a": {"$ref": f"steps.{n - 1}"}, "b": 1}) for n in range(1, length))]


async def test_a_chain_runs_and_is_found_again(settings: TemporalSettings) -> None:
    """A chain ends with its value; begun again with the same ID and steps it gives the same result, and calls
    nothing."""
    async with running(settings) as ex:
        result = await ex.run_chain(chain_of(5), durable="chain")
        again = await ex.run_chain(chain_of(5), durable="chain")
        record = await ex.runs.get("chain")
        calls = await ex.runs.calls("chain")
        await until(lambda: _listed(ex, "chain"), 0.1)
    assert result.value == again.value == 5
    assert [step.value for step in again.steps] == [1, 2, 3, 4, 5]
    assert record.state == "done"
    assert [call.step for call in calls] in ([], ["0", "1", "2", "3", "4"])


async def _listed(ex: Exec, run_id: str) -> bool:
    return [(run.id, run.state) for run in await ex.runs.list()] == [(run_id, "done")]


async def test_another_chain_of_the_same_id_is_refused(settings: TemporalSettings) -> None:
    """An ID stands for one source and its inputs."""
    async with running(settings) as ex:
        await ex.run_chain(chain_of(2), durable="chain")
        with pytest.raises(RunError) as caught:
            await ex.run_chain(chain_of(3), durable="chain")
    assert caught.value.code == "run_changed"


async def test_a_workflow_with_parallel_branches(settings: TemporalSettings) -> None:
    """Branches, pauses and failures that are caught do what they do in one process."""
    source = """sums := parallel for n in range(12) limit 4 {
  run("math:add", {a: n, b: n})
}
return sums
"""
    async with running(settings) as ex:
        here = await ex.run_workflow(source)
        there = await ex.run_workflow(source, durable="workflow")
    assert there.raise_for_error().value == here.raise_for_error().value == [2 * n for n in range(12)]
    assert len([call for call in there.tool_calls if call.tool_id == "math:add"]) == len(here.tool_calls)


async def test_code_runs_in_a_sandbox(settings: TemporalSettings) -> None:
    """Python in the embedded sandbox makes its calls by the workflow, one by one and all at once."""
    code = """import asyncio
print("adding")
total = tools.math.add(a=1, b=2)
return [total, await asyncio.gather(*[tools.math.add(a=n, b=total) for n in range(20)])]
"""
    async with running(settings) as ex:
        result = await ex.execute_code(code, durable="code", timeout=120)
    assert result.raise_for_error().value == [3, [n + 3 for n in range(20)]]
    assert result.stdout == "adding\n"
    assert len(result.tool_calls) == 21


async def test_a_long_run_continues_in_a_new_history(settings: TemporalSettings) -> None:
    """A chain, a workflow and code that outgrow their history go on in another one, and call nothing twice."""
    settings = replace(settings, max_events=60)
    made: list[int] = []
    async with running(settings) as ex:
        ex.add(lambda n: made.append(n) or n, "t:note")
        chain = await ex.run_chain([Step("t:note", {"n": n}) for n in range(30)], durable="chain")
        source = 'return parallel for n in range(30) limit 3 { run("t:note", {n: 100 + n}) }'
        workflow = await ex.run_workflow(source, durable="workflow")
        code = "return [tools.t.note(n=200 + n) for n in range(20)]"
        python = await ex.execute_code(code, durable="code", timeout=120)
        handle = (await engine_of(ex).client()).get_workflow_handle(f"{settings.prefix}chain")
        first = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
    assert chain.raise_for_error().value == 29
    assert workflow.raise_for_error().value == [100 + n for n in range(30)]
    assert python.raise_for_error().value == [200 + n for n in range(20)]
    assert sorted(made) == [*range(30), *range(100, 130), *range(200, 220)]
    assert first.continued_execution_run_id


@pytest.mark.parametrize("kind", ["chain", "code"])
async def test_a_run_waits_for_a_signal(settings: TemporalSettings, kind: str) -> None:
    """The result says that the run waits, and for what; a signal wakes it, and the run ends with what came."""
    async with running(settings) as ex:
        if kind == "chain":
            steps = [Step("run:signal", {"name": "go"}), Step("math:add", {"a": {"$ref": "steps.0"}, "b": 1})]
            waiting: Any = await ex.run_chain(steps, durable="waits")
        else:
            code = 'n = tools.run("run:signal", {"name": "go"})\nreturn tools.math.add(a=n, b=1)'
            waiting = await ex.execute_code(code, durable="waits", timeout=120)
        assert waiting.error is not None
        assert waiting.error.code == "run_waiting"
        record = await ex.runs.get("waits")
        assert [(wait.kind, wait.name) for wait in record.waits] == [("signal", "go")]
        assert await ex.runs.signal("waits", "go", 41)
        result = await ex.runs.resume("waits")
    assert result.raise_for_error().value == 42


async def test_a_call_waits_for_its_approval(settings: TemporalSettings) -> None:
    """A call that the policy asks about becomes a wait; yes makes the call, no is the call's failure."""
    gate = Gate(policy=Policy([Rule("ask", tools="math:*")]))
    async with running(settings, gate=gate) as ex:
        for run_id, answer in (("yes", "once"), ("no", "no")):
            waiting = await ex.run_chain(chain_of(1), durable=run_id)
            assert waiting.error is not None
            assert waiting.error.code == "run_waiting"
            [wait] = (await ex.runs.get(run_id)).waits
            assert (wait.kind, wait.name) == ("approval", "approve:0")
            assert await ex.runs.signal(run_id, wait.name, answer)
        yes, no = await ex.runs.resume("yes"), await ex.runs.resume("no")
    assert yes.value == 1
    assert no.error is not None
    assert no.error.code == "approval_denied"


async def test_cancelling_reaches_the_tool(settings: TemporalSettings) -> None:
    """A call that is under way is cancelled with its run."""
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool("t:hang")
    async def hang() -> None:
        """Never ends by itself."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with running(settings, default_timeout=None) as ex:
        ex.add(hang)
        task = asyncio.create_task(ex.run_chain([Step("t:hang")], durable="hangs"))
        await asyncio.wait_for(begun.wait(), 60)
        await ex.runs.cancel("hangs")
        await asyncio.wait_for(ended.wait(), 60)
        result = await task
        record = await ex.runs.get("hangs")
    assert result.error is not None
    assert result.error.code == "run_cancelled"
    assert record.state == "cancelled"


async def test_cancelling_reaches_the_sandbox(settings: TemporalSettings) -> None:
    """Code that runs for ever is stopped with its run, and its worker is free again."""
    async with running(settings) as ex:
        code = "tools.math.add(a=1, b=2)\nwhile True: pass"
        task = asyncio.create_task(ex.execute_code(code, durable="loops", timeout=600))
        await until(lambda: _called(ex, "loops"), 0.1)
        await ex.runs.cancel("loops")
        result = await task
        assert result.error is not None
        assert result.error.code == "run_cancelled"
        after = await ex.execute_code("return 1", durable="after", timeout=60)
    assert after.value == 1


async def _called(ex: Exec, run_id: str) -> bool:
    try:
        return [call.state for call in await ex.runs.calls(run_id)] == ["done"]
    except (RunError, JournalError):
        return False


async def test_a_run_that_is_not_there(settings: TemporalSettings) -> None:
    """Everything that names an unknown run says so."""
    async with running(settings) as ex:
        for ask in (ex.runs.get, ex.runs.cancel, ex.runs.resume, lambda run_id: ex.runs.signal(run_id, "go")):
            with pytest.raises(RunError) as caught:
                await ask("nowhere")
            assert caught.value.code == "run_not_found"
        assert await ex.runs.delete("nowhere") is False


async def test_a_run_that_has_ended_takes_no_signal(settings: TemporalSettings) -> None:
    """A signal comes too late; a run that goes on cannot be forgotten."""
    async with running(settings) as ex:
        await ex.run_chain(chain_of(1), durable="over")
        with pytest.raises(RunError) as caught:
            await ex.runs.signal("over", "go")
        assert caught.value.code == "run_ended"
        await ex.run_chain([Step("run:signal", {"name": "go"})], durable="open")
        with pytest.raises(RunBusyError):
            await ex.runs.delete("open")
        await ex.runs.cancel("open")


async def test_a_server_that_is_not_there() -> None:
    """The error says where it was looked for."""
    ex = Exec(journal=TemporalEngine(address="127.0.0.1:9"))
    async with ex:
        with pytest.raises(JournalError, match=r"127\.0\.0\.1:9"):
            await ex.run_chain([Step("t:x")], durable="x")


async def test_recorded_histories_are_repeated_by_this_version(settings: TemporalSettings, server: DevServer) -> None:
    """The history of a run is repeated without a deviation; that of other workflow code is refused."""
    from toolexec_temporal.host import hosted, unhosted
    from toolexec_temporal.workflows import ChainWorkflow, ProgramWorkflow

    async with running(settings) as ex:
        await ex.run_chain(chain_of(3), durable="chain")
        await ex.run_workflow("return 1", durable="workflow")
        client = await engine_of(ex).client()
        history = await client.get_workflow_handle(f"{settings.prefix}chain").fetch_history()
        text = history.to_json()
        host, threads = workers.ExecHost(ex._parts), ThreadPoolExecutor(2)
        hosted(_REPLAYED, host)
        try:
            replayer = Replayer(
                workflows=[ChainWorkflow, ProgramWorkflow],
                workflow_task_executor=threads,
                data_converter=client.data_converter,
            )
            await replayer.replay_workflow(history)
            changed = type(history).from_json(history.workflow_id, text.replace('"call_tool"', '"other_tool"'))
            assert changed.to_json() != text
            found = await replayer.replay_workflow(changed, raise_on_replay_failure=False)
        finally:
            unhosted(_REPLAYED, host)
            threads.shutdown()
    assert "ondeterminism" in repr(found.replay_failure)
