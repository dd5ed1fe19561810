"""A worker for the runs of a journal: what is due, what queues have next, and what schedules are to make."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import toolexec.durable.clock as host_clock
from toolexec.durable.journal import RunRecord, Wait, decision
from toolexec.durable.queues import QueueStore
from toolexec.durable.run import new_owner
from toolexec.errors import ClosedError, JournalError, RunBusyError, RunError, ToolExecError
from toolexec.exec.durable import LEASE
from toolexec.exec.journal_access import not_on_engine
from toolexec.exec.run_data import OFFLINE, was_resumed, why_stopped
from toolexec.exec.schedules import fire_due

if TYPE_CHECKING:
    from toolexec.exec.durable import DurableRuns
    from toolexec.exec.run_results import RunResult

logger: logging.Logger = logging.getLogger(__name__)
_AT_ONCE: Final = 8
"""How many runs that are in no queue one worker goes on with at once."""
_TRY_AGAIN: Final = 1.0
"""After how many seconds a run is tried again that could not begin just now, where nothing else is said."""


class RunWorker:
    """Goes on with the runs of one journal that can, each in a task of its own."""

    def __init__(self, durable: DurableRuns, on_result: Callable[[str, RunResult], None] | None = None) -> None:
        self._durable = durable
        self._on_result = on_result
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._results: dict[str, RunResult] = {}
        self._again = asyncio.Event()
        self._failure: BaseException | None = None
        self._damaged: set[str] = set()

    async def work(self, idle: float) -> None:
        """Do that until it is cancelled; look every *idle* seconds, and when a run has ended."""
        self._results = _Forgotten()
        try:
            while True:
                await self._durable.under_way.leave()  # one of its runs may have closed the Exec
                self._again.clear()
                try:
                    await self._look(100)
                except JournalError as error:
                    logger.warning("the journal cannot be read, and is tried again: %s", error)
                with suppress(TimeoutError):  # `wait_for` would lose a cancellation that comes with a result
                    async with asyncio.timeout(idle):
                        await self._again.wait()
                self._check()
        finally:
            await self._stop()

    async def drain(self, limit: int) -> dict[str, RunResult]:
        """Go on with what can, at most *limit* runs that are in no queue, and return the results by ID."""
        try:
            await self._look(limit)
            while self._tasks:
                await asyncio.wait([*self._tasks.values()], return_when=asyncio.FIRST_COMPLETED)
                self._check()
                if self._again.is_set():
                    self._again.clear()
                    await self._take()
            self._check()
        finally:
            await self._stop()
        return self._results

    async def _look(self, limit: int) -> None:
        if _has_queues(self._durable):
            await fire_due(self._durable)
        for run in await self._due(limit):
            if run.id not in self._tasks:
                self._begin(run.id, self._resume(run))
        await self._take()

    async def _due(self, limit: int) -> list[RunRecord]:
        """Return runs in no queue that could go on. Raises ConfigurationError where they do so by themselves."""
        if self._durable.engine is not None:
            raise not_on_engine("to go on with what is due", "its workers do that, whatever wakes a run")
        journal, asked = self._durable.journal, limit
        while True:  # until there are enough of those that a worker goes on with
            found = await self._durable.do(journal.due, host_clock.now(), asked)
            runs = [await self._read(run_id) for run_id in found]
            due = [run for run in runs if run is not None]
            if len(due) >= limit or len(found) < asked:
                return due[:limit]
            asked *= 2

    async def _read(self, run_id: str) -> RunRecord | None:
        """Return a run that a worker goes on with; None for another one, for one that was deleted meanwhile, and for
        one that is damaged, which is logged once."""
        try:
            run = await self._durable.do(self._durable.journal.get, run_id)
            return None if await self._stays(run) else run
        except RunError:
            return None
        except JournalError as error:
            if not error.details.get("damaged"):
                raise
            if run_id not in self._damaged:
                self._damaged.add(run_id)
                logger.warning("the run %s cannot be read, and is left alone: %s", run_id, error)
            return None

    async def _stays(self, run: RunRecord) -> bool:
        """Return whether a run was forked to be looked at offline, and has called nothing since: only a caller who asks
        for it may have it call real tools. Once it has called one, it is as any other."""
        if not run.settings.get(OFFLINE):
            return False
        return not was_resumed(run, await self._durable.do(self._durable.journal.calls, run.id))

    async def _take(self) -> None:
        """Take from each queue what it has for this process."""
        if not self._durable.queues:
            return
        store = self._durable.queue_store
        for name, limits in self._durable.queues.items():
            while True:
                owner = new_owner()
                run = await self._durable.do(store.take_next, name, limits, owner, LEASE)
                if run is None:
                    break
                self._begin(owner, self._run(run, owner))

    def _begin(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[key] = task
        task.add_done_callback(lambda task: self._ended(key, task))

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._again.set()

    def _check(self) -> None:
        """Raise what no run should: a mistake in this program, or of the one that is given the results."""
        if self._failure is not None:
            raise self._failure

    async def _resume(self, run: RunRecord) -> None:
        async with self._room:
            await self._run(run, new_owner())

    async def _run(self, run: RunRecord, owner: str) -> None:
        try:
            result = await self._durable.go_on(run, owner)
            if (stopped := why_stopped(result)) is not None:
                raise stopped
        except (ClosedError, RunBusyError):  # another process takes it, or has it
            return
        except ToolExecError as error:
            where = f" of the queue {run.queue}" if run.queue else ""
            logger.warning("the run %s%s cannot be run here: %s", run.id, where, error)
            await self._put_off(run.id, owner, error)
            return
        self._has(run.id, result)

    async def _put_off(self, run_id: str, owner: str, why: ToolExecError) -> None:
        """Have a run wait for a decision, or for a while where that may help: it would be due at once, and the next one
        of its queue, for ever."""
        now = host_clock.now()
        if why.retryable:
            pause = float(why.details.get("retry_after") or _TRY_AGAIN)
            wait = Wait(step="", kind="time", details={"error": why.to_dict()}, due=now + pause, since=now)
        else:
            wait = decision(why, now)
        with suppress(RunError, JournalError):
            await self._durable.do(self._durable.journal.suspend, run_id, owner, [wait])
            self._again.set()

    def _has(self, run_id: str, result: RunResult) -> None:
        self._results[run_id] = result
        self._again.set()
        if self._on_result is not None:
            self._on_result(run_id, result)

    async def _stop(self) -> None:
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Forgotten(dict[str, Any]):
    """Keeps nothing: a worker may go on for months."""

    def __setitem__(self, key: str, value: Any) -> None:
        return


def _has_queues(durable: DurableRuns) -> bool:
    """Return whether the journal keeps queues and schedules."""
    return durable.engine is None and isinstance(durable.journal, QueueStore)
