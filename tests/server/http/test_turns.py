"""The requests of a caller begin one at a time beside others, and in the gaps that these leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.waiting import until

from toolexec.server.http import turns as turns_module
from toolexec.server.http.turns import Turns

FOREVER = 3600.0


class Requests:
    """Requests that begin when it is their turn, and end when their test says so."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.begun: list[str] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def come(self, *names: str, large: bool = False) -> None:
        """Have requests arrive; the first letter of its name says whose each is."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._one(name, large))
            await settled()

    async def _one(self, name: str, large: bool) -> None:
        async with self.turns.taken(name[0], large=large):
            self.begun.append(name)
            await self._ends[name].wait()

    async def end(self, *names: str) -> None:
        """Have them be over."""
        for name in names:
            self._ends[name].set()
            await self._tasks[name]
            await settled()

    async def cancel(self, name: str) -> None:
        """Have the server give one up."""
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])
        await settled()

    async def end_all(self) -> None:
        """Have all be over."""
        for end in self._ends.values():
            end.set()
        await asyncio.wait([*self._tasks.values()])


async def settled() -> None:
    """Let everything happen that can."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def requests(alone: int = 2, seconds: float = FOREVER, patience: float = FOREVER) -> AsyncGenerator[Requests]:
    """Requests at turns that are all free, and are again at the end."""
    found = Requests(Turns(alone, seconds, patience))
    try:
        yield found
    finally:
        await found.end_all()
    assert len(found.turns) == 0


async def test_the_next_begins_when_one_is_over() -> None:
    """Requests of a caller who is alone begin a few at a time, in their order."""
    async with requests() as all_of_them:
        await all_of_them.come("e1", "e2", "e3", "e4")
        assert all_of_them.begun == ["e1", "e2"]
        await all_of_them.end("e2")
        assert all_of_them.begun[2:] == ["e3"]
        await all_of_them.end("e1", "e3")
        assert all_of_them.begun[3:] == ["e4"]


async def test_those_behind_the_first_wait_for_other_callers() -> None:
    """The first request of each caller begins at once; the next one of any when no caller has a turn."""
    async with requests() as all_of_them:
        await all_of_them.come("a1", "e1", "e2", "b1")
        assert all_of_them.begun == ["a1", "e1", "b1"]
        await all_of_them.end("e1", "a1")
        assert all_of_them.begun == ["a1", "e1", "b1"]
        await all_of_them.end("b1")
        assert all_of_them.begun == ["a1", "e1", "b1", "e2"]


async def test_callers_with_many_requests_take_turns() -> None:
    """Each has its next one begun after one of the other, and none has two at a time."""
    async with requests() as all_of_them:
        await all_of_them.come("e1", "f1", "e2", "e3", "f2", "f3")
        assert all_of_them.begun == ["e1", "f1"]
        await all_of_them.end("e1", "f1")
        for _ in range(4):
            await all_of_them.end(all_of_them.begun[-1])
        assert all_of_them.begun == ["e1", "f1", "e2", "f2", "e3", "f3"]


async def test_no_caller_waits_for_ever() -> None:
    """A caller with many requests has its next turn after a while, whatever the others have."""
    async with requests(patience=0.001) as all_of_them:
        await all_of_them.come("a1", "e1", "e2")
        await all_of_them.end("e1")
        await until(lambda: "e2" in all_of_them.begun, 0.001)
        assert all_of_them.begun == ["a1", "e1", "e2"]


async def test_who_is_here_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers are here for some seconds after their last request."""
    now = 100.0
    monkeypatch.setattr(turns_module, "monotonic", lambda: now)
    async with requests() as all_of_them:
        await all_of_them.come("a1", "e1")
        assert all_of_them.turns.here() == 2
        now += 4.0
        await all_of_them.come("e2")
        now += 2.0
        assert all_of_them.turns.here() == 1
        now += 4.0
        assert all_of_them.turns.here() == 0


async def test_what_only_waits_keeps_no_turn() -> None:
    """Where none of a caller's requests is over, the next begin all the same, soon after."""
    async with requests(alone=1, seconds=0.001) as all_of_them:
        await all_of_them.come("e1", "e2", "e3")
        await until(lambda: len(all_of_them.begun) == 3, 0.001)
        assert all_of_them.begun == ["e1", "e2", "e3"]


async def test_a_large_one_is_alone() -> None:
    """A large one begins when its caller has no other under way, and those that come later wait for it."""
    async with requests() as all_of_them:
        await all_of_them.come("e1")
        await all_of_them.come("e2", large=True)
        await all_of_them.come("e3")
        assert all_of_them.begun == ["e1"]
        await all_of_them.end("e1")
        assert all_of_them.begun == ["e1", "e2"]
        await all_of_them.end("e2")
        assert all_of_them.begun == ["e1", "e2", "e3"]


async def test_one_that_is_given_up_takes_no_turn() -> None:
    """Those behind it begin as if it had not come, whether it waited or was about to begin."""
    async with requests() as all_of_them:
        await all_of_them.come("e1", "e2")
        await all_of_them.come("e3", large=True)
        await all_of_them.come("e4")
        await all_of_them.end("e1")
        assert all_of_them.begun == ["e1", "e2"]
        await all_of_them.cancel("e3")
        assert all_of_them.begun == ["e1", "e2", "e4"]
        await all_of_them.come("e5", "e6")
        await all_of_them.cancel("e2")
        await all_of_them.end("e4")
        assert all_of_them.begun == ["e1", "e2", "e4", "e5", "e6"]


async def test_one_that_is_given_up_as_it_gets_its_turn_hands_it_on() -> None:
    """Others get its turn where both happen in one moment."""
    turns = Turns(1, FOREVER)
    begun: list[int] = []

    async def one(number: int) -> None:
        async with turns.taken("e"):
            begun.append(number)

    async with turns.taken("e"):
        second, third = asyncio.create_task(one(2)), asyncio.create_task(one(3))
        await settled()
    second.cancel()
    await asyncio.wait([second, third])
    assert begun == [3]
    assert len(turns) == 0


async def test_one_whose_client_hangs_up_waits_no_longer() -> None:
    """Give it no turn, also where it would be the next; those behind it take its place."""
    turns, gone = Turns(1, FOREVER), asyncio.Event()
    begun: list[tuple[int, bool]] = []

    async def one(number: int, **settings: Any) -> None:
        async with turns.taken("e", **settings) as is_here:
            begun.append((number, is_here))

    async with turns.taken("e") as is_here:
        assert is_here
        second = asyncio.create_task(one(2, gone=gone.wait))
        third = asyncio.create_task(one(3, gone=asyncio.Event().wait))
        await settled()
        assert begun == []
        gone.set()
        await second
        assert begun == [(2, False)]
    await third
    assert begun == [(2, False), (3, True)]
    assert len(turns) == 0
