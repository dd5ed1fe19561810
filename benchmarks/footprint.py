"""How much memory this process holds. Standard library only."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from pathlib import Path

_ROLLUP = Path("/proc/self/smaps_rollup")


def memory_in_use() -> int:
    """Bytes held after a collection, with what the allocator kept for later given back: the proportional share on
    Linux, else the most that the process ever held."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    if _ROLLUP.exists():
        line = next(line for line in _ROLLUP.read_text().splitlines() if line.startswith("Pss:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
