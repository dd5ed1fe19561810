"""One container of a Docker daemon: how it ends, what it uses, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from typing import Final

from toolexec.containers import DaemonContainer, JSONObject, kill_members, now_of_boot, open_member, uncut
from toolexec.machines import pauses, to_the_end
from toolexec.sandbox import Exit
from toolexec_containers.docker.api import REMOVAL, DockerAPI
from toolexec_containers.docker.attach import AttachedStream
from toolexec_containers.docker.checks import why_lost

logger: logging.Logger = logging.getLogger(__name__)
_SETTLE: Final = 10.0
"""How many seconds a step of the daemon may go on when its caller is cancelled: it would do half of it unseen."""
_GIVE_UP: Final = 0.5
"""How many seconds one that has hung up may take to remove a container."""
_REMOVE: Final = REMOVAL
_LAST_WORDS: Final = 1.0
_KILLED: Final = 137
_LOOKS: Final = 5
"""How often a daemon is asked whether a killed container had no memory left, within a third of a second."""


class DockerContainer(DaemonContainer):
    """A container of a Docker daemon; see `Container`. `open` starts it."""

    def __init__(self, api: DockerAPI, left: set[str]) -> None:
        super().__init__(f"toolexec-{secrets.token_hex(8)}", left)
        self._api = api
        self._stream: AttachedStream | None = None
        self._made = ""
        self._proving: asyncio.Task[None] | None = None
        self._here = False
        self._lost = False

    async def open(self, body: JSONObject) -> None:
        """Make it by the request *body*, and start it; nothing of it stays if that fails. Raises OSError and
        DockerError."""
        try:
            self._made = await uncut(self._api.create(self.id, body), seconds=_SETTLE)
            self._stream = await self._api.attach(self.id)
            asked = now_of_boot()
            await uncut(self._api.start(self.id), seconds=_SETTLE)
        except BaseException as error:
            self._left.add(self.id)
            await to_the_end(asyncio.create_task(self._give_up(is_lost=isinstance(error, OSError))))
            raise
        if self._api.host.path:
            self._proving = asyncio.create_task(self._prove(asked))

    async def _prove(self, asked: float) -> None:
        """Find out whether it runs on this machine: a socket may lead to another one, whose word for an ID or for the
        number of a process must end nothing here. Its process is looked for, which began after it was *asked* for."""
        try:
            process = open_member(int((await self._api.inspect(self.id))["State"]["Pid"]), self._made, since=asked)
        except Exception as error:
            logger.debug("it is not known where the container %s runs: %s", self.id, error)
            return
        if process >= 0:
            os.close(process)
            self._here = True

    async def _kill_here(self) -> None:
        """Kill what runs of it on this machine, without the daemon; nothing where it is not proven that it is here."""
        if self._proving is not None:
            await asyncio.wait({self._proving}, timeout=_GIVE_UP)
        if self._here:
            await asyncio.to_thread(kill_members, self._made)

    async def _give_up(self, *, is_lost: bool) -> None:
        """Remove what there is of it. A lost daemon gets less time than after a run: the caller waits."""
        if await self._api.remove(self.id, _GIVE_UP if is_lost else _REMOVE):
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
            oom = await self._ran_out(code)
        except Exception as error:
            self._lost = isinstance(error, OSError)
            if self._closing is None:
                lost = why_lost(error, self._api.host)
        self._end(Exit(code=code, oom=oom, lost=lost))

    async def _ran_out(self, code: int) -> bool:
        """Return whether it was killed for its memory: the daemon gets to know that by an event of its own, which may
        come after that of the end on a busy machine. So it is asked again about one that was killed."""
        waits = pauses(0.02, 0.16)
        for left in reversed(range(_LOOKS if code == _KILLED else 1)):
            state: JSONObject = (await self._api.inspect(self.id))["State"]
            if state.get("OOMKilled"):
                return True
            if not left or self._closing is not None:
                break
            await asyncio.sleep(next(waits))
        return False

    async def cpu_seconds(self) -> float | None:
        """Implement `Container.cpu_seconds`."""
        try:
            return await self._api.cpu_seconds(self.id)
        except Exception as error:
            logger.debug("the CPU time of the container %s cannot be told: %s", self.id, error)
            return None

    async def _close(self) -> None:
        """For ten seconds at most. A daemon that has hung up is not waited for: what runs on this machine is killed
        without it, and the container is removed when the daemon is back."""
        if not await self._api.remove(self.id, _GIVE_UP if self._lost else _REMOVE):
            self._left.add(self.id)
            await self._kill_here()
        if self._proving is not None:
            self._proving.cancel()
            await asyncio.wait({self._proving})
        await self.stream.aclose()
        await self._stop_watching(Exit(), _LAST_WORDS)
