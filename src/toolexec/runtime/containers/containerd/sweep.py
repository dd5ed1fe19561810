"""Removes what hosts that are dead have left in a namespace of containerd's, and of their pipes in the temp
directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Final

from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError

from toolexec.errors import SandboxUnavailableError
from toolexec.process.owner import OWNER_LABEL, is_orphan
from toolexec.runtime.containers.containerd.api import (
    containers_pb2,
    leases_pb2,
    options_pb2,
    snapshots_pb2,
    tasks_pb2,
)
from toolexec.runtime.containers.containerd.client import Calls, Client, status_of
from toolexec.runtime.containers.containerd.runtimes import RUNTIMES, write_wrapper
from toolexec.runtime.containers.containerd.tasks import SPEC_TYPE, remove_container

__all__ = ["DIRECTORY_PREFIX", "ID_PREFIX", "owner_of", "sweep"]

logger: logging.Logger = logging.getLogger(__name__)
ID_PREFIX: Final = "toolexec-"
DIRECTORY_PREFIX: Final = "toolexec-containerd-"
_OWNED: Final = f'labels."{OWNER_LABEL}"'


def owner_of(name: str, prefix: str = ID_PREFIX) -> str:
    """Return the owner of something by its name `PREFIX-OWNER-RANDOM`; "" for any other name."""
    return name.removeprefix(prefix).rpartition("-")[0] if name.startswith(prefix) else ""


async def sweep(client: Client, snapshotter: str, runsc: str = "") -> None:
    """Kill and remove what belongs to dead hosts; *runsc* is gVisor's program, if there is one.

    Logs what cannot be removed; raises SandboxUnavailableError when containerd cannot be asked.
    """
    asked = containers_pb2.ListContainersRequest(filters=[_OWNED])
    containers = (await client.call(Calls.list_containers, asked)).containers
    found = {container.id: container for container in containers if is_orphan(container.labels[OWNER_LABEL])}
    tasks = await client.call(Calls.list_tasks, tasks_pb2.ListTasksRequest())
    for task in tasks.tasks:
        owner = owner_of(task.id)
        if task.id not in found and is_orphan(owner):
            found[task.id] = await _record_of(client, task.id, owner)
    for id, container in found.items():
        if runsc:
            await asyncio.to_thread(_replace_wrapper, container.runtime.options.value, runsc)
        for problem in await remove_container(client, id, container.snapshotter or snapshotter):
            logger.warning("the container %s of a dead host cannot be removed: %s", id, problem)
    await _remove_snapshots(client, snapshotter)
    await _remove_leases(client)
    await asyncio.to_thread(_remove_directories)  # not before: the program that runs gVisor may be in one


async def _record_of(client: Client, id: str, owner: str) -> containers_pb2.Container:
    """A record for a task that has lost its own: without one containerd does nothing to a task."""
    runtime = containers_pb2.Container.Runtime(name=RUNTIMES["runc"].name)
    spec = Packed(type_url=SPEC_TYPE, value=b"{}")
    record = containers_pb2.Container(id=id, labels={OWNER_LABEL: owner}, runtime=runtime, spec=spec)
    await _quietly(client.call(Calls.create_container, containers_pb2.CreateContainerRequest(container=record)), id)
    return record


def _replace_wrapper(packed: bytes, runsc: str) -> None:
    """Write the script again that a dead host ran gVisor with, if it is gone: nothing else can remove its container.

    containerd runs it with its own rights: so no other user may write to the directory, as others may to `/tmp`.
    """
    with suppress(DecodeError, OSError):
        path = Path(options_pb2.Options.FromString(packed).binary_name)
        directory = path.parent
        if directory.parent != Path(tempfile.gettempdir()) or not directory.name.startswith(DIRECTORY_PREFIX):
            return
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if _is_private(directory) and not path.exists():
            write_wrapper(path, runsc)


async def _remove_snapshots(client: Client, snapshotter: str) -> None:
    asked = snapshots_pb2.ListSnapshotsRequest(snapshotter=snapshotter, filters=[_OWNED])
    pages = await client.in_thread(lambda _: [*client.stream(Calls.list_snapshots, asked, seconds=30)])
    for snapshot in (snapshot for page in pages for snapshot in page.info):
        # What is committed belongs to an image, no matter which process has unpacked it.
        if snapshot.kind != snapshots_pb2.COMMITTED and is_orphan(snapshot.labels[OWNER_LABEL]):
            await _quietly(
                client.call(
                    Calls.remove_snapshot,
                    snapshots_pb2.RemoveSnapshotRequest(snapshotter=snapshotter, key=snapshot.name),
                ),
                snapshot.name,
            )


async def _remove_leases(client: Client) -> None:
    found = await client.call(Calls.list_leases, leases_pb2.ListRequest(filters=[_OWNED]))
    for lease in found.leases:
        if is_orphan(lease.labels[OWNER_LABEL]):
            await _quietly(client.call(Calls.delete_lease, leases_pb2.DeleteRequest(id=lease.id)), lease.id)


async def _quietly(removing: Awaitable[object], what: str) -> None:
    try:
        await removing
    except SandboxUnavailableError as error:
        if status_of(error) != "NOT_FOUND":
            logger.warning("%s of a dead host cannot be removed: %s", what, error)


def _remove_directories() -> None:
    """Remove the pipes of dead hosts, and what else they had in the temp directory."""
    for directory in Path(tempfile.gettempdir()).glob(f"{DIRECTORY_PREFIX}*"):
        with suppress(OSError):
            if is_orphan(owner_of(directory.name, DIRECTORY_PREFIX)) and _is_private(directory):
                shutil.rmtree(directory)


def _is_private(directory: Path) -> bool:
    """Whether it is a directory that only this user has a hand in. Raises OSError."""
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
