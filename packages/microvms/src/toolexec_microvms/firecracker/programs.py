"""Firecracker's two programs: where they are, and whether they are of a version that is known."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.containers import unavailable
from toolexec.machines import run_child

OLDEST: Final = (1, 8)
"""The first release that describes its devices by ACPI, as the kernels of Debian need it."""

_SECONDS: Final = 10.0
_MACHINES: Final = ("x86_64", "aarch64")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_VERSION: Final = re.compile(r"^(Firecracker|Jailer) v(\d+)\.(\d+)\.(\d+)", re.MULTILINE)
_INSTALL: Final = (
    "install firecracker and jailer of the same release, 1.8 or newer, from "
    "https://github.com/firecracker-microvm/firecracker/releases"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The paths of both programs, without links, and their version, such as "1.12.1"."""

    firecracker: Path
    jailer: Path
    version: str


async def find_programs(firecracker: str = "", jailer: str = "") -> Programs:
    """Return the programs *firecracker* and *jailer*, by default those on the PATH, once they have said their version.

    The jailer beside a *firecracker* that is given goes before another one.

    Raises SandboxUnavailableError where they cannot be used: another system, another user than root, a program that is
    missing, old or of another version than the other one.
    """
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        where = " and ".join(_MACHINES)
        raise unavailable(f"Firecracker runs on Linux on {where} only", "use the qemu machines, or the wasm sandbox")
    vmm = await asyncio.to_thread(_find, firecracker or "firecracker")
    beside = vmm.with_name("jailer") if firecracker and vmm.with_name("jailer").is_file() else None
    jail = await asyncio.to_thread(_find, jailer or (str(beside) if beside is not None else "jailer"))
    version = await _version_of(vmm, "Firecracker")
    other = await _version_of(jail, "Jailer")
    if version != other:
        raise unavailable(f"{vmm} is version {version} and {jail} is version {other}", _INSTALL)
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise unavailable(f"Firecracker {version} is too old", _INSTALL)
    if os.geteuid() != 0:
        raise unavailable(
            "Firecracker's jailer has to be started as root: it makes devices and changes the root directory",
            "run as root, or use the qemu machines",
        )
    return Programs(firecracker=vmm, jailer=jail, version=version)


def _find(asked: str) -> Path:
    found = shutil.which(asked) or shutil.which(asked, path=_PATH)
    if found is None:
        where = "is not there" if "/" in asked else "is not on the PATH"
        raise unavailable(f"{asked} {where}", _INSTALL)
    return Path(found).resolve()


async def _version_of(program: Path, name: str) -> str:
    try:
        async with asyncio.timeout(_SECONDS):
            code, said = await run_child([str(program), "--version"], env={})
    except TimeoutError:
        code, said = -1, f"it did not end within {_SECONDS:g} s"
    for found in _VERSION.finditer(said) if code == 0 else ():
        if found.group(1) == name:
            return ".".join(found.groups()[1:])
    raise unavailable(f"{program} does not work: {said.strip()[:200] or f'exit code {code}'}", _INSTALL)
