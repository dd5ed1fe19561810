"""A guest in a container that keeps its names from one program to the next."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from toolexec.code.limits import Limits
from toolexec.errors import InvalidRequestError, SandboxFailedError
from toolexec.runtime.base import ExecuteRequest, ExecuteResult, located
from toolexec.runtime.container.guest import ContainerGuest

if TYPE_CHECKING:
    from toolexec.runtime.container.backend import ContainerBackend

__all__ = ["ContainerSession"]


class ContainerSession:
    """See `SandboxSession`; made by `ContainerBackend.open_session`.

    The limits of the container are those that it was opened with: a program cannot have its own.
    """

    def __init__(self, backend: ContainerBackend, guest: ContainerGuest, limits: Limits) -> None:
        self._backend = backend
        self._guest = guest
        self._limits = limits
        self._over = ""
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[Any] | None = None

    async def execute(self, request: ExecuteRequest) -> ExecuteResult:
        """See `SandboxSession.execute`; programs that are given at the same time run one after the other."""
        async with self._turn:
            if self._over:
                raise located(SandboxFailedError(f"this session is over: {self._over}; open a new one"), self._backend)
            if request.language not in ("", "python"):
                raise located(InvalidRequestError(f"this session runs python, not {request.language}"), self._backend)
            held = {name: getattr(self._limits, name) for name in ("memory_bytes", "cpus", "pids", "disk_bytes")}
            request = replace(request, limits=replace(request.limits, **held))
            began = perf_counter()
            self._task = asyncio.current_task()
            try:
                run = await self._guest.execute(request, monotonic() + request.seconds, {})
            except InvalidRequestError:
                raise  # nothing was run
            except BaseException:
                await self._end("its last run was stopped")
                raise
            finally:
                self._task = None
            if run.spent:
                await self._end("its last run was stopped, or ended the process")
            return self._backend.result(request, run, began, self._guest, warm=True)

    async def aclose(self) -> None:
        """See `SandboxSession.aclose`; a program that runs is cancelled."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait({task})
        await self._end("it was closed")

    async def _end(self, why: str) -> None:
        self._over = self._over or why
        await self._backend.close_session(self, self._guest)
