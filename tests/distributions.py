"""Distributions with plugins, put into a directory as an installer does, for programs that have that on their path."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path


def install(path: Path, name: str, entries: str, modules: Mapping[str, str] | None = None) -> None:
    """Put a distribution into a directory, with its entry points and its modules by name."""
    info = path / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(entries))
    (info / "RECORD").write_text("")
    for module, text in (modules or {}).items():
        (path / f"{module}.py").write_text(textwrap.dedent(text))


def run(path: Path, program: str) -> list[str]:
    """Run a program that has the distributions of *path*; gives the lines that it prints."""
    code = f"import sys; sys.path.insert(0, {str(path)!r})\n{textwrap.dedent(program)}"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=path)  # what it writes is there
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()
