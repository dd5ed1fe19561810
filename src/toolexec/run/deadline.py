"""A time limit that costs nothing for work that never waits, and little for work that does."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, Any, T]
"""Work that is taken from one wait to the next by hand: a coroutine, or a generator that is one."""
logger: logging.Logger = logging.getLogger(__name__)
_SCOPE: Final = "Cancelled via cancel scope "
"""What the message of a cancellation by a scope of anyio begins with."""
_GRACE: Final = 0.1
"""How many seconds work has after its cancellation to clean up while its caller waits."""


class DeadlineExceededError(Exception):
    """The time was over; the work was cancelled. `task` goes on with work that did not end with that."""

    def __init__(self, task: asyncio.Task[None] | None = None) -> None:
        super().__init__()
        self.task = task


class LeftBehind:
    """Work that was cancelled at its deadline and did not end: it goes on in tasks of its own, without its caller."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it ends."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take(self, work: Steps[Any], waits_for: Any, name: str) -> asyncio.Task[None]:
        """Go on with work, which waits for *waits_for*, in a task of its own."""

        async def go_on() -> None:
            await _go_on(work, waits_for, name)

        logger.warning("%s ignores its cancellation and is left behind", name)
        task = asyncio.get_running_loop().create_task(go_on(), name=f"toolexec-left-{name}")
        self.add(task)
        return task

    async def aclose(self, seconds: float) -> None:
        """Wait so long for the work to end by itself, then end it: it is not resumed any more."""
        loop = asyncio.get_running_loop()
        tasks = [task for task in self._tasks if task.get_loop() is loop]
        if not tasks:
            return
        _, stuck = await asyncio.wait(tasks, timeout=seconds)
        for task in stuck:
            logger.warning("%s did not end %g s after its cancellation and is ended", task.get_name(), seconds)
            task.cancel()
        if stuck:
            await asyncio.wait(stuck, timeout=seconds)


@types.coroutine
def with_deadline(
    work: Coroutine[Any, Any, T], seconds: float, left: LeftBehind | None = None, name: str = "work"
) -> Generator[Any, Any, T]:
    """Await *work*, but no longer than *seconds*; then it is cancelled and DeadlineExceededError raised.

    A timer and its cancellation cost more than most calls of a local tool. So the work is taken to its first wait
    before there is a timer; most work never gets there. From then on this is what `asyncio.timeout` does (the task is
    cancelled, and un-cancelled here; a cancellation from elsewhere passes through), without its scopes and coroutines.
    Work that catches the cancellation and returns all the same has its result returned. Work that goes on for more than
    a moment is handed over to a task in *left*, called *name*; without *left* it is awaited.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as finished:
        return finished.value
    return (yield from _rest(work, waits_for, seconds, left, name))


@types.coroutine
def rest_within(
    work: Steps[T], waits_for: Any, seconds: float, left: LeftBehind | None = None, name: str = "work"
) -> Generator[Any, Any, T]:
    """`with_deadline` from the first wait on, for work that was started by hand and yielded *waits_for*."""
    return (yield from _rest(work, waits_for, seconds, left, name))


def _rest(work: Steps[T], waits_for: Any, seconds: float, left: LeftBehind | None, name: str) -> Generator[Any, Any, T]:
    alarm = _Alarm(seconds)
    try:
        while True:
            try:
                if left is None or waits_for is None or type(waits_for) is asyncio.Future:
                    sent = yield waits_for
                else:  # a task or a group of them: to cancel it does not mean that it ends
                    sent = yield from _until_done(waits_for)
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                alarm.note(error)
                if not _hands_on(waits_for, error, left):
                    waits_for = work.throw(error)
                if alarm.rang and left is not None:
                    break
            else:
                waits_for = work.send(sent)
        waits_for = yield from _grace(work, waits_for, alarm)
    except StopIteration as finished:
        alarm.off()
        return finished.value
    except asyncio.CancelledError:
        if alarm.off():
            raise DeadlineExceededError from None
        raise
    except BaseException:
        alarm.off()
        raise
    task = left.take(work, waits_for, name)
    if alarm.off():
        raise DeadlineExceededError(task)
    raise asyncio.CancelledError


def _grace(work: Steps[Any], waits_for: Any, alarm: _Alarm) -> Generator[Any, Any, Any]:
    """Resume cancelled work for a moment in this very task, where its scopes belong and which counts as cancelled;
    return what it waits for then. A further cancellation is handed on to the work.

    Work in a cancelled scope of anyio is resumed until it has left the scope: elsewhere it could not leave it, and the
    scope would go on to cancel this task.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + _GRACE
    while loop.time() < ends or alarm.is_in_scope():
        try:
            yield from _until_done(waits_for, max(ends, loop.time() + _GRACE))
        except asyncio.CancelledError as error:
            alarm.note(error)
            if not (_is_future(waits_for) and waits_for.cancel(*error.args)):
                waits_for = work.throw(error)
        else:
            if not _is_future(waits_for) or waits_for.done():
                waits_for = work.send(None)
    return waits_for


