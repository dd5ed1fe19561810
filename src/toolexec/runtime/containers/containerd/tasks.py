"""One container of containerd's: its record, root file system, task and pipes, made in order and removed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from google.protobuf.any_pb2 import Any as Packed

from toolexec.errors import SandboxUnavailableError
from toolexec.model.json_value import JSONObject
from toolexec.process.cgroup import group_at
from toolexec.process.child import to_the_end
from toolexec.process.stream import Stream
from toolexec.runtime.containers.containerd.api import containers_pb2, options_pb2, snapshots_pb2, tasks_pb2
from toolexec.runtime.containers.containerd.client import Calls, Client, is_lost, status_of
from toolexec.runtime.containers.containerd.pipes import Pipes
from toolexec.runtime.containers.containerd.runtimes import Runtime
from toolexec.runtime.containers.daemon import DaemonContainer
from toolexec.runtime.containers.engine import Exit

__all__ = ["SPEC_TYPE", "Plan", "TaskContainer", "remove_container"]

logger: logging.Logger = logging.getLogger(__name__)
SPEC_TYPE: Final = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
"""What containerd calls the content of config.json."""
_RUNC_OPTIONS: Final = "containerd.runc.v1.Options"
_MAKES_TASK: Final = 120.0
_ENDS: Final = 20.0
_AGAIN: Final = 0.25
_PAUSES: Final = (0, 0.05, 0.2, 0.5, 1.0, 2.0)
_PATIENCE: Final = 15.0
_KILLED: Final = 137


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a container is made from.

    `spec` is config.json, `parent` the snapshot of its image, `user` the numbers of user and group that own its pipes,
    `directory` where its own pipes are put, and `cgroup` its path.
    """

    id: str
    image: str
    parent: str
    snapshotter: str
    runtime: Runtime
    spec: JSONObject
    directory: Path
    cgroup: str
    user: tuple[int, int] = (0, 0)
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


