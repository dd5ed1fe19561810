"""Locks where there are no threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from toolexec.runtime.guest.python import threadless
from toolexec.runtime.guest.python.threadless import Lock


@pytest.fixture(params=[threading.Lock, Lock], ids=["interpreter", "ours"])
def make(request: pytest.FixtureRequest) -> Callable[[], Lock]:
    """Both kinds: ours behaves as the interpreter's does, but for waiting for ever."""
    return request.param


def test_a_lock_is_taken_and_released(make: Callable[[], Lock]) -> None:
    """A second taker gets False where it does not wait, or not for long."""
    lock = make()
    with lock as taken:
        assert (taken, lock.locked(), lock.acquire(False), lock.acquire(timeout=0.001)) == (True, True, False, False)
    assert (lock.locked(), lock.acquire(timeout=0.001), lock.locked()) == (False, True, True)
    lock.release()


def test_what_a_lock_refuses(make: Callable[[], Lock]) -> None:
    """Refuse what the interpreter refuses, whose words differ from release to release."""
    lock = make()
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        lock.release()
    with pytest.raises(ValueError, match="can't specify a timeout for a non-blocking call"):
        lock.acquire(False, 1)
    with pytest.raises(ValueError, match="timeout value must be"):
        lock.acquire(True, -2)
    assert not lock.locked()


def test_a_condition_takes_our_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events and semaphores, which `threading` builds on locks, wait with a time limit only."""
    slept: list[float] = []
    monkeypatch.setattr(threadless, "_sleep", slept.append)
    monkeypatch.setattr(threading, "_allocate_lock", Lock)
    monkeypatch.setattr(threading, "Lock", Lock)
    event = threading.Event()
    assert (event.wait(0.5), slept) == (False, [0.5])
    with pytest.raises(RuntimeError, match="deadlock: this waits for ever"):
        event.wait()
    event.set()
    assert event.wait()
    counter = threading.Semaphore(1)
    assert (counter.acquire(), counter.acquire(blocking=False)) == (True, False)
    with pytest.raises(RuntimeError, match="deadlock"):
        counter.acquire()
