"""`with_deadline`: work that never waits pays nothing, work that waits is stopped in time, cancellation passes through."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any

import pytest

from toolexec.run.deadline import DeadlineExceededError, LeftBehind, with_deadline

SHORT = 0.02
LONG = 60.0


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the timers and tasks that are made while `counting`."""

    counting = False
    timers = 0
    tasks = 0

    def call_later(self, *args: Any, **kwargs: Any) -> Any:
        self.timers += self.counting
        return super().call_later(*args, **kwargs)

    def call_at(self, *args: Any, **kwargs: Any) -> Any:
        self.timers += self.counting
        return super().call_at(*args, **kwargs)

    def create_task(self, *args: Any, **kwargs: Any) -> Any:
        self.tasks += self.counting
        return super().create_task(*args, **kwargs)


def counted(work: Coroutine[Any, Any, Any]) -> CountingLoop:
    """Run *work* on a loop that counts."""
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)

        async def main() -> None:
            loop.counting = True
            try:
                await work
            finally:
                loop.counting = False

        runner.run(main())
        return loop


async def answer(value: Any, pauses: int = 0) -> Any:
    """Wait *pauses* times, then give the value."""
    for _ in range(pauses):
        await asyncio.sleep(0)
    return value


async def fail(pauses: int = 0) -> None:
    """Wait *pauses* times, then raise."""
    await answer(None, pauses)
    raise LookupError("no")


async def forever(log: list[str]) -> None:
    """Wait until stopped, and note that."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        log.append("cancelled")
        raise
    finally:
        log.append("cleaned up")


@pytest.mark.parametrize("pauses", [0, 1, 50])
async def test_the_value_comes_back(pauses: int) -> None:
    """Work that never waits, waits once or many times gives its value."""
    assert await with_deadline(answer("done", pauses), LONG) == "done"


@pytest.mark.parametrize("pauses", [0, 1, 50])
async def test_an_exception_comes_out(pauses: int) -> None:
    """Work that raises before or after it waited raises just that."""
    with pytest.raises(LookupError, match="no"):
        await with_deadline(fail(pauses), LONG)


async def test_work_that_takes_too_long_is_cancelled() -> None:
    """The work sees a cancellation, can clean up, and the caller gets DeadlineExceededError."""
    log: list[str] = []
    with pytest.raises(DeadlineExceededError):
        await with_deadline(forever(log), SHORT)
    assert log == ["cancelled", "cleaned up"]


async def test_many_short_waits_add_up() -> None:
    """The limit is for the whole work, not for each of its waits."""

    async def busy() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(DeadlineExceededError):
        await with_deadline(busy(), SHORT)


async def test_the_task_is_not_left_cancelled() -> None:
    """After a passed deadline the task counts as uncancelled and goes on as if nothing had happened."""
    with pytest.raises(DeadlineExceededError):
        await with_deadline(forever([]), SHORT)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)
    assert await with_deadline(answer(1, 1), LONG) == 1


async def test_no_time_at_all() -> None:
    """With no time left, work that waits is stopped at once, and work that does not wait still gives its value."""
    assert await with_deadline(answer(1), 0) == 1
    with pytest.raises(DeadlineExceededError):
        await with_deadline(forever([]), 0)


async def test_work_that_swallows_the_cancellation_and_returns() -> None:
    """A value that is there all the same is not thrown away."""

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "anyway"

    assert await with_deadline(stubborn(), SHORT) == "anyway"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_work_that_turns_the_cancellation_into_an_error() -> None:
    """An error raised in answer to the cancellation is the outcome, and the task is not left cancelled."""

    async def converting() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise LookupError("converted") from None

    with pytest.raises(LookupError, match="converted"):
        await with_deadline(converting(), SHORT)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_time_out_of_the_work_itself_is_not_the_deadline() -> None:
    """A TimeoutError that the work raises comes out as it is."""

    async def impatient() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await with_deadline(impatient(), LONG)


async def test_context_variables_behave_as_with_a_plain_await() -> None:
    """The work sees the caller's context, and what it sets stays set, before and after its first wait."""
    variable = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    async def work() -> None:
        seen.append(variable.get())
        variable.set("set early")
        await asyncio.sleep(0)
        seen.append(variable.get())
        variable.set("set late")

    variable.set("from the caller")
    await with_deadline(work(), LONG)
    assert seen == ["from the caller", "set early"]
    assert variable.get() == "set late"


