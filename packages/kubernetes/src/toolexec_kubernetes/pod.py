"""One pod: made, by itself or by a Job or a claim, attached to, watched, and removed so that nothing of it stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Any, Final

from toolexec.containers import DaemonContainer, JSONObject, uncut
from toolexec.errors import SandboxError, SandboxUnavailableError
from toolexec.sandbox import Exit
from toolexec_kubernetes.client import KubeClient
from toolexec_kubernetes.config import CONTAINER
from toolexec_kubernetes.failures import (
    KubeError,
    exit_of,
    is_running,
    lost_stream,
    no_own_users,
    refusal,
    stuck,
    waiting_for,
)
from toolexec_kubernetes.lease import timestamp
from toolexec_kubernetes.removal import remove_object
from toolexec_kubernetes.resume import ResumedStream
from toolexec_kubernetes.sandboxes import can_be_suspended, resume_sandbox, suspend_sandbox
from toolexec_kubernetes.spec import Made
from toolexec_kubernetes.stream import ChannelStream
from toolexec_kubernetes.watch import PodWatch
from toolexec_kubernetes.workspace import SessionPod

logger: logging.Logger = logging.getLogger(__name__)
_REMOVE: Final = 10.0
_SETTLE: Final = 3.0
_LAST_WORDS: Final = 5.0
"""How long the API may take to say how a container ended whose streams have."""
_ATTACH: Final = 5.0
_PAUSE: Final = 0.05
_LOG_BYTES: Final = 4000
_LOG_LINES: Final = 40


class PodContainer(DaemonContainer):
    """A container in a pod of its own; see `Container`. `open` starts it."""

    def __init__(
        self,
        client: KubeClient,
        watch: PodWatch,
        made: Made,
        left: set[str],
        *,
        reconnect_seconds: float = 0.0,
        session: SessionPod | None = None,
    ) -> None:
        super().__init__(made.id, left)
        self._session = session
        self._patience = reconnect_seconds
        self._client = client
        self._watch = watch
        self._made = made
        self._stream: ChannelStream | ResumedStream | None = None
        self._pod: JSONObject | None = None
        self._changed = asyncio.Event()
        self._removed = asyncio.Event()
        self._log = ""
        self._broken = ""

    @property
    def pod_name(self) -> str:
        """What its pod is called; "" while there is none."""
        return str(((self._pod or {}).get("metadata") or {}).get("name") or "")

    async def open(self, seconds: float) -> None:
        """Make it, and return when it runs and is attached to; nothing of it stays if that fails.

        Raises SandboxUnavailableError and SandboxDeniedError, also when it does not run after *seconds*.
        """
        made = self._made
        try:
            await self._watch.add(made.run, self._take_in)
            try:
                pod = await uncut(self._create(), seconds=_SETTLE)
            except KubeError as error:
                raise refusal(error, f"no pod can be made in the namespace {self._client.namespace}") from error
            if made.kind == "pods" and pod:
                self._watch.note(pod)
            await self._until_it_runs(seconds)
            await self._attach()
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                logger.info("%s was abandoned: %s", self.id, stuck(self._pod, 0).message)
            await self.aclose()
            raise

    async def _create(self) -> JSONObject:
        """Make it, or have the Sandbox of its session make it again. Raises KubeError."""
        made, session = self._made, self._session
        if session is not None:
            session.is_over = False
        if session is not None and session.made is not None and await resume_sandbox(self._client, made):
            session.made = made
            return {}
        found = await self._client.create(self._client.path(made.group, made.kind), made.body)
        if session is not None:
            session.made = made if made.kind == "sandboxes" and can_be_suspended(found) else None
        return found

    async def _until_it_runs(self, seconds: float) -> None:
        ends = monotonic() + seconds
        while True:
            pod = self._pod
            if pod is not None:
                if is_running(pod, self._made.beside):
                    if self._made.own_users and (shared := no_own_users(pod)) is not None:
                        raise shared
                    return
                problem = waiting_for(pod, self._made.image, self._made.beside)
                if problem is not None:
                    raise problem
            if self._gone.done():
                raise await self._never_ran(self._gone.result())
            self._changed.clear()
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + ends - monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                raise await self._with_events(stuck(self._pod, seconds)) from None

    async def _never_ran(self, end: Exit) -> SandboxError:
        """Why it ended before anything was sent to it."""
        await self._read_log()
        how = end.lost or f"it ended with exit code {end.code}"
        said = f"; it said: {self._log}" if self._log else ""
        image = self._made.image
        hint = "" if end.lost else f"; is there a python3 (3.9 or later) in the image {image}?"
        return SandboxUnavailableError(
            f"no container of the image {image} has come to run: {how}{hint}{said}",
            retryable=end.retryable,
            details={"reason": end.reason or "container", "image": image},
        )

    async def _with_events(self, error: SandboxError) -> SandboxError:
        """Return the error with what the cluster has to say about a Job or a claim that made no pod."""
        if self._pod is not None or self._made.kind == "pods":
            return error
        name = self._made.body["metadata"]["name"]
        try:
            found = await self._client.get(
                self._client.path("v1", "events"), fieldSelector=f"involvedObject.name={name}"
            )
        except KubeError:
            return error
        said = [str(each.get("message")) for each in found.get("items") or () if each.get("type") == "Warning"]
        return refusal(KubeError(403, said[-1]), "the cluster makes no pod for us") if said else error

    async def _attach(self) -> None:
        """Connect to its streams. A node may need a moment after it has said that a container runs."""
        ends = monotonic() + _ATTACH
        while True:
            try:
                if not self._made.linked:
                    self._stream = await self._connect(self._hung_up)
                    return
                first = await self._connect(_stay)
                stream = ResumedStream(first, partial(self._connect, _stay), self._hung_up, self._gone, self._patience)
                self._stream = stream
                await stream.begin()
                return
            except KubeError as error:
                if self._gone.done():
                    raise await self._never_ran(self._gone.result()) from error
                if error.status in (401, 403) or monotonic() > ends:
                    raise refusal(error, "the streams of the pod cannot be had") from error
                await asyncio.sleep(error.retry_after or _PAUSE)

    async def _connect(self, ended: Callable[[str], Awaitable[None]]) -> ChannelStream:
        """Return one connection to its streams. Raises KubeError."""
        path = self._client.path("v1", "pods", f"{self.pod_name}/attach")
        query = [("container", CONTAINER), ("stdin", "true"), ("stdout", "true"), ("stderr", "true"), ("tty", "false")]
        return ChannelStream(await self._client.stream(path, query), ended)

    @property
    def stream(self) -> ChannelStream | ResumedStream:
        """See `Container.stream`."""
        assert self._stream is not None
        return self._stream

    def said(self) -> str:
        """Implement `Container.said`."""
        return (self._stream.said() if self._stream is not None else "") or self._log

    async def cpu_seconds(self) -> float | None:
        """Implement `Container.cpu_seconds`: the API does not know, but for averages of half a minute."""
        return None

    def _take_in(self, pod: JSONObject, deleted: bool) -> None:
        """Take in a change of the pod."""
        self._pod = pod
        self._changed.set()
        if deleted:
            self._removed.set()
        if self._closing is None:
            end = exit_of(pod, deleted=deleted)
            if end is not None and self._broken and end.code == 0 and not end.lost:
                end = lost_stream(self._broken)  # a guest ends by itself when its input does
            if end is not None:
                self._end(end)

    async def _hung_up(self, why: str) -> None:
        """The streams are over: the API says why, or the connection has broken."""
        self._broken: str = why
        if self._closing is None and not self._gone.done():
            await asyncio.wait({self._gone}, timeout=_LAST_WORDS)
        if self._closing is None and not self._gone.done() and why:
            self._end(lost_stream(why))

    async def _read_log(self) -> None:
        """Fetch the end of its log, which has what it said before it was attached to."""
        if not self.pod_name:
            return
        path = self._client.path("v1", "pods", f"{self.pod_name}/log")
        query = {"container": CONTAINER, "tailLines": str(_LOG_LINES), "limitBytes": str(_LOG_BYTES)}
        try:
            self._log = (await self._client.text(path, **query)).strip()
        except KubeError as error:
            logger.debug("the log of %s cannot be read: %s", self.pod_name, error)

    async def _close(self) -> None:
        """Remove it; its guest ends by itself meanwhile, so that its node need not kill it."""
        session = self._session
        if session is not None and not session.is_suspending:
            session.made, session.is_over = None, True
        work: list[Coroutine[Any, Any, Any]] = [self._remove()]
        if self._stream is not None:
            work.append(self._hang_up(self._stream))
        await asyncio.gather(*work)
        self._watch.remove(self._made.run)
        await self._stop_watching(Exit())

    @staticmethod
    async def _hang_up(stream: ChannelStream | ResumedStream) -> None:
        await stream.close_input()
        await stream.aclose()

    async def _remove(self) -> None:
        """For ten seconds at most. What is not gone then, its node being lost perhaps, is left to the sweep."""
        try:
            async with asyncio.timeout(_REMOVE):
                there = await self._give_up()
                if there and self._pod is not None:
                    await self._removed.wait()
        except (KubeError, TimeoutError) as error:
            self._left.add(self.id)
            if self._session is not None:
                self._session.made = None  # its next pod is not to be taken for this one
            logger.warning("%s is not removed: %s", self.id, str(error) or "its node does not answer")

    async def _give_up(self) -> bool:
        """Have it removed, or its session suspended; whether it was there. Raises KubeError."""
        made = self._session.made if self._session is not None else None
        if made is None:
            return await remove_object(self._client, self.id, self.pod_name)
        await suspend_sandbox(self._client, made, timestamp(self._client.now() + made.keeps))
        return await remove_object(self._client, f"pods/{self.pod_name}")


async def _stay(_: str) -> None:
    """Do nothing when one connection ends: another one follows."""
