"""The runs of an `Exec` that are under way: closing stops all of them in one way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from contextvars import ContextVar
from typing import Any, Self, TypeVar

from toolexec.errors import ClosedError
from toolexec.process.caller_runs import STOPPED, CallerRuns
from toolexec.process.settling import settle

__all__ = ["Kept", "UnderWay"]

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)


class Kept:
    """A block that closing waits for, and does not stop: only the work that it runs is stopped."""

    __slots__ = ("_kept", "_outer", "_runs", "ended", "is_closing", "loop")

    def __init__(self, runs: CallerRuns, kept: set[Kept]) -> None:
        self._runs = runs
        self._kept = kept
        self._outer: tuple[Kept, ...] = ()
        self.is_closing = False
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()

    def __enter__(self) -> Self:
        self._outer = _WITHIN.get()
        _WITHIN.set((*self._outer, self))
        self._kept.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.discard(self)
        _WITHIN.set(self._outer)  # a token could not be used where the block is closed in another context
        settle(self.ended, None)

    async def run(self, work: Awaitable[T]) -> T:
        """Return what *work* gives, as `UnderWay.run` does. Raises ClosedError, too, where closing has begun before."""
        return await self._runs.run(_refused(work) if self.is_closing else work)


async def _refused(work: Awaitable[Any]) -> Any:
    if isinstance(work, Coroutine):
        work.close()
    raise ClosedError(STOPPED)


_WITHIN: ContextVar[tuple[Kept, ...]] = ContextVar("toolexec_kept_runs", default=())


class UnderWay:
    """Chains, workflows and code of one `Exec`, durable ones too, each in the task of its caller."""

    def __init__(self) -> None:
        self._runs = CallerRuns()
        self._kept: set[Kept] = set()

    def __len__(self) -> int:
        return len(self._runs) + len(self._kept)

    async def run(self, work: Awaitable[T]) -> T:
        """Return what *work* gives; raises ClosedError when it was stopped by closing, as `CallerRuns.run` says."""
        if asyncio.current_task() is None:  # it is driven by hand, and nothing can stop it
            return await work
        return await self._runs.run(work)

    def kept(self) -> Kept:
        """Return a block that closing waits for, such as one that gives a durable run back to its journal."""
        return Kept(self._runs, self._kept)

    async def aclose(self, patience: float) -> None:
        """Stop all runs, and wait until they have ended, with what they undo and what they write down.

        Those that ignore it have *patience* seconds. Runs that this is called from are not waited for.
        """
        loop, within = asyncio.get_running_loop(), _WITHIN.get()
        kept = [each for each in [*self._kept] if each.loop is loop and each not in within]
        for each in kept:
            each.is_closing = True
        have_ended = await self._runs.aclose(patience)
        if kept:
            await asyncio.wait([each.ended for each in kept], timeout=None if have_ended else patience)
        if not have_ended:
            logger.warning("a run did not end %g s after its cancellation and is left behind", patience)
