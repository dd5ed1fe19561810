"""Connections are admitted, give way, or are refused by the shares of their callers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from toolexec.model.shares import NoShareError
from toolexec.server.http.seats import Seat, Seats


class Held:
    """A connection that is nothing but its state."""

    def __init__(self, state: str = "new") -> None:
        self.state = state

    @property
    def is_answering(self) -> bool:
        return self.state == "answering"

    @property
    def has_answered(self) -> bool:
        return self.state == "idle"

    def give_way(self) -> None:
        assert self.state != "gone"
        self.state = "gone"


def opened(seats: Seats, owner: str, state: str = "answering") -> Held:
    """A connection whose first request has proven *owner*."""
    held = Held()
    seat = seats.enter(held, "10.0.0.1")
    held.state = "answering"
    try:
        seat.claim(owner)
    except NoShareError:
        seat.leave()
        raise
    held.state = state
    return held


def test_a_caller_with_all_seats_in_use_is_refused_and_others_are_not() -> None:
    """Others get those of the caller with most, the oldest first, until they have as many."""
    seats = Seats(16, proven=True)
    eves = [opened(seats, "eve") for _ in range(12)]
    with pytest.raises(NoShareError):
        opened(seats, "eve")
    anns = [opened(seats, "ann") for _ in range(6)]
    assert [held.state for held in eves] == ["gone"] * 6 + ["answering"] * 6
    with pytest.raises(NoShareError):
        opened(seats, "ann")
    assert [held.state for held in anns] == ["answering"] * 6
    assert len(seats) == 12


def test_idle_connections_give_way_first() -> None:
    """A caller gives up its own idle one for its next; another caller gets an idle one of the caller with most."""
    seats = Seats(8, proven=True)
    busy = [opened(seats, "eve") for _ in range(3)]
    idle = [opened(seats, "eve", "idle") for _ in range(3)]
    opened(seats, "ann")
    opened(seats, "eve")
    assert [held.state for held in idle] == ["gone", "gone", "idle"]
    assert [held.state for held in busy] == ["answering"] * 3


async def test_those_that_say_nothing_give_way_to_the_next() -> None:
    """However many there are, the next one gets in; one whose request is under way stays."""
    seats = Seats(8, proven=True, patience=0)
    asking = Held("answering")
    seats.enter(asking, "10.0.0.1")
    silent = [Held() for _ in range(20)]
    for held in silent:
        await seats.room()
        seats.enter(held, "10.0.0.1")
    assert [held.state for held in silent] == ["gone"] * 13 + ["new"] * 7
    assert asking.state == "answering"
    await seats.room()
    assert opened(seats, "ann").state == "answering"


async def test_a_newcomer_waits_for_those_that_have_just_come() -> None:
    """Waiting ends as soon as one of them has left; one that does not wait is refused."""
    seats = Seats(2, proven=True, patience=1e9)
    first = seats.enter(Held(), "10.0.0.1")
    seats.enter(Held("answering"), "10.0.0.1")
    with pytest.raises(NoShareError):
        seats.enter(Held(), "10.0.0.2")
    waiting = asyncio.create_task(seats.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    first.leave()
    await waiting
    seats.enter(Held(), "10.0.0.2")


async def test_a_seat_that_gave_way_claims_nothing() -> None:
    """A request that was read before the end came gets no answer."""
    seats = Seats(1, proven=True, patience=0)
    seat = seats.enter(Held(), "10.0.0.1")
    await seats.room()
    seats.enter(Held(), "10.0.0.1")
    seat.claim("ann")
    seat.leave()
    assert len(seats) == 1


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize("most", [1, 2, 3, 17])
def test_no_order_of_events_takes_more_than_there_are(most: int, proven: bool) -> None:
    """A caller below its share is never refused once its request has come, and what gave way is never asked again."""
    chance = random.Random(most)
    seats = Seats(most, proven=proven)
    here: list[tuple[Held, Seat]] = []
    for _ in range(3000):
        here = [(held, seat) for held, seat in here if held.state != "gone"]
        assert len(here) == len(seats) <= most
        if chance.random() < 0.4 and here:
            held, seat = chance.choice(here)
            if chance.random() < 0.5:
                held.state = "idle" if seat.owner else held.state
            else:
                here.remove((held, seat))
                seat.leave()
            continue
        held = Held()
        try:
            seat = seats.enter(held, "10.0.0.1")
        except NoShareError:
            continue
        here.append((held, seat))
        owner = chance.choice(["eve", "eve", "eve", "ann", "bob"])
        counts = Counter(seat.owner for held, seat in here if held.state != "gone" and seat.owner)
        held.state = "answering"
        try:
            seat.claim(owner)
        except NoShareError:
            assert counts[owner] + 1 >= max(counts.values())
            here.remove((held, seat))
            seat.leave()
