"""The container that the settings name: started where it does not run, shared by all programs, stopped as they say."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from typing import Final

from toolexec_remote.proxmox.containers import Containers
from toolexec_remote.proxmox.failures import ProxmoxError
from toolexec_remote.proxmox.running import RunningContainer, connect

logger: logging.Logger = logging.getLogger(__name__)
_MORE_SECONDS: Final = 15.0
"""How much longer than its grace a shutdown may take."""
_QUIET_SECONDS: Final = 1.0
_PAUSE: Final = 0.05


class NamedContainer:
    """Counts who uses the container, so that it starts once and stops only when it is not needed.

    With a snapshot to roll back to, one at a time uses it. Belongs to one event loop; *kind* is that of the backend.
    """

    def __init__(self, containers: Containers, kind: str) -> None:
        self.settings = containers.client.settings
        self.vmid: int = self.settings.vmid
        self.users: int = 0
        self._containers = containers
        self._kind = kind
        self._turn = asyncio.Lock()
        self._starting: asyncio.Task[RunningContainer] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._started_here = False

    async def verify(self) -> str:
        """Return how it is; raises ProxmoxError when it cannot be used."""
        state = await self._containers.status(self.vmid)
        if state != "running":
            self._admit(state)
        return f"container {self.vmid} on {self._containers.node} is {state}"

    async def acquire(self, ends: float) -> RunningContainer:
        """Return the container, once it runs and its runtime answers; who gets it must `release` it.

        Raises ProxmoxError when it cannot run, or not until *ends* (of `monotonic()`). A start that is under way then
        goes on, for those who come later.
        """
        self.users += 1
        self._call_off()
        try:
            running = await (self._rolled_back(ends) if self.settings.rollback else self._up(ends))
        except BaseException:
            self._left()
            raise
        running.enter()
        return running

    async def release(self, running: RunningContainer, *, reusable: bool) -> None:
        """Be done with it; it is stopped when the last one is, where the settings say so."""
        running.leave()
        if self.settings.rollback:
            self._turn.release()
        self._left()

    async def aclose(self) -> None:
        """Stop it where the settings say so, and close the connection."""
        self._call_off()
        if self._stopping is None and self._stops:
            self._begin_stop()
        if self._stopping is not None:
            await asyncio.wait({self._stopping})
        starting, self._starting = self._starting, None
        await _closed(starting)

    # -- up -----------------------------------------------------------------------------------------------------

    async def _up(self, ends: float) -> RunningContainer:
        while True:
            task, fresh = self._starting, False
            if task is None or _is_over(task):
                task, fresh = asyncio.create_task(self._bring_up(task)), True
                self._starting = task
            running = await self._awaited(task, ends)
            if fresh or (await running.look() == "running" and (running.is_connected or running.is_used)):
                return running
            running.lose("stopped")  # or started again by others, maybe with another address

    async def _rolled_back(self, ends: float) -> RunningContainer:
        try:
            async with asyncio.timeout(ends - monotonic()):
                await self._turn.acquire()
        except TimeoutError:
            raise self._late("other programs are in it, one after the other") from None
        try:
            before = self._starting
            if before is not None and not before.done():  # of one that has given up
                await asyncio.wait({before})
            self._starting = asyncio.create_task(self._bring_up(before))
            return await self._awaited(self._starting, ends)
        except BaseException:
            self._turn.release()
            raise

    async def _awaited(self, task: asyncio.Task[RunningContainer], ends: float) -> RunningContainer:
        await asyncio.wait({task}, timeout=max(0.0, ends - monotonic()))
        if not task.done():
            raise self._late("it is still starting")
        if task.cancelled():
            raise ProxmoxError(f"the container {self.vmid} is being closed", reason="closed")
        return task.result()

    def _late(self, why: str) -> ProxmoxError:
        return ProxmoxError(
            f"the container {self.vmid} was not ready in time: {why}; raise the time limit, or try again",
            reason="start_timeout",
            retryable=True,
        )

    async def _bring_up(self, before: asyncio.Task[RunningContainer] | None) -> RunningContainer:
        """Have it run, after *before*, and connect to it."""
        if self._stopping is not None:
            await asyncio.wait({self._stopping})
        await _closed(before)
        settings, ends = self.settings, monotonic() + self.settings.start_timeout
        state = await self._containers.status(self.vmid)
        if state != "running":
            self._admit(state)
            self._started_here = True
        if settings.rollback:
            await self._containers.rollback(self.vmid, settings.rollback, ends)
        if state != "running" or settings.rollback:
            await self._containers.start(self.vmid, ends)
        return await connect(self._containers, self.vmid, self._kind, ends)

    def _admit(self, state: str) -> None:
        """Raise ProxmoxError unless it may be started in this *state*."""
        if state == "gone":
            raise ProxmoxError(
                f"there is no container {self.vmid} on {self._containers.node}", reason="no_such_container"
            )
        if not self.settings.auto_start:
            raise ProxmoxError(
                f"the container {self.vmid} is {state}, and may not be started: start it, or set auto_start",
                reason="not_running",
            )

    # -- down ---------------------------------------------------------------------------------------------------

    @property
    def _stops(self) -> bool:
        how = self.settings.auto_stop
        used = self._starting is not None
        return (how == "always" and used) or (how == "started" and self._started_here)

    def _left(self) -> None:
        self.users -= 1
        if not self.users and self._stops:
            self._timer = asyncio.get_running_loop().call_later(self.settings.linger, self._begin_stop)

    def _call_off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_stop(self) -> None:
        self._timer = None
        starting, self._starting = self._starting, None
        self._stopping = asyncio.create_task(self._bring_down(starting))

    async def _bring_down(self, starting: asyncio.Task[RunningContainer] | None) -> None:
        """Stop it, unless programs of others run in it."""
        try:
            if starting is not None and _is_up(starting) and await _is_busy(starting.result()):
                return
            await _closed(starting)
            grace = self.settings.stop_timeout
            await self._containers.shutdown(self.vmid, grace, monotonic() + grace + _MORE_SECONDS)
            self._started_here = False
        except ProxmoxError as error:
            logger.warning("the container %d is not stopped: %s", self.vmid, error)
        finally:
            await _closed(starting)


async def _is_busy(running: RunningContainer) -> bool:
    """Return whether the runtime in it has programs of others; its last report may still count ours."""
    connection, ends = running.remote.connections[0], monotonic() + _QUIET_SECONDS
    while connection.up and connection.capacity.get("running", 0):
        if monotonic() >= ends:
            logger.warning("the container %d is not stopped: others run programs in it", running.vmid)
            return True
        await asyncio.sleep(_PAUSE)
    return False


def _is_up(task: asyncio.Task[RunningContainer]) -> bool:
    return task.done() and not _is_over(task)


def _is_over(task: asyncio.Task[RunningContainer]) -> bool:
    """Return whether the start failed or its container stopped."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().lost.done()


async def _closed(task: asyncio.Task[RunningContainer] | None) -> None:
    """End what has come of a start, or is to come of it."""
    if task is None:
        return
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    with suppress(Exception, asyncio.CancelledError):  # who waited for it has got its error
        await task.result().aclose()
