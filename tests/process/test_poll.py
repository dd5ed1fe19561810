"""Pauses that grow."""

from __future__ import annotations

from itertools import islice

from toolexec.process.poll import pauses


def test_pauses_grow_up_to_the_longest() -> None:
    """Each is the factor times the one before."""
    assert [*islice(pauses(1, 5, factor=1.5), 6)] == [1, 1.5, 2.25, 3.375, 5, 5]


def test_pauses_that_are_spread_are_never_longer_nor_shorter_than_half() -> None:
    """Clients that lost the same server come back one after the other."""
    plain, spread = [*islice(pauses(1, 8), 50)], [*islice(pauses(1, 8, spread=True), 50)]
    assert all(most / 2 <= pause <= most for most, pause in zip(plain, spread, strict=True))
    assert len({*spread}) > 5
