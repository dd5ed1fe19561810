"""libkrun as a `Vmm`: a library that makes its process a virtual machine, so that each machine is a child of ours.

It brings its own kernel (libkrunfw), and the machine sees the root file system of the image by virtio-fs, read-only:
a kernel of Debian's does not find the devices that libkrun only names on its command line. There is no vsock device, as
that of libkrun can open connections of the host for the guest, and no network; the channels are ports of a console.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import re
import socket
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from toolexec.errors import SandboxUnavailableError
from toolexec.process.child import Child, run_child
from toolexec.process.settling import uncut
from toolexec.process.stream import SocketStream, Stream
from toolexec.runtime.base import Availability
from toolexec.runtime.containers.launcher import lacking, unavailable
from toolexec.runtime.containers.microvm.child import ChildMachine
from toolexec.runtime.containers.microvm.jail import Jail, Jails, exit_code
from toolexec.runtime.containers.microvm.kvm import look_at_kvm
from toolexec.runtime.containers.microvm.machine import Accelerator, Machine, Shape, VmFiles, VmmName

__all__ = ["Libkrun", "LibkrunMachine"]

logger: logging.Logger = logging.getLogger(__name__)

_NAMES: Final = ("libkrun.so.2", "libkrun.so.1", "libkrun.so")
_PLACES: Final = tuple(
    Path(base, name)
    for base in (
        "/usr/local/lib64",
        "/usr/local/lib",
        "/usr/lib64",
        "/usr/lib",
        f"/usr/lib/{platform.machine()}-linux-gnu",
    )
    for name in _NAMES
)
_WHEELS: Final = ("boxlite", "microsandbox")
"""Packages that have libkrun linked into their own modules, which export nothing of it."""
_FUNCTIONS: Final = (
    "krun_create_ctx",
    "krun_set_vm_config",
    "krun_disable_implicit_vsock",
    "krun_disable_implicit_console",
    "krun_add_virtio_console_default",
    "krun_add_virtio_console_multiport",
    "krun_add_console_port_inout",
    "krun_add_virtiofs3",
    "krun_set_exec",
    "krun_start_enter",
)
_SECONDS: Final = 20.0
_OVERHEAD: Final = 192 << 20
_TAIL: Final = 4000
_INIT: Final = "/sbin/toolexec-init"
_INSTALL: Final = (
    "install libkrun 1.17 or newer, with libkrunfw, from https://github.com/containers/libkrun (Fedora: dnf install "
    "libkrun), or use the firecracker machines"
)
_PROBE: Final = """\
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
print(*[name for name in sys.argv[2:] if not hasattr(library, name)])
"""
_CHILD: Final = """\
import ctypes, json, os, stat, sys

about = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
try:
    ctypes.CDLL("libkrunfw.so.5", ctypes.RTLD_GLOBAL)
except OSError:
    pass
library = ctypes.CDLL(about["library"])


def call(name, *arguments):
    found = getattr(library, name)(*arguments)
    if found < 0:
        sys.exit(f"{name} failed: {os.strerror(-found)}")
    return found


def number(value):
    return ctypes.c_uint32(value)


os.chdir(about["directory"])
os.mkdir("proc", 0o555)
if libc.mount(b"proc", b"proc", b"proc", 0xE, None):
    sys.exit(f"/proc cannot be mounted: {os.strerror(ctypes.get_errno())}")
os.mkdir("dev", 0o755)
for name, numbers in about["devices"].items():
    os.mknod(f"dev/{name}", stat.S_IFCHR | 0o600, os.makedev(*numbers))
    os.chown(f"dev/{name}", about["uid"], about["uid"])
null = os.open("/dev/null", os.O_RDWR)
os.chroot(".")
os.setgroups([])
os.setresgid(*[about["uid"]] * 3)
os.setresuid(*[about["uid"]] * 3)
libc.prctl(38, 1, 0, 0, 0)

machine = number(call("krun_create_ctx"))
call("krun_set_vm_config", machine, ctypes.c_uint8(about["cpus"]), number(about["memory_mib"]))
call("krun_disable_implicit_vsock", machine)
call("krun_disable_implicit_console", machine)
call("krun_add_virtio_console_default", machine, null, 2, 2)
ports = number(call("krun_add_virtio_console_multiport", machine))
for name, descriptor in about["ports"].items():
    call("krun_add_console_port_inout", machine, ports, name.encode(), descriptor, descriptor)
