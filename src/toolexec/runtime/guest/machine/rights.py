"""How a process of a machine becomes one that code of a stranger may run in."""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Any

_SET_DUMPABLE, _DROP_CAPABILITY, _SET_NO_NEW_PRIVILEGES, _AMBIENT, _CLEAR_ALL = 4, 24, 38, 47, 4
_CAPABILITIES = 64
_libc: Any = None


def load_libc() -> Any:
    """Return the C library; loaded ahead, as it takes a while."""
    global _libc
    if _libc is None:
        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def give_up_rights(user: tuple[int, int], open_files: int) -> None:
    """Be *user* with no other groups and no capabilities, and never more again. Raises OSError."""
    libc = load_libc()
    if open_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in range(_CAPABILITIES):
        if libc.prctl(_DROP_CAPABILITY, number, 0, 0, 0) != 0:
            break  # there are no more
    libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user[1], user[1], user[1])
    os.setresuid(user[0], user[0], user[0])
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)  # or it could not open its own /proc/self/fd
    if os.getresuid() != (user[0],) * 3 or os.getresgid() != (user[1],) * 3:
        raise OSError("the system says that it is done, and it is not")


def set_environment(variables: dict[str, str]) -> None:
    """Have exactly these environment variables."""
    os.environ.clear()
    os.environ.update(variables)
