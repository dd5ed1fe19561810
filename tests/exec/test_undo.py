"""Undo: the finished steps of a chain that fails are undone, the last one first, and what cannot be is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolexec import ChainResult, Exec, Policy, Rule, Step, tool
from toolexec.errors import ConnectionLostError, InvalidChainError
from toolexec.exec.chain import DRY_RUN
from toolexec.run import Gate
from toolexec.run.undo import UNDO


class Trip:
    """Books parts of a trip, and takes them back."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.done: list[str] = []
        self.ex = Exec(gate=gate)
        done = self.done

        @tool("trip:flight", meta={UNDO: "trip:cancel_flight"})
        def flight(to: str) -> dict[str, Any]:
            done.append(f"flight {to}")
            return {"booking": 7, "seat": "1A"}

        @tool("trip:cancel_flight")
        def cancel_flight(booking: int, to: str) -> str:
            done.append(f"cancel flight {booking} {to}")
            return "cancelled"

        @tool("trip:hotel", meta={UNDO: {"tool": "trip:cancel", "args": {"kind": "hotel", "id": {"$ref": "value[0]"}}}})
        def hotel(nights: int) -> list[int]:
            done.append(f"hotel {nights}")
            return [9]

        @tool("trip:cancel")
        def cancel(kind: str, id: int) -> None:
            done.append(f"cancel {kind} {id}")

        @tool("trip:look", read_only=True)
        def look() -> str:
            return "sunny"

        @tool("trip:mail")
        def mail() -> None:
            done.append("mail")

        @tool("trip:broken", meta={UNDO: "trip:no_such_tool"})
        def broken() -> None:
            done.append("broken")

        @tool("trip:fail")
        def fail(lost: bool = False) -> None:
            raise ConnectionLostError("gone") if lost else ValueError("full")

        for each in (flight, cancel_flight, hotel, cancel, look, mail, broken, fail):
            self.ex.add(each)

    async def run(self, *steps: Step, **settings: Any) -> ChainResult:
        """Run a chain that is undone when it fails."""
        return await self.ex.run_chain(steps, on_error="undo", **settings)


@pytest.fixture
async def trip() -> AsyncIterator[Trip]:
    """A trip that is closed afterwards."""
    made = Trip()
    yield made
    await made.ex.aclose()


BOOKED = (Step("trip:flight", {"to": "Bern"}), Step("trip:look"), Step("trip:hotel", {"nights": 2}))


async def test_finished_steps_are_undone_in_reverse(trip: Trip) -> None:
    """Each tool names the one that takes it back, which gets what it needs of the step's arguments and value."""
    result = await trip.run(*BOOKED, Step("trip:fail"), Step("trip:mail"))
    assert trip.done == ["flight Bern", "hotel 2", "cancel hotel 9", "cancel flight 7 Bern"]
    assert [(each.index, each.undo_id, each.ok) for each in result.undone] == [
        (2, "trip:cancel", True),
        (0, "trip:cancel_flight", True),
    ]
    assert [step.skipped for step in result.steps] == [False, False, False, False, True]
    assert result.error is not None
    assert result.to_dict()["undone"][1] == {
        "index": 0,
        "toolId": "trip:flight",
        "ok": True,
        "undoId": "trip:cancel_flight",
        "args": {"to": "Bern", "booking": 7},
        "value": "cancelled",
    }


async def test_nothing_is_undone_without_need(trip: Trip) -> None:
    """A chain that succeeds stays done, and so does one that only stops."""
    assert (await trip.run(*BOOKED)).undone == []
    stopped = await trip.ex.run_chain([*BOOKED, Step("trip:fail")])
    assert stopped.undone == []
    assert "undone" not in stopped.to_dict()
    assert not any(each.startswith("cancel") for each in trip.done)


async def test_steps_that_cannot_be_undone_are_reported(trip: Trip) -> None:
    """A tool that names none, or one that cannot be called, keeps no other step from being undone."""
    result = await trip.run(*BOOKED[:1], Step("trip:mail"), Step("trip:broken"), Step("trip:fail"))
    assert [(each.tool_id, each.ok, each.reason.split(":")[0]) for each in result.undone] == [
        ("trip:broken", False, "trip"),
        ("trip:mail", False, "trip"),
        ("trip:flight", True, ""),
    ]
    broken, mail, _ = result.undone
    assert broken.error is not None
    assert broken.error.code == "tool_not_found"
    assert mail.reason == "trip:mail does not name a tool that undoes it"
    assert mail.to_dict() == {"index": 1, "toolId": "trip:mail", "ok": False, "reason": mail.reason}


