"""Work in the tasks of its callers that closing stops: the caller gets an error, and its task is not cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import Any, Final, TypeVar

from toolexec.errors import ClosedError

T = TypeVar("T")
STOPPED: Final = "the run was stopped: what it runs in was closed; make a new one and run it again"
"""What the error of work says that was stopped by closing."""


class _CallerRun:
    """Work in the task of a caller. Once `aclose` has cancelled it there are `stopped`, done when the work knows of it,
    and `ended`, done at its end."""

    __slots__ = ("before", "ended", "stopped", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.before = task.cancelling()
        self.stopped: asyncio.Future[None] | None = None
        self.ended: asyncio.Future[None] | None = None

    def cancel(self) -> None:
        """Cancel the work, once."""
        if self.ended is None:
            loop = self.task.get_loop()
            self.stopped, self.ended = loop.create_future(), loop.create_future()
            self.task.cancel()

    def takes(self) -> bool:
        """Take a cancellation that arrives; return whether it is that of `cancel` alone."""
        if self.stopped is None or self.stopped.done():
            return False
        is_own = self.task.cancelling() - 1 <= self.before
        self._take_back(self.stopped)
        return is_own

    def end(self) -> None:
        """Say that the work has ended."""
        if self.stopped is not None and not self.stopped.done():
            self._take_back(self.stopped)
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)

    def _take_back(self, stopped: asyncio.Future[None]) -> None:
        self.task.uncancel()  # it was not the caller who was cancelled
        stopped.set_result(None)


class CallerRuns:
    """Runs work in the tasks of its callers, until `aclose` stops it; the caller then gets a ClosedError.

    It takes no turn of the event loop, as a task of its own does at its start and its end. It is for work that does not
    cancel the task it is in, and that may be interrupted as often as its caller is cancelled.
    """

    def __init__(self) -> None:
        self._runs: dict[asyncio.Task[Any], _CallerRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, task: object) -> bool:
        return task in self._runs

    async def run(self, work: Awaitable[T]) -> T:
        """Return what *work* gives; raises what it raises, and ClosedError when it was stopped by `aclose`.

        Work within other work of the same task is stopped with that: the innermost raises the ClosedError, and what is
        around it may go on with that, such as to undo what was done.
        """
        task = asyncio.current_task()
        assert task is not None
        run = self._runs.get(task)
        is_outermost = run is None
        if run is None:
            run = self._runs[task] = _CallerRun(task)
        try:
            return await work
        except asyncio.CancelledError as cancelled:
            if run.takes():
                closed = ClosedError(STOPPED)
                for note in getattr(cancelled, "__notes__", ()):  # such as what was undone
                    closed.add_note(note)
                raise closed from None
            raise
        finally:
            if is_outermost:
                del self._runs[task]
                run.end()

    async def leave(self, task: asyncio.Task[Any] | None) -> None:
        """Cancel the work in *task*, which this is called by, and wait to be cancelled with it. Return at once where
        that was stopped before, and goes on all the same, such as to undo what was done."""
        run = self._runs.get(task) if task is not None else None
        if task is None or run is None or (run.stopped is not None and run.stopped.done()):
            return
        task.get_loop().call_soon_threadsafe(run.cancel)
        await asyncio.get_running_loop().create_future()

    async def aclose(self, patience: float | None = None, *, spared: Collection[asyncio.Task[Any] | None] = ()) -> bool:
        """Cancel all work of this event loop but that in the tasks *spared*, and wait until it has ended; work that
        closes what it runs in does not wait for itself. Return whether all has ended: work that ignores its
        cancellation has *patience* seconds."""
        loop, spared = asyncio.get_running_loop(), {asyncio.current_task(), *spared}
        runs = [run for task, run in [*self._runs.items()] if task not in spared and task.get_loop() is loop]
        for run in runs:
            run.cancel()
        if stopping := [run.stopped for run in runs if run.stopped is not None]:
            await asyncio.wait(stopping, timeout=patience)
        if ending := [run.ended for run in runs if run.ended and run.stopped and run.stopped.done()]:
            await asyncio.wait(ending)
        return len(ending) == len(runs)
