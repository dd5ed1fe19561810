"""The processes of a control group that something else has made, such as the daemon that ran a container."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolexec.process.poll import pauses

__all__ = ["kill_members"]

_PROC: Final = Path("/proc")
_NAME: Final = re.compile(r"[0-9a-f]{64}")
_PATIENCE: Final = 1.0


def kill_members(name: str, *, proc: Path = _PROC) -> bool:
    """Kill the processes on this machine whose control group is called by the ID *name* of a container.

    Return whether none is left after a second: what other users have started may have to stay, and what ran on another
    machine was never here. Only a whole ID (64 hexadecimal digits) that is not that of this process's own container is
    looked for: it comes from a daemon. Blocks.
    """
    if not _NAME.fullmatch(name) or _is_in(proc / "self", name) or not hasattr(os, "pidfd_open"):
        return False
    until = time.monotonic() + _PATIENCE
    waits = pauses(0.001, 0.02)
    while members := [*_members(name, proc)]:
        for pid in members:
            _kill(pid, name, proc)
        if time.monotonic() > until:
            return False
        time.sleep(next(waits))
    return True


def _members(name: str, proc: Path) -> Iterator[int]:
    with suppress(OSError):
        for entry in proc.iterdir():
            if entry.name.isdecimal() and _is_in(entry, name):
                yield int(entry.name)


def _is_in(process: Path, name: str) -> bool:
    """Return whether a process runs in a group of that name; a dead one that waits to be asked about does not."""
    try:
        inside = name in (process / "cgroup").read_text("utf-8", "replace")
        state = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split() if inside else ["Z"]
    except OSError:
        return False
    return inside and state[:1] not in (["Z"], ["X"], [])


def _kill(pid: int, name: str, proc: Path) -> None:
    """Kill a process that is still the one that was found: its number may belong to another one by now."""
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if _is_in(proc / str(pid), name):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)
