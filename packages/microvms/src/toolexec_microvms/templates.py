"""Machines that boot once: each is saved with its guest ready, and all others of its size go on from there."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

from toolexec import __version__
from toolexec.containers import JSONDict
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import CONTROL_VERSION, VmFiles, host_facts, zygote_bytes
from toolexec.sandbox import ContainerSpec
from toolexec_microvms.guest import MachineControl, guest_ahead
from toolexec_microvms.machine import Machine, Shape, Vmm
from toolexec_microvms.snapshots import Snapshot, SnapshotCache

logger: logging.Logger = logging.getLogger(__name__)
_BOOTS: Final = 2
"""How often a machine is booted that does not answer: under load, one in software may hang."""
_LAST_WORDS: Final = 0.2
_FORM: Final = 2
"""Which files a saved machine has."""
_WARM: Final = ("python",)
_FIXED: Final = ("command", "env", "work", "user", "open_files")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAhead:
    """The guest that a snapshot has been started with, None for one that waits for any; `key` is of what it cannot
    change any more.
    """

    guest: JSONDict | None = None
    key: str = ""

    @classmethod
    def of(cls, spec: ContainerSpec) -> GuestAhead:
        """Return that for *spec*."""
        guest = guest_ahead(spec)
        if guest is None:
            return cls()
        fixed = json.dumps({name: guest[name] for name in _FIXED}, sort_keys=True)
        return cls(guest=guest, key=sha256(fixed.encode()).hexdigest())


_Key: TypeAlias = tuple[str, Shape, str]


class Templates:
    """The saved machines of an engine, kept in *cache*; *vmm* gives what boots and saves them.

    One may take *boot_seconds* to boot. With *fresh* no interpreter runs in them yet. A machine goes on only on the
    *host* that it was saved on: the same processor, microcode and kernel. Used by one event loop; `aclose` must be
    called in the end.
    """

    def __init__(
        self,
        vmm: Callable[[], Vmm],
        cache: SnapshotCache,
        boot_seconds: float,
        *,
        fresh: bool = False,
        host: Callable[[], JSONDict] = host_facts,
    ) -> None:
        self.cache = cache
        self._vmm = vmm
        self._boot_seconds = boot_seconds
        self._fresh = fresh
        self._host = host
        self._making: dict[_Key, asyncio.Task[Snapshot]] = {}
        self._saved: dict[_Key, Snapshot] = {}

    async def snapshot(self, files: VmFiles, shape: Shape, ahead: GuestAhead) -> Snapshot:
        """Return the saved machine of *shape* with the guest *ahead*, made by the first who asks; those who give up
        waiting do not stop it. Raises as `boot`, `Vmm.save` and `SnapshotCache.get` do.
        """
        key = files.digest, shape, ahead.key
        found = self._saved.get(key)
        if found is not None and found.directory.exists():
            return found
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(self._make(files, shape, ahead))
            task.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(task)

    async def discard(self, files: VmFiles, shape: Shape, ahead: GuestAhead, snapshot: Snapshot, why: str) -> None:
        """Remove a saved machine that is of no use, so that it is made again."""
        self._saved.pop((files.digest, shape, ahead.key), None)
        await asyncio.to_thread(self.cache.discard, snapshot, why)

    async def aclose(self) -> None:
        """Release all; a machine that is being saved is given up."""
        making = [*self._making.values()]
        for task in making:
            task.cancel()
        if making:
            await asyncio.wait(making)
        while self._saved:
            self._saved.popitem()[1].close()

    def _made(self, key: _Key, done: asyncio.Task[Snapshot]) -> None:
        self._making.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            old = self._saved.pop(key, None)
            if old is not None:
                old.close()
            self._saved[key] = done.result()

    async def _make(self, files: VmFiles, shape: Shape, ahead: GuestAhead) -> Snapshot:
        program = zygote_bytes()
        about: JSONDict = {
            "vmm": self._vmm().name,
            "vmm_version": self._vmm().version,
            "accelerator": self._vmm().accelerator,
            "protocol": CONTROL_VERSION,
            "form": _FORM,
            "toolexec": __version__,  # which decides what the machine is: its devices, and the arguments of its kernel
            "image": files.digest,
            "guest": sha256(program).hexdigest(),
            "warm": [] if self._fresh else [*_WARM],
            "ahead": "fresh" if self._fresh else ahead.key,
            **asdict(shape),
        }
        host = await asyncio.to_thread(self._host)

        async def make(directory: Path) -> None:
            logger.info("booting a machine of %d MiB for its snapshot", shape.memory_mib)
            machine, control = await self.boot(files, shape, directory, ahead)
            try:
                await self._vmm().save(machine, directory)
            finally:
                await give_up(machine, control)

        return await self.cache.get(about, make, host)

    async def boot(
        self, files: VmFiles, shape: Shape, template: Path | None = None, ahead: GuestAhead | None = None
    ) -> tuple[Machine, MachineControl]:
        """Return a machine in which the guest waits for `begin`. One that is still is killed, and tried once more.

        Raises SandboxUnavailableError for one that ends, or does not boot in time: its details have the end of the
        `console`.
        """
        ahead = ahead or GuestAhead()
        seconds = self._boot_seconds / _BOOTS
        for attempt in range(_BOOTS):
            machine = await self._vmm().boot(files, shape, template=template)
            control = MachineControl(machine.control)
            try:
                await within(seconds, self._load(control, ahead), machine, "boot")
            except TimeoutError as error:
                await give_up(machine, control)
                if attempt + 1 < _BOOTS:
                    logger.warning("a machine did not boot within %g s, and is booted once more", seconds)
                    continue
                raise SandboxUnavailableError(
                    f"the machine did not boot within {seconds:g} s, {_BOOTS} times; {_console(machine)}",
                    retryable=True,
                    details={"console": machine.said()[-2000:], "reason": "never_booted"},
                ) from error
            except BaseException:
                await give_up(machine, control)
                raise
            return machine, control
        raise AssertionError

    async def _load(self, control: MachineControl, ahead: GuestAhead) -> None:
        await control.ready()
        if not self._fresh:
            await control.load(zygote_bytes(), _WARM, ahead.guest)


async def within(seconds: float, work: Coroutine[Any, Any, None], machine: Machine, what: str) -> None:
    """Do *work* while *machine* runs. Raises TimeoutError, and SandboxUnavailableError when the machine ends first."""
    working, gone = asyncio.create_task(work), asyncio.create_task(machine.wait())
    try:
        async with asyncio.timeout(seconds):
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({working}, timeout=_LAST_WORDS)  # what it said last may be on its way
        error = working.exception() if working.done() else None
        if working.done() and error is None:
            return
        if error is not None and not (isinstance(error, SandboxUnavailableError) and error.retryable):
            raise error
        await asyncio.wait({gone}, timeout=_LAST_WORDS)
        how = f" (exit code {gone.result().code})" if gone.done() else ""
        raise SandboxUnavailableError(
            f"the machine ended{how} before it could {what}; {_console(machine)}",
            retryable=True,
            details={"console": machine.said()[-2000:]},
        ) from error
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.wait({working, gone})


async def give_up(machine: Machine, control: MachineControl) -> None:
    """End a machine that is of no use."""
    await machine.aclose()
    await control.aclose()


def _console(machine: Machine) -> str:
    lines = machine.said().strip()[-600:]
    return f"its console: {lines}" if lines else "nothing was on its console"
