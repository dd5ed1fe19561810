"""Schedules on Temporal: its server makes the runs, each once, and keeps what they are."""

from __future__ import annotations

import pytest
from tests.waiting import until

from toolexec import Exec, Step
from toolexec.errors import ConfigurationError, RunError
from toolexec.journal import Queue, RunRecord
from toolexec.model import Caller, Origin, acting
from toolexec_temporal import TemporalEngine, TemporalSettings

CHAIN = [Step("s:note", {"text": "now"})]
CODE = "import random, time\nnow = time.time()\nreturn [tools.s.note(text='code'), random.random(), now]"


def _exec(settings: TemporalSettings) -> Exec:
    ex = Exec(journal=TemporalEngine(settings), queues={"q": Queue(worker_concurrency=1)})
    ex.add(lambda text: text, "s:note")
    return ex


async def test_a_schedule_makes_runs(settings: TemporalSettings) -> None:
    """Each time makes one run with an ID, a clock and random numbers of its own, for the caller that added it; a
    schedule that is paused or removed makes no more."""
    async with _exec(settings) as ex, ex.worker(isolations=["wasm"]):
        with acting(Origin(caller=Caller(id="ann"))):
            made = await ex.schedules.add("tick", every=1.0, code=CODE, queue="q", priority=2)
        assert (made.name, made.timing.every, made.program["queue"], made.paused) == ("tick", 1.0, "q", False)

        async def two() -> list[RunRecord]:
            found = await ex.runs.list(["done"])
            return found if len(found) >= 2 else []

        runs = await until(two, 0.1)
        assert await ex.schedules.pause("tick")
        [known] = await until(ex.schedules.list, 0.1)
        assert known.paused
        assert known.fired >= 2
        assert known.last is not None
        values = [(await ex.runs.resume(run.id)).raise_for_error().value for run in runs[:2]]
        assert await ex.schedules.pause("tick", False)
        assert await ex.schedules.remove("tick")
        assert not await ex.schedules.remove("tick")
        assert not await ex.schedules.pause("tick")
    assert all(run.id.startswith("tick-20") and run.id.endswith("Z") for run in runs)
    assert {(run.kind, run.caller, run.queue, run.priority) for run in runs} == {("code", "ann", "q", 2)}
    (one, first, then), (other, second, after) = values
    assert (one, other) == ("code", "code")
    assert first != second
    assert then != after
    assert all(value[2] == pytest.approx(run.started, abs=0.01) for value, run in zip(values, runs, strict=False))


async def test_a_schedule_is_the_same_until_it_is_replaced(settings: TemporalSettings) -> None:
    """Added again with the same it changes nothing; with other times it is refused, unless it is to be replaced."""
    async with _exec(settings) as ex:
        line = "0 7 1 * 1"
        made = await ex.schedules.add("report", cron=line, tz="Europe/Berlin", chain=CHAIN)
        assert (await ex.schedules.add("report", cron=line, tz="Europe/Berlin", chain=CHAIN)).due == made.due
        assert made.due == made.timing.first(made.created)
        with pytest.raises(RunError, match="there is a schedule report already"):
            await ex.schedules.add("report", cron="0 8 * * *", chain=CHAIN)
        other = await ex.schedules.add("report", cron="0 8 * * *", chain=CHAIN, replace=True)
        assert (other.timing.cron, other.timing.tz) == ("0 8 * * *", "UTC")
        with pytest.raises(ConfigurationError, match="every must be whole seconds on Temporal"):
            await ex.schedules.add("half", every=1.5, chain=CHAIN)
        with pytest.raises(ConfigurationError, match="Temporal cannot keep the schedule last"):
            await ex.schedules.add("last", cron="0 7 L * *", chain=CHAIN)
        assert await ex.schedules.remove("report")
