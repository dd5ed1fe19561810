"""Going on with durable runs until they have ended, however long they wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import toolexec.durable.clock as host_clock
from toolexec.durable.journal import RunRecord, Wait
from toolexec.errors import RunBusyError, RunWaitingError
from toolexec.exec.run_results import ENDED, RunHooks, RunResult, WaitsCallback

if TYPE_CHECKING:
    from toolexec.exec.durable import DurableRuns

_LOOK_FIRST: Final = 0.1
_LOOK_AGAIN: Final = 0.5
_LOOK_FAR: Final = 5.0


class Followers:
    """What follows runs in this process."""

    def __init__(self, durable: DurableRuns) -> None:
        self._durable = durable
        self._followed: dict[str, asyncio.Event] = {}

    async def follow(self, run_id: str, hooks: RunHooks, on_waits: WaitsCallback | None) -> RunResult:
        """Go on with a run until it has ended; see `Runs.follow`."""
        woken = self._followed.setdefault(run_id, asyncio.Event())
        try:
            while True:
                # first of all: what waits was repeated up to there before, and would be once more for nothing
                by_workers = self._durable.engine is None and await self._is_for_workers(run_id)
                await self._until_woken(run_id, woken, on_waits, by_workers=by_workers)
                try:
                    result = await self._durable.resume(run_id, hooks=hooks)
                except RunBusyError:  # another process goes on with it
                    await asyncio.sleep(_LOOK_AGAIN)
                    continue
                if not isinstance(result.error, RunWaitingError):
                    return result
        finally:
            self._followed.pop(run_id, None)

    async def _is_for_workers(self, run_id: str) -> bool:
        """Return whether workers take the run from a queue, by the limits of that."""
        run = await self._durable.store.get(run_id)
        return bool(run.queue) and run.state not in ENDED

    async def _until_woken(
        self, run_id: str, woken: asyncio.Event, on_waits: WaitsCallback | None, *, by_workers: bool = False
    ) -> None:
        """Return once a run that waits can go on, or another process goes on with it; *by_workers*: once it ended."""
        known: tuple[Wait, ...] = ()
        pause = _LOOK_FIRST
        while (run := await self._durable.store.get(run_id)).state == "waiting" or (
            by_workers and run.state not in ENDED
        ):
            if on_waits is not None and run.waits != known:
                known = run.waits
                on_waits(known)
            if self._durable.engine is None and not by_workers and await self._can_go_on(run):
                break
            try:
                async with asyncio.timeout(pause):  # `wait_for` would lose a cancellation that comes with what wakes it
                    await woken.wait()
                pause = _LOOK_FIRST
            except TimeoutError:
                pause = min(pause * 2, _LOOK_AGAIN if self._durable.engine is None else _LOOK_FAR)
            woken.clear()
        if on_waits is not None:
            on_waits(())

    async def _can_go_on(self, run: RunRecord) -> bool:
        """Return whether something is there that a run of the journal waits for."""
        now, names = host_clock.now(), {wait.name for wait in run.waits if wait.name}
        if any(wait.due is not None and wait.due <= now for wait in run.waits):
            return True
        signals = await self._durable.do(self._durable.journal.signals, run.id)
        return any(not signal.taken_by and signal.name in names for signal in signals)

    def wake(self, run_id: str) -> None:
        """Have what follows a run in this process look at it now."""
        if (woken := self._followed.get(run_id)) is not None:
            woken.set()
