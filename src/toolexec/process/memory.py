"""How much memory of this host processes can still get, by what the kernel says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_MOUNTED: Final = Path("/sys/fs/cgroup")
_V2: Final = ("memory.max", "memory.current", "inactive_file")
_V1: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_memory(proc: Path = _PROC, mounted: Path = _MOUNTED) -> int | None:
    """Return the bytes that can be used without swapping: `MemAvailable`, or less where a control group of this
    process, or one above it, leaves less; None where the kernel does not say. Blocks for a moment.

    Files that a group has in the page cache and does not use count as available, as they do in `MemAvailable`.
    """
    known: list[int] = []
    for line in _read(proc / "meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split():
            with suppress(ValueError):
                known.append(int(value.split()[0]) * 1024)
    for directory, files in _groups(proc, mounted):
        with suppress(ValueError):  # "max", or a file that is not there
            limit, used = (int(_read(directory / name)) for name in files[:2])
            known.append(max(0, limit - used + _inactive(directory, files[2])))
    return min(known, default=None)


def _groups(proc: Path, mounted: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Yield the memory groups of this process, and those above them, with the names of their files."""
    for line in _read(proc / "self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            top, files = mounted, _V2
        elif "memory" in controllers.split(","):
            top, files = mounted / "memory", _V1
        else:
            continue
        directory = top / path.lstrip("/")
        for place in (directory, *directory.parents):
            if place == top or top in place.parents:
                yield place, files


def _inactive(directory: Path, name: str) -> int:
    for line in _read(directory / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
