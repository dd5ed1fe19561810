"""Firecracker as a `Vmm`: machines that boot, are saved and restored, each in a jail of the jailer's."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from toolexec.containers import unavailable, uncut
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import VmFiles, lacking, look_at_kvm, to_the_end
from toolexec.sandbox import Availability
from toolexec_microvms.firecracker.api import FirecrackerAPI
from toolexec_microvms.firecracker.machine import API_SOCKET, LOG, VSOCK, FirecrackerMachine
from toolexec_microvms.firecracker.probe import PROBE_WORD, probe_kernel
from toolexec_microvms.firecracker.programs import Programs, find_programs
from toolexec_microvms.jail import Jail, Jails, adopt_file
from toolexec_microvms.machine import OVERHEAD_BYTES, Accelerator, Machine, Shape, VmmName

logger: logging.Logger = logging.getLogger(__name__)

BOOT_ARGUMENTS: Final = (
    "console=ttyS0 quiet loglevel=4 reboot=k panic=-1 pci=off 8250.nr_uarts=1 i8042.noaux random.trust_cpu=on"
)
"""The command line of the kernel: an end of the machine is an end of Firecracker, by the keyboard controller."""

_OVERHEAD: Final = OVERHEAD_BYTES["firecracker"]
"""Memory of the host that a machine may use besides its own: Firecracker's, and the pages of files it reads."""
_FILES: Final = 512
_GUEST_ID: Final = 3
_READ_RATE: Final = 512 << 20
_READS: Final = 50_000
_RANDOM_RATE: Final = 256 << 10
_STATE: Final = "state"
_MEMORY: Final = "memory"
_ABOUT: Final = "firecracker.json"
_TRIAL_SECONDS: Final = 20.0
_TRIAL_MIB: Final = 16


class Firecracker:
    """A `Vmm` of the programs *firecracker* and *jailer*, by default those on the PATH; its jails are made by *jails*.

    Runs as root only: each of its processes then has a user of its own. Machines have a read-only root device, vsock,
    randomness and an empty balloon, and no network; reads are limited to 512 MiB and 50,000 operations a second,
    randomness to 256 KiB.
    """

    name: VmmName = "firecracker"

    def __init__(self, firecracker: str = "", jailer: str = "", *, jails: Jails | None = None) -> None:
        self._asked = firecracker, jailer
        self._jails = jails or Jails()
        self._programs: Programs | None = None

    @property
    def version(self) -> str:
        """Implement `Vmm.version`."""
        return self._programs.version if self._programs is not None else ""

    @property
    def accelerator(self) -> Accelerator:
        """Implement `Vmm.accelerator`: there is no other one."""
        return "kvm"

    @property
    def snapshots(self) -> bool:
        """Implement `Vmm.snapshots`."""
        return True

    async def check(self) -> Availability:
        """Implement `Vmm.check`: runs the smallest kernel in a jailed machine, where the processor can run Linux."""
        try:
            self._programs = await find_programs(*self._asked)
            problem = await asyncio.to_thread(look_at_kvm)
            if problem is None:
                await self.trial()
        except SandboxUnavailableError as error:
            return lacking(error, self.version)
        except Exception as error:
            logger.exception("the check of Firecracker failed")
            return Availability(ok=False, reason=f"the check failed: {error}", version=self.version)
        return replace(problem or Availability(ok=True), version=self.version)

    async def trial(self) -> None:
        """Run the smallest kernel in a jailed machine; on x86-64 only. Raises SandboxUnavailableError when it does not
        run."""
        if platform.machine() != "x86_64":
            return
        with tempfile.TemporaryDirectory(prefix="toolexec-probe-") as directory:
            kernel = Path(directory) / "kernel"
            kernel.write_bytes(probe_kernel())
            files = VmFiles(kernel=kernel, vmlinux=kernel, initrd=kernel, rootfs=kernel, digest="")
            machine = await self.boot(files, Shape(memory_mib=_TRIAL_MIB))
            try:
                async with asyncio.timeout(_TRIAL_SECONDS):
                    await machine.wait()
                why = ""
            except TimeoutError:
                why = f"it did not end within {_TRIAL_SECONDS:g} s: "
            finally:
                await machine.aclose()
        if PROBE_WORD not in machine.said():
            raise unavailable(
                f"a kernel does not run in Firecracker: {why}{machine.said()[-500:] or 'it wrote nothing'}",
                "use a machine with hardware virtualization, or the qemu machines",
            )

    async def boot(self, files: VmFiles, shape: Shape, *, template: Path | None = None) -> Machine:
        """Implement `Vmm.boot`."""
        inside = {"kernel": files.vmlinux, "initrd": files.initrd, "rootfs": files.rootfs}

        async def configure(api: FirecrackerAPI) -> None:
            await api.set_machine(cpus=shape.cpus, memory_mib=shape.memory_mib)
            await api.set_boot("/kernel", "/initrd", BOOT_ARGUMENTS)
            await api.add_drive("rootfs", "/rootfs", bytes_per_second=_READ_RATE, operations_per_second=_READS)
            await api.set_vsock(f"/{VSOCK}", _GUEST_ID)
            await api.set_entropy(bytes_per_second=_RANDOM_RATE)
            await api.set_balloon()
            await api.start()

        return await self._launch(inside, shape, configure, template=template is not None)

    async def save(self, machine: Machine, directory: Path) -> None:
        """Implement `Vmm.save`."""
        assert isinstance(machine, FirecrackerMachine)
        api = await machine.connect_api()
        try:
            await api.pause()
            await api.save(f"/{_STATE}", f"/{_MEMORY}")
        except SandboxUnavailableError as error:
            raise await machine.explain(error) from error
        finally:
            api.close()
        try:
            await asyncio.to_thread(_keep, machine.root, directory, self.version)
        except OSError as error:
            raise SandboxUnavailableError(
                f"the machine cannot be saved: {error.strerror or error}", retryable=True
            ) from error

    async def restore(self, files: VmFiles, shape: Shape, directory: Path) -> Machine:
        """Implement `Vmm.restore`."""
        programs = await self._ready()
        if problem := await asyncio.to_thread(_problem, directory, programs.version):
            raise _corrupt(problem)
        inside = {_STATE: directory / _STATE, _MEMORY: directory / _MEMORY, "rootfs": files.rootfs}

        async def configure(api: FirecrackerAPI) -> None:
            try:
                await api.load(f"/{_STATE}", f"/{_MEMORY}")
            except SandboxUnavailableError as error:
                if error.details.get("status") == 400 and not error.retryable:
                    raise _corrupt(str(error.details["fault"])) from error
                raise

        return await self._launch(inside, shape, configure)

    async def sweep(self) -> None:
        """Implement `Vmm.sweep`."""
        try:
            await asyncio.to_thread(self._jails.sweep)
        except Exception:
            logger.exception("what dead processes have left of virtual machines cannot be removed")

    async def _ready(self) -> Programs:
        if self._programs is None:
            self._programs = await find_programs(*self._asked)
        return self._programs

    async def _launch(
        self,
        inside: Mapping[str, Path],
        shape: Shape,
        configure: Callable[[FirecrackerAPI], Awaitable[None]],
        *,
        template: bool = False,
    ) -> FirecrackerMachine:
        """Start Firecracker in a new jail with the files *inside*, and have *configure* set it up."""
        programs = await self._ready()
        jail, root = await uncut(
            asyncio.to_thread(self._prepare, programs, shape, inside),
            undo=lambda made: asyncio.to_thread(made[0].remove),
        )
        try:
            machine = FirecrackerMachine(jail, root, _command(jail, programs, shape), template=template)
        except SandboxUnavailableError:
            await uncut(asyncio.to_thread(jail.remove))
            raise
        try:
            api = await machine.connect_api()
            try:
                await configure(api)
            finally:
                api.close()
        except BaseException as error:
            explained = await machine.explain(error) if isinstance(error, SandboxUnavailableError) else error
            await to_the_end(asyncio.create_task(machine.aclose()))
            if explained is error:
                raise
            raise explained from error
        return machine

    def _prepare(self, programs: Programs, shape: Shape, inside: Mapping[str, Path]) -> tuple[Jail, Path]:
        jail = self._jails.create(memory_bytes=(shape.memory_mib << 20) + _OVERHEAD)
        try:
            root = Path(programs.firecracker.name, jail.id, "root")
            (jail.directory / root).mkdir(parents=True)
            for name, source in inside.items():
                jail.put(str(root / name), source)
        except BaseException as error:
            jail.remove()
            if isinstance(error, OSError):
                raise SandboxUnavailableError(f"the jail cannot be prepared: {error.strerror or error}") from error
            raise
        return jail, jail.directory / root


