"""Queues on Temporal: a place in one is an activity on a task queue, whose limits are Temporal's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from packages.temporal.tests.server.programs import engine_of
from packages.temporal.tests.server.servers import DevServer
from temporalio.client import WorkflowHandle
from tests.waiting import until

from toolexec import Exec, Step
from toolexec.errors import RunError
from toolexec.journal import Queue, RunRecord
from toolexec_temporal import TemporalEngine, TemporalSettings
from toolexec_temporal.settings import queue_of_slots
from toolexec_temporal.slots import QueueSlots, SlotHolder, SlotRequest, SlotsState

ONE = pytest.mark.parametrize("limits", [{"worker_concurrency": 1}, {"concurrency": 1}], ids=["worker", "all"])
"""One place at once: of the one worker, and of all workers together."""


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    """Start a server whose task queues keep to the order of priorities."""
    server = DevServer(one_part=True)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Bench:
    """An Exec with one queue, whose tool keeps what it does, and how many do it at once."""

    def __init__(self, settings: TemporalSettings, **limits: Any) -> None:
        self.done: list[str] = []
        self.most = 0
        self.gate = asyncio.Event()
        self._now = 0
        self.ex = Exec(journal=TemporalEngine(settings), queues={"q": Queue(**limits)})
        self.ex.add(self.mark, "q:mark")
        self.ex.add(self.hold, "q:hold")

    async def mark(self, name: str) -> str:
        """Note that a run is here."""
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0.05)
        self._now -= 1
        self.done.append(name)
        return name

    async def hold(self, name: str) -> str:
        """Note the same once the gate is open."""
        await self.gate.wait()
        return await self.mark(name)

    async def put(self, name: str, *steps: Step, **given: Any) -> RunRecord:
        """Put a chain into the queue, whose last step notes its name."""
        chain: Sequence[Step] = [*steps, Step("q:mark", {"name": name})]
        return await self.ex.runs.enqueue("q", chain=chain, run_id=name, **given)

    async def is_queued(self, name: str) -> bool:
        """Return whether a run waits for its place, by its workflow's word."""
        engine = engine_of(self.ex)
        handle = (await engine.client()).get_workflow_handle(f"{engine.settings.prefix}{name}")
        return bool((await handle.query("progress"))["queued"])


@ONE
async def test_runs_of_a_queue_take_turns(settings: TemporalSettings, limits: dict[str, int]) -> None:
    """One worker with one place has one run at a time, the urgent ones first; an ID is one run; what waits is shown."""
    bench = Bench(settings, **limits)
    async with bench.ex as ex:
        made = await bench.put("first", Step("q:hold", {"name": "first"}))
        assert (made.state, made.queue, made.calls) == ("queued", "q", 0)
        assert (await bench.put("first", Step("q:hold", {"name": "first"}))).id == "first"
        with pytest.raises(RunError, match="begun with another source"):
            await bench.put("first")
        async with ex.worker(isolations=[]) as worker:
            assert f"{settings.task_queue}-queue-q" in worker.queues
            await until(lambda: _is(ex, "first", "running"), 0.05)
            for name, priority in (("late", 5), ("usual", 0), ("urgent", -1)):
                await bench.put(name, priority=priority)
                await until(lambda name=name: bench.is_queued(name), 0.05)
            [run] = await until(lambda: ex.runs.list(["running"]), 0.1)
            assert (run.id, run.queue, run.started > 0) == ("first", "q", True)
            await until(lambda: _counts_are(ex, 3, 1, 0), 0.05)  # the server's index comes after its runs
            bench.gate.set()
            for name in ("first", "late", "usual", "urgent"):
                (await ex.runs.follow(name)).raise_for_error()
    assert bench.done == ["first", "first", "urgent", "usual", "late"]
    assert bench.most == 1


@ONE
async def test_a_run_that_waits_holds_no_place(settings: TemporalSettings, limits: dict[str, int]) -> None:
    """While a run waits for a signal, and a program for another, others take place; both go on when they can. A run
    that waits in the queue can be cancelled."""
    bench = Bench(settings, **limits)
    code = 'name = tools.run("run:signal", {"name": "say"})\nreturn tools.q.mark(name=name)'
    async with bench.ex as ex, ex.worker(isolations=["wasm"]):
        await bench.put("chain", Step("run:signal", {"name": "go"}))
        await ex.runs.enqueue("q", code=code, run_id="code")
        await bench.put("between")
        await ex.runs.follow("between")
        await until(lambda: _is(ex, "code", "waiting"), 0.05)
        assert bench.done == ["between"]
        await bench.put("held", Step("q:hold", {"name": "held"}))
        await until(lambda: _is(ex, "held", "running"), 0.05)
        await bench.put("gone")
        await until(lambda: bench.is_queued("gone"), 0.05)
        await ex.runs.cancel("gone")
        await until(lambda: _is(ex, "gone", "cancelled"), 0.05)
        await ex.runs.signal("chain", "go")
        await ex.runs.signal("code", "say", "code")
        bench.gate.set()
        for name in ("chain", "held", "code"):
            (await ex.runs.follow(name)).raise_for_error()
    assert sorted(bench.done) == ["between", "chain", "code", "held", "held"]
    assert bench.most == 1


