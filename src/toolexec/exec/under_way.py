"""The runs of an `Exec` that are under way: closing stops all of them in one way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar
from types import CoroutineType
from typing import Any, Self, TypeVar

from toolexec.errors import ClosedError
from toolexec.model.call import ToolCall
from toolexec.process.caller_runs import STOPPED, CallerRuns
from toolexec.process.settling import settle, to_the_end
from toolexec.run.layer import Layer
from toolexec.run.runner import Runner
from toolexec.run.types import Result

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)


class OpenRun:
    """A run as a block that closing waits for, with what is around its work, such as giving a durable run back to its
    journal: only the work is stopped."""

    __slots__ = ("_under_way", "ended", "is_begun", "is_closing", "loop", "outer", "owner", "worker")

    def __init__(self, under_way: UnderWay) -> None:
        self._under_way = under_way
        self.outer: tuple[OpenRun, ...] = ()
        self.is_begun = self.is_closing = False
        self.loop = asyncio.get_running_loop()
        self.owner: asyncio.Task[Any] | None = asyncio.current_task()
        self.worker: asyncio.Task[Any] | None = None
        """The task that the work is in, once it has begun."""
        self.ended: asyncio.Future[None] | None = None
        """Done at the end, where closing waits for it."""

    async def __aenter__(self) -> Self:
        self.outer = _WITHIN.get()
        _WITHIN.set((*self.outer, self))
        self._under_way.opened(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        _WITHIN.set(self.outer)  # a token could not be used where the block is closed in another context
        await self._under_way.end(self)

    async def run(self, work: Awaitable[T]) -> T:
        """Return what *work* gives, as `UnderWay.run` does. Raises ClosedError, too, where closing has begun before."""
        self.worker = asyncio.current_task()
        return await self._under_way.worked(_refused(work) if self.is_closing else work)


async def _refused(work: Awaitable[Any]) -> Any:
    if isinstance(work, Coroutine):
        work.close()
    raise ClosedError(STOPPED)


_WITHIN: ContextVar[tuple[OpenRun, ...]] = ContextVar("toolexec_open_runs", default=())


class UnderWay:
    """Chains, workflows and code of one `Exec`, durable ones too, each in the task of its caller.

    A run within another one, such as a skill, is a part of that: it is cancelled with it, and has no ClosedError of
    its own. A run that closes what it runs in is `leaving`: its call ends as it would have, and it is stopped by the
    next one, or at its end.
    """

    def __init__(self) -> None:
        self._runs = CallerRuns()
        self._open: set[OpenRun] = set()
        self._then: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.leaving: set[OpenRun] = set()
        """The runs that have closed what they run in, with those that are parts of them."""

    def __len__(self) -> int:
        return len(self._runs) + len(self._open)

    def _around(self) -> list[OpenRun]:
        """Return the open runs that this is called from, the outermost first."""
        return [run for run in _WITHIN.get() if run in self._open]

    async def run(self, work: Awaitable[T]) -> T:
        """Return what *work*, all of a run, gives; raises ClosedError when it was stopped by closing."""
        task, around = asyncio.current_task(), self._around()
        if task is None:  # it is driven by hand, and nothing can stop it
            return await work
        if around and not around[-1].is_begun:
            around[-1].is_begun = True
            return await self._runs.run(work)
        async with OpenRun(self) as run:
            run.is_begun, run.worker = True, task
            return await (work if around and task in self._runs else self._runs.run(work))

    async def worked(self, work: Awaitable[T]) -> T:
        """Return what *work*, a part of a run that others are around, gives; raises ClosedError as `CallerRuns.run`
        does, so that what is around it may complete the result."""
        if asyncio.current_task() is None or len(self._around()) > 1:
            return await work
        return await self._runs.run(self._unless_left(work))

    async def _unless_left(self, work: Awaitable[T]) -> T:
        result = await work
        if self.leaving:
            await self.leave()
        return result

    def kept(self) -> OpenRun:
        """Return a block that closing waits for, whose `run` has the work."""
        return OpenRun(self)

    def calls_by(self, runner: Runner) -> Runner:
        """Return what makes the calls of runs by *runner*; the first one after its run has closed the Exec stops it."""
        return _CallsOfRuns(runner, self)

    async def leave(self) -> None:
        """Stop the run that this is called from, if it is leaving, and wait to be cancelled with it."""
        for run in self._around():
            if run in self.leaving:
                return await self._runs.leave(run.worker)
        return None

    async def aclose(self, patience: float, then: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Stop all runs, and wait until they have ended, with what they undo and what they write down.

        Those that ignore it have *patience* seconds. Runs that this is called from end later: then it returns False,
        and *then* is awaited at their end.
        """
        around, loop = self._around(), asyncio.get_running_loop()
        own = {run for run in [*self._open] if run in around or not set(around).isdisjoint(run.outer)}
        self.leaving.update(own)
        self._then = then if own else None
        left = [run for run in [*self._open] if run not in own and run.loop is loop]
        for run in left:
            run.is_closing = True
        while left := [run for run in left if run in self._open]:
            outermost = [run for run in left if self._open.isdisjoint(run.outer)]
            spared = {run.worker for run in self._open} - {run.worker for run in outermost}
            for run in outermost:
                run.ended = run.ended or loop.create_future()
            ends = [run.ended for run in outermost if run.ended is not None]
            have_ended = await self._runs.aclose(patience, spared=spared)
            await asyncio.wait(ends, timeout=None if have_ended else patience)
            if not have_ended:
                logger.warning("a run did not end %g s after its cancellation and is left behind", patience)
                break
        return not own

    def opened(self, run: OpenRun) -> None:
        """Note that a run begins."""
        self._open.add(run)

    async def end(self, run: OpenRun) -> None:
        """Note that a run has ended; where it was the last one that was leaving, all is closed now."""
        self._open.discard(run)
        self.leaving.discard(run)
        if run.ended is not None:
            settle(run.ended, None)
        if self._then is None or self.leaving:
            return
        then, self._then = self._then, None
        try:
            await to_the_end(asyncio.create_task(then(), context=Context()))
        except Exception:  # the caller gets what came of its run
            logger.exception("what a run had closed did not stop")


class _CallsOfRuns(Layer):
    """Makes the calls of runs, as long as these are not leaving; plain functions, which cost no coroutine."""

    def __init__(self, inner: Runner, under_way: UnderWay) -> None:
        super().__init__(inner)
        self._under_way = under_way
        self._leaving = under_way.leaving

    def before(self, call: ToolCall) -> Coroutine[Any, Any, None] | None:
        return self._under_way.leave() if self._leaving else None

    def run(self, call: ToolCall) -> CoroutineType[Any, Any, Result]:
        return super().run(call) if self._leaving else self.inner.run(call)

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        return not self._leaving and super().runs_in_thread(call, within)

    def run_in_thread(self, call: ToolCall, wait: Any, within: float) -> Result | None:
        inner = self.inner_in_thread
        return inner.run_in_thread(call, wait, within) if inner is not None and not self._leaving else None
