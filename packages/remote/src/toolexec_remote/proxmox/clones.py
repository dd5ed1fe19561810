"""Clones of a template: made when they are needed, or pre-warmed, and removed when they have been used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from secrets import token_hex
from time import monotonic
from typing import Any, Final

from toolexec.errors import ToolExecError
from toolexec.sandbox import Slots
from toolexec_remote.proxmox.client import Value
from toolexec_remote.proxmox.containers import Containers
from toolexec_remote.proxmox.failures import ProxmoxError
from toolexec_remote.proxmox.owners import PREFIX, CloneNotes, read_notes
from toolexec_remote.proxmox.rights import CLONE_PRIVILEGES, clones_path, lacking
from toolexec_remote.proxmox.running import RunningContainer, connect, ended

logger: logging.Logger = logging.getLogger(__name__)
_REMOVE_SECONDS: Final = 60.0


class ClonePool:
    """Gives each program a clone of its own. Belongs to one event loop; *kind* is that of the backend."""

    def __init__(self, containers: Containers, kind: str) -> None:
        self.kind = kind
        self.settings = containers.client.settings
        self._containers = containers
        self._room = Slots(self.settings.max_clones)
        self._names: dict[int, str] = {}
        self._idle: list[RunningContainer] = []
        self._making: set[asyncio.Task[RunningContainer]] = set()
        self._warming: set[asyncio.Task[RunningContainer]] = set()
        self._removing: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._is_vetted = False
        self._closed = False

    async def verify(self) -> str:
        """Return how the template is; raises ProxmoxError when it cannot be used."""
        template = self.settings.template
        if not (await self._containers.config(template)).get("template") and not self.settings.full_clones:
            raise ProxmoxError(
                f"the container {template} is not a template: make it one, or set full_clones", reason="no_template"
            )
        await self._vet()
        return f"clones of {template} on {self._containers.node}"

    async def acquire(self, ends: float) -> RunningContainer:
        """Return a clone that no other program uses, whose runtime answers; who gets it must `release` it.

        Raises ProxmoxError when there can be none, and SandboxUnavailableError when all are in use until *ends* (of
        `monotonic()`). A clone that comes too late is kept for the next program.
        """
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        await self._room.enter(ends, self)
        try:
            running = await self._taken(ends)
        except BaseException:
            self._room.leave()
            raise
        running.enter()
        self._fill()
        return running

    async def release(self, running: RunningContainer, *, reusable: bool) -> None:
        """Be done with it: it is removed, or, if it is *reusable*, there for another program."""
        running.leave()
        most = self.settings.runs_per_clone
        if reusable and not running.lost.done() and not self._closed and (not most or running.runs < most):
            self._idle.append(running)
        else:
            self._discard(running)
        self._room.leave()
        self._fill()

    async def sweep(self) -> list[int]:
        """Remove the clones that dead processes have left; return their numbers. Raises ProxmoxError."""
        now, found = self._containers.client.now(), dict[int, str]()
        for each in await self._containers.list():
            if each.name.startswith(PREFIX) and each.vmid not in self._names:
                notes = await self._notes(each.vmid)
                if notes is not None and notes.is_left_over(now):
                    found[each.vmid] = notes.name
        ends = monotonic() + _REMOVE_SECONDS
        failed = await asyncio.gather(
            *(self._containers.remove(vmid, ends, partial(self._is_named, name)) for vmid, name in found.items()),
            return_exceptions=True,
        )
        for vmid, error in zip(found, failed, strict=True):
            if isinstance(error, ProxmoxError):
                logger.warning("the clone %d of a dead process is not removed: %s", vmid, error)
        return [vmid for vmid, error in zip(found, failed, strict=True) if error is None]

    async def aclose(self) -> None:
        """Remove all clones."""
        self._closed = True
        if self._keeping is not None:
            await ended(self._keeping)
        for task in [*self._making]:
            task.cancel()
        if self._making:
            await asyncio.wait([*self._making])
        idle, self._idle = self._idle, []
        for running in idle:
            self._discard(running)
        if self._removing:
            await asyncio.wait([*self._removing])

    # -- one clone ----------------------------------------------------------------------------------------------

    async def _taken(self, ends: float) -> RunningContainer:
        while self._idle:
            running = self._idle.pop()
            if await running.look() == "running":
                return running
            self._discard(running)
        task = self._warming.pop() if self._warming else self._begin()
        try:
            await asyncio.wait({task}, timeout=max(0.0, ends - monotonic()))
        finally:
            if not task.done():
                self._warming.add(task)  # for the next one
        if not task.done():
            raise ProxmoxError(
                "no clone was ready in time; raise the time limit, or keep some warm",
                reason="start_timeout",
                retryable=True,
            )
        if task.cancelled():
            raise ProxmoxError("this backend is closed", reason="closed")
        return task.result()

    def _begin(self) -> asyncio.Task[RunningContainer]:
        task = asyncio.create_task(self._make())
        self._making.add(task)
        task.add_done_callback(self._made)
        return task

    def _made(self, task: asyncio.Task[RunningContainer]) -> None:
        self._making.discard(task)
        if task not in self._warming:
            return
        self._warming.discard(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.warning("no clone was pre-warmed: %s", error)
        elif self._closed:
            self._discard(task.result())
        else:
            self._idle.append(task.result())

    def _fill(self) -> None:
        """Have clones pre-warmed."""
        settings = self.settings
        while not self._closed:
            ahead = len(self._idle) + len(self._warming)
            if ahead >= settings.warm or self._room.taken + ahead >= settings.max_clones:
                return
            self._warming.add(self._begin())

    async def _make(self) -> RunningContainer:
        ends = monotonic() + self.settings.start_timeout
        name, tried = f"{PREFIX}{token_hex(6)}", list[int]()
        try:
            await self._vet()
            vmid = await self._cloned(name, ends, tried)
            self._names[vmid] = name
            await self._containers.start(vmid, ends)
            return await connect(self._containers, vmid, self.kind, ends)
        except BaseException as error:
            refused = isinstance(error, ProxmoxError) and not error.sent and error.status
            if tried and not (refused and tried[-1] not in self._names):
                self._remove_later(tried[-1], name)
            raise

    async def _vet(self) -> None:
        """Raise MissingPrivilegeError where we may make clones and not use or remove them; found out once.

        Where Proxmox does not say, the clone is tried, and refused by itself.
        """
        if self._is_vetted:
            return
        path = clones_path(self.settings)
        held = await self._containers.privileges(f"/vms/{await self._containers.next_id()}")
        of_pool = await self._containers.privileges(path) if self.settings.pool else ()
        if held is not None and of_pool is not None:
            absent = [each for each in CLONE_PRIVILEGES if each not in held and each not in of_pool]
            if absent:
                raise lacking("Proxmox would not let us use its clones, or remove them", path, absent, self.settings)
        self._is_vetted = True

    async def _cloned(self, name: str, ends: float, tried: list[int]) -> int:
        """Make the clone; one that is under way when this is cancelled is waited for, to be removed."""
        settings = self.settings
        notes = CloneNotes(name=name, until=self._until()).text()
        fields: dict[str, Value] = {"hostname": name, "description": notes, "full": settings.full_clones}
        fields |= {key: value for key in ("storage", "pool") if (value := str(getattr(settings, key)))}
        cloning = asyncio.create_task(self._containers.clone(settings.template, ends, tried.append, **fields))
        try:
            return await asyncio.shield(cloning)
        except asyncio.CancelledError:
            await asyncio.wait({cloning}, timeout=settings.timeout)
            cloning.cancel()
            raise

    def _until(self) -> int:
        return int(self._containers.client.now() + self.settings.lease)

    # -- their end ----------------------------------------------------------------------------------------------

    def _discard(self, running: RunningContainer) -> None:
        self._remove_later(running.vmid, self._names.get(running.vmid, ""), running)

    def _remove_later(self, vmid: int, name: str, running: RunningContainer | None = None) -> None:
        task = asyncio.create_task(self._remove(vmid, name, running))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def _remove(self, vmid: int, name: str, running: RunningContainer | None) -> None:
        """Remove a clone, if it is the one of that *name*: numbers are given to others again."""
        unmade = bool(self.settings.pool) and vmid not in self._names
        if running is not None:
            await running.aclose()
        try:
            ends = monotonic() + _REMOVE_SECONDS
            await self._containers.remove(vmid, ends, partial(self._is_named, name), in_the_making=unmade)
        except ProxmoxError as error:
            logger.warning("the clone %d is not removed: %s", vmid, error)
        finally:
            if self._names.get(vmid) == name:  # else the number is that of a newer clone of ours
                del self._names[vmid]

    async def _is_named(self, name: str, vmid: int) -> bool:
        notes = await self._notes(vmid)
        return notes is not None and notes.name == name

    async def _notes(self, vmid: int) -> CloneNotes | None:
        try:
            return read_notes(str((await self._containers.config(vmid)).get("description", "")))
        except ProxmoxError as error:
            if error.reason == "no_such_container":
                return None
            raise

    # -- leases -------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Say from time to time that we live, and look for what others have left."""
        while True:
            await self._logged(self.sweep())
            await asyncio.sleep(self.settings.lease / 3)
            for vmid, name in [*self._names.items()]:
                await self._logged(self._containers.describe(vmid, CloneNotes(name=name, until=self._until()).text()))

    async def _logged(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (ProxmoxError, ToolExecError) as error:
            logger.warning("the clones of a template are not looked after: %s", error)
