"""A journal as an engine is asked: its methods are awaited, and hold up no event loop."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import toolexec.durable.clock as host_clock
from toolexec.durable.journal import CallRecord, Journal, RunRecord, RunState, Signal
from toolexec.durable.queues import Queue, QueueRecord, QueueStore
from toolexec.durable.schedules import Schedule


class JournalStore:
    """Asks a journal for runs, as a `DurableEngine` is asked."""

    def __init__(self, journal: Journal, do: Callable[..., Awaitable[Any]]) -> None:
        self._journal = journal
        self._do = do

    async def get(self, run_id: str) -> RunRecord:
        """Do what `Journal.get` does."""
        return await self._do(self._journal.get, run_id)

    async def calls(self, run_id: str) -> list[CallRecord]:
        """Do what `Journal.calls` does."""
        return await self._do(self._journal.calls, run_id)

    async def runs(
        self,
        *,
        states: Sequence[RunState] = (),
        caller: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[RunRecord]:
        """Do what `Journal.runs` does."""
        return await self._do(partial(self._journal.runs, states=states, caller=caller, limit=limit, before=before))

    async def signals(self, run_id: str) -> list[Signal]:
        """Do what `Journal.signals` does."""
        return [*await self._do(self._journal.signals, run_id)]

    async def signal(self, run_id: str, signal: Signal) -> bool:
        """Do what `Journal.signal` does."""
        return await self._do(self._journal.signal, run_id, signal)

    async def cancel(self, run_id: str) -> bool:
        """Do what `Journal.cancel` does."""
        return await self._do(self._journal.cancel, run_id)

    async def delete(self, run_id: str) -> bool:
        """Do what `Journal.delete` does."""
        return await self._do(self._journal.delete, run_id)


class JournalQueues:
    """Asks a journal for queues and schedules, as a `QueuedEngine` is asked. Workers know the limits by themselves."""

    def __init__(self, store: QueueStore, do: Callable[..., Awaitable[Any]]) -> None:
        self._store = store
        self._do = do

    async def enqueue(self, run: RunRecord, limits: Queue, *, delay: float) -> RunRecord:
        """Do what `QueueStore.enqueue` does."""
        ready = host_clock.now() + delay if delay else 0.0
        return await self._do(partial(self._store.enqueue, run, ready=ready))

    async def queues(self) -> list[QueueRecord]:
        """Do what `QueueStore.queues` does."""
        return [*await self._do(self._store.queues)]

    async def add_schedule(
        self, schedule: Schedule, run: RunRecord, limits: Queue | None, *, replace: bool
    ) -> Schedule:
        """Do what `QueueStore.add_schedule` does; the run is made when the schedule is due."""
        return await self._do(partial(self._store.add_schedule, schedule, replace=replace))

    async def schedules(self) -> list[Schedule]:
        """Do what `QueueStore.schedules` does."""
        return [*await self._do(self._store.schedules)]

    async def remove_schedule(self, name: str) -> bool:
        """Do what `QueueStore.remove_schedule` does."""
        return await self._do(self._store.remove_schedule, name)

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """Do what `QueueStore.pause_schedule` does, for the next time from now on."""
        found = next((each for each in await self.schedules() if each.name == name), None)
        if found is None:
            return False
        return await self._do(self._store.pause_schedule, name, paused, found.timing.first(first_second()))


def first_second() -> float:
    """Return the whole second from which the times of a schedule are counted, so that IDs are short."""
    return float(math.floor(host_clock.now()))
