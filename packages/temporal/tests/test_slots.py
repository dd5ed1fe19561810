"""Who looks after the slots of a queue."""

from __future__ import annotations

import pytest

from toolexec_temporal.slots import QueueSlots, SlotHolder, SlotRequest, SlotsState


def holders(name: str, count: int) -> list[SlotHolder]:
    """Return the places of so many runs."""
    return [SlotHolder(f"{name}{number}", "1", 1) for number in range(count)]


@pytest.mark.parametrize(("held", "waiting"), [(1, 1), (5, 1), (3, 4), (2, 40), (40, 7)])
def test_those_who_wait_look_after_each_other_once_in_a_turn(held: int, waiting: int) -> None:
    """However many wait, each run with a slot, and each that waits, is asked about once at most in a turn."""
    have, want = holders("held", held), holders("waiting", waiting)
    slots = QueueSlots(SlotsState(1, have, [SlotRequest(each, 3, 1) for each in want]))
    for turn in range(3):
        shares = [slots.share(each, turn) or [] for each in want]
        asked = [other for share in shares for other in share]
        assert len(asked) == len(set(asked))
        assert {*have} <= {*asked}
        assert max(map(len, shares)) <= -(-(held + waiting) // waiting)


def test_no_one_is_looked_after_by_one_alone() -> None:
    """A run whose worker is lost takes no turns, and what would have been its share is another's in the next."""
    have, want = holders("held", 2), holders("waiting", 3)
    slots = QueueSlots(SlotsState(1, have, [SlotRequest(each, 3, 1) for each in want]))
    asked = {other for turn in range(len(want)) for other in slots.share(want[1], turn) or []}
    assert asked == {*have, *want} - {want[1]}


def test_only_who_waits_looks_after_others() -> None:
    """A run with a slot, or without a wish for one, has no share."""
    (one,) = have = holders("held", 1)
    slots = QueueSlots(SlotsState(1, have, []))
    assert slots.share(one, 0) is None
    assert slots.share(SlotHolder("other", "1", 1), 0) is None
