"""Programs that ask the host's kernel for what no sandbox may have: one for each such part of it.

Each call has arguments that cannot succeed, so that nothing happens where the wall is missing: then the kernel objects
to the arguments, and not to the call. What it answers is compared by the error's name, as numbers differ by system.
They are `isolated`: none of them may run where nothing surrounds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolexec.testing.escapes.base import Attempt, Check, Escape, code_of

_REFUSED: Final = frozenset({"EPERM", "EACCES", "ENOSYS"})
"""What the wall answers: the kernel has not looked at the arguments."""
_NO_SOCKET: Final = frozenset({*_REFUSED, "EAFNOSUPPORT", "EPROTONOSUPPORT"})
_ABSENT: Final = "there are no calls"
_OWN_KERNEL: Final = frozenset({"gvisor", "vm"})
"""Isolations in which a call ends in a kernel of the sandbox's own."""
_INVALID: Final = 0xFFFF
_BAD_TYPE: Final = 15  # of a socket: above all that there are
_NEW_USER, _SHARE_FILES, _CHILD_ENDED = 0x10000000, 0x200, 17

_CALL: Final = """
import errno, os, platform
def call(numbers, *words):
    try:
        import ctypes
        number = numbers[platform.machine()]
        function = ctypes.CDLL(None, use_errno=True).syscall
    except (ImportError, KeyError, AttributeError, OSError, TypeError):
        return "there are no calls"
    function.restype = ctypes.c_long
    before = os.getpid()
    result = function(ctypes.c_long(number), *(ctypes.c_long(word) for word in words))
    if os.getpid() != before:
        os._exit(0)
    return "it was done" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), "an unknown error")
"""


def _numbers(x86_64: int, aarch64: int = 0) -> dict[str, int]:
    """Return the number of a call by machine; calls of the last years have the same on all of them."""
    return {"x86_64": x86_64, "aarch64": aarch64 or x86_64}


def _refused(answers: frozenset[str]) -> Check:
    """Return a judge of calls: each must have been refused by its wall, with one of *answers*."""

    def check(attempt: Attempt) -> str:
        found = attempt.value
        if code_of(attempt) or not isinstance(found, Mapping):
            return f"nothing was measured: the program ended with {code_of(attempt) or 'another value'}"
        if attempt.isolation in _OWN_KERNEL:
            return ""
        kept = {*answers, _ABSENT} if attempt.isolation == "wasm" else answers  # elsewhere it has made none
        reached = {name: answer for name, answer in found.items() if answer not in kept}
        return "; ".join(f"the kernel took the call {name}: {answer}" for name, answer in reached.items())

    return check


def _calls(name: str, tries: str, answers: frozenset[str] = _REFUSED, **calls: tuple[Any, ...]) -> Escape:
    """Return a program that makes *calls*: by name, the numbers of each and its arguments."""
    lines = [f"    {each!r}: call({', '.join(map(repr, words))}),\n" for each, words in calls.items()]
    return Escape(
        name=name,
        tries=tries,
        programs={"python": f"{_CALL}return {{\n{''.join(lines)}}}\n"},
        check=_refused(answers),
        isolated=True,
    )


def _looked_at(attempt: Attempt) -> str:
    """Object to what a program found that lists what it should not have, and to one that could not look."""
    if code_of(attempt) or not isinstance(attempt.value, list):
        return f"nothing was measured: the program ended with {code_of(attempt) or 'another value'}"
    return "; ".join(map(str, attempt.value)) if attempt.isolation == "container" else ""


_SOCKET: Final = _numbers(41, 198)

_PRIVILEGES: Final = """
try:
    lines = open("/proc/self/status").read().splitlines()
except OSError:
    return []
facts = dict(line.split(":", 1) for line in lines if ":" in line)
wanted = {"NoNewPrivs": "1", "Seccomp": "2"}
wanted |= dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16)
found = [f"{name} is {facts.get(name, 'not listed').strip()}" for name in wanted
         if facts.get(name, "").strip() != wanted[name]]
return found + ["it is root" for number in facts.get("Uid", "").split()[:1] if number == "0"]
"""

_DEVICES: Final = """
import os, stat
found, odd = [], ("mem", "kmem", "kmsg", "port", "kvm", "fuse", "vsock", "vhost-vsock", "vhost-net", "tun", "uinput")
for directory, _, names in os.walk("/dev"):
    for name in names:
        path = os.path.join(directory, name)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and name in odd):
            found.append(f"it has the device {path}")
return found
"""

_SETTINGS: Final = """
import os
found = []
def opens(path, flags, what):
    try:
        os.close(os.open(path, flags | getattr(os, "O_NONBLOCK", 0)))
    except OSError:
        return
    found.append(f"{what} {path}")
for name in ("core_pattern", "hostname", "modprobe", "panic", "ns_last_pid"):
    opens(f"/proc/sys/kernel/{name}", os.O_WRONLY, "it may write")
for path in ("/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger",
             "/sys/kernel/uevent_helper", "/sys/power/state",
             "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/release_agent", "/sys/kernel/mm/ksm/run"):
    opens(path, os.O_WRONLY, "it may write")
return found
"""

