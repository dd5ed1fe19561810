"""Python in the embedded sandbox."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from toolexec.code.gateway import CountedGateway
from toolexec.code.limits import LimitsEnforced
from toolexec.code.tools import Tools
from toolexec.code.types import BackendInfo, CodeResult
from toolexec.errors import (
    InvalidRequestError,
    ProtocolError,
    SandboxError,
    SandboxFailedError,
    SandboxUnavailableError,
    SandboxViolationError,
    ToolExecError,
)
from toolexec.process.threads import NoThreadError, WorkerThreads
from toolexec.runtime.backend.wasm.config import WasmConfig
from toolexec.runtime.backend.wasm.programs import load_program
from toolexec.runtime.base import Availability, ExecuteRequest
from toolexec.runtime.gateway.server import RequestServer
from toolexec.runtime.outcome import judge

if TYPE_CHECKING:
    from toolexec.runtime.backend.wasm.instance import Instance, InstanceSettings
    from toolexec.runtime.backend.wasm.pool import GuestPool
    from toolexec.runtime.backend.wasm.python_run import HostSwitch, PythonOutput, PythonRun

__all__ = ["PythonLanguage", "PythonSession"]


class PythonLanguage:
    """Runs Python programs, each in a fresh guest: CPython compiled to WebAssembly.

    The first use of a machine builds and compiles the sandbox, the first of a process loads it.
    """

    languages: frozenset[str] = frozenset({"python"})

    def __init__(self, config: WasmConfig) -> None:
        self.config = config
        self._threads = WorkerThreads(config.max_guests)
        self._helpers = WorkerThreads()
        self._pool: GuestPool | None = None
        self._loading = asyncio.Lock()
        self._runs: set[PythonRun] = set()
        self._sessions: set[PythonSession] = set()

    @property
    def pool(self) -> GuestPool | None:
        """The guests made ahead; None before the first run."""
        return self._pool

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """All but a rate of CPU; a guest has no processes at all."""
        counted = isinstance(request.gateway, Tools | CountedGateway)
        return LimitsEnforced(
            timeout=True, tool_calls=counted, chain_steps=counted, memory=True, cpu=True, pids=True, disk=True
        )

    async def check(self) -> Availability:
        """Whether the sandbox is there or can be built here; builds nothing."""
        if self._pool is not None:
            return Availability(ok=True)
        from toolexec.runtime.backend.wasm.readiness import sandbox_availability

        return await asyncio.to_thread(sandbox_availability, self.config)

    async def start(self) -> None:
        """Load the sandbox, and build it if need be; raises SandboxUnavailableError. The first run does it, too."""
        async with self._loading:
            if self._pool is None:
                config = self.config
                load = partial(load_program, config.packages, folder=config.cache_folder, progress=config.on_build_step)
                program = await self._threads.run(load)
                from toolexec.runtime.backend.wasm.pool import GuestPool

                self._pool = GuestPool(program, config.pool_size)

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run a program; see `SandboxBackend.execute`."""
        pool = await self._started()
        kept: list[Instance] = []
        replayed = request.seed is not None or request.now is not None  # such runs must meet the very same guest

        def open_instance(run: PythonRun) -> Instance:
            instance = (None if replayed else pool.take()) or pool.make()
            kept.append(instance)
            instance.prepare(self.settings(request), run.gateway, _output_of(request))
            return instance

        def after() -> None:
            for made in kept:
                made.close()
            if len(self._runs) <= 1:  # in a rush every core has better things to do
                while pool.refill():
                    continue

        return await self.run_guest(request, open_instance, after)

    async def open_session(self, request: ExecuteRequest) -> PythonSession:
        """A guest that keeps its state; its CPU budget and files are for all of its runs together."""
        pool = await self._started()
        from toolexec.runtime.backend.wasm.python_run import HostSwitch, PythonOutput

        switch, output = HostSwitch(), PythonOutput()

        def make() -> Instance:
            instance = pool.take() or pool.make()
            instance.prepare(self.settings(request), switch, output)
            return instance

        session = PythonSession(self, await self._threads.run(make), switch, output)
        self._sessions.add(session)
        return session

    async def aclose(self) -> None:
        """Stop all runs and free all guests; a later run starts anew."""
        for run in [*self._runs]:
            run.stop()
        for session in [*self._sessions]:
            await session.aclose()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._threads.close()
        self._helpers.close()

    def settings(self, request: ExecuteRequest) -> InstanceSettings:
        """What the guest of *request* is granted; raises InvalidRequestError for files or a clock that cannot be."""
        from toolexec.runtime.backend.wasm.engine import fuel_for_cpu_ms
        from toolexec.runtime.backend.wasm.instance import InstanceSettings

        limits = request.limits
        return InstanceSettings(
            memory_bytes=_lowest(self.config.memory_bytes, limits.memory_bytes),
            fuel=fuel_for_cpu_ms(limits.cpu_ms) if limits.cpu_ms else None,
            clock=request.now,
            seed=request.seed,
            files=request.files,
            disk_bytes=_lowest(self.config.disk_bytes, limits.disk_bytes),
        )

    async def _started(self) -> GuestPool:
        if self._pool is None:
            await self.start()
        assert self._pool is not None
        return self._pool

    def forget(self, session: PythonSession) -> None:
        """A session has ended."""
        self._sessions.discard(session)

    async def run_guest(
        self,
        request: ExecuteRequest,
        open_instance: Callable[[PythonRun], Instance],
        after: Callable[[], None],
    ) -> CodeResult:
        """Run the program of *request* in the guest that *open_instance* gives; *after* gets it back."""
        from toolexec.runtime.backend.wasm.python_run import PythonRun

        assert request.gateway is not None
        started = monotonic()
        server = RequestServer(request.gateway, lean=True)
        run = PythonRun(server, request.output, started + request.seconds, self._helpers)
        files: dict[str, bytes] = {}
        used: dict[str, Any] = {}

        def open_and_note(current: PythonRun) -> Instance:
            instance = open_instance(current)
            used["instance"] = instance
            return instance

        self._runs.add(run)
        try:
            outcome = await run.run(self._threads, open_and_note, execute_frame(request), after)
        finally:
            self._runs.discard(run)
        error, value = self._judge(run, outcome, request)
        instance = used.get("instance")
        if instance is not None and not run.left_behind:
            files = instance.files.changed()
        return CodeResult(
            backend=self._info(instance),
            value=value,
            stdout=request.output.text("stdout"),
            stderr=request.output.text("stderr"),
            duration=monotonic() - started,
            files=files,
            error=error,
            limits_enforced=self.enforces(request),
        )

    def _judge(
        self, run: PythonRun, outcome: str | BaseException, request: ExecuteRequest
    ) -> tuple[ToolExecError | None, Any]:
        """The error, or else the value."""
        try:
            ending = run.ending(outcome, request.seconds)
        except (SandboxError, asyncio.CancelledError):
            raise
        except NoThreadError as error:
            raise SandboxUnavailableError(
                "every guest's thread hangs in a tool call that was given up; try again when some have ended",
                backend="wasm",
                retryable=True,
            ) from error
        except ProtocolError as error:
            violation = SandboxViolationError(
                f"code execution error: the program forged its own result: {error}", backend="wasm"
            )
            violation.__cause__ = error
            return violation.locate(op="execute"), None
        except ToolExecError as error:
            raise InvalidRequestError(str(error)) from error
        except Exception as error:
            failure = SandboxFailedError(f"the sandbox could not run the program: {error}", backend="wasm")
            failure.__cause__ = error
            return failure, None
        error = judge(ending)
        if error is not None:
            return error.locate(op="execute", backend="wasm"), None
        return None, (ending.result or {}).get("value")

    def _info(self, instance: Instance | None) -> BackendInfo:
        details: dict[str, Any] = {"runtime": "wasmtime", "packages": list(self.config.packages)}
        if instance is not None:
            details["fuel_used"] = instance.fuel_used
        return BackendInfo(kind="wasm", isolation="wasm", details=details)


