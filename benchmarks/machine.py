"""What the figures were measured on and with; nothing that names the machine or its owner."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

ROOT = Path(__file__).parent.parent


def describe_machine() -> str:
    """Cores, processor, system and interpreter in one line."""
    model = "processor unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores, {model}; {platform.system()}, {python}"


def describe_load() -> str:
    """How busy the machine was over the last minute, as tasks that wanted a core."""
    return f"{os.getloadavg()[0]:.1f}"


def describe_commit() -> str:
    """The commit that is measured, and whether its sources were changed since. Raises ValueError outside of a clone."""
    try:
        commit = _git("rev-parse", "--short=7", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "benchmarks")
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError("the page names the commit of its figures: measure in a clone, with git installed") from error
    return f"{commit}{', with changes' if changed else ''}"


def _git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def versions(others: dict[str, str]) -> dict[str, str]:
    """This package, what it stands on, and *others*."""
    found = dict(others)
    for name in ("toolexec", "jsonschema-rs", "pydantic", "mcp", "mcp-server-time"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def core_dependencies() -> list[str]:
    """The direct dependencies of toolexec without any extra."""
    return [line for line in requires("toolexec") or () if "extra ==" not in line]
