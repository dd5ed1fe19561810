"""The sandbox backend of everything that runs containers: room, warm guests, sessions, and a truthful result."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from time import monotonic, perf_counter
from typing import Any, ClassVar, Final, NamedTuple

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import (
    ClosedError,
    InvalidRequestError,
    SandboxDeniedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.model.json_value import JSONDict
from toolexec.process.poll import pauses
from toolexec.process.settling import retrieve
from toolexec.runtime.base import LANGUAGES, Availability, SandboxSession, located
from toolexec.runtime.containers.builder import spec_for
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.engine import PROCESSES, ContainerEngine, Image
from toolexec.runtime.containers.guest import ContainerGuest, Run
from toolexec.runtime.containers.memory import HOST_MEMORY, HostMemory, MemoryShare, SizedEngine
from toolexec.runtime.containers.network import Network
from toolexec.runtime.containers.pool import PoolStats, WarmPool
from toolexec.runtime.containers.spec import ContainerSpec
from toolexec.runtime.guest.bundle import GuestSettings, boot_command
from toolexec.runtime.images.store import ImageStore
from toolexec.runtime.outcome import Ending
from toolexec.runtime.runs import Slots, language_of, result_of
from toolexec.runtime.sessions import GuestSession, Stop

logger: logging.Logger = logging.getLogger(__name__)
_CHECK_HOLDS: Final = 10.0
_WARM_START: Final = 60.0
_SPECS: Final = 64
_LATE: Final = 2.0
"""How long a run waits for the removal of its container, beyond its time limit."""
_CANCELLED_LATE: Final = 5.0
_SPARE: Final = 60
"""How many seconds a container may outlive its run, where its engine ends it by itself."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_CONTAINED: Final = ("memory_bytes", "cpus", "pids", "disk_bytes")


@lru_cache(maxsize=256)
def _contained(asked: Limits, ours: Limits) -> Limits:
    """Return the limits that a container gets: those asked for, else those of the configuration."""
    return Limits(**{name: getattr(asked, name) or getattr(ours, name) for name in _CONTAINED})


class _Kind(NamedTuple):
    """What makes guests alike: any of them can run a request of the same kind."""

    image: Image
    profile: str
    limits: Limits
    language: str


@dataclass(slots=True)
class _Attempt:
    """One run of a program, or one start of a session, and what has come of it until now."""

    request: ExecuteRequest
    language: str
    began: float
    ends: float
    guest: ContainerGuest | None = None
    run: Run | None = None
    warm: bool = False
    given_up: bool = False