async def test_the_work_stays_in_the_callers_task() -> None:
    """All steps run in the task that waits."""

    async def work() -> set[Any]:
        tasks = {asyncio.current_task()}
        await asyncio.sleep(0)
        return tasks | {asyncio.current_task()}

    assert await with_deadline(work(), LONG) == {asyncio.current_task()}


async def test_closing_the_awaiting_coroutine_closes_the_work() -> None:
    """A coroutine that is thrown away while it waits takes the work with it."""
    log: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log.append("closed")

    async def main() -> None:
        await with_deadline(work(), LONG)

    waiting = main()
    waiting.send(None)
    waiting.close()
    assert log == ["closed"]


async def test_one_step_of_an_async_generator() -> None:
    """A step of a generator can be limited, too; the generator keeps its task."""

    async def numbers() -> AsyncIterator[int]:
        async with asyncio.timeout(LONG):
            yield 1
            await asyncio.sleep(0)
            yield 2

    async def step(items: AsyncIterator[int]) -> int:
        return await anext(items)

    items = numbers()
    assert [await with_deadline(step(items), LONG) for _ in range(2)] == [1, 2]
    with pytest.raises(StopAsyncIteration):
        await with_deadline(step(items), LONG)


def test_outside_of_a_task_there_is_nothing_to_cancel() -> None:
    """Work that waits without a task to cancel is refused; work that does not wait needs none."""
    with pytest.raises(StopIteration) as finished:
        with_deadline(answer(1), LONG).send(None)  # pyright: ignore[reportAttributeAccessIssue]
    assert finished.value.value == 1


async def test_waiting_outside_of_a_task_is_refused() -> None:
    """Work that waits where no task runs, as in a callback of the loop, cannot be limited."""
    caught: list[BaseException] = []

    def callback() -> None:
        with pytest.raises(RuntimeError, match="needs a task") as error:
            with_deadline(answer(1, 1), LONG).send(None)
        caught.append(error.value)

    asyncio.get_running_loop().call_soon(callback)
    await asyncio.sleep(0)
    assert caught


def test_work_that_never_waits_makes_no_timer_and_no_task() -> None:
    """The usual call of a local tool costs no timer."""
    loop = counted(_call_it(answer(1)))
    assert (loop.timers, loop.tasks) == (0, 0)


def test_work_that_waits_makes_one_timer() -> None:
    """However often the work waits, there is one timer, and no task."""
    loop = counted(_call_it(answer(1, 10)))
    assert loop.timers <= 2  # call_later counts itself and the call_at below it
    assert loop.tasks == 0


async def _call_it(work: Coroutine[Any, Any, Any]) -> None:
    await with_deadline(work, LONG)


async def test_work_that_waits_for_a_task_takes_no_more_turns_of_the_loop_within_a_limit() -> None:
    """The task wakes its caller itself, as it does without a limit, where what is left behind is kept as well."""

    async def turns(work: Awaitable[Any]) -> int:
        loop, count = asyncio.get_running_loop(), 0

        def tick() -> None:
            nonlocal count, handle
            count += 1
            handle = loop.call_soon(tick)

        handle = loop.call_soon(tick)
        try:
            assert await work == 3
        finally:
            handle.cancel()
        return count

    async def through_a_task() -> Any:
        return await asyncio.ensure_future(answer(3, pauses=2))

    assert await turns(with_deadline(through_a_task(), LONG, LeftBehind())) == await turns(through_a_task())


async def test_a_cancelled_caller_is_woken_at_once_and_may_say_why() -> None:
    """The future that it waits for is cancelled by its own code only."""
    waits, never = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def work() -> None:
        waits.set()
        await asyncio.shield(never)

    async def caller() -> None:
        await with_deadline(work(), LONG, LeftBehind())

    task = asyncio.create_task(caller())
    await waits.wait()
    await asyncio.sleep(0)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task
    assert not never.done()
