"""Python in the embedded sandbox: its guests, those that are pre-warmed, in workers, or kept for a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from toolexec.code.deliveries import Probe, probe_of
from toolexec.code.tools import Tools
from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest
from toolexec.errors import (
    InvalidRequestError,
    ProtocolError,
    SandboxError,
    SandboxFailedError,
    SandboxUnavailableError,
    SandboxViolationError,
    ToolExecError,
)
from toolexec.model.json_value import JSONDict
from toolexec.process.threads import NoThreadError, WorkerThreads
from toolexec.runtime.base import Availability
from toolexec.runtime.json_text import AS_JSON
from toolexec.runtime.outcome import judge
from toolexec.runtime.priority import APART, GIVES_WAY
from toolexec.runtime.protocol.server import RequestServer
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.enforced import enforced_by_wasm
from toolexec.runtime.wasm.guest import InstanceSettings, Starts
from toolexec.runtime.wasm.programs import load_program
from toolexec.runtime.wasm.python_run import PythonOutput, PythonRun, execute_frame
from toolexec.runtime.wasm.recorded import recorded_clock, session_clock

if TYPE_CHECKING:
    from toolexec.runtime.wasm.instance import Instance, Program
    from toolexec.runtime.wasm.pool import GuestPool
    from toolexec.runtime.wasm.python_run import AnyInstance
    from toolexec.runtime.wasm.python_session import PythonSession
    from toolexec.runtime.wasm.workers.pool import Workers

_IDLE_SECONDS = 0.02
"""How long no program runs before guests are pre-warmed, which takes 5 ms of CPU each."""

_FIRST_WORKERS = 2
"""How many workers there are always, where that is wanted: one of them is for programs that give way."""
_MORE_BYTES = 1 << 20
"""What a worker's message may have beside all that a guest can hold."""


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
        self._workers: Workers | None = None
        self.company = 1
        """How many other programs must run for the next one to go to a worker, unless it must be `APART`."""
        self._starts = Starts()
        self._refill: asyncio.TimerHandle | None = None
        self._last_run = 0.0
        self._loading = asyncio.Lock()
        self._runs: set[PythonRun] = set()
        self._sessions: set[PythonSession] = set()

    @property
    def pool(self) -> GuestPool | None:
        """The pre-warmed guests; None before the first run."""
        return self._pool

    @property
    def workers(self) -> Workers | None:
        """The worker processes, whether there are any yet or not; None before the first run.

        They are loaded only when they are asked for: a program that runs alone has no use for them."""
        if self._workers is None and self._pool is not None:
            self._workers = self._make_workers(self._pool.program)
        return self._workers

    async def check(self) -> Availability:
        """Return whether the sandbox is there or can be built here; builds nothing."""
        if self._pool is not None:
            return Availability(ok=True)
        from toolexec.runtime.wasm.readiness import sandbox_availability

        return await asyncio.to_thread(sandbox_availability, self.config)

    async def start(self) -> None:
        """Load the sandbox, and build it if need be; raises SandboxUnavailableError. The first run does it, too."""
        async with self._loading:
            if self._pool is None:
                config = self.config
                load = partial(
                    load_program,
                    config.packages,
                    folder=config.cache_folder,
                    progress=config.on_build_step,
                    quick=config.quick_start,
                )
                program = await self._threads.run(load)
                from toolexec.runtime.wasm.pool import GuestPool

                make = partial(GuestPool, program, config.pool_size, config.idle_memory_bytes)
                self._pool = await self._threads.run(make)

    async def start_workers(self) -> None:
        """Have two workers, where there may be any, from now on, so that the first programs that run at once go there;
        those that compute for long give way to the others."""
        await self.start()
        await self._have_workers(_FIRST_WORKERS)

    async def _have_workers(self, least: int) -> None:
        """Wait for so many workers; there are two always from now on."""
        workers = self.workers
        if workers is None:
            return
        workers.least, workers.ranks = _FIRST_WORKERS, True
        if len(workers.ready) < least:
            async with self._loading:  # a rush of programs waits in one thread
                await self._threads.run(workers.start, least)

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run a program; see `SandboxBackend.execute`."""
        pool = await self._started()
        if APART.get():
            await self._have_workers(1)
        others = len(self._runs)
        # A run alone is quicker here, by a tenth; and a clock that is recorded is in this process.
        deliveries = request.gateway.deliveries if isinstance(request.gateway, Tools) else None
        keeps_time = deliveries is not None and deliveries.keeps_time
        probe = probe_of(deliveries) if deliveries is not None else None
        workers = self.workers if (others >= self.company or APART.get()) and not keeps_time and probe is None else None
        elsewhere = workers is not None and workers.meet(others)
        kept: list[AnyInstance] = []
        replayed = request.seed is not None or request.now is not None  # such runs must meet the very same guest

        def open_instance(run: PythonRun) -> AnyInstance:
            there = workers.open(gives_way=GIVES_WAY.get()) if workers is not None and elsewhere else None
            if there is not None:
                there.on_lost, there.as_json = run.lose, AS_JSON.get()
            instance = there or (None if replayed else pool.take()) or pool.make()
            kept.append(instance)
            settings = self.settings(request)
            if probe is not None:
                _install(probe, instance, settings, run)
            if (clock := recorded_clock(request, run.gateway)) is not None:
                settings = replace(settings, clock=clock)
            instance.prepare(settings, run.gateway, PythonOutput(request.output))
            return instance

        def after() -> None:
            for made in kept:
                made.close()

        try:
            return await self.run_guest(request, open_instance, after, elsewhere=elsewhere)
        finally:
            self._refill_when_idle()

    def _make_workers(self, program: Program) -> Workers:
        from toolexec.runtime.wasm.workers.pool import Workers, worker_count

        config = self.config
        return Workers(
            program,
            worker_count(config.workers),
            idle_bytes=config.idle_memory_bytes,
            most_bytes=config.memory_bytes + config.disk_bytes + _MORE_BYTES,
            threads=self._helpers,
        )

    def _refill_when_idle(self) -> None:
        """Pre-warm guests when no program has run for a moment: in a rush that costs more than it saves."""
        self._last_run = monotonic()
        if self._refill is None and self.config.pool_size:
            self._refill = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._refill_if_idle)

    def _refill_if_idle(self) -> None:
        self._refill = None
        pool = self._pool
        if pool is None or pool.is_full or self._runs:  # the end of a run asks again
            return
        if monotonic() - self._last_run < _IDLE_SECONDS:
            self._refill = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._refill_if_idle)
            return
        with suppress(NoThreadError):
            self._threads.start(pool.fill)

    async def open_session(self, request: ExecuteRequest) -> PythonSession:
        """Open a guest that keeps its state; its CPU budget and files are for all of its runs together."""
        pool = await self._started()
        from toolexec.runtime.wasm.python_session import HostSwitch, PythonSession

        switch, output, clock = HostSwitch(), PythonOutput(), session_clock(request)
        replayed = request.seed is not None or request.now is not None  # such runs must meet the very same guest

        def make() -> Instance:
            instance = (None if replayed else pool.take()) or pool.make(lasting=True)
            settings = self.settings(request)
            instance.prepare(settings if clock is None else replace(settings, clock=clock), switch, output)
            return instance

        made = await self._threads.run(make)
        session = PythonSession(self.run_guest, self._sessions.discard, made, switch, output, clock)
        self._sessions.add(session)
        return session

    async def aclose(self) -> None:
        """Stop all runs and free all guests; a later run starts new ones."""
        for run in [*self._runs]:
            run.stop()
        for session in [*self._sessions]:
            await session.aclose()
        if self._refill is not None:
            self._refill.cancel()
            self._refill = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._workers is not None:
            workers, self._workers = self._workers, None
            await asyncio.to_thread(workers.close)
        self._threads.close()
        self._helpers.close()

    def settings(self, request: ExecuteRequest) -> InstanceSettings:
        """Return what the guest of *request* is granted; raises InvalidRequestError for invalid files or clocks."""
        from toolexec.runtime.wasm.engine import fuel_for_cpu_ms

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

    async def run_guest(
        self,
        request: ExecuteRequest,
        open_instance: Callable[[PythonRun], AnyInstance],
        after: Callable[[], None] | None,
        *,
        elsewhere: bool = False,
    ) -> CodeResult:
        """Run the program of *request* in the guest that *open_instance* gives; *after* gets it back, unless that is
        None. *elsewhere* says that it is in a worker, which has its guests begin in turn."""
        assert request.gateway is not None
        started = monotonic()
        server = RequestServer(request.gateway, lean=True)
        starts = None if elsewhere else self._starts
        run = PythonRun(server, request.output, started + request.seconds, self._helpers, starts)
        files: dict[str, bytes] = {}
        used: JSONDict = {}

        def open_and_note(current: PythonRun) -> AnyInstance:
            instance = open_instance(current)
            used["instance"] = instance
            return instance

        self._runs.add(run)
        try:
            outcome = await run.run(self._threads, open_and_note, execute_frame(request), after)
        finally:
            self._runs.discard(run)
        error, value = await self._judge(run, outcome, request)
        instance = used.get("instance")
        if instance is not None and not run.left_behind:
            files = instance.changed_files
            value = instance.value if error is None and instance.value is not None else value
        return CodeResult(
            backend=self._info(instance),
            value=value,
            stdout=request.output.text("stdout"),
            stderr=request.output.text("stderr"),
            duration=monotonic() - started,
            files=files,
            error=error,
            limits_enforced=enforced_by_wasm(request),
        )

    async def _judge(
        self, run: PythonRun, outcome: str | BaseException, request: ExecuteRequest
    ) -> tuple[ToolExecError | None, Any]:
        """Return the error, or else the value."""
        try:
            ending = await run.ending(outcome, request.seconds)
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

    def _info(self, instance: AnyInstance | None) -> BackendInfo:
        details: JSONDict = {"runtime": "wasmtime", "packages": list(self.config.packages)}
        if instance is not None:
            details["fuel_used"] = instance.fuel_used
        return BackendInfo(kind="wasm", isolation="wasm", details=details)


def _install(probe: Probe, instance: AnyInstance, settings: InstanceSettings, run: PythonRun) -> None:
    """Run the program of a probe in the guest. The guest is prepared again afterwards: what this has used of its clock
    and its random numbers does not count."""
    from toolexec.runtime.wasm.probe import install_frame

    if source := probe.guest_program:
        instance.prepare(settings, run.gateway, PythonOutput())
        instance.run(install_frame(source))


def _lowest(ours: int, asked: int) -> int:
    return min(ours, asked) if asked else ours