class ContainerBackend:
    """Runs each program in a container of its own, made by *engine* and removed when the program is done.

    With `config.warm` guests are pre-warmed, so that a run need not wait for one. Used by one event loop.
    """

    languages: frozenset[str] = LANGUAGES
    interrupts: bool = True
    """Whether a run in a session can be stopped with the session kept; see `claims_interrupt`."""
    memory: HostMemory = HOST_MEMORY
    """Which containers the memory of the host has room for."""
    _guest_is_init: ClassVar[bool] = True
    """Whether the guest is the first process of its container, which has to take care of orphaned processes."""

    def __init__(self, engine: ContainerEngine, config: ContainerConfig, *, kind: str, isolation: str) -> None:
        self.kind = kind
        self.isolation = isolation
        self.config = config
        self.engine = engine
        self._network = Network(config.egress)
        self._room = Slots(config.max_running)
        self._pool: WarmPool[ContainerGuest] = WarmPool(self._start_warm, size=config.warm, kinds=config.warm_kinds)
        self._spec = lru_cache(maxsize=_SPECS)(self._make_spec)
        self._known: Availability | None = None
        self._known_until = 0.0
        self._checking: asyncio.Task[Availability] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()
        self._sessions: set[GuestSession] = set()
        self._tidying: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def warm_stats(self) -> PoolStats:
        """How the pre-warmed guests have served."""
        return self._pool.stats

    @property
    def running(self) -> int:
        """How many containers with programs there are now, those that are being removed too."""
        return self._room.taken

    @property
    def idle_guests(self) -> list[ContainerGuest]:
        """The pre-warmed guests that wait."""
        return self._pool.idle

    async def image_digest(self) -> str:
        """Return the digest of the image that programs run in, "" for one without. Raises SandboxUnavailableError for
        an image that is not there."""
        return (await self.engine.resolve(self.config.image)).digest

    def forget_check(self) -> None:
        """Have the next `check` ask the engine again."""
        self._known_until = 0.0

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """Implement `SandboxBackend.enforces`."""
        held = self.engine.enforces(request.limits)
        return replace(held, timeout=True, tool_calls=True, chain_steps=True)

    def packages(self) -> dict[str, frozenset[str]]:
        """Return the packages that Python has in the image, if that is one of the `ImageStore`; see `PackageSource`."""
        try:
            image = ImageStore().find(self.config.image)
        except ToolExecError:
            image = None
        return {"python": frozenset(image.packages)} if image is not None else {}

    async def check(self) -> Availability:
        """Implement `SandboxBackend.check`; a good answer holds for ten seconds, or until a container cannot be
        started.
        """
        if self._closed:
            return Availability(ok=False, reason="this backend is closed", remedy="make a new one")
        if self._known is not None and monotonic() < self._known_until:
            return self._known
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        return await asyncio.shield(self._checking)

    async def _check(self) -> Availability:
        first = self._known is None
        found = await self.engine.check()
        if found.ok and (problem := await self._network.problem()):
            found = replace(
                found, ok=False, reason=problem, remedy="use a longer secret, or remove it from the egress policy"
            )
        if found.ok:
            self._known, self._known_until = found, monotonic() + _CHECK_HOLDS
            if first:
                await self.engine.sweep()
        else:
            self._known_until = 0.0
        return found

    async def check_language(self, language: str) -> Availability:
        """Return whether the image can run one language, found out by starting a guest for it."""
        if language not in LANGUAGES:
            return Availability(ok=False, reason=f"{self.kind} does not run {language}")
        found = await self.check()
        if not found.ok:
            return found
        try:
            async with asyncio.timeout(_WARM_START):
                guest = await self._start_now(await self._kind(language, "standard", Limits()))
        except (SandboxUnavailableError, InvalidRequestError, TimeoutError) as error:
            return Availability(ok=False, reason=str(error) or "no guest has started in a minute")
        version = guest.version if language == "python" else found.version
        await guest.aclose()
        return Availability(ok=True, version=version)

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxBackend.execute`; raises SandboxUnavailableError, too, when its time limit has passed
        before there was room for it.

        Returns at the time limit, and a moment later at most, also when the engine does not answer: then the result's
        details have `cleanup`, and the container is removed behind it.
        """
        attempt = _Attempt(request, self._admit(request), perf_counter(), monotonic() + request.seconds)
        done = await self._until(attempt.ends, self._attempt(attempt))
        run = attempt.run
        if run is None:
            began = attempt.guest is not None
            run = Run(ending=Ending(stopped="deadline", seconds=request.seconds, began=began))
        result = self.result(request, run, attempt.began, attempt.guest, warm=attempt.warm)
        is_left = attempt.guest is not None and attempt.guest.container.id in self.engine.left
        if (is_left or not done) and result.backend is not None:
            cleanup = "the engine does not answer; the container is removed when it does"
            result.backend = replace(result.backend, details={**result.backend.details, "cleanup": cleanup})
        return result

    async def _attempt(self, attempt: _Attempt) -> None:
        """Run the program in a guest and remove that; *attempt* has what came of it."""
        request, guest = attempt.request, None
        await self._room.enter(attempt.ends, self)
        try:
            seconds = math.ceil(request.seconds) + _SPARE
            guest, attempt.warm = await self._guest(request, attempt.language, attempt.ends, seconds)
            attempt.guest = guest
            if guest is not None:
                attempt.run = await guest.execute(self._bounded(request), attempt.ends)
        finally:
            self._end(guest)
            if guest is not None and (attempt.run is None or attempt.run.ending.result is None):
                await guest.aclose()  # the code must not run on when this returns

    async def _until(self, ends: float, work: Coroutine[Any, Any, None]) -> bool:
        """Do *work* in a task; whether it was done at *ends* (of `monotonic()`), or a moment later. Raises what it
        raises. Unfinished work goes on in the background: an engine that does not answer blocks no caller."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(retrieve)
        try:
            await asyncio.wait({task}, timeout=max(0.0, ends - monotonic()))
            if not task.done():  # counted from now, as the event loop may have been held up
                await asyncio.wait({task}, timeout=_LATE)
        except asyncio.CancelledError:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task}, timeout=_CANCELLED_LATE)
            raise
        if task.cancelled():
            raise ClosedError("the run was stopped: its sandbox was closed", backend=self.kind)
        if task.done():
            task.result()
        return task.done()

    async def prepare(self, request: ExecuteRequest) -> None:
        """Have the guests for requests like this one started, and wait for them; does nothing without `config.warm`.

        Raises SandboxUnavailableError when they cannot be started.
        """
        language = self._admit(request)
        await self._pool.fill(await self._kind(language, request.profile, request.limits))

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """Implement `SessionBackend.open_session`; for Python only."""
        language = self._admit(request)
        if language != "python":
            raise located(InvalidRequestError(f"{self.kind} has sessions for python only, not for {language}"), self)
        attempt = _Attempt(request, language, perf_counter(), monotonic() + request.seconds)
        if not await self._until(attempt.ends, self._open(attempt)):
            attempt.given_up = True
        guest = None if attempt.given_up else attempt.guest
        if guest is None:
            raise located(
                SandboxUnavailableError(f"no guest was there within {request.seconds:g} s; raise the time limit"),
                self,
            )
        held = _contained(request.limits, self.config.limits)
        session = GuestSession(self, partial(self._run_in_session, guest, held), partial(self._close_session, guest))
        self._sessions.add(session)
        return session

    async def _open(self, attempt: _Attempt) -> None:
        """Start the guest of a session."""
        await self._room.enter(attempt.ends, self)
        try:
            attempt.guest, _ = await self._guest(attempt.request, attempt.language, attempt.ends)
        finally:
            if attempt.guest is None:
                self._room.leave()
            elif attempt.given_up:
                self._end(attempt.guest)

    async def _run_in_session(
        self, guest: ContainerGuest, held: Limits, request: ExecuteRequest, stop: Stop
    ) -> tuple[CodeResult, bool]:
        """Run a program under the limits *held* that the container was made with: it cannot have others."""
        limits = replace(request.limits, **{name: getattr(held, name) for name in _CONTAINED})
        request = replace(request, limits=limits)
        began = perf_counter()
        run = await guest.execute(request, monotonic() + request.seconds, stop)
        return self.result(request, run, began, guest, warm=True), not run.spent

    async def _close_session(self, guest: ContainerGuest, session: GuestSession) -> None:
        """A session is over."""
        if session in self._sessions:
            self._sessions.discard(session)
            self._end(guest)
        await self._until(monotonic(), guest.aclose())

    async def aclose(self) -> None:
        """Implement `SandboxBackend.aclose`."""
        self._closed = True
        running = [*self._running]
        for task in running:
            task.cancel()
        await asyncio.gather(*(session.aclose() for session in [*self._sessions]))
        if running:
            await asyncio.wait(running)
        await self._pool.aclose()
        if self._checking is not None:  # it may have a container of its own
            await asyncio.wait({self._checking})
        while self._ends:
            await asyncio.wait([*self._ends])
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.wait({self._tidying})
        await self.engine.aclose()

    def result(
        self, request: ExecuteRequest, run: Run, began: float, guest: ContainerGuest | None, *, warm: bool
    ) -> CodeResult:
        """Return what came of a run, as the caller gets it; *began* is the `perf_counter()` at its start."""
        details: JSONDict = {"profile": request.profile, "language": request.language or "python", "warm": warm}
        if guest is not None:
            digest = {"digest": guest.image.digest} if guest.image.digest else {}
            details |= {"image": guest.image.name, **digest, "version": guest.version}
        if run.requests:
            details["egress"] = run.requests
        if run.left_out:
            details["files_left_out"] = [*run.left_out[:20]]
        return result_of(self, request, run.ending, began, details, run.files)

    def _admit(self, request: ExecuteRequest) -> str:
        """Return the language of a request that may run here."""
        if self._closed:
            raise located(SandboxUnavailableError("this backend is closed; make a new one"), self)
        return language_of(self, request)

    async def _guest(
        self, request: ExecuteRequest, language: str, ends: float, seconds: int = 0
    ) -> tuple[ContainerGuest | None, bool]:
        """Return a guest, and whether it was started before; None when none was there in time. One that is started now
        lives for some *seconds* at most."""
        try:
            async with asyncio.timeout(ends - monotonic()):
                kind = await self._kind(language, request.profile, request.limits)
                usual = self._spec_of(kind, seconds=seconds)
                spec = self.spec_for_request(request, usual)
                guest = self._pool.take(kind) if self.config.warm and spec is usual else None
            if guest is not None:
                return guest, True
            share = await self._share(spec, ends)  # ends with an error of its own
            async with asyncio.timeout(ends - monotonic()):
                return await self._start(kind, spec, share), False
        except TimeoutError:
            return None, False
        except SandboxDeniedError as error:
            raise located(error, self) from error
        except SandboxUnavailableError as error:
            self._known_until = 0.0
            raise located(error, self) from error

    async def _kind(self, language: str, profile: str, limits: Limits) -> _Kind:
        image = await self.engine.resolve(self.config.image)
        return _Kind(image, profile or "standard", _contained(limits, self.config.limits), language)

    def _bounded(self, request: ExecuteRequest) -> ExecuteRequest:
        """Return the request with the limits that its container really has."""
        held = _contained(request.limits, self.config.limits)
        return request.given(limits=request.limits.narrow(held))

    def spec_for_request(self, request: ExecuteRequest, spec: ContainerSpec) -> ContainerSpec:
        """Return the container for *request*: *spec*, which is for all requests of its kind, or another one where it
        has something of its own, such as the files of its caller. No pre-warmed guest serves that one."""
        return spec

    def _spec_of(self, kind: _Kind, *, warm: bool = False, seconds: int = 0) -> ContainerSpec:
        spec = self._spec(kind, warm, self.engine.drops)
        return replace(spec, seconds=seconds) if seconds else spec

    async def _share(self, spec: ContainerSpec, ends: float) -> MemoryShare | None:
        """Wait for what a container may take of the host's memory; None where it is not admitted by that."""
        if not isinstance(self.engine, SizedEngine):
            return None
        size, reserve = self.engine.host_memory(spec), self.engine.memory_reserve
        return await self.memory.admit(size, ends, self.kind, reserve=reserve) if size else None

    async def _start(self, kind: _Kind, spec: ContainerSpec, share: MemoryShare | None) -> ContainerGuest:
        """Return a new guest, which releases *share* when it is gone."""
        reach = self._network.reach() if self.config.egress is not None else None
        try:
            guest = await ContainerGuest.start(self.engine, kind.image, spec, kind.language, reach)
        except BaseException:
            if share is not None:
                share.release()
            raise
        if share is not None:
            guest.when_gone(share.release)
        return guest

    def _make_spec(self, kind: _Kind, warm: bool, drop: tuple[str, ...]) -> ContainerSpec:
        """Return the container for guests of one kind, checked: `_spec` keeps those that were asked for last."""
        settings = GuestSettings(
            language=kind.language,
            init=self._guest_is_init,
            warm=warm,
            proxy_port=self._network.port,
            drop=tuple(name for name in drop if name != PROCESSES),
            processes=kind.limits.pids if PROCESSES in drop else 0,
        )
        return spec_for(
            image=kind.image.reference,
            command=boot_command(settings),
            limits=kind.limits,
            profile=kind.profile,
            config=self.config,
            kind=self.kind,
            env=self._network.env,
        )

    async def _start_now(self, kind: _Kind, *, warm: bool = False) -> ContainerGuest:
        """Return a guest that no run waits for. Raises SandboxUnavailableError at once where there is too little
        memory: programs come first."""
        spec = self._spec_of(kind, warm=warm)
        return await self._start(kind, spec, await self._share(spec, monotonic()))

    async def _start_warm(self, kind: _Kind) -> ContainerGuest:
        async with asyncio.timeout(_WARM_START):
            return await self._start_now(kind, warm=True)

    def _end(self, guest: ContainerGuest | None) -> None:
        """Remove a guest in the background; its room is free when that is done."""
        if guest is None:
            self._room.leave()
            return
        task = asyncio.create_task(guest.aclose())
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)
        task.add_done_callback(lambda _: self._room.leave())
        task.add_done_callback(lambda _: self._tidy())

    def _tidy(self) -> None:
        """Have what the engine could not remove removed as soon as it can."""
        if self.engine.left and not self._closed and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.create_task(self._try_to_tidy())

    async def _try_to_tidy(self) -> None:
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while self.engine.left:
            await asyncio.sleep(next(waits))
            await self.engine.sweep()
