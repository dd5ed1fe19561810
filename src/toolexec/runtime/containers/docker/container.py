"""One container of a Docker daemon: how it ends, what it uses, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import logging
import secrets
from time import monotonic
from typing import Final

from toolexec.model.json_value import JSONObject
from toolexec.process.cgroup import cgroup_cpu_seconds
from toolexec.process.child import to_the_end, uncut
from toolexec.runtime.containers.daemon import DaemonContainer
from toolexec.runtime.containers.docker.api import DockerAPI, DockerError
from toolexec.runtime.containers.docker.attach import AttachedStream
from toolexec.runtime.containers.docker.checks import why_lost
from toolexec.runtime.containers.engine import Exit

__all__ = ["DockerContainer", "remove"]

logger: logging.Logger = logging.getLogger(__name__)
_SETTLE: Final = 10.0
"""How many seconds a step of the daemon may go on when its caller is cancelled: it would do half of it unseen."""
_REMOVE: Final = 10.0
_GIVE_UP: Final = 0.5
_LAST_WORDS: Final = 1.0
_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5


class DockerContainer(DaemonContainer):
    """A container of a Docker daemon; see `Container`. `open` starts it."""

    def __init__(self, api: DockerAPI, left: set[str]) -> None:
        super().__init__(f"toolexec-{secrets.token_hex(8)}", left)
        self._api = api
        self._stream: AttachedStream | None = None
        self._process: tuple[int, str] | None = None

    async def open(self, body: JSONObject) -> None:
        """Make it by the request *body*, and start it; nothing of it stays if that fails. Raises OSError and
        DockerError."""
        try:
            await uncut(self._api.create(self.id, body), seconds=_SETTLE)
            self._stream = await self._api.attach(self.id)
            await uncut(self._api.start(self.id), seconds=_SETTLE)
        except BaseException as error:
            self._left.add(self.id)
            # A daemon that is gone is not waited for as long as after a run: the caller waits for the error.
            seconds = _GIVE_UP if isinstance(error, OSError) else _REMOVE
            await to_the_end(asyncio.create_task(self._give_up(seconds)))
            raise

    async def _give_up(self, seconds: float) -> None:
        if await remove(self._api, self.id, seconds):
            self._left.discard(self.id)
        if self._stream is not None:
            await self._stream.aclose()

    @property
    def stream(self) -> AttachedStream:
        """See `Container.stream`."""
        assert self._stream is not None
        return self._stream

    def said(self) -> str:
        """Implement `Container.said`."""
        return self.stream.said()

    async def wait(self) -> Exit:
        """Implement `Container.wait`. Docker does not report that processes were refused for their number."""
        if self._watching is None and self._closing is None:
            self._watching = asyncio.create_task(self._watch())
        return await super().wait()

    async def _watch(self) -> None:
        """The exit code of a container that is gone when it is looked at means little: Podman may call it 0."""
        code: int | None = None
        oom = False
        lost = ""
        try:
            code = await self._api.wait(self.id)
            state: JSONObject = (await self._api.inspect(self.id))["State"]
            oom = bool(state.get("OOMKilled"))
        except Exception as error:
            if self._closing is None:
                lost = why_lost(error, self._api.host)
        self._end(Exit(code=code, oom=oom, lost=lost))

    async def cpu_seconds(self) -> float | None:
        """Implement `Container.cpu_seconds`. Quick with a daemon on this machine; others take a second or two."""
        try:
            if self._api.host.path:
                if self._process is None:
                    state = await self._api.inspect(self.id)
                    self._process = int(state["State"]["Pid"]), str(state["Id"])
                used = cgroup_cpu_seconds(*self._process)
                if used is not None:
                    return used
            return await self._api.cpu_seconds(self.id)
        except Exception as error:
            logger.debug("the CPU time of the container %s cannot be told: %s", self.id, error)
            return None

    async def _close(self) -> None:
        """For ten seconds at most."""
        if not await remove(self._api, self.id):
            self._left.add(self.id)
        await self.stream.aclose()
        await self._stop_watching(Exit(), _LAST_WORDS)


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
