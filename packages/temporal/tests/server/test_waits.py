"""What waits do to a run on Temporal: they stop no program that computes, and none of its time limit is theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from temporalio.client import Client
from tests.waiting import until

from toolexec import Exec
from toolexec.errors import RunWaitingError
from toolexec_temporal import TemporalEngine, TemporalSettings

COMPUTES = """
import asyncio
asking = asyncio.create_task(tools.run("run:input", {"question": "Which?", "name": "which"}))
first = await tools.t.twice(n=1)
for n in range(1_500_000):
    pass
second = await tools.t.twice(n=first)
NEXT
"""
ONE_OF_TWO = """
import asyncio
one, other = (asyncio.create_task(tools.run("run:signal", {"name": name})) for name in ("one", "other"))
first = await one
made = await tools.t.twice(n=first)
return [made, await other]
"""
WAITS = """
before := run("t:twice", {n: 1})
run("run:sleep", {seconds: 2})
signal := run("run:signal", {name: "go"})
return [before, signal, run("t:twice", {n: 2})]
"""
SLOW = """
signal := run("run:signal", {name: "go"})
return run("t:slow", {})
"""


@asynccontextmanager
async def opened(settings: TemporalSettings, made: list[int]) -> AsyncGenerator[Exec]:
    """Open a worker with a tool that notes its calls, and one that never ends by itself."""

    async def twice(n: int) -> int:
        made.append(n)
        return 2 * n

    async with Exec(journal=TemporalEngine(settings), default_timeout=None) as ex:
        ex.add(twice, "t:twice")
        ex.add(lambda: asyncio.Event().wait(), "t:slow")
        async with ex.worker():
            yield ex


async def is_stopped(settings: TemporalSettings) -> bool:
    """Return whether nothing of a run is under way."""
    client = await Client.connect(settings.address)
    known = await client.get_workflow_handle(f"{settings.prefix}run").describe()
    return not known.raw_description.pending_activities


async def test_code_that_computes_is_not_stopped(settings: TemporalSettings) -> None:
    """A question that is open meanwhile, and that the program may not need, does not keep it from its next call."""
    made: list[int] = []
    async with opened(replace(settings, linger=0.03), made) as ex:
        source = COMPUTES.replace("NEXT", "asking.cancel()\nreturn second")
        result = await ex.execute_code(source, durable="run", timeout=120)
    assert (result.value, result.error, made) == (4, None, [1, 2])


async def test_it_is_stopped_once_it_waits(settings: TemporalSettings) -> None:
    """The call after the computing is made, and then the run waits for the answer; none is made twice."""
    made: list[int] = []
    async with opened(replace(settings, linger=0.03), made) as ex:
        source = COMPUTES.replace("NEXT", "return [second, await asking]")
        result = await ex.execute_code(source, durable="run", timeout=120)
        assert isinstance(result.error, RunWaitingError), result.error
        assert made == [1, 2]
        await ex.runs.signal("run", "which", "this")
        result = await ex.runs.follow("run")
    assert (result.value, result.error, made) == ([4, "this"], None, [1, 2])


async def test_one_of_two_answers_wakes_code(settings: TemporalSettings) -> None:
    """Code whose sandbox was stopped goes on with one answer, though another question of it is open still."""
    made: list[int] = []
    async with opened(replace(settings, linger=0.02), made) as ex:
        result = await ex.execute_code(ONE_OF_TWO, durable="run", timeout=120)
        assert isinstance(result.error, RunWaitingError), result.error
        await until(lambda: is_stopped(settings), 0.05)
        await ex.runs.signal("run", "one", 3)
        while not made:
            result = await ex.runs.resume("run")
        assert isinstance(result.error, RunWaitingError), result.error
        await ex.runs.signal("run", "other", 4)
        result = await ex.runs.follow("run")
    assert (result.value, made) == ([6, 4], [3])


@pytest.mark.parametrize("linger", [0.2, 0.0])
async def test_the_time_limit_of_a_workflow_counts_no_waits(settings: TemporalSettings, linger: float) -> None:
    """A workflow that sleeps and waits for longer than its time limit goes on as one that does not."""
    made: list[int] = []
    async with opened(replace(settings, linger=linger), made) as ex:
        result = await ex.run_workflow(WAITS, durable="run", timeout=1.0)
        while not (isinstance(result.error, RunWaitingError) and result.error.waits[0]["kind"] == "signal"):
            assert isinstance(result.error, RunWaitingError), result.error
            result = await ex.runs.resume("run")
        await ex.runs.signal("run", "go", "now")
        result = await ex.runs.follow("run")
    assert (result.value, result.error, made) == ([2, "now", 4], None, [1, 2])


async def test_it_counts_what_follows_a_wait(settings: TemporalSettings) -> None:
    """After a wait a workflow has its whole time again, and no more than that."""
    async with opened(settings, []) as ex:
        result = await ex.run_workflow(SLOW, durable="run", timeout=1.0)
        assert isinstance(result.error, RunWaitingError), result.error
        await ex.runs.signal("run", "go")
        result = await ex.runs.follow("run")
    assert "timeout after 1 s" in str(result.error)
