"""What the launchers of engines share: checks and sweeps that never raise, and containers that are child processes."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import ClassVar, Final, Protocol

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.errors import ConfigurationError, MissingExtraError, SandboxUnavailableError, ToolExecError
from toolexec.process.cgroup import Group
from toolexec.process.child import Child
from toolexec.process.settling import to_the_end
from toolexec.process.stream import Pipes
from toolexec.runtime.base import Availability
from toolexec.runtime.claims import claim_resources
from toolexec.runtime.containers.engine import Container, Exit

logger: logging.Logger = logging.getLogger(__name__)
_MOST_OUTPUT: Final = 4096


class Launcher(ABC):
    """The part of a `ContainerEngine` that is the same for all.

    An engine adds `_check`, `resolve`, `start`, `_sweep` and `aclose`.
    """

    client: ClassVar[str] = ""
    """The package that talks to its daemon, if it needs one."""
    drops: tuple[str, ...] = ()
    """See `ContainerEngine.drops`: nothing is left to the guest."""

    def __init__(self) -> None:
        self._held = LimitsEnforced()
        """What limits hold; `_check` finds it out."""
        self._version = ""
        """That of its program, also where a check then finds something wrong."""

    @property
    def left(self) -> Collection[str]:
        """See `ContainerEngine.left`: without a daemon that could be away there are none."""
        return ()

    async def check(self) -> Availability:
        """Implement `ContainerEngine.check`."""
        self._version = ""
        try:
            found = await self._check()
        except MissingExtraError as error:
            found = Availability(ok=False, reason=f"{self.client} is not installed", remedy=error.message)
        except (ConfigurationError, SandboxUnavailableError) as error:
            found = lacking(error)
        except Exception as error:
            logger.exception("the check of %s failed", type(self).__name__)
            found = Availability(ok=False, reason=f"the check failed: {error}")
        return replace(found, version=found.version or self._version)

    @abstractmethod
    async def _check(self) -> Availability:
        """Try the real thing; set `_held`, and `_version` as soon as it is known. Raises what is wrong."""

    def enforces(self, limits: Limits) -> LimitsEnforced:
        """Implement `ContainerEngine.enforces`."""
        return self._held

    async def sweep(self) -> None:
        """Implement `ContainerEngine.sweep`."""
        try:
            await self._sweep()
        except Exception:
            logger.exception("what dead processes have left cannot be removed by %s", type(self).__name__)

    @abstractmethod
    async def _sweep(self) -> None:
        """Remove what dead processes have left. Raises whatever comes in between."""


def unavailable(reason: str, remedy: str) -> SandboxUnavailableError:
    """Return the error of an engine that cannot start anything, for *reason*, which *remedy* fixes ("" for none)."""
    text = f"{reason}; {remedy}" if remedy else reason
    return SandboxUnavailableError(text, details={"reason": reason, "remedy": remedy})


def refused(found: Availability) -> SandboxUnavailableError:
    """Return the error of an engine that *found* says cannot start anything."""
    return unavailable(found.reason, found.remedy)


def lacking(error: ToolExecError, version: str = "") -> Availability:
    """Return the state of something that *error* keeps from being used; *version* is that of what was found. It is a
    fault, for which no other sandbox may stand in, where others may have put a directory in place of this user's."""
    reason, fix = str(error.details.get("reason", error.message)), str(error.details.get("remedy", ""))
    is_fault = bool(error.details.get("foreign"))
    return Availability(ok=False, reason=reason, remedy=fix, version=version, is_fault=is_fault)


def held_by(controllers: Collection[str], *, pids: bool, disk: bool) -> LimitsEnforced:
    """Return the limits of a container that control groups with these *controllers* hold, by their names in version 1.

    *pids* says that its processes are counted elsewhere too, *disk* that all it can write to has a size: with mounts as
    `tmpfs_mounts` makes them, say. Neither has a default, as control groups hold no disk at all.

    >>> held_by(("memory",), pids=False, disk=False).to_dict()["disk"]
    False
    """
    return claim_resources(
        memory="memory" in controllers,
        cpu="cpuacct" in controllers,
        cpus="cpu" in controllers,
        pids=pids or "pids" in controllers,
        disk=disk,
    )


class BaseContainer(ABC):
    """The part of a `Container` that is the same for all: it is closed once, for all who ask for it."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._closing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """What its engine calls it."""
        return self._id

    async def aclose(self) -> None:
        """Implement `Container.aclose`."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await to_the_end(self._closing)

    @abstractmethod
    async def _close(self) -> None:
        """Kill it and remove everything that was made for it; called once. Does not raise."""


class Guard(Protocol):
    """Looks after bounds of a container that its control group does not hold."""

    async def broken(self) -> str:
        """Wait until the container must be ended, and return the bound that is broken: `memory`, `pids`, ..."""
        ...

    async def cpu_seconds(self) -> float | None:
        """Return the CPU time that the container has used; None if that is not known here."""
        ...


class ChildContainer(BaseContainer):
    """A container whose outermost process is *child*; see `Container` and `Killable`. Its ID is *id*, or the number of
    that process.

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
        super().__init__(id or str(child.pid))
        self._child = child
        self._group = group
        self._watch = watch
        self._remove = remove
        self._cpu: float | None = None
        self._ended = asyncio.create_task(self._end())

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


async def start_child(begin: Callable[[AsyncExitStack], ChildContainer]) -> ChildContainer:
    """Return the container that *begin* makes, without a pause in it, so that no cancellation can come in between.

    If it fails, what it has put on the stack until then is undone. Raises SandboxUnavailableError where the system
    refuses something.
    """
    made = AsyncExitStack()
    try:
        container = begin(made)
    except BaseException as error:
        await to_the_end(asyncio.create_task(made.aclose()))
        if isinstance(error, OSError):
            raise SandboxUnavailableError(f"no container can be started: {error}") from error
        raise
    made.pop_all()
    return container


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
