"""Work in scopes of anyio that its deadline cancels: the scopes cancel their task again, and must not reach the caller."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from tests.loop_clock import loop_clock

from toolexec import Exec
from toolexec.errors import ToolTimeoutError
from toolexec.run.deadline import DeadlineExceededError, LeftBehind, with_deadline

LIMIT = 5.0


class Group:
    """A task group whose task cleans up after its cancellation until `free` is set."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cleaning = asyncio.Event()
        self.free = asyncio.Event()

    async def run(self) -> None:
        """Wait until cancelled, as the task of the group does."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._child)
            await anyio.sleep_forever()

    async def _child(self) -> None:
        try:
            self.begun.set()
            await anyio.sleep_forever()
        finally:
            self.cleaning.set()
            with anyio.CancelScope(shield=True):
                await self.free.wait()


async def turns(number: int = 20) -> None:
    """Let the loop go round."""
    for _ in range(number):
        await asyncio.sleep(0)


async def cancellations(group: Group, left: LeftBehind) -> int:
    """Run into the deadline, go on, and return how often this task counts as cancelled."""
    with pytest.raises(DeadlineExceededError):
        await with_deadline(group.run(), LIMIT, left)
    await turns()
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_a_group_that_cleans_up_at_once_does_not_cancel_the_caller() -> None:
    """The caller has the timeout of its tool, and is not cancelled then or later."""
    group = Group()
    group.free.set()
    async with Exec() as ex:
        ex.add(group.run, "t:group")
        result = await ex.run_tool("t:group", timeout=0.02)
        await turns()
    assert isinstance(result.error, ToolTimeoutError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_group_that_cleans_up_for_long_is_waited_for() -> None:
    """A task group cannot be left behind: only the task that entered it can leave it."""
    group, left = Group(), LeftBehind()
    with loop_clock() as clock:
        caller = asyncio.create_task(cancellations(group, left))
        await group.begun.wait()
        clock.advance(LIMIT)
        await group.cleaning.wait()
        clock.advance(LIMIT)
        await turns()
        assert not caller.done()
        group.free.set()
        assert await caller == 0
    assert len(left) == 0


async def test_a_caller_that_is_cancelled_in_the_meantime_is_cancelled() -> None:
    """The cancellation of the caller is not taken for one of the scope."""
    group, left = Group(), LeftBehind()
    with loop_clock() as clock:
        caller = asyncio.create_task(cancellations(group, left))
        await group.begun.wait()
        clock.advance(LIMIT)
        await group.cleaning.wait()
        caller.cancel()
        await turns()
        group.free.set()
        with pytest.raises(asyncio.CancelledError):
            await caller


async def test_a_scope_around_a_task_is_left_by_its_own_cancellation() -> None:
    """A scope of the work that cancels a task it waits for knows the cancellation as its own, and goes on."""

    async def work() -> str:
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_soon(scope.cancel)
            await asyncio.create_task(anyio.sleep_forever())
        return "went on"

    assert await with_deadline(work(), LIMIT, LeftBehind()) == "went on"