def _command(jail: Jail, programs: Programs, shape: Shape) -> list[str]:
    """Return the command of the jailer, which changes the root directory and the user, and becomes Firecracker.

    It makes no control group, as it is in that of the jail already, and no namespaces but that of mounts.
    """
    cgroups = Path("/sys/fs/cgroup/cgroup.controllers")
    limits = (f"no-file={_FILES}", f"fsize={(shape.memory_mib << 20) + _OVERHEAD}")
    jailer = [
        str(programs.jailer),
        *("--id", jail.id),
        *("--exec-file", str(programs.firecracker)),
        *("--uid", str(jail.uid), "--gid", str(jail.uid)),
        *("--chroot-base-dir", str(jail.directory)),
        *("--cgroup-version", "2" if cgroups.exists() else "1"),
        *(word for limit in limits for word in ("--resource-limit", limit)),
        "--",
        *("--api-sock", f"/{API_SOCKET}"),
        *("--log-path", f"/{LOG}", "--level", "Warning", "--show-level"),
    ]
    return jail.command(jailer)


def _keep(root: Path, directory: Path, version: str) -> None:
    """Take what was saved out of the jail, with a description that comes last."""
    sizes: dict[str, int] = {}
    try:
        for name in (_STATE, _MEMORY):
            adopt_file(root, name, directory / name)
            sizes[name] = (directory / name).stat().st_size
        (directory / _ABOUT).write_text(json.dumps({"version": version, "sizes": sizes}), "ascii")
    except OSError:
        for name in (_STATE, _MEMORY, _ABOUT):
            with suppress(OSError):
                (directory / name).unlink()
        raise


def _problem(directory: Path, version: str) -> str:
    """Return why what is in *directory* is of no use; "" where nothing is seen.

    Firecracker checks the state itself, and not how long the memory is: where it ends too early, a machine would die
    when it reads there.
    """
    try:
        about = json.loads((directory / _ABOUT).read_text("ascii"))
        found = {name: os.stat(directory / name).st_size for name in (_STATE, _MEMORY)}  # noqa: PTH116
        if about["version"] != version:
            return f"it is of Firecracker {about['version']}, and this is {version}"
        return "" if about["sizes"] == found else "a file of it has another size"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"it is not complete: {error}"


def _corrupt(why: str) -> SandboxUnavailableError:
    return SandboxUnavailableError(
        f"the saved machine cannot be restored: {why}", retryable=True, details={"reason": why, "corrupt": True}
    )
