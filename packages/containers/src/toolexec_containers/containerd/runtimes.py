"""What runs the processes of a container for containerd: runc, gVisor, Kata or another runtime with a shim.

A shim is a program that containerd starts for each container. gVisor has one of its own, which few installations have;
the shim of runc can drive gVisor just as well, when it is configured to run another program in the place of runc.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import struct
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from toolexec.containers import JSONDict, this_owner, unavailable
from toolexec.sandbox import ContainerSpec
from toolexec_containers.gvisor.runsc import bundle_config, host_bounds
from toolexec_containers.oci import oci_config

DIRECTORY_PREFIX: Final = "toolexec-containerd-"
_RUNC: Final = "io.containerd.runc.v2"
_RUNSC: Final = "io.containerd.runsc.v1"
_FLAGS: Final = "--platform=systrap --network=none --overlay2=none --host-uds=none --oci-seccomp"
_ROOT: Final = "rootfs"
_USUAL: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/kata/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A runtime: what containerd calls it, and what surrounds the code in the end (`container`, `gvisor`, `vm`).

    `binary` is what the shim of runc runs in the place of runc ("" for runc itself).
    """

    name: str
    isolation: str = "container"
    binary: str = ""

    @property
    def takes_runc_options(self) -> bool:
        """Whether its shim is that of runc."""
        return self.name.startswith("io.containerd.runc.")


RUNTIMES: Final[Mapping[str, Runtime]] = {
    "runc": Runtime(name=_RUNC),
    "runsc": Runtime(name=_RUNSC, isolation="gvisor"),
    "kata": Runtime(name="io.containerd.kata.v2", isolation="vm"),
}
"""The runtimes that have short names."""


class Runtimes:
    """The runtimes of one daemon, each looked for once, and a private directory, with scripts in the place of programs.

    *runsc* is the path of gVisor's program, "" for the one on the PATH.
    """

    def __init__(self, runsc: str) -> None:
        self._runsc = runsc
        self._known: dict[str, Runtime] = {}
        self._directory: Path | None = None
        self._turn = asyncio.Lock()

    async def find(self, name: str, address: str) -> Runtime:
        """Return the runtime *name* of the daemon that listens at *address*. Raises SandboxUnavailableError."""
        if name not in self._known:
            runtime = await asyncio.to_thread(find_runtime, name, address, self._runsc)
            if runtime.binary:
                wrapper = await self.directory() / "runsc"
                await asyncio.to_thread(write_wrapper, wrapper, runtime.binary)
                runtime = replace(runtime, binary=str(wrapper))
            self._known[name] = runtime
        return self._known[name]

    async def directory(self) -> Path:
        """Return the directory, made when it is first needed."""
        async with self._turn:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{this_owner()}-"))
            return self._directory

    async def aclose(self) -> None:
        """Remove the directory, and forget the runtimes."""
        self._known.clear()
        directory, self._directory = self._directory, None
        if directory is not None:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def runtime_named(name: str) -> Runtime:
    """Return the runtime with a short name (`runc`, `runsc`, `kata`) or containerd's own
    (`io.containerd.kata-fc.v2`).
    """
    known = RUNTIMES.get(name)
    if known is not None:
        return known
    word = shim_name(name)
    isolation = "gvisor" if "runsc" in word else "vm" if "kata" in word or "firecracker" in word else "container"
    return Runtime(name=name, isolation=isolation)


def find_runtime(name: str, address: str, runsc: str) -> Runtime:
    """Return the runtime *name* as the daemon that listens at *address* can run it. Blocks for a moment.

    gVisor runs by its own shim if there is one, else by that of runc: then `binary` is the program (see `find_runsc`),
    for which a script (see `write_wrapper`) must stand. Raises SandboxUnavailableError where there is neither.
    """
    runtime = runtime_named(name)
    if name != "runsc" or has_program(shim_name(runtime.name), program_directories(address)):
        return runtime
    found = find_runsc(runsc)
    if not found:
        raise unavailable(
            f"gVisor is not installed: there is no {runsc or 'runsc on the PATH'}",
            "install gVisor's runsc (https://gvisor.dev/docs/user_guide/install), or give its path",
        )
    return replace(RUNTIMES["runc"], isolation="gvisor", binary=found)


def bundle_for(runtime: Runtime, spec: ContainerSpec, cgroup: str) -> JSONDict:
    """Return config.json of a container for *runtime*, in the control group *cgroup*; raises as `oci_config` does.

    gVisor counts the processes of the code by itself: the host's bounds are for all of it.
    """
    if runtime.isolation != "gvisor":
        return oci_config(spec, _ROOT, cgroups_path=cgroup)
    bounded = replace(spec, resources=replace(spec.resources, **host_bounds(spec.resources)))
    config = bundle_config(spec, _ROOT)
    config["linux"]["resources"] = oci_config(bounded, _ROOT)["linux"]["resources"]
    config["linux"]["cgroupsPath"] = cgroup
    config["root"]["readonly"] = spec.security.read_only_root  # it belongs to this container alone
    return config


def shim_name(runtime: str) -> str:
    """Return the program that containerd looks for: `containerd-shim-runc-v2` for `io.containerd.runc.v2`."""
    if runtime.startswith("/"):
        return runtime
    return "-".join(["containerd-shim", *runtime.split(".")[-2:]])


def program_directories(address: str) -> str:
    """Return where the daemon that listens at *address* looks for programs, as a PATH; the usual ones if it hides
    that.

    Blocks for a moment. The daemon's own directory is one of them.
    """
    with suppress(OSError):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(address)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        process = Path("/proc") / str(struct.unpack("3i", credentials)[0])
        own = (process / "exe").readlink().parent
        for variable in (process / "environ").read_bytes().split(b"\0"):
            if variable.startswith(b"PATH="):
                return f"{os.fsdecode(variable[5:])}:{own}"
        return f"{_USUAL}:{own}"
    return f"{os.environ.get('PATH', '')}:{_USUAL}"


def write_wrapper(path: Path, runsc: str) -> None:
    """Make a script at *path* that stands for runc and runs gVisor, without any network. Raises OSError."""
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(runsc)} {_FLAGS} "$@"\n', "utf-8")
    path.chmod(0o700)


def find_runsc(given: str) -> str:
    """Return the path of gVisor's program: the one *given*, else the one on the PATH; "" if there is none."""
    return shutil.which(given or "runsc") or ""


def has_program(name: str, directories: str) -> bool:
    """Return whether a program is in one of *directories*, a PATH, or at its own path."""
    return shutil.which(name, path=directories) is not None if "/" not in name else os.access(name, os.X_OK)
