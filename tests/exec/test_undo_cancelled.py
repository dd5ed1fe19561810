"""Undo of runs that are cancelled: what they have done is undone all the same, and reported in the cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.exec.test_undo import Trip

from toolexec import Gate, Step, tool
from toolexec.errors import InvalidChainError
from toolexec.run import undoing
from toolexec.run.audit import AuditLog
from toolexec.run.layers.audit import Audit
from toolexec.run.undo import UNDO

BOOK = 'run("trip:flight", {to: "Bern"})\nrun("trip:look")\nrun("trip:hotel", {nights: 2})\n'
BOOKED = (Step("trip:flight", {"to": "Bern"}), Step("trip:look"), Step("trip:hotel", {"nights": 2}))
BACK = ["cancel hotel 9", "cancel flight 7 Bern"]


class LongTrip(Trip):
    """A trip with tools that wait: for a signature, to look, and to take a train back."""

    def __init__(self, gate: Gate | None = None) -> None:
        super().__init__(gate)
        self.waits = asyncio.Event()
        self.signed = asyncio.Event()

        @tool("trip:sign")
        async def sign() -> None:
            self.waits.set()
            await self.signed.wait()

        @tool("trip:watch", read_only=True)
        async def watch() -> None:
            self.waits.set()
            await asyncio.Event().wait()

        @tool("trip:train", meta={UNDO: "trip:refund"})
        def train() -> None:
            self.done.append("train")

        @tool("trip:refund")
        async def refund() -> None:
            self.waits.set()
            await self.signed.wait()
            self.done.append("refund")

        for each in (sign, watch, train, refund):
            self.ex.add(each)

    async def cancel(self, run: Awaitable[Any]) -> str:
        """Cancel a run once it waits; return the notes of its cancellation."""
        task = asyncio.ensure_future(run)
        await asyncio.wait_for(self.waits.wait(), 20)
        self.waits.clear()
        task.cancel()
        return await notes_of(task)


async def notes_of(task: Awaitable[Any]) -> str:
    """Return the notes of the cancellation that a task ends with."""
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return "\n".join(getattr(caught.value, "__notes__", []))


@pytest.fixture
async def trip() -> AsyncIterator[LongTrip]:
    """A trip that is closed afterwards."""
    made = LongTrip()
    yield made
    await made.ex.aclose()


async def chain(trip: LongTrip, last: str, **settings: Any) -> Any:
    """Book a trip by a chain, with one more step that waits."""
    return await trip.run(*BOOKED, Step(last), **settings)


async def workflow(trip: LongTrip, last: str, **settings: Any) -> Any:
    """Book a trip by a workflow, with one more call that waits."""
    return await trip.ex.run_workflow(f'{BOOK}run("{last}")', on_error="undo", **settings)


WAYS = pytest.mark.parametrize("way", [chain, workflow])
Way = Callable[..., Awaitable[Any]]


@WAYS
async def test_a_cancelled_run_is_undone(trip: LongTrip, way: Way) -> None:
    """The finished steps are undone, the last one first, and the cancellation says so."""
    notes = await trip.cancel(way(trip, "trip:watch"))
    assert trip.done == ["flight Bern", "hotel 2", *BACK]
    assert notes == "undone: step 2 trip:hotel by trip:cancel, step 0 trip:flight by trip:cancel_flight"


@WAYS
async def test_the_step_that_was_stopped_is_reported(trip: LongTrip, way: Way) -> None:
    """The report says that it is unknown whether the step that was under way did its work."""
    notes = await trip.cancel(way(trip, "trip:sign"))
    assert trip.done[2:] == BACK
    assert "not undone: step 3 trip:sign (step 3 failed, and whether trip:sign did its work is unknown)" in notes


@WAYS
async def test_a_deadline_of_the_caller_counts(trip: LongTrip, way: Way) -> None:
    """A time limit around the run is a cancellation like any other, and the run ends with that limit."""
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(None) as limit:
            task = asyncio.ensure_future(trip.waits.wait())
            task.add_done_callback(lambda _: limit.reschedule(asyncio.get_running_loop().time()))
            await way(trip, "trip:watch")
    assert trip.done[2:] == BACK
    assert "undone: step 2" in "".join(getattr(caught.value.__cause__, "__notes__", []))


@WAYS
async def test_only_runs_that_are_to_be_undone(trip: LongTrip, way: Way) -> None:
    """A cancelled run without `undo` leaves what it has done."""
    run = trip.ex.run_chain([*BOOKED, Step("trip:watch")]) if way is chain else None
    notes = await trip.cancel(run or trip.ex.run_workflow(f'{BOOK}run("trip:watch")'))
    assert (trip.done, notes) == (["flight Bern", "hotel 2"], "")


async def test_a_cancellation_does_not_stop_the_undoing(trip: LongTrip) -> None:
    """A chain that has failed, and is cancelled while it is undone, is undone to the end; so is one cancelled twice."""
    task = asyncio.ensure_future(trip.run(BOOKED[0], Step("trip:train"), Step("trip:fail")))
    await asyncio.wait_for(trip.waits.wait(), 20)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    trip.signed.set()
    notes = await notes_of(task)
    assert trip.done == ["flight Bern", "train", "refund", "cancel flight 7 Bern"]
    assert notes == "undone: step 1 trip:train by trip:refund, step 0 trip:flight by trip:cancel_flight"


async def test_undoing_that_hangs_ends(trip: LongTrip, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the caller gets its cancellation in any case, and reads what was not undone."""
    monkeypatch.setattr(undoing, "UNDO_SECONDS", 0.05)
    notes = await trip.cancel(trip.run(BOOKED[0], Step("trip:train"), Step("trip:watch")))
    assert notes.startswith("not undone: step 1 trip:train (")
    assert "step 0 trip:flight (there was no time left for it)" in notes
    assert trip.done == ["flight Bern", "train"]


async def test_the_calls_are_in_the_audit_log(tmp_path: Path) -> None:
    """The calls that undo a cancelled chain are recorded as its own, before it ends as cancelled."""
    trip = LongTrip(Gate(audit=Audit(AuditLog.open(tmp_path / "audit.jsonl"))))
    await trip.cancel(chain(trip, "trip:watch"))
    await trip.ex.aclose()
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert any('"tool":"trip:cancel_flight"' in line and '"outcome":"ok"' in line for line in lines)
    ended = [place for place, line in enumerate(lines) if '"kind":"chain"' in line]
    undone = [place for place, line in enumerate(lines) if '"tool":"trip:cancel_flight"' in line]
    assert '"outcome":"cancelled"' in lines[ended[0]]
    assert max(undone) < ended[0]


async def test_a_chain_that_cannot_run_is_not_undone(trip: LongTrip) -> None:
    """A chain that is refused before its first step stays refused, and nothing is undone."""
    with pytest.raises(InvalidChainError):
        await trip.run(Step("trip:flight", {"$ref": "steps.9"}), Step("trip:flight", retries=-1))
    assert trip.done == []