_SECRETS: Final = """
import os
found = []
for path in ("/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/timer_list", "/sys/kernel/debug",
             "/sys/kernel/security", "/sys/firmware/efi"):
    try:
        if os.path.isdir(path):
            if os.listdir(path):
                found.append(f"it can list {path}")
            continue
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            if os.read(descriptor, 16):
                found.append(f"it can read {path}")
        finally:
            os.close(descriptor)
    except OSError:
        pass
return found
"""


def _look(name: str, tries: str, program: str) -> Escape:
    return Escape(name=name, tries=tries, programs={"python": program}, check=_looked_at, isolated=True)


KERNEL_ESCAPES: tuple[Escape, ...] = (
    _calls(
        "vsock",
        "to open a socket to the machine's hypervisor (vsock), which no network namespace holds",
        _NO_SOCKET,
        vsock=(_SOCKET, 40, _BAD_TYPE, 0),
    ),
    _calls(
        "packet_sockets",
        "to open a socket that sees and makes raw packets",
        _NO_SOCKET,
        packet=(_SOCKET, 17, _BAD_TYPE, 0),
        xdp=(_SOCKET, 44, _BAD_TYPE, 0),
    ),
    _calls(
        "netlink_sockets",
        "to open sockets to the parts of the kernel: its audit, its packet filter, its events",
        _NO_SOCKET,
        audit=(_SOCKET, 16, _BAD_TYPE, 9),
        netfilter=(_SOCKET, 16, _BAD_TYPE, 12),
        events=(_SOCKET, 16, _BAD_TYPE, 15),
    ),
    _calls(
        "odd_sockets",
        "to open sockets of families that few programs need: the kernel's ciphers, Bluetooth, TIPC",
        _NO_SOCKET,
        ciphers=(_SOCKET, 38, _BAD_TYPE, 0),
        bluetooth=(_SOCKET, 31, _BAD_TYPE, 0),
        tipc=(_SOCKET, 30, _BAD_TYPE, 0),
    ),
    _calls(
        "user_namespaces",
        "to become root in a user namespace of its own, or to enter one of others",
        unshare=(_numbers(272, 97), _NEW_USER | 1),
        clone=(_numbers(56, 220), _NEW_USER | _SHARE_FILES | _CHILD_ENDED, 0, 0, 0, 0),
        setns=(_numbers(308, 268), -1, 0),
    ),
    _calls(
        "io_uring",
        "to have the kernel do its calls behind the filter, with io_uring",
        io_uring_setup=(_numbers(425), 0, 0),
        io_uring_enter=(_numbers(426), -1, 0, 0, 0, 0, 0),
        io_uring_register=(_numbers(427), -1, _INVALID, 0, 0),
    ),
    _calls(
        "kernel_keys",
        "to read and add keys of the kernel, which no namespace holds",
        keyctl=(_numbers(250, 219), _INVALID, 0, 0, 0, 0),
        add_key=(_numbers(248, 217), 0, 0, 0, 0, 0),
        request_key=(_numbers(249, 218), 0, 0, 0, 0),
    ),
    _calls(
        "ptrace",
        "to trace other processes, and to read their memory and descriptors",
        ptrace=(_numbers(101, 117), 16, 0, 0, 0),
        process_vm_readv=(_numbers(310, 270), 0, 0, 0, 0, 0, 1),
        pidfd_getfd=(_numbers(438), -1, -1, 1),
    ),
    _calls(
        "perf",
        "to measure what others do, with the kernel's performance events",
        perf_event_open=(_numbers(298, 241), 0, -1, -1, -1, _INVALID),
    ),
    _calls("bpf", "to load programs into the kernel", bpf=(_numbers(321, 280), _INVALID, 0, 0)),
    _calls(
        "fanotify",
        "to watch and hold up the files of the whole machine",
        fanotify_init=(_numbers(300, 262), 0xFFFFFFF, 0),
    ),
    _calls(
        "mount_api",
        "to make and move mounts with the newer calls for them",
        fsopen=(_numbers(430), 0, _INVALID),
        fsmount=(_numbers(432), -1, _INVALID, 0),
        open_tree=(_numbers(428), -1, 0, 0xFFFFFFF),
        move_mount=(_numbers(429), -1, 0, -1, 0, 0xFFFFFFF),
        mount_setattr=(_numbers(442), -1, 0, 0xFFFFFFF, 0, 0),
    ),
    _calls(
        "page_faults",
        "to hold up the kernel at a page fault, with userfaultfd",
        userfaultfd=(_numbers(323, 282), 0xFFFFFFF),
    ),
    _calls(
        "kernel_modules",
        "to load and remove modules of the kernel",
        finit_module=(_numbers(313, 273), -1, 0, _INVALID),
        delete_module=(_numbers(176, 106), 0, 0),
    ),
    _calls(
        "file_handles",
        "to open files by their number, behind the backs of directories and mounts",
        open_by_handle_at=(_numbers(304, 265), -1, 0, 0),
    ),
    _look("privileges", "to have capabilities, root's number, or no filter of its calls", _PRIVILEGES),
    _look("host_devices", "to find devices of the host: disks, memory, KVM, vsock", _DEVICES),
    _look("kernel_settings", "to write to the settings of the kernel and to control groups", _SETTINGS),
    _look("kernel_secrets", "to read the kernel's memory, keys and debugging files", _SECRETS),
)
