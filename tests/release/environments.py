"""Clean environments with the built wheel: one for each Python that can be had, with the extras of one stage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tests.workspace import ROOT, Package, packages

OLDEST: Final = (3, 11)
STAGES: Final = ("bare", "mcp", "serve", "all")
"""The sets of extras, each of which has what is in the ones before it: an environment grows from one to the next."""


@cache
def pythons() -> dict[tuple[int, int], str]:
    """Return the interpreters of this machine by version: this one, those on the PATH, those of pyenv; each once."""
    found: dict[tuple[int, int], str] = {sys.version_info[:2]: sys._base_executable}
    for candidate in _candidates():
        version = _version(candidate)
        if version is not None:
            found.setdefault(version, candidate)
    return dict(sorted(found.items()))


def _candidates() -> Iterator[str]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from (str(path) for path in sorted(root.glob("versions/*/bin/python"), reverse=True))
    for minor in range(OLDEST[1] - 1, 20):
        yield from (
            str(path) for directory in os.get_exec_path() if (path := Path(directory, f"python3.{minor}")).is_file()
        )


def _version(python: str) -> tuple[int, int] | None:
    program = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        return None
    major, minor = map(int, done.stdout.split())
    return major, minor


def _wheel_of(package: Package, wheels: Path) -> Path:
    """Return the wheel of a package."""
    (found,) = wheels.glob(f"{package.module}-*.whl")
    return found


def supported() -> list[tuple[int, int]]:
    """Return the versions that the package is for."""
    return [version for version in pythons() if version >= OLDEST]


@dataclass(slots=True)
class Environment:
    """A clean virtual environment, and the directories that commands in it use."""

    version: tuple[int, int]
    directory: Path
    cache: Path
    installed: list[str] = field(default_factory=list[str])

    @property
    def programs(self) -> Path:
        """Return the directory of the installed commands."""
        return self.directory / "bin"

    def grow(self, wheel: Path, stage: str) -> None:
        """Install the wheel with the extras of *stage*; the environment must not have those of a later one.

        Python compiles what the commands import; pip would compile the ten thousand files of all dependencies.
        """
        assert not self.installed or STAGES.index(self.installed[-1]) < STAGES.index(stage)
        if not self.installed:
            subprocess.run([pythons()[self.version], "-m", "venv", str(self.directory)], check=True, timeout=300)
        wanted = [f"toolexec[{stage}] @ {wheel.as_uri()}" if stage != "bare" else f"toolexec @ {wheel.as_uri()}"]
        if stage == "all":  # its extras name the packages beside the core; pip is to take those of this tree
            wanted += [
                f"{package.distribution} @ {_wheel_of(package, wheel.parent).as_uri()}" for package in packages()
            ]
        if stage == "mcp":
            wanted.append("mcp-server-time")  # as the README has it
        beside = ("--find-links", str(wheel.parent), "-c", str(ROOT / "constraints.txt"))
        done = self.pip("install", "--quiet", "--no-compile", *wanted, *beside)
        assert done.returncode == 0, done.stderr
        self.installed.append(stage)

    def pip(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pip with the user's own settings and cache."""
        command = [str(self.programs / "python"), "-m", "pip", "--disable-pip-version-check", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=560, check=False)

    def run(
        self, *command: str, directory: Path, given: str = "", timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in *directory*, with a home of its own and no variables of this one."""
        env = {
            "PATH": f"{self.programs}{os.pathsep}{os.defpath}",
            "HOME": str(directory),
            "XDG_CACHE_HOME": str(self.cache),
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "LANG": "C.UTF-8",
        }
        return subprocess.run(
            [str(self.programs / command[0]), *command[1:]],
            cwd=directory,
            env=env,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def modules(self) -> set[str]:
        """Return the names of the distributions that are installed."""
        program = "import importlib.metadata as m, json; print(json.dumps([d.name for d in m.distributions()]))"
        done = self.run("python", "-c", program, directory=self.directory)
        return {name.lower().replace("_", "-") for name in json.loads(done.stdout)}
