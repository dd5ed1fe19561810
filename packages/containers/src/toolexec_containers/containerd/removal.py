"""Removes containers of containerd's with all that belongs to them; and what hosts that are dead have left, in a
namespace and of their pipes in the temp directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from toolexec.containers import OWNER_LABEL, is_orphan, open_member
from toolexec.errors import SandboxUnavailableError
from toolexec_containers.containerd.api import containers_pb2, leases_pb2, options_pb2, snapshots_pb2, tasks_pb2
from toolexec_containers.containerd.client import Calls, Client, is_lost, status_of
from toolexec_containers.containerd.runtimes import DIRECTORY_PREFIX, RUNTIMES, write_wrapper
from toolexec_containers.containerd.spec import record_of

logger: logging.Logger = logging.getLogger(__name__)
ID_PREFIX: Final = "toolexec-"
_OWNED: Final = f'labels."{OWNER_LABEL}"'
_ENDS: Final = 20.0
_PAUSES: Final = (0, 0.05, 0.2, 0.5, 1.0, 2.0)


async def remove_container(
    client: Client, id: str, snapshotter: str, *, with_task: bool = True, killed: bool = False
) -> list[str]:
    """Remove the container *id* and what belongs to it; gives what went wrong. What is not there is fine.

    *killed* says that its processes have been killed already; *with_task* that there may be some.
    """
    if with_task:
        problem = await _remove_task(client, id, killed=killed)
        if problem:
            return [problem]
    problems = await asyncio.gather(
        _problem(client.call(Calls.delete_container, containers_pb2.DeleteContainerRequest(id=id))),
        _problem(
            client.call(Calls.remove_snapshot, snapshots_pb2.RemoveSnapshotRequest(snapshotter=snapshotter, key=id))
        ),
    )
    return [problem for problem in problems if problem]


async def _remove_task(client: Client, id: str, *, killed: bool) -> str:
    """Delete the task *id*, after killing it if it runs; gives what went wrong.

    Tried for some seconds: of a task whose shim has died containerd itself removes the rest.
    """
    problem = ""
    for pause in _PAUSES:
        await asyncio.sleep(pause)
        if not killed:
            problem = await kill_task(client, id)
        try:
            await client.call(Calls.delete_task, tasks_pb2.DeleteTaskRequest(container_id=id))
        except SandboxUnavailableError as error:
            if status_of(error) == "NOT_FOUND":
                return ""
            problem = problem or error.message
            if is_lost(error):
                break
            killed = False  # it may say that it still runs
        else:
            return ""
    return problem


async def kill_task(client: Client, id: str) -> str:
    """Kill the first process of the task *id*, by its number if that is to be seen from here, which needs no runtime.

    Waits for its end; gives what went wrong.
    """
    try:
        found = await client.call(Calls.get_task, tasks_pb2.GetRequest(container_id=id))
    except SandboxUnavailableError as error:
        return "" if status_of(error) == "NOT_FOUND" else error.message
    process = open_member(found.process.pid, id)
    if process >= 0:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        os.close(process)
    else:
        kill = tasks_pb2.KillRequest(container_id=id, signal=signal.SIGKILL, all=True)
        problem = await _problem(client.call(Calls.kill_task, kill))
        if problem:
            return problem
    return await _problem(client.call(Calls.wait_task, tasks_pb2.WaitRequest(container_id=id), seconds=_ENDS))


async def _problem(doing: Awaitable[object]) -> str:
    """Why something could not be done; "" if it was, or was done before."""
    try:
        await doing
    except SandboxUnavailableError as error:
        return "" if status_of(error) == "NOT_FOUND" else error.message
    return ""


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
    """Return a record for a task that has lost its own: without one containerd does nothing to a task."""
    record = record_of(id, {OWNER_LABEL: owner}, RUNTIMES["runc"].name, {})
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
    """Return whether it is a directory that only this user has a hand in. Raises OSError."""
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
