"""How many lines each engine for containers has of its own: its launcher, and what it needs beside that.

    python -m tests.launchers

The launcher starts containers, waits for them and ends them. Beside it are a client for the engine's API or command
line, its store of images, checks that say why nothing can be started, and what else is run in its containers.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.workspace import Package

import toolexec

_PLACES = (Path(toolexec.__file__).parent / "runtime" / "containers", Package("containers").source)
_BESIDE = {
    "bubblewrap": {"args", "checks", "host_user", "programs"},
    "containerd": {"checks", "client", "images", "pipes", "removal", "resolver", "runtimes", "spec"},
    "docker": {"api", "attach", "checks", "host", "images", "spec"},
    "gvisor": {"checks", "runsc"},
    "kata": set[str](),
}


class Lines(NamedTuple):
    """Lines of files, docstrings and blank ones too."""

    launcher: int
    beside: int


def engines() -> list[str]:
    """Return the names of the engines: a package each, or one module."""
    return sorted([path.parent.name for place in _PLACES for path in place.glob("*/engine.py")] + ["kata"])


def count(engine: str) -> Lines:
    """Count the lines that only *engine* has, but for generated code and the exports of its package."""
    files = [file for place in _PLACES for file in (*place.glob(f"{engine}/*.py"), *place.glob(f"{engine}.py"))]
    lines = {file.stem: file.read_text().count("\n") for file in files if file.stem != "__init__"}
    beside = sum(lines.pop(name, 0) for name in _BESIDE[engine])
    return Lines(sum(lines.values()), beside)


if __name__ == "__main__":
    for name in engines():
        launcher, beside = count(name)
        print(f"{name:12} launcher {launcher:4}  beside it {beside:5}")
