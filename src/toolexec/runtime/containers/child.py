"""Containers that are child processes of ours: what the engines without a daemon share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from toolexec.process.cgroup import Group
from toolexec.process.child import Child, to_the_end
from toolexec.process.stream import Pipes
from toolexec.runtime.containers.engine import Container, Exit

__all__ = ["ChildContainer", "Guard", "run_trial"]

logger: logging.Logger = logging.getLogger(__name__)
_MOST_OUTPUT: Final = 4096


class Guard(Protocol):
    """Looks after bounds of a container that its control group does not hold."""

    async def broken(self) -> str:
        """Wait until the container must be ended, and return the bound that is broken: `memory`, `pids`, ..."""
        ...

    async def cpu_seconds(self) -> float | None:
        """Return the CPU time that the container has used; None if that is not known here."""
        ...


class ChildContainer:
    """A container whose outermost process is *child*; see `Container` and `Killable`.

    It is in the control group *group*, if there is one, and *watch* looks after what that does not hold. *remove* takes
    away what was made for it; it is called once, in a thread, when nothing of the container runs any more.
    """

    def __init__(
        self,
        child: Child,
        group: Group | None,
        *,
        id: str = "",
        watch: Guard | None = None,
        remove: Callable[[], None] | None = None,
    ) -> None:
        self._child = child
        self._group = group
        self._id = id or str(child.pid)
        self._watch = watch
        self._remove = remove
        self._cpu: float | None = None
        self._ended = asyncio.create_task(self._end())
        self._closing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """What its engine calls it, or the number of its outermost process."""
        return self._id

    @property
    def pid(self) -> int:
        """The number of its outermost process."""
        return self._child.pid

    @property
    def stream(self) -> Pipes:
        """Stdin and stdout of its first process."""
        return self._child.stream

    def said(self) -> str:
        """Implement `Container.said`; what the program that made it has to say is in it, too."""
        return self._child.stderr_tail().decode("utf-8", "replace")

    async def wait(self) -> Exit:
        """Implement `Container.wait`."""
        return await asyncio.shield(self._ended)

    async def cpu_seconds(self) -> float | None:
        """Implement `Container.cpu_seconds`."""
        if not self._ended.done():
            used = self._group.cpu_seconds() if self._group is not None else None
            if used is None and self._watch is not None:
                used = await self._watch.cpu_seconds()
            self._cpu = used if used is not None else self._cpu
        return self._cpu

    def kill(self) -> None:
        """Implement `Killable.kill`."""
        self._child.kill()

    async def aclose(self) -> None:
        """Implement `Container.aclose`."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await to_the_end(self._closing)

    async def _end(self) -> Exit:
        broken = await self._until_gone()
        end = Exit(code=await self._child.wait())
        if self._group is None:
            return replace(end, oom=broken == "memory", pids=broken == "pids")
        self._cpu = self._group.cpu_seconds()
        oom, pids = self._group.oom_kills() > 0, self._group.refusals() > 0
        return replace(end, oom=oom or broken == "memory", oom_told=True, pids=pids or broken == "pids")

    async def _until_gone(self) -> str:
        """Wait until it has ended; gives the bound that it was ended for, if there was one."""
        if self._watch is None:
            await self._child.wait()
            return ""
        gone = asyncio.create_task(self._child.wait())
        watching = asyncio.create_task(self._watch.broken())
        await asyncio.wait({gone, watching}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            watching.cancel()
            await asyncio.wait({watching})
            return ""
        self._child.kill()
        await gone
        try:
            return watching.result()
        except Exception:  # what cannot be watched must not run
            logger.exception("the container %s was stopped, as it could not be watched", self._id)
            return ""

    async def _close(self) -> None:
        if self._group is not None:
            await asyncio.to_thread(self._group.kill)
        await self._child.aclose()
        await self._ended
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        """Remove what the kernel has first, with all that runs."""
        if self._group is not None:
            self._group.remove()
        if self._remove is not None:
            self._remove()


async def run_trial(container: Container, seconds: float) -> tuple[str, int | None]:
    """Return the first 4,096 bytes of what a container writes to stdout, and its exit code: None when it did not end
    within *seconds*. The container is closed then; what it wrote to stderr can still be asked for."""
    output = b""
    code: int | None = None
    try:
        async with asyncio.timeout(seconds):
            while data := await container.stream.read():
                output = (output + data)[:_MOST_OUTPUT]
            code = (await container.wait()).code
    except TimeoutError:
        code = None
    finally:
        await container.aclose()
    return output.decode("utf-8", "replace"), code
