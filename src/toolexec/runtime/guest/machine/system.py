"""The system of a machine, as its first process sets it up: file systems, control group, clock and randomness."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import stat
import struct
import time
from typing import Any

_READ_ONLY, _NO_SUID, _NO_DEV, _NO_EXEC, _REMOUNT, _DETACH = 1, 2, 4, 8, 32, 2
_ADD_ENTROPY, _RESEED = 0x40085203, 0x5207
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_GROUPS = "/sys/fs/cgroup"
_PERIOD = 100_000
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_SETTINGS = {
    "kernel/dmesg_restrict": "1",
    "kernel/kptr_restrict": "2",
    "kernel/modules_disabled": "1",
    "kernel/panic": "-1",
    "kernel/panic_on_oops": "1",
    "kernel/perf_event_paranoid": "3",
    "kernel/printk": "3 4 1 3",
    "kernel/sysrq": "0",
    "kernel/unprivileged_bpf_disabled": "2",
    "kernel/yama/ptrace_scope": "2",
    "user/max_user_namespaces": "0",
    "vm/unprivileged_userfaultfd": "0",
}
_OWN = {"/work": 0o755, "/tmp": 0o1777, "/dev/shm": 0o1777}  # noqa: S108 - of this machine alone
_SMALL = 1 << 20
_ADDRESSES = "kernel/randomize_va_space"
_libc: Any = ctypes.CDLL(None, use_errno=True)


def mount_all() -> None:
    """Mount what programs look for, over the read-only root: with nothing in it that leads out of the machine.

    The devices of the kernel stay at /dev until `set_up_system`.
    """
    _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEV | _NO_EXEC)
    _mount("sysfs", "/sys", "sysfs", _NO_SUID | _NO_DEV | _NO_EXEC | _READ_ONLY)
    _mount("cgroup2", _GROUPS, "cgroup2", _NO_SUID | _NO_DEV | _NO_EXEC)


def set_up_system() -> None:
    """Make everything as programs are to find it, once the channels are open."""
    _libc.umount2(b"/dev", _DETACH)
    _mount("dev", "/dev", "tmpfs", _NO_SUID | _NO_EXEC, "mode=755,size=64k")
    os.umask(0)
    for name, numbers in _DEVICES.items():
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(*numbers))
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"/dev/{name}", 0o755)
    os.umask(0o022)
    _mount("devpts", "/dev/pts", "devpts", _NO_SUID | _NO_EXEC, "newinstance,ptmxmode=0666,mode=620")
    _mount("dev", "/dev", "tmpfs", _NO_SUID | _NO_EXEC | _READ_ONLY | _REMOUNT, "mode=755,size=64k")
    for path, mode in _OWN.items():
        _mount("tmpfs", path, "tmpfs", _NO_SUID | _NO_DEV, f"mode={mode:o},size={_SMALL}")
    for name, value in _SETTINGS.items():
        try:
            _write(f"/proc/sys/{name}", value)
        except OSError:  # a kernel may have less
            continue
    socket.sethostname("sandbox")
    _raise_loopback()


def set_sizes(sizes: dict[str, int], work: str, user: tuple[int, int]) -> None:
    """Give each tmpfs its size; one that is not there is mounted, on a directory that the image has. Raises OSError."""
    for path, size in sizes.items():
        if path in _OWN:
            _mount("tmpfs", path, "tmpfs", _NO_SUID | _NO_DEV | _REMOUNT, f"size={size}")
        else:
            _mount("tmpfs", path, "tmpfs", _NO_SUID | _NO_DEV, f"mode=1777,size={size}")
    if work in _OWN or work in sizes:
        os.chown(work, *user)


def set_random_addresses(on: bool) -> None:
    """Have the kernel choose addresses of programs at random, or not.

    What waits for a restore has the same addresses in each machine anyway; with none chosen at random, an emulator
    translates what two processes share only once.
    """
    _write(f"/proc/sys/{_ADDRESSES}", "2" if on else "0")


def set_clock(nanoseconds: int) -> None:
    """Set the clock, which a restored machine has from the time of its snapshot."""
    time.clock_settime_ns(time.CLOCK_REALTIME, nanoseconds)


def add_entropy(data: bytes) -> None:
    """Have the kernel's random numbers depend on *data* from now on."""
    descriptor = os.open("/dev/urandom", os.O_WRONLY | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, _ADD_ENTROPY, struct.pack("ii", len(data) * 8, len(data)) + data)
    fcntl.ioctl(descriptor, _RESEED)
    os.close(descriptor)


def restart() -> None:
    """End the machine: its monitor does not start it again."""
    os.sync()
    _libc.reboot(0x01234567)
    os._exit(1)


class Group:
    """The control group of the guest."""

    def __init__(self, name: str = "guest") -> None:
        self._path = f"{_GROUPS}/{name}"
        _write(f"{_GROUPS}/cgroup.subtree_control", "+cpu +memory +pids")
        os.mkdir(self._path)

    def join(self) -> None:
        """Move this process into it."""
        _write(f"{self._path}/cgroup.procs", "0")

    def limit(self, memory: int, pids: int, cpus: float) -> None:
        """Set its limits; 0 is none."""
        _write(f"{self._path}/memory.max", str(memory) if memory else "max")
        _write(f"{self._path}/pids.max", str(pids) if pids else "max")
        _write(f"{self._path}/cpu.max", f"{int(cpus * _PERIOD)} {_PERIOD}" if cpus else f"max {_PERIOD}")

    def cpu_seconds(self) -> float:
        """Return the CPU time that it has used."""
        return self._numbers("cpu.stat").get("usage_usec", 0) / 1e6

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process of it for memory."""
        return self._numbers("memory.events").get("oom_kill", 0) > 0

    def ran_out_of_processes(self) -> bool:
        """Return whether it was refused a process."""
        return self._numbers("pids.events").get("max", 0) > 0

    def kill(self) -> None:
        """Kill all that is in it."""
        _write(f"{self._path}/cgroup.kill", "1")

    def _numbers(self, name: str) -> dict[str, int]:
        with open(f"{self._path}/{name}") as file:
            return {key: int(value) for key, value in (row.split() for row in file)}


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    words = [word.encode() for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), data.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount {target}: {os.strerror(number)}")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        (flags,) = struct.unpack_from("H", fcntl.ioctl(end, _GET_FLAGS, request), 16)
        fcntl.ioctl(end, _SET_FLAGS, struct.pack("16sH14s", b"lo", flags | _UP, b""))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
