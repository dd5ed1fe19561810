"""Places for so many at a time."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.waiting import until

from toolexec.process.slots import Slots

pytestmark = pytest.mark.anyio


async def test_who_waits_in_another_thread_gets_the_place_that_is_left_here() -> None:
    """Each waits on an event loop of its own."""
    slots = Slots(1)
    assert slots.take()
    began, got = threading.Event(), list[bool]()

    async def wait() -> None:
        waiting = asyncio.create_task(slots.wait(60))
        await until(lambda: slots.waiting, pause=0)
        began.set()
        got.append(await waiting)

    thread = threading.Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    await asyncio.to_thread(began.wait, 60)
    slots.leave()
    await asyncio.to_thread(thread.join, 60)
    assert got == [True]
    assert (slots.taken, slots.waiting) == (1, 0)


async def test_no_more_wait_than_may() -> None:
    """A caller that comes then is refused at once."""
    slots = Slots(1)
    assert slots.take()
    first = asyncio.create_task(slots.wait(60, most=1))
    await asyncio.sleep(0)
    assert not await slots.wait(60, most=1)
    slots.leave()
    assert await first
    slots.leave()
    assert slots.taken == 0