class TaskContainer(DaemonContainer):
    """A container; see `Container`. `open` starts it, `aclose` must be called in the end, even if that failed."""

    def __init__(self, client: Client, plan: Plan, left: set[str]) -> None:
        super().__init__(plan.id, left)
        self._client = client
        self._plan = plan
        self._pipes: Pipes | None = None
        self._group = group_at(plan.cgroup)
        self._process = -1
        self._hanging_up: asyncio.Task[None] | None = None
        self._task_asked = False
        self._given_up = False

    @property
    def stream(self) -> Stream:
        """See `Container.stream`."""
        assert self._pipes is not None
        return self._pipes

    def said(self) -> str:
        """Implement `Container.said`."""
        return self._pipes.said() if self._pipes is not None else ""

    async def open(self) -> None:
        """Start it. Raises SandboxUnavailableError; a cancellation takes effect between two steps.

        A call that is given up half-way may still be done by the daemon later, when its outcome is not read.
        """
        opening = asyncio.create_task(self._open())
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._given_up = True
            with suppress(SandboxUnavailableError, OSError):
                await to_the_end(opening)
            raise

    async def _open(self) -> None:
        plan = self._plan
        made = asyncio.create_task(asyncio.to_thread(Pipes, plan.directory / plan.id))
        try:
            mounts = await self._prepare()
        finally:
            await asyncio.wait({made})
            if made.exception() is None:
                self._pipes = made.result()
        pipes = made.result()
        pipes.on_close = self._close_stdin
        if self._given_up:
            return
        self._task_asked = True
        created = await self._client.call(
            Calls.create_task,
            tasks_pb2.CreateTaskRequest(
                container_id=plan.id,
                rootfs=mounts,
                stdin=pipes.path("stdin"),
                stdout=pipes.path("stdout"),
                stderr=pipes.path("stderr"),
                options=self._options(),
            ),
            seconds=_MAKES_TASK,
        )
        self._process = _process_of(created.pid, plan.id)
        if self._given_up:
            return
        await self._client.call(Calls.start_task, tasks_pb2.StartRequest(container_id=plan.id), seconds=_MAKES_TASK)
        pipes.started()
        self._watching = asyncio.create_task(self._watch())

    async def _prepare(self) -> Any:
        """Make the record, then its root file system, which the record keeps from being collected; gives its mounts."""
        plan = self._plan
        spec = json.dumps(plan.spec, separators=(",", ":")).encode()
        record = containers_pb2.Container(
            id=plan.id,
            labels=dict(plan.labels),
            image=plan.image,
            runtime=containers_pb2.Container.Runtime(name=plan.runtime.name, options=self._options()),
            spec=Packed(type_url=SPEC_TYPE, value=spec),
            snapshotter=plan.snapshotter,
            snapshot_key=plan.id,
        )
        await self._client.call(Calls.create_container, containers_pb2.CreateContainerRequest(container=record))
        if self._given_up:
            return ()
        prepared = await self._client.call(
            Calls.prepare_snapshot,
            snapshots_pb2.PrepareSnapshotRequest(
                snapshotter=plan.snapshotter, key=plan.id, parent=plan.parent, labels=dict(plan.labels)
            ),
        )
        return prepared.mounts

    def _options(self) -> Packed | None:
        """What the shim of runc understands; others have options of their own kinds."""
        runtime = self._plan.runtime
        if not runtime.takes_runc_options:
            return None
        uid, gid = self._plan.user
        options = options_pb2.Options(binary_name=runtime.binary, io_uid=uid, io_gid=gid)
        return Packed(type_url=_RUNC_OPTIONS, value=options.SerializeToString())

    async def cpu_seconds(self) -> float | None:
        """Implement `Container.cpu_seconds`."""
        return await asyncio.to_thread(self._group.cpu_seconds)

    async def _watch(self) -> None:
        """Wait for the end. A daemon that is gone is asked again when it is back: the container has not noticed."""
        asked = tasks_pb2.WaitRequest(container_id=self.id)
        silent = 0.0
        while True:
            try:
                answer = await self._client.call(Calls.wait_task, asked, seconds=None)
            except SandboxUnavailableError as error:
                if not is_lost(error) or status_of(error) == "CANCELLED":
                    self._end(Exit(lost=error.message))
                    return
                # Without a look at the process it is unknown whether it still runs.
                silent = silent + _AGAIN if self._process < 0 or _has_ended(self._process) else 0.0
                if silent > (_PATIENCE if self._process < 0 else _AGAIN):
                    self._end(Exit(lost=error.message))
                    return
                await asyncio.sleep(_AGAIN)
                continue
            oom, pids = await asyncio.to_thread(lambda: (self._group.oom_kills(), self._group.refusals()))
            self._end(Exit(code=answer.exit_status, oom=oom > 0, pids=pids > 0))
            return

    def _end(self, exit: Exit) -> None:
        super()._end(exit)
        if self._pipes is not None:
            self._pipes.ended()

    def _close_stdin(self) -> None:
        """The shim has an own end of stdin, so that it outlives ours: have it closed as well."""
        if self._watching is None or self._gone.done() or self._closing is not None:
            return

        async def _hang_up() -> None:
            with suppress(SandboxUnavailableError):  # it is gone already
                await self._client.call(
                    Calls.close_stdin, tasks_pb2.CloseIORequest(container_id=self.id, stdin=True), seconds=_ENDS
                )

        self._hanging_up = asyncio.create_task(_hang_up())

    async def _close(self) -> None:
        pipes = self._pipes
        if pipes is not None:
            pipes.end()
        problems: list[str] = []
        if self._task_asked:
            await self._kill()
        if self._hanging_up is not None:
            await asyncio.wait({self._hanging_up})
        problems += await remove_container(
            self._client, self.id, self._plan.snapshotter, with_task=self._task_asked, killed=True
        )
        await self._stop_watching(Exit(code=_KILLED))
        if self._process >= 0:
            os.close(self._process)
            self._process = -1
        if pipes is not None:
            pipes.silence()
            try:
                await asyncio.to_thread(pipes.remove)
            except OSError as error:
                problems.append(str(error))
        if problems:
            self._left.add(self.id)
            logger.warning("a container could not be removed in full: %s: %s", self.id, "; ".join(problems))

    async def _kill(self) -> None:
        """Kill the first process, which the kernel lets no other of its PID namespace survive, and wait for the end."""
        if self._gone.done() and not self._gone.result().lost:
            return
        if self._process >= 0:
            with suppress(OSError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
        else:
            await _kill_task(self._client, self.id)
        if self._watching is not None:
            await asyncio.wait({self._gone}, timeout=_ENDS)


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
            problem = await _kill_task(client, id)
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


async def _kill_task(client: Client, id: str) -> str:
    """Kill the first process of the task *id*, by its number if that is to be seen from here, which needs no runtime.

    Waits for its end; gives what went wrong.
    """
    try:
        found = await client.call(Calls.get_task, tasks_pb2.GetRequest(container_id=id))
    except SandboxUnavailableError as error:
        return "" if status_of(error) == "NOT_FOUND" else error.message
    process = _process_of(found.process.pid, id)
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


def _process_of(pid: int, id: str) -> int:
    """A descriptor of the first process of the container *id*; -1 if it is not seen from here, or gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
    with suppress(OSError):
        # The daemon may count processes in another namespace: the number would be that of a stranger.
        if f"/{id}\n" in Path(f"/proc/{pid}/cgroup").read_text("ascii", "replace"):
            return descriptor
    os.close(descriptor)
    return -1


def _has_ended(process: int) -> bool:
    """Whether a process that is held by a descriptor is dead."""
    ended = select.poll()
    ended.register(process, select.POLLIN)
    return bool(ended.poll(0))
