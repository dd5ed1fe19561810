"""A container that runs and whose runtime answers: how it gets there, and how it is noticed that it is gone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Final

from toolexec_remote.backend import RemoteBackend
from toolexec_remote.proxmox.containers import Containers
from toolexec_remote.proxmox.failures import ProxmoxError

_PAUSE: Final = 0.1
_STEP: Final = 0.2
_GRACE: Final = 1.0


class RunningContainer:
    """The container *vmid* and the connection to the runtime in it. Belongs to one event loop.

    `lost` is done, with its state (`stopped`, `gone`), as soon as it is known that it no longer runs. Its users call
    `enter` and `leave`; meanwhile the API is asked for its state.
    """

    def __init__(self, containers: Containers, vmid: int, remote: RemoteBackend) -> None:
        self.vmid = vmid
        self.remote = remote
        self.runs: int = 0
        """How many programs it has run."""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._containers = containers
        self._users = 0
        self._left = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    def enter(self) -> None:
        """Have it watched, until as many have left as have entered."""
        self._users += 1
        self._left.clear()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    def leave(self) -> None:
        """Be done with it."""
        self._users -= 1
        if not self._users:
            self._left.set()

    def lose(self, state: str) -> None:
        """Have it known that it is gone, or stopped."""
        if not self.lost.done():
            self.lost.set_result(state)

    @property
    def is_used(self) -> bool:
        """Whether programs, or sessions, are in it."""
        return self._users > 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the runtime now."""
        return self.remote.connections[0].up

    async def look(self) -> str:
        """Return its state by the API: `running` also when that cannot say."""
        try:
            state = await self._containers.status(self.vmid)
        except ProxmoxError:
            return "running"
        if state != "running":
            self.lose(state)
        return state

    async def _watch(self) -> None:
        every = self._containers.client.settings.watch
        due = monotonic() + every  # it was looked at when it was acquired
        while self._users and not self.lost.done():
            if monotonic() >= due or not self.is_connected:  # a container that is stopped closes the connection
                await self.look()
                due = monotonic() + every
            with suppress(TimeoutError):
                async with asyncio.timeout(min(every, _STEP)):
                    await self._left.wait()

    async def aclose(self) -> None:
        """Close the connection; the container stays as it is."""
        watching, self._users = self._watching, 0
        self._left.set()
        if watching is not None:  # a request is not broken off: asyncio leaks connections that are just being made
            await asyncio.wait({watching}, timeout=_GRACE)
            await ended(watching)
        self.lost.cancel()
        await self.remote.aclose()


async def connect(containers: Containers, vmid: int, kind: str, ends: float) -> RunningContainer:
    """Return the container *vmid*, which runs, once the runtime in it answers.

    *kind* is that of the backend. Raises ProxmoxError when it stops, when the runtime refuses us or has other sandboxes
    than the settings name, and when all that takes until *ends* (of `monotonic()`).
    """
    connecting = asyncio.create_task(_connected(containers, vmid, kind, ends))
    try:
        while not connecting.done():
            await asyncio.wait({connecting}, timeout=containers.client.settings.watch)
            if not connecting.done() and await containers.status(vmid) != "running":
                raise ProxmoxError(
                    f"the container {vmid} stopped while it was to start; see its log", reason="stopped_again"
                )
        return connecting.result()
    except BaseException:
        await _discarded(connecting)
        raise


async def _connected(containers: Containers, vmid: int, kind: str, ends: float) -> RunningContainer:
    settings = containers.client.settings
    address = await containers.address(vmid, settings.network, ends) if settings.needs_address else ""
    remote = RemoteBackend(settings.remote(address))
    remote.kind = kind
    try:
        await _answered(remote, vmid, ends)
    except BaseException:
        await remote.aclose()
        raise
    return RunningContainer(containers, vmid, remote)


async def _answered(remote: RemoteBackend, vmid: int, ends: float) -> None:
    connection = remote.connections[0]
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, ends - monotonic())):
                if (await remote.check()).ok:
                    return
        said = (await remote.check()).reason if connection.up else str(connection.problem or "it does not listen")
        if connection.up and not connection.is_draining:
            raise ProxmoxError(f"the runtime in the container {vmid} is not usable: {said}", reason="runtime_unfit")
        if connection.problem is not None and not connection.problem.retryable:
            raise ProxmoxError(f"the runtime in the container {vmid} refuses us: {said}", reason="runtime_refused")
        if monotonic() >= ends:
            raise ProxmoxError(
                f"the container {vmid} runs, and the runtime in it did not answer in time: {said}",
                reason="runtime_silent",
                retryable=True,
            )
        await asyncio.sleep(_PAUSE)


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.wait({task})


async def _discarded(connecting: asyncio.Task[RunningContainer]) -> None:
    connecting.cancel()
    await asyncio.wait({connecting})
    if not connecting.cancelled() and connecting.exception() is None:
        await connecting.result().aclose()
