"""How many wrong credentials are looked at."""

from __future__ import annotations

from toolexec.server.auth.failures import Failures

from .conftest import Clock


def test_after_too_many_one_has_to_wait(clock: Clock) -> None:
    """For the rest of the minute; others are not concerned."""
    failures = Failures(3, clock)
    for _ in range(3):
        assert failures.wait("peer", "guess") == 0
        failures.failed("peer")
    clock.now += 20
    assert failures.wait("peer", "guess") == 40
    assert failures.wait("other", "guess") == 0
    clock.now += 41
    assert failures.wait("peer", "guess") == 0
    failures.failed("peer")
    assert failures.wait("peer", "guess") == 0


def test_what_was_good_is_not_held_up(clock: Clock) -> None:
    """Somebody behind the same proxy cannot lock others out."""
    failures = Failures(1, clock)
    failures.succeeded("known")
    failures.failed("peer")
    assert failures.wait("peer", "known") == 0
    assert failures.wait("peer", "guess") > 0


def test_it_does_not_grow_without_end(clock: Clock) -> None:
    """The oldest addresses and credentials are forgotten first."""
    failures = Failures(1, clock)
    failures.succeeded("first")
    for number in range(5000):
        failures.failed(str(number))
        failures.succeeded(f"key {number}")
    assert failures.wait("0", "x") == 0
    assert failures.wait("4999", "x") > 0
    assert failures.wait("4999", "first") > 0
    assert failures.wait("4999", "key 4999") == 0