@ONE
async def test_a_new_history_takes_the_place_again(settings: TemporalSettings, limits: dict[str, int]) -> None:
    """A long run of a queue goes on in a new history; it is known as one that has begun, and still one run takes place."""
    bench = Bench(replace(settings, max_events=50), **limits)
    steps = [Step("q:mark", {"name": str(number)}) for number in range(12)]
    async with bench.ex as ex, ex.worker(isolations=[]):
        await bench.put("long", *steps, Step("q:hold", {"name": "held"}))
        await until(lambda: len(bench.done) == 12, 0.05)
        await bench.put("short")
        client = await engine_of(ex).client()
        known = await client.get_workflow_handle(f"{settings.prefix}long").describe()
        assert known.raw_description.workflow_execution_info.first_run_id != known.run_id, "there is a new history"
        run = next(run for run in await ex.runs.list() if run.id == "long")
        assert (run.state, run.queue) == ("running", "q")
        assert run.started > 0
        bench.gate.set()
        for name in ("long", "short"):
            (await ex.runs.follow(name)).raise_for_error()
    assert bench.most == 1
    assert sorted(bench.done) == sorted([*map(str, range(12)), "held", "long", "short"])


async def test_a_run_begins_after_its_delay(settings: TemporalSettings) -> None:
    """Until then it is counted as one that is delayed."""
    bench = Bench(settings)
    async with bench.ex as ex, ex.worker(isolations=[]):
        made = await bench.put("later", delay=1.5)
        assert made.state == "queued"
        await until(lambda: _delayed(ex), 0.05)
        assert (await ex.runs.follow("later")).value == "later"
        run = await ex.runs.get("later")
        assert run.started - run.created >= 1.5


async def test_a_rate_holds_for_all_workers(settings: TemporalSettings) -> None:
    """Runs of a queue that begins two a second do not begin at once, however many may run at once."""
    bench = Bench(settings, worker_concurrency=10, rate=(2, 1.0))
    async with bench.ex as ex, ex.worker(isolations=[]):
        for number in range(8):
            await bench.put(f"r{number}")
        for number in range(8):
            (await ex.runs.follow(f"r{number}")).raise_for_error()
        begun = sorted([(await ex.runs.get(f"r{number}")).started for number in range(8)])
    assert begun[-1] - begun[0] >= 1.0


async def test_slots_are_known_in_a_new_history(settings: TemporalSettings) -> None:
    """Slots and waiting runs are carried over, and a run that asks twice waits once."""
    bench = Bench(settings, concurrency=1)
    async with bench.ex as ex:
        client = await engine_of(ex).client()
        one, two = (SlotHolder(name, "", 1) for name in ("one", "two"))
        state = SlotsState(limit=1, held=[one], waiting=[SlotRequest(two, 3, 1)])
        async with ex.worker(isolations=[]):
            slots = await client.start_workflow(
                QueueSlots.run, state, id="known", task_queue=queue_of_slots(settings.task_queue)
            )
            known = await slots.query(QueueSlots.state)
            assert known == state
            await slots.signal(QueueSlots.ask, SlotRequest(two, 3, 1))
            assert len((await slots.query(QueueSlots.state)).waiting) == 1, "asking twice is asking once"
            await slots.signal(
                QueueSlots.release, one
            )  # neither run is there, so that two gets it and it is free again
            await until(lambda: _slots_are(slots, SlotsState(limit=1)), 0.05)
            await slots.terminate()


async def _counts_are(ex: Exec, queued: int, running: int, delayed: int) -> bool:
    counts = (await ex.runs.queues())["q"][1]
    return (counts.queued, counts.running, counts.delayed) == (queued, running, delayed)


async def _is(ex: Exec, name: str, state: str) -> bool:
    return (await ex.runs.get(name)).state == state


async def _slots_are(slots: WorkflowHandle[QueueSlots, None], state: SlotsState) -> bool:
    return await slots.query(QueueSlots.state) == state


async def _delayed(ex: Exec) -> bool:
    return (await ex.runs.queues())["q"][1].delayed == 1
