"""Locks on open files among processes and threads: each opening of a file is a holder of its own.

The end of a process frees what it holds, however it dies.
"""

from __future__ import annotations

import fcntl
import math
import time
from collections.abc import Callable


def try_lock(file: int, *, shared: bool = False) -> bool:
    """Lock the open *file*, alone or *shared* with others that share it; False at once where it is held. Raises
    OSError for a file that cannot be locked."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the second is what some network file systems say
        return False
    return True


def lock(
    file: int,
    *,
    shared: bool = False,
    within: float = math.inf,
    pause: float = 0.1,
    on_wait: Callable[[], object] | None = None,
) -> bool:
    """Lock the open *file* as `try_lock` does, and wait for it at most *within* seconds; False when they are over.

    It is tried again every *pause* seconds, after a call of *on_wait*. Blocks. Raises OSError.
    """
    ends = time.monotonic() + within
    while not try_lock(file, shared=shared):
        if time.monotonic() > ends:
            return False
        if on_wait is not None:
            on_wait()
        time.sleep(pause)
    return True


def unlock(file: int) -> None:
    """Free the lock on the open *file*, which closing the file does, too."""
    fcntl.flock(file, fcntl.LOCK_UN)
