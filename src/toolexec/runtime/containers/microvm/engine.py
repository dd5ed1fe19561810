"""Sandboxes that are virtual machines: one for each program, restored from a snapshot in which a guest waits."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final, Protocol, TypeAlias, runtime_checkable

from toolexec.code.limits import LimitsEnforced
from toolexec.code.types import CodeResult
from toolexec.errors import SandboxUnavailableError
from toolexec.model.json_value import JSONDict
from toolexec.model.settings import checked
from toolexec.process.child import uncut
from toolexec.runtime.base import Availability, ExecuteRequest
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.engine import Image
from toolexec.runtime.containers.guest import ContainerGuest, Run
from toolexec.runtime.containers.launcher import Launcher, unavailable
from toolexec.runtime.containers.microvm.config import MicrovmConfig
from toolexec.runtime.containers.microvm.container import MachineContainer
from toolexec.runtime.containers.microvm.guest import MachineControl, begin_message, guest_ahead
from toolexec.runtime.containers.microvm.images import MachineImages
from toolexec.runtime.containers.microvm.machine import Machine, Shape, VmFiles, Vmm
from toolexec.runtime.containers.microvm.snapshots import Snapshot, SnapshotCache
from toolexec.runtime.containers.spec import ContainerSpec
from toolexec.runtime.guest.bundle import zygote_bytes
from toolexec.runtime.guest.machine.messages import CONTROL_VERSION
from toolexec.runtime.images.store import ImageStore

__all__ = ["MicrovmBackend", "MicrovmEngine", "make_vmm"]

logger: logging.Logger = logging.getLogger(__name__)
_MIB: Final = 1 << 20
_STEP: Final = 128
"""Machines are so many MiB larger than one another: the fewer sizes there are, the fewer snapshots."""
_BOOTS: Final = 2
"""How often a machine is booted that does not answer: under load, one in software may hang."""
_BEGIN_SECONDS: Final = 20.0
_LAST_WORDS: Final = 0.2
_WARM: Final = ("python",)
_FIXED: Final = ("command", "env", "work", "user", "open_files")
_OTHERS: Final = {"firecracker": ("firecracker", "Firecracker"), "libkrun": ("libkrun", "Libkrun")}
"""VMMs that need the processor's virtualization, and where they are."""


@runtime_checkable
class _Closable(Protocol):
    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead:
    """The guest that a snapshot has been started with, None for one that waits for any; `key` is of what it cannot
    change any more.
    """

    guest: JSONDict | None = None
    key: str = ""

    @classmethod
    def of(cls, spec: ContainerSpec) -> _Ahead:
        """Return that for *spec*."""
        guest = guest_ahead(spec)
        if guest is None:
            return cls()
        fixed = json.dumps({name: guest[name] for name in _FIXED}, sort_keys=True)
        return cls(guest=guest, key=sha256(fixed.encode()).hexdigest())


_Key: TypeAlias = tuple[str, Shape, str]


