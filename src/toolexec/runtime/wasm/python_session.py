"""A Python guest that keeps its state from run to run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from toolexec.code.deliveries import probe_of
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import CodeTimeoutError, SandboxFailedError
from toolexec.runtime.protocol.hostcalls import GuestStoppedError, HostCalls
from toolexec.runtime.wasm.instance import Instance
from toolexec.runtime.wasm.python_run import PythonOutput, PythonRun
from toolexec.runtime.wasm.recorded import SessionClock

RunGuest: TypeAlias = Callable[
    [ExecuteRequest, Callable[[PythonRun], Instance], Callable[[], None] | None], Awaitable[CodeResult]
]
"""Runs the program of a request in the guest that the second argument gives, and then calls the third, if any."""


class HostSwitch:
    """The host of a guest that outlives its runs: passes every call on to the gateway of the current one."""

    def __init__(self) -> None:
        self.gateway: HostCalls | None = None

    def exchange(self, frame: str) -> str:
        """Answer *frame*; raises GuestStoppedError between runs."""
        return self._current().exchange(frame)

    def post(self, frame: str) -> None:
        """Take *frame*; raises GuestStoppedError between runs."""
        self._current().post(frame)

    def _current(self) -> HostCalls:
        if self.gateway is None:
            raise GuestStoppedError
        return self.gateway


class PythonSession:
    """One guest for several programs; see `SandboxSession`."""

    def __init__(
        self,
        run_guest: RunGuest,
        closed: Callable[[PythonSession], None],
        instance: Instance,
        switch: HostSwitch,
        output: PythonOutput,
        clock: SessionClock | None = None,
    ) -> None:
        """*closed* is called with the session when it was closed; *clock* is that of programs which are recorded."""
        self._run_guest = run_guest
        self._closed = closed
        self._instance = instance
        self._switch = switch
        self._output = output
        self._clock = clock
        self._busy = asyncio.Lock()
        self._over = ""

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run one more program; programs of one session wait for each other."""
        async with self._busy:
            if self._over:
                raise SandboxFailedError(f"the session has ended: {self._over}; open another one", backend="wasm")
            finished = False

            def open_instance(run: PythonRun) -> Instance:
                self._switch.gateway = run.gateway
                self._look_into(request)
                if self._clock is not None:
                    self._clock.begin(request, run.gateway)
                self._output.output = request.output
                return self._instance

            try:  # the gateway of the run may stay where it is until the next one: it is stopped
                result = await self._run_guest(request, open_instance, None)
                finished = True
            finally:
                if not finished:
                    self._end("a run was stopped, and its state is lost")
            lost = result.error is not None and result.error.code not in ("code_error", "limit_exceeded")
            if lost or self._instance.is_over:
                self._end("a run was stopped, and its state is lost")
                if isinstance(result.error, CodeTimeoutError):
                    result.error.details = {**result.error.details, "session": "ended"}
            return result

    def _look_into(self, request: ExecuteRequest) -> None:
        """Have the probe of a program that is made again be in the guest, which keeps no trace of it."""
        deliveries = request.gateway.deliveries if isinstance(request.gateway, Tools) else None
        probe = probe_of(deliveries) if deliveries is not None else None
        if probe is not None and (source := probe.guest_program):
            from toolexec.runtime.wasm.probe import install_frame

            with self._instance.aside(PythonOutput()):
                self._instance.run(install_frame(source))

    async def aclose(self) -> None:
        """Free the guest."""
        self._end("it was closed")
        self._closed(self)

    def _end(self, reason: str) -> None:
        self._over = self._over or reason
        self._instance.close()