def _hands_on(waits_for: Any, error: BaseException, left: LeftBehind | None) -> bool:
    """Hand a cancellation on to the task that the work waits for, as asyncio does; return whether it took it."""
    if left is None or not isinstance(error, asyncio.CancelledError):
        return False
    return waits_for is not None and type(waits_for) is not asyncio.Future and waits_for.cancel(*error.args)


@types.coroutine
def _go_on(work: Steps[Any], waits_for: Any, name: str) -> Generator[Any, Any, None]:
    """Resume work that was left behind until it ends, or the task that does this is cancelled."""
    try:
        while True:
            yield from _until_done(waits_for)
            waits_for = work.send(None)
    except StopIteration:
        logger.info("%s has ended after it was left behind", name)
    except asyncio.CancelledError:
        if _is_future(waits_for):
            waits_for.cancel()
        try:
            work.close()
        except BaseException as error:
            logger.warning("%s, which was left behind, could not be ended: %s", name, type(error).__name__)
    except BaseException as error:
        logger.warning("%s, which was left behind, has failed: %s", name, type(error).__name__)


def _until_done(waits_for: Any, ends: float | None = None) -> Generator[Any, Any, None]:
    """Wait for what work waits for, but not longer than until *ends* (of the loop's clock); a cancellation of the
    current task is raised here and not handed on."""
    if not _is_future(waits_for):
        yield waits_for
        return
    wait = _Wait(waits_for)
    waits_for._asyncio_future_blocking = False  # noqa: SLF001 - as code that awaits a future must set it
    # A timer that was cancelled stays with the loop until its time, and with it its context: all that the call knows.
    timer = None if ends is None else waits_for.get_loop().call_at(ends, wait.end, context=Context())
    try:
        yield wait
    finally:
        wait.off()
        if timer is not None:
            timer.cancel()


class _Wait:
    """A stand-in for *future* that a task waits for: it ends with that, and where the task is cancelled it ends and
    leaves the future as it is. A future in between would be a turn of the event loop for each call."""

    __slots__ = ("_asyncio_future_blocking", "_context", "_error", "_future", "_is_over", "_wake")

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._asyncio_future_blocking = True
        self._future = future
        self._wake: Callable[[Any], object] = id
        self._context: Context | None = None
        self._error: asyncio.CancelledError | None = None
        self._is_over = False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the future, as the task asks."""
        return self._future.get_loop()

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Take what wakes the task."""
        self._wake, self._context = wake, context
        self._future.add_done_callback(self._done, context=context)

    def cancel(self, msg: object = None) -> bool:
        """Wake the task with a CancelledError, unless it is about to be woken anyway: then it has to raise its own."""
        if self._is_over or self._future.done():
            return False
        self._error = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self.end()
        return True

    def end(self) -> None:
        """Wake the task, whatever becomes of the future."""
        if not self._is_over:
            self.off()
            self.get_loop().call_soon(self._wake, self, context=self._context)

    def off(self) -> None:
        """Wake nothing any more."""
        self._is_over = True
        self._future.remove_done_callback(self._done)

    def result(self) -> None:
        """Return nothing, as what waits for the future asks it for its result; raises the CancelledError."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback holds this frame

    def _done(self, _: object) -> None:
        if not self._is_over:
            self._is_over = True
            self._wake(self)


def _is_future(waits_for: Any) -> bool:
    return getattr(waits_for, "_asyncio_future_blocking", None) is not None


class _Alarm:
    """Cancels the current task when the time is over."""

    __slots__ = ("_cancelling", "_scoped", "_task", "_timer", "rang")

    def __init__(self, seconds: float) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task to cancel; run this in an asyncio task")
        self._task = task
        self._cancelling = task.cancelling()
        self._scoped = False
        self.rang = False
        # As above: without a context of its own it would keep that of the call for so many seconds.
        self._timer = task.get_loop().call_later(seconds, self._ring, context=Context())

    def _ring(self) -> None:
        self.rang = True
        self._task.cancel()

    def note(self, error: BaseException) -> None:
        """Record whether a scope of anyio has cancelled the task; it takes that back when it is left."""
        if isinstance(error, asyncio.CancelledError) and str(*error.args[:1]).startswith(_SCOPE):
            self._scoped = True

    def is_in_scope(self) -> bool:
        """Return whether such a scope was not left yet."""
        return self._scoped and self._task.cancelling() > self._cancelling + 1

    def off(self) -> bool:
        """Return whether the alarm rang and nothing else has cancelled the task; the last that is asked of it."""
        self._timer.cancel()
        task = self._task
        del self._task  # whose error may lead back here: only a collection of garbage would free such a cycle
        return self.rang and task.uncancel() <= self._cancelling
