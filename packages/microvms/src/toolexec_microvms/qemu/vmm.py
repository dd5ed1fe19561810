"""Starts, saves and restores machines of QEMU; see `Vmm`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import socket
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from toolexec.containers import JSONDict, unavailable, uncut
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import (
    Cgroups,
    Group,
    SocketStream,
    Stream,
    UserClaim,
    UserClaims,
    VmFiles,
    cache_directory,
    find_cgroups,
    look_at_kvm,
    run_child,
)
from toolexec.sandbox import Availability, Child
from toolexec_microvms.child import ChildMachine
from toolexec_microvms.config import AcceleratorChoice
from toolexec_microvms.jail import exit_code
from toolexec_microvms.machine import OVERHEAD_BYTES, Accelerator, Machine, Shape, VmmName
from toolexec_microvms.qemu.command import Descriptors, qemu_command
from toolexec_microvms.qemu.qmp import QmpClient
from toolexec_microvms.qemu.ram import load_ram, new_ram, save_ram
from toolexec_microvms.qemu.walls import PROGRAMS, Walls, find_walls

logger: logging.Logger = logging.getLogger(__name__)
RAM: Final = "ram"
STATE: Final = "state"
PROCESSOR: Final = "processor.json"
"""The files of a saved machine: its memory, that of its processors and devices, and what its processors are."""
_OTHER_PROCESSOR: Final = "it was saved with another processor"
_PROGRAM: Final = "qemu-system-x86_64"
_INSTALL: Final = "apt-get install --no-install-recommends qemu-system-x86"
_VERSION: Final = re.compile(r"version (\d+(?:\.\d+)+)")
_SECONDS: Final = 30.0
_OWN_THREADS: Final = 64
_KEPT: Final = 4
"""How many memories are kept open, those that were restored last."""
_SECCOMP: Final = "on,obsolete=deny,spawn=deny,resourcecontrol=deny"


class QemuMachine(ChildMachine[Stream]):
    """A machine that runs; see `Machine`."""

    def __init__(
        self, child: Child, group: Group | None, control: Stream, stdio: Stream, *, monitor: QmpClient
    ) -> None:
        self.monitor = monitor
        self.ram = -1
        """The memory of a template, which this owns."""
        self.user: UserClaim | None = None
        """The user that it runs as, where root has started it."""
        super().__init__(f"qemu-{child.pid}", child, group, control, stdio)

    def _exit_code(self, code: int) -> int:
        return exit_code(code, self.said())

    async def _release(self) -> None:
        for stream in (self._control, self._stdio, self.monitor):
            with suppress(OSError):
                await stream.aclose()
        if self.ram >= 0:
            os.close(self.ram)
            self.ram = -1
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)
        if self.user is not None:
            self.user.release()


class QemuVmm:
    """QEMU as a `Vmm`: machines are child processes, each with a user and a control group of its own where this process
    is root, and in `Walls`. `aclose` releases the memories that are kept for restores.

    *program* is its path, "" for the one on the PATH.
    """

    name: VmmName = "qemu"

    def __init__(self, program: str = "", accelerator: AcceleratorChoice = "auto") -> None:
        self._asked = program
        self._choice = accelerator
        self._program = ""
        self._version = ""
        self._accelerator: Accelerator = "tcg"
        self._walls: Walls | None = None
        self._cgroups: Cgroups | None = None
        self._looked = False
        self._users = UserClaims()
        self._memories: OrderedDict[tuple[str, int, int], int] = OrderedDict()

    @property
    def version(self) -> str:
        """Implement `Vmm.version`."""
        return self._version

    @property
    def accelerator(self) -> Accelerator:
        """Implement `Vmm.accelerator`."""
        return self._accelerator

    @property
    def snapshots(self) -> bool:
        """Implement `Vmm.snapshots`."""
        return True

    async def check(self) -> Availability:
        """Implement `Vmm.check`: asks QEMU for its version, and whether KVM works if that is to be used."""
        try:
            self._program = _find(self._asked)
            code, said = await _ask([self._program, "--version"])
            found = _VERSION.search(said)
            if code != 0 or found is None:
                raise unavailable(
                    f"{self._program} does not work: {said.strip()[:200] or f'exit code {code}'}", _INSTALL
                )
            self._version = found[1]
            await self._choose()
            self._walls = await find_walls(self._program, _ask)
        except SandboxUnavailableError as error:
            about = error.details
            reason = str(about.get("reason", error))
            return Availability(ok=False, reason=reason, remedy=str(about.get("remedy", "")), version=self._version)
        return Availability(ok=True, version=self._version)

    async def boot(self, files: VmFiles, shape: Shape, *, template: Path | None = None) -> QemuMachine:
        """Implement `Vmm.boot`; a template has its memory in a file without a name until it is saved."""
        begun: list[QemuMachine] = []
        work = self._boot(files, shape, begun, is_template=template is not None)
        return await uncut(work, stop=partial(_kill, begun), undo=QemuMachine.aclose)

    async def save(self, machine: Machine, directory: Path) -> None:
        """Implement `Vmm.save`."""
        if not isinstance(machine, QemuMachine) or machine.ram < 0:
            raise SandboxUnavailableError("only a machine that was booted as a template can be saved")
        try:
            await asyncio.to_thread(
                (directory / PROCESSOR).write_text, json.dumps(await machine.monitor.processor()), "utf-8"
            )
            state = os.open(directory / STATE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                await machine.monitor.save(state)
                await asyncio.to_thread(os.fsync, state)
            finally:
                os.close(state)
            await asyncio.to_thread(save_ram, machine.ram, directory / RAM)
        except OSError as error:
            raise SandboxUnavailableError(
                f"the machine cannot be saved in {directory}: {error.strerror or error}; free some space, or set "
                "TOOLEXEC_CACHE=/path",
                retryable=True,
            ) from error

    async def restore(self, files: VmFiles, shape: Shape, directory: Path) -> QemuMachine:
        """Implement `Vmm.restore`. QEMU itself would go on with other processors than those that were saved, on which
        a kernel uses what they lack: it is asked what they are."""
        begun: list[QemuMachine] = []
        work = self._restore(files, shape, directory, begun)
        return await uncut(work, stop=partial(_kill, begun), undo=QemuMachine.aclose)

    async def sweep(self) -> None:
        """Implement `Vmm.sweep`: a machine is a process with a control group, and nothing else."""
        await asyncio.to_thread(self._look)
        if self._cgroups is not None:
            await asyncio.to_thread(self._cgroups.sweep)

    async def aclose(self) -> None:
        """Release the memories that are kept for restores."""
        while self._memories:
            os.close(self._memories.popitem()[1])

    async def _choose(self) -> None:
        """Find out what runs the guests' instructions."""
        self._accelerator = "tcg"
        if self._choice == "tcg":
            return
        lack = await asyncio.to_thread(look_at_kvm)
        if lack is None:
            trial = [self._program, "-machine", "none", "-accel", "kvm", "-nodefaults", "-display", "none"]
            code, said = await _ask([*trial, "-monitor", "none", "-S", "-daemonize", "-pidfile", "/dev/null"])
            if code == 0:
                self._accelerator = "kvm"
                return
            lack = Availability(ok=False, reason=f"QEMU cannot use KVM: {said.strip()[-200:]}")
        if self._choice == "kvm":
            slow = "name the sandbox qemu to have its machines run in software, which is slow"
            raise unavailable(lack.reason, f"{lack.remedy}; or {slow}" if lack.remedy else slow)

    def _look(self) -> None:
        if not self._looked:
            self._cgroups = find_cgroups()
            self._looked = True

    async def _boot(self, files: VmFiles, shape: Shape, begun: list[QemuMachine], *, is_template: bool) -> QemuMachine:
        try:
            ram = new_ram(shape.memory_mib << 20)
        except OSError as error:
            raise _no_start(error) from error
        try:
            walls, group = await self._surroundings(shape)
            started = self._start(files, shape, ram, walls, group, is_template=is_template, restore=False)
        except BaseException:
            os.close(ram)
            raise
        begun.append(started)
        if is_template:
            started.ram = ram
        else:
            os.close(ram)
        try:
            async with asyncio.timeout(_SECONDS):
                await started.monitor.start()
        except BaseException as error:
            raise await _ended(started, error) from error
        return started

    async def _restore(self, files: VmFiles, shape: Shape, directory: Path, begun: list[QemuMachine]) -> QemuMachine:
        state = ram = -1
        try:
            state = os.open(directory / STATE, os.O_RDONLY | os.O_CLOEXEC)
            ram = await self._memory(directory / RAM, shape)
            processor = await asyncio.to_thread((directory / PROCESSOR).read_text, "utf-8")
            walls, group = await self._surroundings(shape)
            machine = self._start(files, shape, ram, walls, group, is_template=False, restore=True)
            begun.append(machine)
            try:
                async with asyncio.timeout(_SECONDS):
                    await machine.monitor.start()
                    _check_processor(processor, await machine.monitor.processor())
                    await machine.monitor.restore(state)
            except BaseException as error:
                raise await _ended(machine, error) from error
            return machine
        except OSError as error:
            raise SandboxUnavailableError(
                f"the saved machine in {directory} cannot be read: {error.strerror or error}",
                retryable=True,
                details={"corrupt": isinstance(error, FileNotFoundError)},
            ) from error
        finally:
            for file in (state, ram):
                if file >= 0:
                    os.close(file)

    async def _memory(self, path: Path, shape: Shape) -> int:
        """Return a descriptor of a saved memory, to be closed; that is read once."""
        found = await asyncio.to_thread(path.stat)
        key = str(path), found.st_ino, found.st_mtime_ns
        if found.st_size != shape.memory_mib << 20:
            raise SandboxUnavailableError(
                f"the saved memory {path} has {found.st_size} bytes", retryable=True, details={"corrupt": True}
            )
        if key not in self._memories:
            loaded = await asyncio.to_thread(load_ram, path)
            if key in self._memories:  # another task was quicker
                os.close(loaded)
            else:
                self._memories[key] = loaded
        self._memories.move_to_end(key)
        while len(self._memories) > _KEPT:
            os.close(self._memories.popitem(last=False)[1])
        return os.dup(self._memories[key])

    async def _surroundings(self, shape: Shape) -> tuple[Walls, Group | None]:
        """Return what a machine is started in."""
        self._program = self._program or _find(self._asked)
        self._walls = self._walls or await find_walls(self._program, _ask)
        return self._walls, await asyncio.to_thread(self._group, shape)

    def _group(self, shape: Shape) -> Group | None:
        """Return the control group of a machine."""
        self._look()
        if self._cgroups is None:
            return None
        try:
            memory = (shape.memory_mib << 20) + OVERHEAD_BYTES[self.name]
            return self._cgroups.create(memory_bytes=memory, pids=_OWN_THREADS + shape.cpus)
        except OSError as error:
            raise _no_start(error) from error

    def _start(
        self,
        files: VmFiles,
        shape: Shape,
        ram: int,
        walls: Walls,
        group: Group | None,
        *,
        is_template: bool,
        restore: bool,
    ) -> QemuMachine:
        """Start the process, without a pause, so that no cancellation can come in between."""
        with ExitStack() as theirs, ExitStack() as ours:
            try:
                user = self._users.take() if os.geteuid() == 0 else None
            except OSError as error:
                if group is not None:
                    group.remove()
                raise _no_start(error) from error
            if user is not None:
                ours.callback(user.release)
            if group is not None:
                ours.callback(group.remove)
            try:
                root = os.open(files.rootfs, os.O_RDONLY | os.O_CLOEXEC)
                theirs.callback(os.close, root)
                pairs = [socket.socketpair() for _ in range(3)]
                for mine, other in pairs:
                    ours.callback(mine.close)
                    theirs.callback(other.close)
                control, stdio, monitor = pairs
                fds = Descriptors(
                    ram=ram,
                    root=root,
                    control=control[1].fileno(),
                    stdio=stdio[1].fileno(),
                    monitor=monitor[1].fileno(),
                )
                command = qemu_command(
                    self._program,
                    files,
                    shape,
                    fds,
                    accelerator=self._accelerator,
                    template=is_template,
                    restore=restore,
                    confine=_confinement(user),
                )
                command = [*walls.command(files), *command]
                child = Child(
                    group.joining(command) if group is not None else command, env={"PATH": PROGRAMS}, fds=fds.all()
                )
            except OSError as error:
                raise _no_start(error) from error
            ours.pop_all()
            machine = QemuMachine(
                child, group, SocketStream(control[0]), SocketStream(stdio[0]), monitor=QmpClient(monitor[0])
            )
            machine.user = user
            return machine


