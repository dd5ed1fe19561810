"""The pool of pre-warmed guests: taken once, replaced, watched, bounded, drained."""

from __future__ import annotations

import asyncio

import pytest
from tests.waiting import until

from toolexec.runtime.containers import pool as module
from toolexec.runtime.containers.pool import WarmPool

pytestmark = pytest.mark.anyio


class Guest:
    """A guest that lives until it is told otherwise."""

    def __init__(self, key: object, number: int) -> None:
        self.key = key
        self.number = number
        self.closed = False
        self._dead = asyncio.Event()

    @property
    def alive(self) -> bool:
        return not self._dead.is_set()

    def die(self) -> None:
        self._dead.set()

    async def wait(self) -> None:
        await self._dead.wait()

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed = True
        self._dead.set()


class Maker:
    """Starts guests, and remembers them."""

    def __init__(self) -> None:
        self.made: list[Guest] = []
        self.failures: list[Exception] = []
        self.gate: asyncio.Event | None = None
        self.cancelled = 0

    async def __call__(self, key: object) -> Guest:
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failures:
            raise self.failures.pop(0)
        guest = Guest(key, len(self.made))
        self.made.append(guest)
        return guest


async def test_a_guest_is_taken_once_and_replaced() -> None:
    make = Maker()
    pool = WarmPool(make, size=2, kinds=4)
    assert pool.take("a") is None
    await until(lambda: pool.stats.idle == 2)
    first, second = pool.take("a"), pool.take("a")
    assert first is not None
    assert second is not None
    assert first is not second
    await until(lambda: pool.stats.idle == 2)
    assert pool.stats.to_dict() == {"hits": 2, "misses": 1, "died": 0, "failed": 0, "idle": 2, "starting": 0}
    assert len(make.made) == 4
    await pool.aclose()
    assert [guest.closed for guest in make.made] == [False, False, True, True]  # those taken are not the pool's


async def test_fill_waits_until_the_guests_are_there() -> None:
    make = Maker()
    pool = WarmPool(make, size=3, kinds=1)
    await pool.fill("a")
    assert pool.stats.idle == 3
    assert pool.take("a") is not None
    await pool.aclose()


async def test_fill_raises_what_a_start_raises() -> None:
    make = Maker()
    make.failures = [RuntimeError("no image")]
    pool = WarmPool(make, size=1, kinds=1)
    with pytest.raises(RuntimeError, match="no image"):
        await pool.fill("a")
    assert pool.stats.failed == 1
    await pool.fill("b")
    assert pool.take("b") is not None
    await pool.aclose()


async def test_a_pool_of_no_size_does_nothing() -> None:
    make = Maker()
    pool = WarmPool(make, size=0, kinds=1)
    await pool.fill("a")
    assert pool.take("a") is None
    assert pool.stats.to_dict() == dict.fromkeys(pool.stats.to_dict(), 0)
    await pool.aclose()


async def test_a_guest_that_dies_while_it_waits_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)
    make = Maker()
    pool = WarmPool(make, size=1, kinds=1)
    await pool.fill("a")
    make.made[0].die()
    await until(lambda: pool.stats.died == 1)
    await until(lambda: pool.stats.idle == 1)
    assert make.made[0].closed
    taken = pool.take("a")
    assert taken is make.made[1]
    await pool.aclose()


async def test_one_that_is_dead_when_it_is_taken_is_passed_over() -> None:
    make = Maker()
    pool = WarmPool(make, size=2, kinds=1)
    await pool.fill("a")
    make.made[0].die()
    assert pool.take("a") is make.made[1]  # before the watcher had a turn
    assert pool.stats.died == 1
    await pool.aclose()
    assert make.made[0].closed


async def test_a_start_that_fails_is_tried_again_later_and_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)
    make = Maker()
    make.failures = [RuntimeError("one"), RuntimeError("two")]
    pool = WarmPool(make, size=1, kinds=1)
    assert pool.take("a") is None
    await until(lambda: pool.stats.failed == 1)
    assert pool.take("a") is None
    assert pool.stats.starting == 0  # while it pauses nobody has one started
    await until(lambda: pool.stats.idle == 1)
    assert pool.stats.failed == 2
    await pool.aclose()


async def test_only_the_kinds_asked_for_last_are_kept() -> None:
    make = Maker()
    pool = WarmPool(make, size=1, kinds=2)
    for key in "abc":
        await pool.fill(key)
    await until(lambda: make.made[0].closed)
    assert pool.stats.idle == 2
    assert pool.take("b") is not None
    assert pool.take("c") is not None
    assert pool.take("a") is None
    await pool.aclose()


async def test_closing_stops_what_is_starting() -> None:
    make = Maker()
    make.gate = asyncio.Event()
    pool = WarmPool(make, size=3, kinds=1)
    pool.take("a")
    await until(lambda: pool.stats.starting == 3)
    await asyncio.sleep(0)
    await pool.aclose()
    assert make.cancelled == 3
    assert make.made == []
    assert pool.take("a") is None
    await pool.fill("a")
    assert pool.stats.idle == 0


async def test_closing_ends_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 3600)
    make = Maker()
    make.failures = [RuntimeError("no")]
    pool = WarmPool(make, size=1, kinds=1)
    pool.take("a")
    await until(lambda: pool.stats.failed == 1)
    await asyncio.wait_for(pool.aclose(), 30)


async def test_a_kind_that_is_given_up_while_its_guest_starts_keeps_none() -> None:
    make = Maker()
    make.gate = asyncio.Event()
    pool = WarmPool(make, size=1, kinds=1)
    pool.take("a")
    await asyncio.sleep(0)
    pool.take("b")
    make.gate.set()
    await until(lambda: pool.stats.idle == 1)
    assert [guest.key for guest in make.made if not guest.closed] == ["b"]
    await pool.aclose()


async def test_a_start_that_fails_as_it_is_stopped_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing would wait for the pause before the next try."""
    monkeypatch.setattr(module, "_FIRST_PAUSE", 3600)

    async def start(key: object) -> Guest:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("the engine is gone") from None
        raise AssertionError

    pool = WarmPool(start, size=1, kinds=1)
    pool.take("a")
    await until(lambda: pool.stats.starting == 1)
    await asyncio.sleep(0)
    await asyncio.wait_for(pool.aclose(), 30)
    assert pool.stats.failed == 0
