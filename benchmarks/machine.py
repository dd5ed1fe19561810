"""What the figures were measured on and with; nothing that names the machine or its owner."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

__all__ = ["core_dependencies", "describe_load", "describe_machine", "describe_versions"]


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


def describe_versions(others: dict[str, str]) -> str:
    """This package, what it stands on, and *others*."""
    found = dict(others)
    for name in ("toolexec", "jsonschema-rs", "pydantic", "mcp", "mcp-server-time"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return ", ".join(f"{name} {found[name]}" for name in sorted(found))


def core_dependencies() -> list[str]:
    """The direct dependencies of toolexec without any extra."""
    return [line for line in requires("toolexec") or () if "extra ==" not in line]
