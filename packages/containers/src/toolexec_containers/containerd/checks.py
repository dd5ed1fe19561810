"""Whether containerd can be used from here, and what to do if not."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolexec.containers import engine_error
from toolexec.errors import SandboxUnavailableError
from toolexec.sandbox import Availability
from toolexec_containers.containerd.runtimes import Runtime, has_program, program_directories, shim_name

if TYPE_CHECKING:
    from toolexec_containers.containerd.client import Client

_INSTALL: Final = "apt-get install -y containerd runc"
_START: Final = "start it: systemctl start containerd"
_SECONDS: Final = 5.0
_KATA: Final = (
    "install Kata Containers (https://github.com/kata-containers/kata-containers/releases) and link its shim into "
    "/usr/local/bin: ln -s /opt/kata/bin/containerd-shim-kata-v2 /usr/local/bin/"
)


def look_at_socket(address: str) -> Availability | None:
    """Return what keeps us from talking to the daemon at *address*; None if nothing is seen. Blocks for a moment."""
    other = "set CONTAINERD_ADDRESS, or the address in the configuration, if it listens somewhere else"
    try:
        is_socket = stat.S_ISSOCK(Path(address).stat().st_mode)
        if is_socket:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(address)
    except FileNotFoundError:
        there = shutil.which("containerd") is not None
        return Availability(
            ok=False,
            reason=f"containerd does not run: there is no socket {address}",
            remedy=f"{_START if there else _INSTALL}; {other}",
        )
    except PermissionError:
        return Availability(
            ok=False,
            reason=f"the socket of containerd, {address}, is not for this user",
            remedy="run as root, or give the user's group the socket: [grpc] gid = … in /etc/containerd/config.toml",
        )
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            return Availability(ok=False, reason=f"nobody listens at {address}: containerd has stopped", remedy=_START)
        return Availability(ok=False, reason=f"the socket {address} cannot be used: {error}", remedy=other)
    if not is_socket:
        return Availability(ok=False, reason=f"{address} is not a socket", remedy=other)
    return None


async def ask_daemon(client: Client, snapshotter: str) -> Availability:
    """Return what the daemon says of itself, and whether it has the snapshotter."""
    from google.protobuf.empty_pb2 import Empty

    from toolexec_containers.containerd.api import snapshots_pb2
    from toolexec_containers.containerd.client import Calls, status_of

    try:
        version = (await client.call(Calls.version, Empty(), seconds=_SECONDS)).version.lstrip("v")
    except SandboxUnavailableError as error:
        return Availability(
            ok=False,
            reason=f"what listens at {client.address} does not answer as containerd does: {error.message}",
            remedy="give the address of containerd's own socket, usually /run/containerd/containerd.sock",
        )
    asked = snapshots_pb2.StatSnapshotRequest(snapshotter=snapshotter, key="toolexec-check")
    try:
        await client.call(Calls.stat_snapshot, asked, seconds=_SECONDS)
    except SandboxUnavailableError as error:
        if status_of(error) != "NOT_FOUND":
            return Availability(
                ok=False,
                reason=f"containerd cannot use the snapshotter {snapshotter}: {error.details.get('said')}",
                remedy="name one that `ctr plugins ls` lists as ok, such as overlayfs or native",
                version=version,
            )
    return Availability(ok=True, version=version)


async def look_at_runtime(address: str, runtime: Runtime) -> Availability | None:
    """Return what *runtime* lacks; None if nothing."""
    directories = await asyncio.to_thread(program_directories, address)
    shim = shim_name(runtime.name)
    if not has_program(shim, directories):
        remedy = f"install {Path(shim).name}"
        if "kata" in shim:
            remedy = _KATA
        elif "runc" in shim:
            remedy = _INSTALL
        return Availability(ok=False, reason=f"containerd finds no {shim}, which runs {runtime.name}", remedy=remedy)
    if runtime.takes_runc_options and not has_program(runtime.binary or "runc", directories):
        missing = runtime.binary or "runc"
        return Availability(ok=False, reason=f"containerd finds no {missing}", remedy="apt-get install -y runc")
    return None


def not_started(error: SandboxUnavailableError | OSError, image: str) -> SandboxUnavailableError:
    """Return why a container of *image* could not be started, and what to do about it."""
    if not isinstance(error, SandboxUnavailableError):
        said = str(error)
    elif error.details.get("status") == "NOT_FOUND" and "Snapshots.Prepare" in error.message:
        return SandboxUnavailableError(
            f"the image {image} was removed from containerd meanwhile; fetch it, or build it, again",
            details={"image": image},
        )
    else:
        said = str(error.details.get("said") or error.message)
    known = engine_error(said, kind="containerd", image=image)
    if isinstance(known, SandboxUnavailableError):
        return known
    text = known.message if known is not None else f"no container of the image {image} can be started: {said}"
    return SandboxUnavailableError(text, details={"image": image, "said": said})
