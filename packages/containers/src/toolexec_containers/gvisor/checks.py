"""Why gVisor starts nothing here, and how to fix that."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from typing import Final

from toolexec.containers import Mount
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import Cgroups, Resources, run_child
from toolexec.sandbox import Availability, ContainerSpec
from toolexec_containers.gvisor.runsc import read_version

_MACHINES: Final = ("x86_64", "aarch64")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INSTALL: Final = (
    "apt-get install -t bookworm-backports runsc (Debian 12), apt-get install runsc (Debian 13), or the release of "
    "https://gvisor.dev/docs/user_guide/install/"
)
_NO_NAMESPACES: Final = (
    "run as root, or let users have user namespaces: sysctl -w kernel.unprivileged_userns_clone=1 (Debian), "
    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
)
SECONDS: Final = 30.0
"""How long a trial may take, and the question for the version."""
TRIAL: Final = ContainerSpec(
    image="",
    command=("python3", "-I", "-S", "-c", "print(open('/proc/version').read())"),
    working_dir="/",
    mounts=(Mount(type="tmpfs", target="/tmp", size_bytes=1 << 20),),  # noqa: S108 - inside of a container
    resources=Resources(memory_bytes=64 << 20, pids=16, cpus=1, disk_bytes=1 << 20),
)
"""Prints what the kernel that code sees says of itself."""


def wrong_machine() -> Availability | None:
    """Return why gVisor cannot run on this machine at all; None where it can."""
    if sys.platform == "linux" and platform.machine() in _MACHINES:
        return None
    return Availability(
        ok=False,
        reason=f"gVisor runs on Linux on {' and '.join(_MACHINES)} only",
        remedy="use the wasm sandbox, or docker with a remote daemon",
    )


def find_runsc(given: str) -> str:
    """Return the path of runsc: of the program *given*, or the one on the PATH. Raises SandboxUnavailableError."""
    asked = given or "runsc"
    found = shutil.which(asked) or shutil.which(asked, path=_PATH)
    if found is None:
        where = "is not there" if given else "is not on the PATH"
        raise SandboxUnavailableError(f"{asked} {where}", details={"remedy": _INSTALL})
    return found


async def version_of(runsc: str) -> str:
    """Return the version of a runsc that works; raises SandboxUnavailableError for another program."""
    try:
        async with asyncio.timeout(SECONDS):
            code, said = await run_child([runsc, "--version"], env=runsc_environment())
    except TimeoutError:
        code, said = -1, f"it did not end within {SECONDS:g} s"
    version = read_version(said)
    if code != 0 or not version:
        raise SandboxUnavailableError(
            f"{runsc} does not work: {said.strip()[:200] or f'exit code {code}'}", details={"remedy": _INSTALL}
        )
    return version


def check_cgroups(cgroups: Cgroups | None) -> None:
    """Raise SandboxUnavailableError where there are no control groups that bound memory."""
    if cgroups is None or "memory" not in cgroups.controllers:
        raise SandboxUnavailableError(
            "this user can make no control groups that bound memory",
            details={"remedy": "run as root, or have a group delegated: systemd-run --user --scope -p Delegate=yes"},
        )


def why_not(why: str, platform: str, *, rootless: bool) -> Availability:
    """Return what to do about a trial with the platform of that name that did not work, as *why* says."""
    if "unknown platform" in why or "flag provided but not defined" in why:
        return Availability(ok=False, reason=f"this runsc is too old: {why}", remedy=_INSTALL)
    hint = "" if platform == "ptrace" else '; the platform "ptrace" works where another one does not'
    return Availability(
        ok=False,
        reason=f"no sandbox can be started with the platform {platform}: {why}",
        remedy=(_NO_NAMESPACES if rootless else "look at the message of runsc") + hint,
    )


def runsc_environment() -> Mapping[str, str]:
    """Return the environment of runsc, which looks for programs such as newuidmap."""
    return {"PATH": f"{os.environ.get('PATH', '')}:{_PATH}".lstrip(":")}
