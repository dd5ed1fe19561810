"""A time limit that costs nothing for work that never waits, and little for work that does."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["DeadlineExceededError", "rest_within", "with_deadline"]

T = TypeVar("T")


class DeadlineExceededError(Exception):
    """The time was over; the work was cancelled."""


@types.coroutine
def with_deadline(work: Coroutine[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """Await *work*, but no longer than *seconds*; then it is cancelled and DeadlineExceededError raised.

    A timer and its cancellation cost more than most calls of a local tool. So the work is taken to its first wait
    before there is a timer; most work never gets there. From then on this is what `asyncio.timeout` does (the task is
    cancelled, and un-cancelled here; a cancellation from elsewhere passes through), without its scopes and coroutines.
    Work that catches the cancellation and returns all the same has its result returned.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as finished:
        return finished.value
    return (yield from _rest(work, waits_for, seconds))


@types.coroutine
def rest_within(work: Coroutine[Any, Any, T], waits_for: Any, seconds: float) -> Generator[Any, Any, T]:
    """`with_deadline` from the first wait on, for work that was started by hand and yielded *waits_for*."""
    return (yield from _rest(work, waits_for, seconds))


def _rest(work: Coroutine[Any, Any, T], waits_for: Any, seconds: float) -> Generator[Any, Any, T]:
    alarm = _Alarm(seconds)
    try:
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
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


class _Alarm:
    """Cancels the current task when the time is over."""

    __slots__ = ("_cancelling", "_rang", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task to cancel; run this in an asyncio task")
        self._task = task
        self._cancelling = task.cancelling()
        self._rang = False
        self._timer = task.get_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._rang = True
        self._task.cancel()

    def off(self) -> bool:
        """Whether the alarm rang and nobody else has asked the task to stop; no more ringing after this."""
        self._timer.cancel()
        return self._rang and self._task.uncancel() <= self._cancelling
