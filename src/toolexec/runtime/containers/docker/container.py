"""One container of a Docker daemon: how it ends, what it uses, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

from toolexec.process.cgroup import cgroup_cpu_seconds
from toolexec.process.child import to_the_end
from toolexec.runtime.containers.docker.api import DockerAPI, DockerError
from toolexec.runtime.containers.docker.attach import AttachedStream
from toolexec.runtime.containers.docker.host import explain
from toolexec.runtime.containers.engine import Exit

__all__ = ["SETTLE", "DockerContainer", "give_up", "remove"]

logger: logging.Logger = logging.getLogger(__name__)
SETTLE: Final = 10.0
"""How many seconds a step of the daemon may go on when its caller is cancelled: it would do half of it unseen."""

_REMOVE: Final = 10.0
_GIVE_UP: Final = 0.5
_LAST_WORDS: Final = 1.0
_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5


class DockerContainer:
    """A container of a Docker daemon; see `Container`."""

    def __init__(self, api: DockerAPI, name: str, stream: AttachedStream, left: set[str]) -> None:
        """*left* gets the name of the container if it cannot be removed."""
        self._api = api
        self._left = left
        self._name = name
        self._stream = stream
        self._exit: asyncio.Future[Exit] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._process: tuple[int, str] | None = None

    @property
    def id(self) -> str:
        """See `Container.id`."""
        return self._name

    @property
    def stream(self) -> AttachedStream:
        """See `Container.stream`."""
        return self._stream

    def said(self) -> str:
        """Implement `Container.said`."""
        return self._stream.said()

    async def wait(self) -> Exit:
        """Implement `Container.wait`. Docker does not report that processes were refused for their number."""
        if self._exit is None:
            self._exit = asyncio.get_running_loop().create_future()
            if self._closing is None:
                self._watching = asyncio.create_task(self._watch(self._exit))
            else:
                self._exit.set_result(Exit())
        return await asyncio.shield(self._exit)

    async def _watch(self, found: asyncio.Future[Exit]) -> None:
        """The exit code of a container that is gone when it is looked at means little: Podman may call it 0."""
        code: int | None = None
        oom = False
        lost = ""
        try:
            code = await self._api.wait(self._name)
            state: Mapping[str, Any] = (await self._api.inspect(self._name))["State"]
            oom = bool(state.get("OOMKilled"))
        except Exception as error:
            if self._closing is None:
                lost = _why_lost(self._api, error)
        if not found.done():
            found.set_result(Exit(code=code, oom=oom, lost=lost))

    async def cpu_seconds(self) -> float | None:
        """Implement `Container.cpu_seconds`. Quick with a daemon on this machine; others take a second or two."""
        try:
            if self._api.host.path:
                if self._process is None:
                    state = await self._api.inspect(self._name)
                    self._process = int(state["State"]["Pid"]), str(state["Id"])
                used = cgroup_cpu_seconds(*self._process)
                if used is not None:
                    return used
            return await self._api.cpu_seconds(self._name)
        except Exception as error:
            logger.debug("the CPU time of the container %s cannot be told: %s", self._name, error)
            return None

    async def aclose(self) -> None:
        """Implement `Container.aclose`; for ten seconds at most."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await to_the_end(self._closing)

    async def _close(self) -> None:
        if not await remove(self._api, self._name):
            self._left.add(self._name)
        await self._stream.aclose()
        if self._watching is not None:
            await asyncio.wait({self._watching}, timeout=_LAST_WORDS)
            self._watching.cancel()
            await asyncio.wait({self._watching})
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(Exit())


async def remove(api: DockerAPI, name: str, seconds: float = _REMOVE) -> bool:
    """Kill a container and remove it; False, after some seconds and a line in the log, if that cannot be done."""
    ends = monotonic() + seconds
    pause = _PAUSE
    while True:
        try:
            async with asyncio.timeout(max(_PAUSE, ends - monotonic())):
                await api.remove(name)
            return True
        except DockerError as error:
            if error.status == 404:
                return True
            problem: Exception = error  # 409: it is being removed; 500: it has ended meanwhile
        except OSError as error:
            problem = error
        if monotonic() + pause > ends:
            logger.warning("the container %s is not removed: %s", name, problem or type(problem).__name__)
            return False
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def give_up(api: DockerAPI, name: str, stream: AttachedStream | None, error: BaseException) -> bool:
    """Leave nothing of a container that was to be started, which *error* has come between; False if that failed.

    A daemon that is gone is not waited for as long as after a run: the caller waits for the error.
    """
    gone = await remove(api, name, _GIVE_UP if isinstance(error, OSError) else _REMOVE)
    if stream is not None:
        await stream.aclose()
    return gone


def _why_lost(api: DockerAPI, error: Exception) -> str:
    if isinstance(error, OSError):
        return "; ".join(explain(api.host, error))
    if isinstance(error, DockerError) and error.status == 404:
        return "somebody else has removed the container"
    return f"the Docker daemon does not say how it ended: {error}"