def _confinement(user: UserClaim | None) -> list[str]:
    """Options by which QEMU gives up rights, once all files are open: its user, the file system, and system calls.
    Raises OSError."""
    if user is None:
        return ["-sandbox", f"{_SECCOMP},elevateprivileges=deny"]
    # to become another user is refused by "deny", as QEMU's filter comes first; setpriv sees to what else that is for
    empty = str(_empty_directory())
    become = f"{user.number}:{user.number}"
    return ["-sandbox", f"{_SECCOMP},elevateprivileges=allow", "-chroot", empty, "-runas", become]


def _empty_directory() -> Path:
    """Return what QEMU sees as the file system: a directory with nothing in it that its user cannot write to."""
    empty = cache_directory("machines") / ".empty"
    empty.mkdir(mode=0o555, parents=True, exist_ok=True)
    return empty


def _find(asked: str) -> str:
    program = asked or _PROGRAM
    found = shutil.which(program) or shutil.which(program, path=PROGRAMS)
    if found is None:
        raise unavailable(f"{program} is not {'there' if asked else 'on the PATH'}", _INSTALL)
    return found


async def _ask(command: list[str]) -> tuple[int, str]:
    try:
        async with asyncio.timeout(_SECONDS):
            return await run_child(command, env={"PATH": PROGRAMS})
    except TimeoutError:
        return -1, f"it did not end within {_SECONDS:g} s"