call("krun_add_virtiofs3", machine, b"/dev/root", b"/root", ctypes.c_uint64(0), ctypes.c_bool(True))
nothing = (ctypes.c_char_p * 1)(None)
call("krun_set_exec", machine, about["init"].encode(), nothing, nothing)
call("krun_start_enter", machine)
"""
"""Becomes the machine: in a root directory with nothing but what it needs, and as the user of the jail."""


class LibkrunMachine(ChildMachine[Stream]):
    """A machine that runs in a *jail*; see `Machine`."""

    def __init__(self, child: Child, jail: Jail, control: Stream, stdio: Stream) -> None:
        self._jail = jail
        super().__init__(jail.id, child, jail.group, control, stdio)

    def _exit_code(self, code: int) -> int:
        return exit_code(code, self.said())

    async def _release(self) -> None:
        await self._control.aclose()
        await self._stdio.aclose()
        await asyncio.to_thread(self._jail.remove)


class Libkrun:
    """A `Vmm` of the library *library*, by default the one of this system; its jails are made by *jails*.

    Runs as root only, as `Firecracker` does. Machines cannot be saved: each one boots.
    """

    name: VmmName = "libkrun"

    def __init__(self, library: str = "", *, jails: Jails | None = None) -> None:
        self._asked = library
        self._jails = jails or Jails()
        self._library: Path | None = None

    @property
    def version(self) -> str:
        """Implement `Vmm.version`: that in the name of the library's file, such as "1.17.0"."""
        found = re.search(r"\.so\.([\d.]+)$", self._library.name) if self._library is not None else None
        return found[1] if found else "unknown" if self._library is not None else ""

    @property
    def accelerator(self) -> Accelerator:
        """Implement `Vmm.accelerator`: there is no other one."""
        return "kvm"

    @property
    def snapshots(self) -> bool:
        """Implement `Vmm.snapshots`: libkrun has none."""
        return False

    async def check(self) -> Availability:
        """Implement `Vmm.check`: looks at the library and the processor; no machine is started."""
        try:
            await self._find()
            problem = await asyncio.to_thread(look_at_kvm)
        except SandboxUnavailableError as error:
            return lacking(error, self.version)
        except Exception as error:
            logger.exception("the check of libkrun failed")
            return Availability(ok=False, reason=f"the check failed: {error}", version=self.version)
        return problem or Availability(ok=True, version=self.version)

    async def boot(self, files: VmFiles, shape: Shape, *, template: Path | None = None) -> Machine:
        """Implement `Vmm.boot`. Of the *files* it uses the directory `rootfs` that is beside theirs in the store."""
        library = self._library or await self._find()
        root = files.rootfs.parent.with_name("rootfs")
        if not (root / _INIT[1:]).is_file():
            raise unavailable(
                f"libkrun needs an image of the store: there is no root file system with {_INIT} at {root}",
                "toolexec image build --kind vm",
            )
        bytes_in_all = (shape.memory_mib << 20) + _OVERHEAD
        jail = await uncut(
            asyncio.to_thread(self._jails.create, memory_bytes=bytes_in_all),
            undo=lambda made: asyncio.to_thread(made.remove),
        )
        try:
            await asyncio.to_thread(jail.put_directory, "root", root)
            return self._start(library, jail, shape)
        except BaseException:
            await uncut(asyncio.to_thread(jail.remove))
            raise

    async def save(self, machine: Machine, directory: Path) -> None:
        """Implement `Vmm.save`: it cannot. Raises SandboxUnavailableError."""
        raise SandboxUnavailableError("libkrun cannot save machines")

    async def restore(self, files: VmFiles, shape: Shape, directory: Path) -> Machine:
        """Implement `Vmm.restore`: it cannot. Raises SandboxUnavailableError."""
        raise SandboxUnavailableError("libkrun cannot restore machines")

    async def sweep(self) -> None:
        """Implement `Vmm.sweep`."""
        try:
            await asyncio.to_thread(self._jails.sweep)
        except Exception:
            logger.exception("what dead processes have left of virtual machines cannot be removed")

    async def _find(self) -> Path:
        if sys.platform != "linux":
            raise unavailable("libkrun's machines are for Linux here", "use the wasm sandbox")
        places = (Path(self._asked),) if self._asked else _PLACES
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            raise unavailable(_missing(self._asked), _INSTALL)
        library = found.resolve()
        code, said = await run_child([sys.executable, "-I", "-c", _PROBE, str(library), *_FUNCTIONS], env={})
        if code != 0:
            raise unavailable(f"{library} cannot be loaded: {said.strip()[-200:]}", _INSTALL)
        if said.strip():
            raise unavailable(f"{library} is too old: it has no {', '.join(said.split())}", _INSTALL)
        if os.geteuid() != 0:
            raise unavailable("the jails of libkrun's machines are made by root only", "run as root")
        self._library = library
        return library

    def _start(self, library: Path, jail: Jail, shape: Shape) -> LibkrunMachine:
        """Start the process, without a pause, so that no cancellation can come in between."""
        with ExitStack() as theirs, ExitStack() as ours:
            try:
                pairs = [socket.socketpair() for _ in range(2)]
                for mine, other in pairs:
                    ours.callback(mine.close)
                    theirs.callback(other.close)
                ports = {name: other.fileno() for name, (_, other) in zip(("control", "stdio"), pairs, strict=True)}
                about = {
                    "library": str(library),
                    "directory": str(jail.directory),
                    "uid": jail.uid,
                    "cpus": shape.cpus,
                    "memory_mib": shape.memory_mib,
                    "ports": {f"toolexec.{name}": number for name, number in ports.items()},
                    "devices": {name: _numbers_of(name) for name in ("kvm", "urandom") if Path("/dev", name).exists()},
                    "init": _INIT,
                }
                command = jail.command([sys.executable, "-I", "-c", _CHILD, json.dumps(about)])
                environment = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")}
                child = Child(command, cwd="/", env=environment, fds=tuple(ports.values()))
            except OSError as error:
                raise unavailable(f"libkrun cannot be started: {error.strerror or error}", "") from error
            ours.pop_all()
        control, stdio = (SocketStream(mine) for mine, _ in pairs)
        return LibkrunMachine(child, jail, control, stdio)


def _numbers_of(device: str) -> tuple[int, int]:
    number = Path("/dev", device).stat().st_rdev
    return os.major(number), os.minor(number)


def _missing(asked: str) -> str:
    if asked:
        return f"there is no {asked}"
    wheels = [name for name in _WHEELS if find_spec(name) is not None]
    linked = f"; that in {' and '.join(wheels)} is linked into its own module, where nothing else can use it"
    return f"libkrun is not installed{linked if wheels else ''}"