async def test_a_step_of_unknown_outcome_is_reported(trip: Trip) -> None:
    """The failed step itself may have done its work, which only a person can find out."""
    result = await trip.run(*BOOKED[:1], Step("trip:fail", {"lost": True}))
    assert [(each.tool_id, each.ok) for each in result.undone] == [("trip:fail", False), ("trip:flight", True)]
    assert "is unknown" in result.undone[0].reason


async def test_failures_that_do_not_stop_are_left_alone(trip: Trip) -> None:
    """A chain that goes on after a failure has not failed."""
    result = await trip.run(*BOOKED[:1], Step("trip:fail", stop_on_error=False), Step("trip:mail"))
    assert result.ok
    assert result.undone == []


async def test_a_policy_decides_on_undoing() -> None:
    """A tool that the caller may not call does not undo anything for it."""
    trip = Trip(Gate(policy=Policy([Rule("deny", tools="trip:cancel_flight")])))
    result = await trip.run(*BOOKED, Step("trip:fail"))
    assert [(each.ok, each.error.code if each.error else "") for each in result.undone] == [
        (True, ""),
        (False, "policy_denied"),
    ]
    await trip.ex.aclose()


@pytest.mark.parametrize(
    "meta",
    [5, {"args": {}}, {"tool": "trip:cancel", "args": 3}, {"tool": "trip:cancel", "args": {"id": {"$ref": "later"}}}],
    ids=str,
)
async def test_a_description_that_makes_no_sense_undoes_nothing(trip: Trip, meta: Any) -> None:
    """The step is reported with the reason, and nothing is called."""

    @tool("trip:odd", meta={UNDO: meta})
    def odd() -> int:
        return 1

    trip.ex.add(odd)
    result = await trip.run(Step("trip:odd"), Step("trip:fail"))
    assert [each.ok for each in result.undone] == [False]
    assert result.undone[0].reason
    assert trip.done == []


async def test_a_chain_can_be_tried(trip: Trip) -> None:
    """In place of a tool that changes something the one is called that says what it would do."""

    @tool("trip:taxi", meta={DRY_RUN: "trip:price"})
    def taxi(km: int) -> None:
        trip.done.append("taxi")

    @tool("trip:price", read_only=True)
    def price(km: int) -> str:
        return f"would cost {3 * km}"

    trip.ex.add(taxi)
    trip.ex.add(price)
    result = await trip.ex.run_chain([Step("trip:look"), Step("trip:taxi", {"km": 4})], dry_run=True)
    assert [step.value for step in result.steps] == ["sunny", "would cost 12"]
    with pytest.raises(InvalidChainError, match="step 1: trip:mail cannot be tried"):
        await trip.ex.run_chain([Step("trip:taxi", {"km": 4}), Step("trip:mail")], dry_run=True)
    assert trip.done == []


async def test_a_misspelt_word_is_refused(trip: Trip) -> None:
    """Nothing runs under a rule that there is not."""
    with pytest.raises(InvalidChainError, match="on_error"):
        await trip.ex.run_chain(BOOKED, on_error="rollback")  # type: ignore[arg-type]
    assert trip.done == []


def test_the_blocking_form_has_it_too() -> None:
    """`SyncExec.run_chain` takes the same words."""
    trip = Trip()
    with trip.ex.sync as ex:
        result = ex.run_chain([*BOOKED, Step("trip:fail")], on_error="undo")
    assert len(result.undone) == 2


async def test_a_wait_needs_no_undoing(tmp_path: Path) -> None:
    """A wait of a durable chain has done nothing, so it is not among what could not be undone."""
    async with Exec(journal=tmp_path / "runs.db", linger=0.01) as ex:
        ex.add(lambda: None, "t:done")
        ex.add(lambda: 1 / 0, "t:fail")
        steps = [Step("t:done"), Step("run:sleep", {"seconds": 0}), Step("t:fail")]
        result = await ex.run_chain(steps, durable="trip", on_error="undo")
    assert [each.tool_id for each in result.undone] == ["t:done"]
