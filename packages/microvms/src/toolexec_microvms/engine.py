"""Sandboxes that are virtual machines: one for each program, restored from a snapshot in which a guest waits."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from time import perf_counter
from typing import ClassVar, Final, Protocol, runtime_checkable

from toolexec.containers import ContainerGuest, ImageStore, Run, unavailable, uncut
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import VmFiles
from toolexec.sandbox import (
    Availability,
    CodeResult,
    ContainerBackend,
    ContainerSpec,
    ExecuteRequest,
    Image,
    Launcher,
    checked,
    claim_resources,
)
from toolexec_microvms.config import MicrovmConfig
from toolexec_microvms.container import MachineContainer
from toolexec_microvms.guest import MachineControl, begin_message
from toolexec_microvms.images import MachineImages
from toolexec_microvms.machine import OVERHEAD_BYTES, Machine, Shape, Vmm
from toolexec_microvms.snapshots import Snapshot, SnapshotCache
from toolexec_microvms.templates import GuestAhead, Templates, give_up, within

_MIB: Final = 1 << 20
_STEP: Final = 128
"""Machines are so many MiB larger than one another: the fewer sizes there are, the fewer snapshots."""
_BEGIN_SECONDS: Final = 20.0


@runtime_checkable
class _Closable(Protocol):
    async def aclose(self) -> None: ...


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
        self._templates = Templates(
            lambda: self.vmm,
            snapshots or SnapshotCache(most=self.config.snapshots),
            self.config.boot_seconds,
            fresh=self.config.fresh_interpreter,
        )
        self._held = claim_resources(memory=True, cpu=True, cpus=True, pids=True, disk=True)

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
            ahead = GuestAhead() if self.config.fresh_interpreter else GuestAhead.of(spec)
            snapshot = await self._templates.snapshot(files, shape, ahead) if self.vmm.snapshots else None
            return await uncut(self._start(files, shape, spec, snapshot, ahead), undo=MachineContainer.aclose)
        finally:
            if hold is not None:  # a machine has open what it needs
                hold.close()

    def host_memory(self, spec: ContainerSpec) -> int:
        """Implement `SizedEngine.host_memory`: a machine keeps what it has touched once."""
        return shape_of(spec, self.config.memory_room).memory_mib * _MIB + OVERHEAD_BYTES[self.vmm.name]

    @property
    def memory_reserve(self) -> int:
        """Implement `SizedEngine.memory_reserve`."""
        return self.config.memory_reserve * _MIB

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`; a machine that is being saved is given up."""
        await self._templates.aclose()
        if isinstance(self._vmm, _Closable):
            await self._vmm.aclose()

    async def _sweep(self) -> None:
        await self.vmm.sweep()
        await asyncio.to_thread(self._templates.cache.prune)

    async def _start(
        self, files: VmFiles, shape: Shape, spec: ContainerSpec, snapshot: Snapshot | None, ahead: GuestAhead
    ) -> MachineContainer:
        began = perf_counter()
        machine = await self._restored(files, shape, snapshot, ahead) if snapshot is not None else None
        restored = perf_counter() - began if machine is not None else None
        if machine is None:
            machine, control = await self._templates.boot(files, shape)
        else:
            control = MachineControl(machine.control)
        try:
            await within(_BEGIN_SECONDS, control.begin(begin_message(spec)), machine, "begin")
        except BaseException:
            await give_up(machine, control)
            raise
        return MachineContainer(
            machine,
            control,
            vmm=self.vmm.name,
            accelerator=self.vmm.accelerator,
            restored_seconds=restored,
            booted=not self.config.fresh_interpreter,
        )

    async def _restored(self, files: VmFiles, shape: Shape, snapshot: Snapshot, ahead: GuestAhead) -> Machine:
        """Return a machine that goes on from *snapshot*, or from a new one if that is of no use."""
        try:
            return await self.vmm.restore(files, shape, snapshot.directory)
        except SandboxUnavailableError as error:
            if not error.details.get("corrupt"):
                raise
            await self._templates.discard(files, shape, ahead, snapshot, error.message)
        again = await self._templates.snapshot(files, shape, ahead)
        return await self.vmm.restore(files, shape, again.directory)


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
        from toolexec_microvms.qemu import QemuVmm

        return QemuVmm(config.program, config.accelerator)
    from toolexec_microvms.firecracker import Firecracker

    return Firecracker(config.program)


def shape_of(spec: ContainerSpec, room: int) -> Shape:
    """Return how large a machine for *spec* is, with *room* MiB for the system in it."""
    resources = spec.resources
    memory = math.ceil(resources.memory_bytes / _MIB) + room
    return Shape(memory_mib=math.ceil(memory / _STEP) * _STEP, cpus=max(1, math.ceil(resources.cpus)))
