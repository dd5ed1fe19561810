"""Owners of containers: a string that names one process of one machine since its last start, and whether it lives.

Everything that could outlive its host carries it: a host that is killed cannot tidy up, and the next one does it.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Final

from toolexec.process.tree import read_stat

OWNER_LABEL: Final = "toolexec.owner"
"""The label of containers, and of whatever else can have labels."""

_PROC: Final = Path("/proc")


@cache
def this_owner() -> str:
    """Return `machine-pid-start` of this process; letters, digits and `-` only, as it is part of names of files."""
    pid = os.getpid()
    return f"{_machine()}-{pid}-{_started(pid)}"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_owner.cache_clear)


def is_orphan(owner: str) -> bool:
    """Return whether the process that *owner* names is dead.

    False for a string that is not one of ours and for a process of another machine, or of this one before its last
    start: resources that those have left cannot be distinguished from those in use.
    """
    machine, _, rest = owner.partition("-")
    pid, _, started = rest.partition("-")
    if machine != _machine() or not pid.isdecimal() or not started.isdecimal():
        return False
    return _started(int(pid)) != int(started)


@cache
def _machine() -> str:
    """This machine since its last start, and the namespace in it that process numbers are counted in."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return hashlib.sha256(f"{boot} {(_PROC / 'self/ns/pid').readlink()}".encode()).hexdigest()[:16]
    except OSError:  # no such files on this system
        return "0"


def _started(pid: int) -> int:
    """Return when a process was started, in ticks of the kernel; 0 for one that is gone."""
    fields = read_stat(pid)
    return int(fields[19]) if fields else 0