class MicrovmEngine(Launcher):
    """Starts a virtual machine for each container; see `ContainerEngine`.

    The first one of each size boots, loads a guest and is saved; all others go on from there. Machines have no network:
    what code may reach, it reaches through the guest protocol. Memory, processes, disk space and the rate of CPU time
    are bounded by the kernel in the machine, and once more by the size of the machine and a control group around its
    VMM. *vmm* is what runs machines (default: that of *config*).
    """

    drops = ("no_new_privileges", "seccomp")

    def __init__(
        self,
        config: MicrovmConfig | None = None,
        *,
        store: ImageStore | None = None,
        vmm: Vmm | None = None,
        snapshots: SnapshotCache | None = None,
    ) -> None:
        super().__init__()
        self.config: MicrovmConfig = config or MicrovmConfig()
        self._vmm = vmm
        self._images = MachineImages(store)
        self._snapshots = snapshots or SnapshotCache(most=self.config.snapshots)
        self._making: dict[_Key, asyncio.Task[Snapshot]] = {}
        self._saved: dict[_Key, Snapshot] = {}
        self._held = LimitsEnforced(memory=True, cpu=True, cpus=True, pids=True, disk=True)

    @property
    def vmm(self) -> Vmm:
        """What runs the machines."""
        self._vmm = self._vmm or make_vmm(self.config)
        return self._vmm

    async def _check(self) -> Availability:
        """Ask the VMM; a machine is booted when the first program needs one."""
        found = await self.vmm.check()
        if found.ok:
            await self.resolve(self.config.image)
        return found

    async def resolve(self, image: str) -> Image:
        """Implement `ContainerEngine.resolve`."""
        return await asyncio.to_thread(self._images.resolve, image)

    async def start(self, image: Image, spec: ContainerSpec) -> MachineContainer:
        """Implement `ContainerEngine.start`."""
        if not self.vmm.version:
            found = await self.vmm.check()
            if not found.ok:
                raise unavailable(found.reason, found.remedy)
        hold = await asyncio.to_thread(self._images.hold, image)
        try:
            files = self._images.files(image)
            shape = shape_of(spec, self.config.memory_room)
            ahead = _Ahead.of(spec)
            snapshot = await self._snapshot(files, shape, ahead) if self.vmm.snapshots else None
            return await uncut(self._start(files, shape, spec, snapshot, ahead), undo=MachineContainer.aclose)
        finally:
            if hold is not None:  # a machine has open what it needs
                hold.close()

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`; a machine that is being saved is given up."""
        making = [*self._making.values()]
        for task in making:
            task.cancel()
        if making:
            await asyncio.wait(making)
        while self._saved:
            self._saved.popitem()[1].close()
        if isinstance(self._vmm, _Closable):
            await self._vmm.aclose()

    async def _sweep(self) -> None:
        await self.vmm.sweep()
        await asyncio.to_thread(self._snapshots.prune)

    async def _start(
        self, files: VmFiles, shape: Shape, spec: ContainerSpec, snapshot: Snapshot | None, ahead: _Ahead
    ) -> MachineContainer:
        began = perf_counter()
        machine = await self._restored(files, shape, snapshot, ahead) if snapshot is not None else None
        restored = perf_counter() - began if machine is not None else None
        if machine is None:
            machine, control = await self._boot(files, shape, None, _Ahead())
        else:
            control = MachineControl(machine.control)
        try:
            await _within(_BEGIN_SECONDS, control.begin(begin_message(spec)), machine, "begin")
        except BaseException:
            await _give_up(machine, control)
            raise
        return MachineContainer(
            machine, control, vmm=self.vmm.name, accelerator=self.vmm.accelerator, restored_seconds=restored
        )

    async def _restored(self, files: VmFiles, shape: Shape, snapshot: Snapshot, ahead: _Ahead) -> Machine:
        """A machine that goes on from *snapshot*, or from a new one if that is of no use."""
        try:
            return await self.vmm.restore(files, shape, snapshot.directory)
        except SandboxUnavailableError as error:
            if not error.details.get("corrupt"):
                raise
            self._saved.pop((files.digest, shape, ahead.key), None)
            await asyncio.to_thread(self._snapshots.discard, snapshot, error.message)
        again = await self._snapshot(files, shape, ahead)
        return await self.vmm.restore(files, shape, again.directory)

    async def _snapshot(self, files: VmFiles, shape: Shape, ahead: _Ahead) -> Snapshot:
        """The saved machine of *shape* with the guest *ahead*, made by the first who asks; those who give up waiting
        do not stop it.
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

    def _made(self, key: _Key, done: asyncio.Task[Snapshot]) -> None:
        self._making.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            old = self._saved.pop(key, None)
            if old is not None:
                old.close()
            self._saved[key] = done.result()

    async def _make(self, files: VmFiles, shape: Shape, ahead: _Ahead) -> Snapshot:
        program = zygote_bytes()
        about: JSONDict = {
            "vmm": self.vmm.name,
            "vmm_version": self.vmm.version,
            "accelerator": self.vmm.accelerator,
            "protocol": CONTROL_VERSION,
            "image": files.digest,
            "guest": sha256(program).hexdigest(),
            "warm": [*_WARM],
            "ahead": ahead.key,
            **asdict(shape),
        }

        async def make(directory: Path) -> None:
            logger.info("booting a machine of %d MiB for its snapshot", shape.memory_mib)
            machine, control = await self._boot(files, shape, directory, ahead)
            try:
                await self.vmm.save(machine, directory)
            finally:
                await _give_up(machine, control)

        return await self._snapshots.get(about, make)

    async def _boot(
        self, files: VmFiles, shape: Shape, template: Path | None, ahead: _Ahead
    ) -> tuple[Machine, MachineControl]:
        """A machine in which the guest waits for `begin`. One that is still is killed, and tried once more."""
        seconds = self.config.boot_seconds / _BOOTS
        for attempt in range(_BOOTS):
            machine = await self.vmm.boot(files, shape, template=template)
            control = MachineControl(machine.control)
            try:
                await _within(seconds, self._load(control, ahead), machine, "boot")
            except TimeoutError as error:
                await _give_up(machine, control)
                if attempt + 1 < _BOOTS:
                    logger.warning("a machine did not boot within %g s, and is booted once more", seconds)
                    continue
                raise SandboxUnavailableError(
                    f"the machine did not boot within {seconds:g} s, {_BOOTS} times; {_console(machine)}",
                    retryable=True,
                    details={"console": machine.said()[-2000:], "reason": "never_booted"},
                ) from error
            except BaseException:
                await _give_up(machine, control)
                raise
            return machine, control
        raise AssertionError

    async def _load(self, control: MachineControl, ahead: _Ahead) -> None:
        await control.ready()
        await control.load(zygote_bytes(), _WARM, ahead.guest)


@checked("MicrovmBackend")
class MicrovmBackend(ContainerBackend):
    """Code in virtual machines, one for each program; the kind is the name of the VMM. See `MicrovmEngine`.

    Details of results say which `vmm` and `accelerator` it was (`tcg`: the guest's instructions were translated in
    software), whether the machine was `restored`, and how long that took (`restore_ms`).
    """

    _guest_is_init: ClassVar[bool] = False

    def __init__(
        self, config: MicrovmConfig | None = None, *, store: ImageStore | None = None, vmm: Vmm | None = None
    ) -> None:
        config = config or MicrovmConfig()
        engine = MicrovmEngine(config, store=store, vmm=vmm)
        super().__init__(engine, config, kind=config.vmm, isolation="vm")

    def result(
        self, request: ExecuteRequest, run: Run, began: float, guest: ContainerGuest | None, *, warm: bool
    ) -> CodeResult:
        """Return what came of a run; see `ContainerBackend.result`."""
        result = super().result(request, run, began, guest, warm=warm)
        container = guest.container if guest is not None else None
        if isinstance(container, MachineContainer) and result.backend is not None:
            result.backend = replace(result.backend, details={**result.backend.details, **container.details()})
        return result


def make_vmm(config: MicrovmConfig) -> Vmm:
    """Return what runs the machines of *config*."""
    if config.vmm == "qemu":
        from toolexec.runtime.containers.microvm.qemu import QemuVmm

        return QemuVmm(config.program, config.accelerator)
    module, name = _OTHERS[config.vmm]
    try:
        made: Vmm = getattr(import_module(f"{__package__}.{module}"), name)(config.program)
    except ModuleNotFoundError as error:
        raise unavailable(f"{config.vmm} is not in this release", "use gvisor, kata or qemu") from error
    return made


def shape_of(spec: ContainerSpec, room: int) -> Shape:
    """Return how large a machine for *spec* is, with *room* MiB for the system in it."""
    resources = spec.resources
    memory = math.ceil(resources.memory_bytes / _MIB) + room
    return Shape(memory_mib=math.ceil(memory / _STEP) * _STEP, cpus=max(1, math.ceil(resources.cpus)))


async def _within(seconds: float, work: Coroutine[Any, Any, None], machine: Machine, what: str) -> None:
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


async def _give_up(machine: Machine, control: MachineControl) -> None:
    await machine.aclose()
    await control.aclose()


def _console(machine: Machine) -> str:
    lines = machine.said().strip()[-600:]
    return f"its console: {lines}" if lines else "nothing was on its console"
