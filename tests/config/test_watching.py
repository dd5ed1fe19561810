"""Watching files ends when it is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from toolexec.config.watching import FileWatch


@pytest.mark.parametrize("turns", range(4))
async def test_a_request_at_the_end_keeps_nothing_from_ending(turns: int) -> None:
    """A watch that is cancelled ends, however many turns of the loop before it was requested to act."""
    acted = asyncio.Event()

    async def act() -> None:
        acted.set()

    watch = FileWatch(list, act)
    watch.request()
    watching = asyncio.create_task(watch.run())
    await acted.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    watch.request()
    for _ in range(turns):
        await asyncio.sleep(0)
    watching.cancel()
    ended, _ = await asyncio.wait([watching], timeout=2)
    watching.cancel()
    assert ended
