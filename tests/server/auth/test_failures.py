"""How many wrong credentials are answered as such."""

from __future__ import annotations

from toolexec.server.auth.failures import Failures

from .conftest import Clock


def test_after_too_many_one_has_to_wait(clock: Clock) -> None:
    """For the rest of the minute; other addresses are not concerned."""
    failures = Failures(3, clock)
    assert [failures.failed("peer") for _ in range(3)] == [0, 0, 0]
    clock.now += 20
    assert failures.failed("peer") == 40
    assert failures.failed("other") == 0
    clock.now += 41
    assert failures.failed("peer") == 0


def test_it_does_not_grow_without_end(clock: Clock) -> None:
    """The oldest addresses are forgotten first."""
    failures = Failures(1, clock)
    for number in range(5000):
        failures.failed(str(number))
    assert failures.failed("0") == 0
    assert failures.failed("4999") > 0
