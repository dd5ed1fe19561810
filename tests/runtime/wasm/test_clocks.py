"""Clocks and chance: real, or such that a run can be replayed."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest

from toolexec.errors import ConfigurationError
from toolexec.runtime.wasm.guest import STEP_NANOSECONDS, make_clock, make_random

SECOND = 1_000_000_000


def test_a_virtual_clock_goes_on_by_a_step_at_each_reading() -> None:
    """Each reading advances the clock, so that code that waits for a change ends."""
    clock = make_clock(1_000.5)
    first = clock.monotonic()
    assert clock.monotonic() == first + STEP_NANOSECONDS
    assert clock.wall() == 1_000_500_000_000 + 3 * STEP_NANOSECONDS
    assert clock.stamp() == clock.stamp() == 1_000_500_000_000 + 3 * STEP_NANOSECONDS


def test_a_virtual_sleep_takes_exactly_the_time_asked_for() -> None:
    """A virtual sleep takes no real time; a moment that has passed is not gone back to."""
    clock = make_clock(0)
    before = clock.wall()
    moment = clock.monotonic() + 86_400 * SECOND
    clock.sleep_until(moment, threading.Event())
    assert clock.monotonic() == moment + STEP_NANOSECONDS
    clock.sleep_until(0, threading.Event())
    assert clock.wall() == before + 86_400 * SECOND + 3 * STEP_NANOSECONDS


def test_two_virtual_clocks_with_one_start_agree() -> None:
    """The same steps lead to the same times."""
    clocks = make_clock(5), make_clock(5)
    assert [c.wall() for c in clocks] == [clocks[0].stamp()] * 2
    assert clocks[0].monotonic() == clocks[1].monotonic()


def test_the_real_clock_is_the_host_s() -> None:
    """The time of day is; the monotonic clock does not tell how long the host is up."""
    clock = make_clock(None)
    assert abs(clock.wall() - time.time_ns()) < 60 * SECOND
    assert abs(clock.stamp() - time.time_ns()) < 60 * SECOND
    assert 3600 * SECOND <= clock.monotonic() < 3660 * SECOND


def test_a_real_sleep_waits() -> None:
    """Until the moment, and not at all if it has passed."""
    clock = make_clock(None)
    moment = clock.monotonic() + 10_000_000
    clock.sleep_until(moment, threading.Event())
    assert clock.monotonic() >= moment
    clock.sleep_until(0, threading.Event())


def test_a_real_sleep_ends_when_it_is_stopped() -> None:
    """However far the moment is."""
    stopped = threading.Event()
    stopped.set()
    clock = make_clock(None)
    clock.sleep_until(2**64 - 1, stopped)
    assert clock.monotonic() < 2**62


@pytest.mark.parametrize("start", [-1, float("nan"), float("inf"), 1e12])
def test_a_start_out_of_time_is_refused(start: float) -> None:
    """Refuses a start that datetime could not represent in the guest."""
    with pytest.raises(ConfigurationError, match="a clock cannot start at"):
        make_clock(start)


def test_a_seed_fixes_the_stream() -> None:
    """In whatever pieces it is taken; it is the documented one."""
    whole = make_random(42).take(100)
    pieces = make_random(42)
    assert b"".join(pieces.take(n) for n in (1, 0, 31, 33, 35)) == whole
    assert whole[:32] == hashlib.sha256(b"toolexec:42:0").digest()
    assert whole[32:64] == hashlib.sha256(b"toolexec:42:1").digest()
    assert make_random(43).take(100) != whole
    assert make_random(-(2**80)).take(5) == make_random(-(2**80)).take(5)


def test_without_a_seed_it_is_the_system_s() -> None:
    """No two are alike."""
    assert len({make_random(None).take(16) for _ in range(10)}) == 10
