"""What gVisor's runsc is given: a bundle in a directory of its own, and the flags that it is started with."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolexec.containers import NAMESPACES, NEW_NAMESPACES, JSONDict, is_orphan, this_owner
from toolexec.machines import Resources
from toolexec.sandbox import ContainerSpec
from toolexec_containers.oci import oci_config

logger: logging.Logger = logging.getLogger(__name__)
PREFIX: Final = "toolexec-gvisor-"
_OWN_MEMORY: Final = 32 << 20
"""What the kernel in the sandbox needs for itself, in bytes: 20 MiB for one with a small program."""

_STATE: Final = "s"
_OWN_THREADS: Final = 256
_THREADS_EACH: Final = 4
_VERSION: Final = re.compile(r"version\s+(\S+)")
_JOIN: Final = 'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'
"""For a shell: enter some control groups, then become a program. So nothing that it starts can be outside of them."""
_FLAGS: Final = tuple(1 << bit for bit in range(32) if NEW_NAMESPACES >> bit & 1)


class Bundle:
    """A private directory with config.json and the state of one runsc; its name says whose it is.

    Blocks on the disk, so call it in a thread.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def make(cls, config: JSONDict) -> Bundle:
        """Return a new one. Raises OSError when it cannot be made."""
        directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{this_owner()}-"))
        bundle = cls(directory)
        try:
            (directory / "config.json").write_text(json.dumps(config), "utf-8")
            bundle.state.mkdir(mode=0o700)
        except BaseException:
            bundle.remove()
            raise
        return bundle

    @property
    def name(self) -> str:
        """That of the directory, and of all else that belongs to it."""
        return self.directory.name

    @property
    def short_name(self) -> str:
        """What runsc calls the container."""
        return f"c{self.name.rpartition('-')[2]}"

    @property
    def state(self) -> Path:
        """Where runsc keeps what it knows of the container."""
        return self.directory / _STATE

    def remove(self) -> None:
        """Delete it; raises OSError when something stays."""
        if self.directory.exists():
            shutil.rmtree(self.directory)


def remove_orphans() -> None:
    """Delete the bundles of this user whose owners are dead; logs what stays."""
    for bundle in _orphans():
        try:
            bundle.remove()
        except OSError as error:
            logger.warning("the directory %s of a dead process cannot be removed: %s", bundle.directory, error)


def _orphans() -> Iterator[Bundle]:
    for entry in os.scandir(tempfile.gettempdir()):
        owner = entry.name.removeprefix(PREFIX).rpartition("-")[0]
        if entry.name.startswith(PREFIX) and is_orphan(owner):
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    yield Bundle(Path(entry.path))


def runsc_command(
    runsc: str, bundle: Bundle, *, platform: str, rootless: bool, groups: Sequence[Path] = ()
) -> list[str]:
    """Return the command line that runs *bundle* in the control groups that are the directories *groups*.

    The root file system gets no overlay, which would keep a file in it, as several containers share it. Control groups
    are not left to runsc: to make them takes it 40 ms and more.
    """
    return [
        *(["/bin/sh", "-c", _JOIN, "sh", *map(str, groups), "--"] if groups else []),
        runsc,
        f"--root={bundle.state}",
        f"--platform={platform}",
        "--network=none",
        "--ignore-cgroups",
        "--overlay2=none",
        "--host-uds=none",
        "--oci-seccomp",
        *(["--rootless"] if rootless else []),
        "run",
        f"--bundle={bundle.directory}",
        bundle.short_name,
    ]


def host_bounds(resources: Resources) -> JSONDict:
    """Return the bounds of the control group, for all that makes up the sandbox: the program, the kernel under it, and
    runsc.

    Memory is what the program may have, and 32 MiB. Processes are counted inside (see `bundle_config`); outside each
    is a process, and some threads, of the host, whose bound is only there for a sandbox that was broken out of.
    """
    return {
        "memory_bytes": resources.memory_bytes + _OWN_MEMORY if resources.memory_bytes else 0,
        "pids": resources.pids * _THREADS_EACH + _OWN_THREADS if resources.pids else 0,
        "cpus": resources.cpus,
    }


def bundle_config(spec: ContainerSpec, root: str) -> JSONDict:
    """Return config.json of *spec* for gVisor, over the root file system *root*; raises as `oci_config`.

    The kernel that the code sees is gVisor's own, and takes other words. It counts processes for RLIMIT_NPROC, in all
    of the sandbox and at each clone, but not those of a process with a user namespace of its own: so the seccomp
    filter allows no new namespaces. It is the whole filter, unless the operator has one: gVisor has few of the calls
    that others are there to refuse, and none of them is the host's. The root is read-only under all profiles.
    """
    config = oci_config(spec, root)
    config["root"]["readonly"] = True
    if spec.resources.pids:
        bound = spec.resources.pids
        config["process"]["rlimits"].append({"type": "RLIMIT_NPROC", "soft": bound, "hard": bound})
    linux = config["linux"]
    linux["resources"] = {}
    linux["namespaces"] = [{"type": kind} for kind in NAMESPACES if kind != "cgroup"]
    own = linux.get("seccomp") if spec.security.seccomp not in ("default", "unconfined") else None
    profile = own or {"defaultAction": "SCMP_ACT_ALLOW", "architectures": [], "syscalls": []}
    linux["seccomp"] = {**profile, "syscalls": [*_no_namespaces(), *profile["syscalls"]]}
    return config


def _no_namespaces() -> list[JSONDict]:
    """Rules that refuse every call that makes a namespace, and what could get round them.

    The flags of `clone3` are out of a filter's sight. It has to be as if that did not exist, so that programs use
    `clone`; but this runsc knows no error but EPERM for a refusal. ENOSYS is what a call gets that should be
    traced while there is no tracer: and there can be none, as `ptrace` is refused.
    """
    refused: JSONDict = {"action": "SCMP_ACT_ERRNO"}
    clones: list[JSONDict] = [
        {
            "names": ["clone"],
            "args": [{"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}],
            **refused,
        }
        for flag in _FLAGS
    ]
    return [
        {"names": ["unshare", "setns", "ptrace"], **refused},
        *clones,
        {"names": ["clone3"], "action": "SCMP_ACT_TRACE"},
    ]


def read_version(said: str) -> str:
    """Return the version in what `runsc --version` prints; "" if there is none."""
    found = _VERSION.search(said)
    return found[1] if found else ""
