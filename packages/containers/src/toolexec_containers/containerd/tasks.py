"""One container of containerd's: its record, root file system, task and pipes, made in order and removed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import Final

from toolexec.containers import DaemonContainer, group_at, kill_members, open_member
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import Stream, to_the_end
from toolexec.sandbox import Exit
from toolexec_containers.containerd.api import mount_pb2, tasks_pb2
from toolexec_containers.containerd.client import Calls, Client, is_lost, status_of
from toolexec_containers.containerd.pipes import Pipes
from toolexec_containers.containerd.removal import kill_task, remove_container
from toolexec_containers.containerd.spec import Plan

logger: logging.Logger = logging.getLogger(__name__)
_MAKES_TASK: Final = 120.0
_ENDS: Final = 20.0
_AGAIN: Final = 0.1
_BACK: Final = 1.5
"""How many seconds a daemon that died may take to be back, as one that is restarted is; its programs end then."""
_THERE: Final = 0.5
"""A call that lasted so many seconds was one to a daemon that was there."""
_KILLED: Final = 137


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
        created = await self._client.call(Calls.create_task, plan.task(mounts, pipes), seconds=_MAKES_TASK)
        self._process = open_member(created.pid, plan.id)
        if self._given_up:
            return
        await self._client.call(Calls.start_task, tasks_pb2.StartRequest(container_id=plan.id), seconds=_MAKES_TASK)
        pipes.started()
        self._watching = asyncio.create_task(self._watch())

    async def _prepare(self) -> Iterable[mount_pb2.Mount]:
        """Make the record, then its root file system, which the record keeps from being collected; gives its mounts."""
        await self._client.call(Calls.create_container, self._plan.record())
        if self._given_up:
            return ()
        return (await self._client.call(Calls.prepare_snapshot, self._plan.snapshot())).mounts

    async def cpu_seconds(self) -> float | None:
        """Implement `Container.cpu_seconds`."""
        return await asyncio.to_thread(self._group.cpu_seconds)

    async def _watch(self) -> None:
        """Wait for the end. A daemon that is back within `_BACK` is asked again: the container has not noticed. What
        runs without one is killed, as it could be neither seen nor stopped."""
        asked = tasks_pb2.WaitRequest(container_id=self.id)
        failing: float | None = None
        while True:
            began = monotonic()
            try:
                answer = await self._client.call(Calls.wait_task, asked, seconds=None)
            except SandboxUnavailableError as error:
                now = monotonic()
                if failing is None or now - began > _THERE:
                    failing = now
                if not is_lost(error) or status_of(error) == "CANCELLED" or now - failing > _BACK:
                    await asyncio.to_thread(kill_members, self.id)
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
        elif await kill_task(self._client, self.id):  # the daemon does not do it
            await asyncio.to_thread(kill_members, self.id)
        if self._watching is not None:
            await asyncio.wait({self._gone}, timeout=_ENDS)
