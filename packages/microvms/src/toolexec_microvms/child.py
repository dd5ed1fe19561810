"""What machines share whose VMM is a child process."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from toolexec.machines import Group, Stream, to_the_end
from toolexec.sandbox import Child
from toolexec_microvms.machine import MachineEnd

S = TypeVar("S", bound=Stream)


class ChildMachine(ABC, Generic[S]):
    """The part of a `Machine` that is the same for all: its VMM runs in *child*, and in the control group *group* if
    there is one. Belongs to the event loop that it is made on.

    A VMM adds `_release`, and, where they differ, `said`, `_exit_code` and `_notice_end`.
    """

    def __init__(self, id: str, child: Child, group: Group | None, control: S, stdio: S) -> None:
        self._id = id
        self._child = child
        self._group = group
        self._control = control
        self._stdio = stdio
        self._cpu: float | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ended = asyncio.create_task(self._end())

    @property
    def id(self) -> str:
        """Implement `Machine.id`."""
        return self._id

    @property
    def pid(self) -> int:
        """The number of its outermost process, which ends as the VMM does."""
        return self._child.pid

    @property
    def control(self) -> S:
        """Implement `Machine.control`."""
        return self._control

    @property
    def stdio(self) -> S:
        """Implement `Machine.stdio`."""
        return self._stdio

    def said(self) -> str:
        """Implement `Machine.said`: the end of what was written to stderr."""
        return self._child.stderr_tail().decode("utf-8", "replace")

    async def wait(self) -> MachineEnd:
        """Implement `Machine.wait`."""
        return await asyncio.shield(self._ended)

    async def cpu_seconds(self) -> float | None:
        """Implement `Machine.cpu_seconds`."""
        if not self._ended.done() and self._group is not None:
            self._cpu = self._group.cpu_seconds() or self._cpu
        return self._cpu

    def kill(self) -> None:
        """Implement `Machine.kill`."""
        self._child.kill()

    async def aclose(self) -> None:
        """Implement `Machine.aclose`."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await to_the_end(self._closing)

    def _exit_code(self, code: int) -> int:
        """Return the exit code of the VMM, where its outermost process ended with *code*."""
        return code

    def _notice_end(self) -> None:
        """Do what must be done as soon as the VMM has ended."""

    @abstractmethod
    async def _release(self) -> None:
        """Close and remove what is left, once the VMM has ended; called once. Does not raise."""

    async def _end(self) -> MachineEnd:
        code = self._exit_code(await self._child.wait())
        oom = False
        if self._group is not None:
            await asyncio.to_thread(self._group.kill)  # the VMM too, where only its outermost process was killed
            self._cpu = self._group.cpu_seconds() or self._cpu
            oom = self._group.oom_kills() > 0
        self._notice_end()
        return MachineEnd(code=code, oom=oom)

    async def _close(self) -> None:
        if self._group is not None:
            await asyncio.to_thread(self._group.kill)
        await self._child.aclose()
        await self._ended
        await self._release()
