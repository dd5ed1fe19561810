"""Slots for so many containers at once."""

from __future__ import annotations

import asyncio
from time import monotonic
from types import SimpleNamespace

import pytest

from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.runs import Slots

pytestmark = pytest.mark.anyio
BACKEND = SimpleNamespace(kind="docker")


async def test_who_comes_first_is_let_in_first() -> None:
    room = Slots(2)
    order: list[int] = []

    async def visit(number: int) -> None:
        await room.enter(monotonic() + 60, BACKEND)
        order.append(number)
        assert room.taken <= 2
        await asyncio.sleep(0)
        room.leave()

    await asyncio.gather(*(visit(number) for number in range(50)))
    assert order == [*range(50)]
    assert room.taken == 0


async def test_who_waits_in_vain_is_told_so() -> None:
    room = Slots(1)
    await room.enter(monotonic() + 60, BACKEND)
    with pytest.raises(SandboxUnavailableError, match="1 programs run in docker already") as caught:
        await room.enter(monotonic() + 0.01, BACKEND)
    assert caught.value.retryable
    assert caught.value.details == {"max_running": 1}
    room.leave()
    assert room.taken == 0
    await room.enter(monotonic() + 60, BACKEND)
    assert room.taken == 1


@pytest.mark.parametrize("let_in", [False, True])
async def test_who_is_cancelled_takes_no_room(let_in: bool) -> None:
    room = Slots(1)
    await room.enter(monotonic() + 60, BACKEND)
    waiting = asyncio.create_task(room.enter(monotonic() + 60, BACKEND))
    await asyncio.sleep(0.01)
    if let_in:
        room.leave()  # its turn has come, and it has not received of it
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not let_in:
        room.leave()
    assert room.taken == 0


async def test_nobody_jumps_the_queue() -> None:
    room = Slots(1)
    await room.enter(monotonic() + 60, BACKEND)
    first = asyncio.create_task(room.enter(monotonic() + 60, BACKEND))
    await asyncio.sleep(0)
    room.leave()
    second = asyncio.create_task(room.enter(monotonic() + 60, BACKEND))
    await asyncio.sleep(0.01)
    assert first.done()
    assert not second.done()
    room.leave()
    await second
    room.leave()
    assert room.taken == 0