class PythonSession:
    """One guest for several programs; see `SandboxSession`."""

    def __init__(self, language: PythonLanguage, instance: Instance, switch: HostSwitch, output: PythonOutput) -> None:
        self._language = language
        self._instance = instance
        self._switch = switch
        self._output = output
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
                self._output.output = request.output
                return self._instance

            def after() -> None:
                """Leave the gateway: it is stopped, and the next run may have put its own there already."""

            try:
                result = await self._language.run_guest(request, open_instance, after)
                finished = True
            finally:
                if not finished:
                    self._end("a run was stopped, and its state is lost")
            lost = result.error is not None and result.error.code not in ("code_error", "limit_exceeded")
            if lost or self._instance.is_over:
                self._end("a run was stopped, and its state is lost")
            return result

    async def aclose(self) -> None:
        """Free the guest."""
        self._end("it was closed")
        self._language.forget(self)

    def _end(self, reason: str) -> None:
        self._over = self._over or reason
        self._instance.close()


def execute_frame(request: ExecuteRequest) -> str:
    """The `execute` message for *request*."""
    payload: dict[str, Any] = {"code": request.code, "cwd": "/workspace", "output_limit": request.output.limit}
    if request.env:
        payload["env"] = dict(request.env)
    if request.args:
        payload["args"] = list(request.args)
    if request.stdin:
        payload["stdin"] = base64.b64encode(request.stdin).decode()
    payload["seed"] = request.seed if request.seed is not None else secrets.randbits(64)
    return json.dumps({"type": "execute", "id": "1", "payload": payload})


def _output_of(request: ExecuteRequest) -> Callable[[str, bytes], None]:
    from toolexec.runtime.backend.wasm.python_run import PythonOutput

    return PythonOutput(request.output)


def _lowest(ours: int, asked: int) -> int:
    return min(ours, asked) if asked else ours