def _kill(begun: Sequence[QemuMachine]) -> None:
    """End the machines whose monitors who was cancelled would wait for: one may have been stopped."""
    for machine in begun:
        machine.kill()


async def _ended(machine: QemuMachine, error: BaseException) -> BaseException:
    """Return the error of a machine that did not start, which is closed; with what QEMU said."""
    await machine.aclose()
    if isinstance(error, TimeoutError):
        error = SandboxUnavailableError(f"its monitor does not answer for {_SECONDS:g} s")
    if not isinstance(error, SandboxUnavailableError):
        return error
    said = machine.said().strip()[-500:]
    is_corrupt = any(text in error.message for text in ("migration", "cannot be restored", _OTHER_PROCESSOR))
    is_corrupt = is_corrupt or "migration" in said
    return SandboxUnavailableError(
        f"QEMU cannot run the machine: {error.message}" + (f"; it said: {said}" if said else ""),
        retryable=True,
        details={"corrupt": True} if is_corrupt else {},
    )


def _check_processor(saved: str, here: JSONDict) -> None:
    """Raise SandboxUnavailableError where the machine that was saved had another processor than the one *here*."""
    try:
        before: JSONDict = json.loads(saved)
        changed = [name for name in {**before, **here} if before.get(name) != here.get(name)]
    except (ValueError, TypeError, RecursionError):
        changed = ["description"]
    if changed:
        raise SandboxUnavailableError(f"{_OTHER_PROCESSOR}: {', '.join(changed)} differ")


def _no_start(error: OSError) -> SandboxUnavailableError:
    return SandboxUnavailableError(f"QEMU cannot be started: {error.strerror or error}", retryable=True)
