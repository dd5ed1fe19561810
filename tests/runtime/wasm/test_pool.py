"""Pre-warmed guests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.runtime.wasm.instance import THREAD_STACK_BYTES, Program
from toolexec.runtime.wasm.pool import GuestPool
from toolexec.runtime.wasm.programs import load_program


@pytest.fixture(scope="module")
def python() -> Program:
    """The sandbox for Python, loaded once."""
    return load_program()


@pytest.fixture
def pool(python: Program) -> Iterator[GuestPool]:
    """A pool of two."""
    pool = GuestPool(python, 2)
    yield pool
    pool.close()


def in_thread(function: Callable[[], Any]) -> Any:
    """Return the result of a function in a thread with a stack for guests."""
    outcome: list[Any] = []
    size = threading.stack_size(2 * THREAD_STACK_BYTES)
    try:
        thread = threading.Thread(target=lambda: outcome.append(function()))
        thread.start()
    finally:
        threading.stack_size(size)
    thread.join()
    return outcome[0]


def test_an_empty_pool_gives_nothing(pool: GuestPool) -> None:
    """The next caller makes a guest then; what was found is counted."""
    assert pool.take() is None
    assert (pool.hits, pool.misses, pool.ready) == (0, 1, 0)
    pool.make().close()


def test_it_is_filled_up_to_its_size(pool: GuestPool) -> None:
    """A pool is filled up to its size, and no further."""
    assert [in_thread(pool.refill) for _ in range(3)] == [True, True, False]
    assert pool.ready == 2


def test_each_guest_is_given_once(pool: GuestPool) -> None:
    """A place that is free can be filled again."""
    in_thread(pool.refill)
    guest = pool.take()
    assert guest is not None
    assert (pool.hits, pool.ready) == (1, 0)
    assert pool.take() is None
    guest.close()
    assert in_thread(pool.refill)


def test_a_closed_pool_frees_its_guests(pool: GuestPool) -> None:
    """A closed pool frees its guests, and makes no more."""
    in_thread(pool.refill)
    guest = pool._ready[0]
    pool.close()
    assert (pool.ready, in_thread(pool.refill)) == (0, False)
    with pytest.raises(ConfigurationError, match="was closed"):
        guest.run("{}")


def test_a_guest_that_is_ready_too_late_is_freed(pool: GuestPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool was closed while it was made."""
    made: list[Any] = []

    def make() -> Any:
        made.append(GuestPool.make(pool))
        pool.close()
        return made[0]

    monkeypatch.setattr(pool, "make", make)
    assert in_thread(pool.refill) is False
    assert made[0].is_over


def test_a_guest_that_cannot_be_made(pool: GuestPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets the error, and its slot is free again."""

    def refill() -> str:
        try:
            pool.refill()
        except ConfigurationError as error:
            return str(error)
        return "made"

    closed = pool.make()
    closed.close()
    with monkeypatch.context() as patch:
        patch.setattr(pool, "make", lambda: closed)
        assert "cannot be used any more" in in_thread(refill)
    assert in_thread(refill) == "made"


def test_threads_share_it(pool: GuestPool) -> None:
    """Together they make no more guests than it holds."""
    size = threading.stack_size(2 * THREAD_STACK_BYTES)
    try:
        threads = [threading.Thread(target=pool.refill) for _ in range(8)]
        for thread in threads:
            thread.start()
    finally:
        threading.stack_size(size)
    for thread in threads:
        thread.join()
    assert pool.ready == 2
