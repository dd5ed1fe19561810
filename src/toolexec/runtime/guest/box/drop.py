"""What a guest gives up by itself: new privileges, writing outside of its directories, TCP, dangerous system calls.

It holds for this process and all that it starts, and cannot be taken back. Threads that run already would keep their
rights, so this comes before the first one.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

_SET_NO_NEW_PRIVILEGES, _GET_NO_NEW_PRIVILEGES = 38, 39
_GET_SECCOMP, _SET_SECCOMP, _FILTER = 21, 22, 2
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_CHANGES = 0x1FF2  # what Landlock had first of rights to write files, and to make and remove entries of directories
_DEVICES = 1 << 6 | 1 << 11
_BIND, _CONNECT = 1, 2
_SCOPES = 3  # abstract sockets of others, signals to others
_DIRECTORIES = ("/tmp", "/dev/shm", "/dev/pts")  # noqa: S108 - they are the container's own
_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")

_DENIED = """
    acct 163 89, add_key 248 217, bpf 321 280, chroot 161 51, clock_settime 227 112, create_module 174 -,
    delete_module 176 106, fanotify_init 300 262, finit_module 313 273, fsconfig 431 431, fsmount 432 432,
    fsopen 430 430, fspick 433 433, get_kernel_syms 177 -, init_module 175 105, io_uring_enter 426 426,
    io_uring_register 427 427, io_uring_setup 425 425, ioperm 173 -, iopl 172 -, kcmp 312 272,
    kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219, listmount 458 458, lookup_dcookie 212 18,
    mbind 237 235, migrate_pages 256 238, mount 165 40, mount_setattr 442 442, move_mount 429 429,
    move_pages 279 239, nfsservctl 180 42, open_by_handle_at 304 265, open_tree 428 428, open_tree_attr 467 467,
    perf_event_open 298 241, pidfd_getfd 438 438, pivot_root 155 41, process_madvise 440 440,
    process_vm_readv 310 270, process_vm_writev 311 271, ptrace 101 117, query_module 178 -, quotactl 179 60,
    quotactl_fd 443 443, reboot 169 142, request_key 249 218, set_mempolicy 238 237,
    set_mempolicy_home_node 450 450, setdomainname 171 162, sethostname 170 161, setns 308 268,
    settimeofday 164 170, statmount 457 457, swapoff 168 225, swapon 167 224, sysfs 139 -, _sysctl 156 -,
    syslog 103 116, umount2 166 39, unshare 272 97, uselib 134 -, userfaultfd 323 282, ustat 136 -, vhangup 153 58
"""
"""System calls, each with its number on x86_64 and on aarch64."""
_MACHINES = {
    "x86_64": (1, 0xC000003E, {"clone": 56, "ioctl": 16, "socket": 41}),
    "aarch64": (2, 0xC00000B7, {"clone": 220, "ioctl": 29, "socket": 198}),
}
_CLONE3 = 435
_X32 = 0x40000000
_ARGUMENTS = {  # of a call: the place of one argument, and what it must not be; or which bits it must not have
    "clone": (16, (), 0x7E020000),  # new namespaces
    "ioctl": (24, (0x5412, 0x541C), 0),  # TIOCSTI and TIOCLINUX, which type into a terminal
}
_SOCKETS = ((1, None), (2, None), (10, None), (16, 0))  # see `toolexec.runtime.contract`, which a guest does not have
_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026


def drop(names: list[str], work: str, proxy_port: int) -> list[str]:
    """Give up what *names* say; gives those that were not possible, each with the reason."""
    libc = ctypes.CDLL(None, use_errno=True)
    undropped: list[str] = []
    for name in sorted(names, key=("no_new_privileges", "landlock", "seccomp").index):
        try:
            _no_new_privileges(libc)  # the others need it
            if name == "landlock":
                _landlock(libc, work, proxy_port)
            elif name == "seccomp":
                _seccomp(libc)
        except OSError as error:
            undropped.append(f"{name}: {error}")
    return undropped


def _no_new_privileges(libc: Any) -> None:
    _call(libc.prctl, _SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if _call(libc.prctl, _GET_NO_NEW_PRIVILEGES, 0, 0, 0, 0) != 1:
        raise OSError("the system says that it is done, and it is not")


def _landlock(libc: Any, work: str, proxy_port: int) -> None:
    """Read and run everything, write to a few places, and have no TCP other than to the proxy's port."""
    version = _call(libc.syscall, 444, 0, 0, 1)
    changes = _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    net = _BIND | _CONNECT
    fields = [changes] + [net] * (version >= 4) + [_SCOPES] * (version >= 6)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    rules = _call(libc.syscall, 444, attributes, len(attributes), 0)
    try:
        places = [(path, changes & ~_DEVICES) for path in (work, *_DIRECTORIES)]
        places += [(path, changes & (_WRITE_FILE | _TRUNCATE)) for path in _FILES]
        for path, rights in places:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                _call(libc.syscall, 445, rules, 1, struct.pack("=Qi", rights, place), 0)
            finally:
                os.close(place)
        if version >= 4 and proxy_port:
            _call(libc.syscall, 445, rules, 2, struct.pack("=QQ", net, proxy_port), 0)
        _call(libc.syscall, 446, rules, 0)
    finally:
        os.close(rules)


def _seccomp(libc: Any) -> None:
    """Have a list of system calls fail, as if the user had no right to them."""
    machine = os.uname().machine
    if machine not in _MACHINES or struct.calcsize("P") != 8:
        raise OSError(f"no filter is known for {machine}")
    code = _filter(*_MACHINES[machine])
    text = ctypes.create_string_buffer(code)
    _call(libc.prctl, _SET_SECCOMP, _FILTER, struct.pack("HP", len(code) // 8, ctypes.addressof(text)), 0, 0)
    if _call(libc.prctl, _GET_SECCOMP, 0, 0, 0, 0) != _FILTER:
        raise OSError("the system says that it is done, and it is not")


def _filter(column: int, machine: int, calls: dict[str, int]) -> bytes:
    """The program that looks at each call: its architecture, its number, and an argument of some."""
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _EPERM), (_LOAD, 0, 0, 0)]
    code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _EPERM)]
    code += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ENOSYS)]  # its arguments cannot be seen; clone is used instead
    for row in _DENIED.split(","):
        number = row.split()[column]
        if number != "-":
            code += [(_EQUAL, 0, 1, int(number)), (_RETURN, 0, 0, _EPERM)]
    for name, (place, values, bits) in _ARGUMENTS.items():
        check = [(_LOAD, 0, 0, place)]
        for value in values:
            check += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _EPERM)]
        if bits:
            check += [(_HAS, 0, 1, bits), (_RETURN, 0, 0, _EPERM)]
        check += [(_RETURN, 0, 0, _ALLOW)]
        code += [(_EQUAL, 0, len(check), calls[name]), *check]
    check = [(_LOAD, 0, 0, 16)]
    for family, protocol in _SOCKETS:
        if protocol is None:
            check += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
        else:
            check += [(_EQUAL, 0, 4, family), (_LOAD, 0, 0, 32), (_EQUAL, 0, 1, protocol), (_RETURN, 0, 0, _ALLOW)]
            check += [(_RETURN, 0, 0, _EPERM)]
    check += [(_RETURN, 0, 0, _EPERM)]
    code += [(_EQUAL, 0, len(check), calls["socket"]), *check, (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in code)


def _call(function: Any, *arguments: Any) -> int:
    """The result of a system call; raises OSError."""
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = function(*given)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
