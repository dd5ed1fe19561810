"""Sessions whose pod is removed while they are idle, and made again for their next program, with the files it had."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic

from toolexec.errors import SandboxDeniedError, SandboxFailedError
from toolexec.sandbox import CodeResult, ExecuteRequest, SandboxBackend, SandboxSession, located
from toolexec_kubernetes.workspace import SessionPod

logger: logging.Logger = logging.getLogger(__name__)


class IdleSession:
    """A session that is suspended when it has been idle for *seconds*; see `SandboxSession`.

    *resume* opens the guest of a request again: under the limits and for the caller of *opened*, for whom the session
    was opened. *whose* says whose files a request is for. *forget* removes what a suspended session has in the cluster.
    *closed* is called once it is closed.
    """

    def __init__(
        self,
        backend: SandboxBackend,
        opened: ExecuteRequest,
        inner: SandboxSession,
        pod: SessionPod,
        *,
        seconds: float,
        resume: Callable[[ExecuteRequest, SessionPod], Awaitable[SandboxSession]],
        whose: Callable[[ExecuteRequest], str],
        forget: Callable[[SessionPod], Awaitable[None]],
        closed: Callable[[IdleSession], None],
    ) -> None:
        self._backend = backend
        self._opened = opened
        self._inner: SandboxSession | None = inner
        self._pod = pod
        self._seconds = seconds
        self._resume = resume
        self._whose = whose
        self._forget = forget
        self._when_closed = closed
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._suspending: asyncio.Task[None] | None = None
        self._rest()

    @property
    def is_suspended(self) -> bool:
        """Whether it has no pod now."""
        return self._inner is None

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxSession.execute`. The details of a result have `resumed` where the pod was made again for
        it: names are lost then. Raises SandboxUnavailableError where none was there within the time limit, and
        SandboxDeniedError for another caller than that of the session."""
        ends = monotonic() + request.seconds
        if self._whose(request) != self._whose(self._opened):
            raise located(SandboxDeniedError("this session is that of another caller; open one"), self._backend)
        self._waiting += 1
        self._awake()
        try:
            async with self._turn:
                inner, resumed = await self._there(ends)
                if resumed:
                    request = request.given(timeout=max(0.001, ends - monotonic()))
                result = await inner.execute(request)
        finally:
            self._waiting -= 1
            self._rest()
        if resumed and result.backend is not None:
            result.backend = replace(result.backend, details={**result.backend.details, "resumed": True})
        return result

    async def _there(self, ends: float) -> tuple[SandboxSession, bool]:
        """Return the session in its pod, and whether that was made again."""
        if self._closed:
            raise located(SandboxFailedError("this session is over: it was closed; open a new one"), self._backend)
        if self._inner is not None:
            return self._inner, False
        left = max(0.001, ends - monotonic())
        try:
            inner = await self._resume(self._opened.given(timeout=left), self._pod)
        except BaseException:  # that try may go on behind us, and must not meet the next one
            lost, self._pod = self._pod, SessionPod()
            await self._forget(lost)
            raise
        if self._closed:
            await inner.aclose()
            raise located(SandboxFailedError("this session is over: it was closed; open a new one"), self._backend)
        self._inner = inner
        return inner, True

    def _awake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self) -> None:
        """Have it suspended some time from now, unless it is used before."""
        self._awake()
        if not (self._closed or self._waiting or self._inner is None or self._pod.is_over):
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._suspending = asyncio.create_task(self._suspend())

    async def _suspend(self) -> None:
        """End its pod; what is in its workspace stays. A session that is over by itself is not suspended: its next
        program has to receive that."""
        async with self._turn:
            inner = self._inner
            if inner is None or self._closed or self._waiting or self._pod.is_over:
                return
            logger.debug("a session is suspended, as it was idle for %g s", self._seconds)
            self._pod.is_suspending = True
            self._inner = None
            try:
                await inner.aclose()
            finally:
                self._pod.is_suspending = False

    async def aclose(self) -> None:
        """Implement `SandboxSession.aclose`."""
        self._closed = True
        self._awake()
        if self._suspending is not None:
            await asyncio.wait({self._suspending})
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.aclose()
        else:
            await self._forget(self._pod)
        self._when_closed(self)
