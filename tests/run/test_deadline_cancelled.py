"""`with_deadline` among other scopes: deadlines in deadlines, cancellation from outside, task groups, anyio."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import anyio
import pytest

from toolexec.run.deadline import DeadlineExceededError, with_deadline

SHORT = 0.02
LONG = 60.0


async def answer(value: Any, pauses: int = 0) -> Any:
    """Wait *pauses* times, then give the value."""
    for _ in range(pauses):
        await asyncio.sleep(0)
    return value


async def forever(log: list[str]) -> None:
    """Wait until stopped, and note that."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        log.append("cancelled")
        raise
    finally:
        log.append("cleaned up")


async def test_the_inner_of_two_deadlines() -> None:
    """When the inner deadline passes first, the outer work can go on."""

    async def outer() -> str:
        with pytest.raises(DeadlineExceededError):
            await with_deadline(forever([]), SHORT)
        await asyncio.sleep(0)
        return "went on"

    assert await with_deadline(outer(), LONG) == "went on"


async def test_the_outer_of_two_deadlines() -> None:
    """When the outer deadline passes first, it stops what is inside, which does not take it for its own."""
    log: list[str] = []

    async def outer() -> None:
        try:
            await with_deadline(forever(log), LONG)
        except DeadlineExceededError:
            log.append("the inner one rang")
            raise

    with pytest.raises(DeadlineExceededError):
        await with_deadline(outer(), SHORT)
    assert log == ["cancelled", "cleaned up"]


async def test_deadlines_that_pass_together() -> None:
    """Two deadlines at the same moment end as the outer one, once, and leave the task uncancelled."""
    with pytest.raises(DeadlineExceededError):
        await with_deadline(with_deadline(forever([]), SHORT), SHORT)  # pyright: ignore[reportArgumentType]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


class TestCancelledFromOutside:
    """A cancellation that comes from elsewhere is never taken for the deadline."""

    async def test_before_it_began(self) -> None:
        """Work in a task that is cancelled before its first step never runs."""
        log: list[str] = []

        async def main() -> None:
            await with_deadline(forever(log), LONG)

        task = asyncio.create_task(main())
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert log == []

    async def test_while_it_waits(self) -> None:
        """Waiting work is cancelled and the cancellation comes out."""
        log: list[str] = []
        began = asyncio.Event()

        async def work() -> None:
            began.set()
            await forever(log)

        async def main() -> None:
            await with_deadline(work(), LONG)

        task = asyncio.create_task(main())
        await began.wait()
        task.cancel("because")
        with pytest.raises(asyncio.CancelledError, match="because"):
            await task
        assert log == ["cancelled", "cleaned up"]

    async def test_by_its_own_first_step(self) -> None:
        """Work that has its own task cancelled before it ever waited is cancelled at its first wait."""
        log: list[str] = []

        async def work() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await forever(log)

        async def main() -> None:
            await with_deadline(work(), LONG)

        task = asyncio.create_task(main())
        await asyncio.wait([task])
        assert task.cancelled()
        assert log == ["cancelled", "cleaned up"]

    async def test_while_it_cleans_up_after_the_deadline(self) -> None:
        """When both happened, the cancellation from outside wins."""
        cleaning = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await asyncio.Event().wait()

        async def main() -> None:
            await with_deadline(work(), SHORT)

        task = asyncio.create_task(main())
        await cleaning.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    async def test_swallowed(self) -> None:
        """Work that swallows it gives its value, as a plain await would."""

        async def stubborn() -> str:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "anyway"

        async def main() -> str:
            return await with_deadline(stubborn(), LONG)

        began = asyncio.Event()
        task = asyncio.create_task(main())
        await began.wait()
        task.cancel()
        assert await task == "anyway"

    async def test_by_asyncio_timeout_around(self) -> None:
        """An `asyncio.timeout` around it works as around any await."""
        log: list[str] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT):
                await with_deadline(forever(log), LONG)
        assert log == ["cancelled", "cleaned up"]

    async def test_by_an_anyio_scope_around(self) -> None:
        """An anyio scope around it works as around any await."""
        with anyio.move_on_after(SHORT) as scope:
            await with_deadline(forever([]), LONG)
        assert scope.cancelled_caught


async def test_a_task_group_inside() -> None:
    """The work may be a task group; the deadline ends all its tasks."""
    log: list[str] = []

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(forever(log))
            tasks.create_task(forever(log))

    with pytest.raises(DeadlineExceededError):
        await with_deadline(group(), SHORT)
    assert sorted(log) == ["cancelled", "cancelled", "cleaned up", "cleaned up"]


async def test_in_a_task_group() -> None:
    """Inside a task group only the work that is late is stopped."""

    async def limited(work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        try:
            return await with_deadline(work, seconds)
        except DeadlineExceededError:
            return "late"

    async with asyncio.TaskGroup() as tasks:
        late = tasks.create_task(limited(forever([]), SHORT))
        fine = tasks.create_task(limited(answer("fine", 3), LONG))
    assert (late.result(), fine.result()) == ("late", "fine")


async def test_scopes_that_the_work_opens_in_its_first_step() -> None:
    """asyncio and anyio scopes opened before the first wait work, and close in the right order."""

    async def scoped() -> str:
        with anyio.move_on_after(SHORT) as scope:
            async with asyncio.timeout(LONG):
                await asyncio.Event().wait()
        assert scope.cancelled_caught
        with anyio.CancelScope(shield=True):
            await asyncio.sleep(0)
        return "closed"

    assert await with_deadline(scoped(), LONG) == "closed"


async def test_the_deadline_goes_through_anyio_scopes() -> None:
    """A scope inside the work does not take the deadline for its own time-out."""
    caught: list[bool] = []

    async def scoped() -> None:
        with anyio.move_on_after(LONG) as scope:
            try:
                await anyio.sleep_forever()
            finally:
                caught.append(scope.cancelled_caught)

    with pytest.raises(DeadlineExceededError):
        await with_deadline(scoped(), SHORT)
    assert caught == [False]
