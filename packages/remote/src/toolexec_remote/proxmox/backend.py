"""A sandbox backend whose sandboxes are in containers of Proxmox VE, behind the remote runtime in each of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import monotonic, perf_counter
from typing import Final, Protocol

from toolexec.errors import (
    ConfigurationError,
    SandboxFailedError,
    SandboxUnavailableError,
    SecretError,
)
from toolexec.remote import LANGUAGES, ProxmoxSettings, trace_of
from toolexec.sandbox import (
    Availability,
    BackendInfo,
    CodeResult,
    ExecuteRequest,
    LimitsEnforced,
    OwnRuns,
    SandboxSession,
    located,
)
from toolexec_remote.connection import RemoteSandbox
from toolexec_remote.proxmox.client import ProxmoxClient
from toolexec_remote.proxmox.clones import ClonePool
from toolexec_remote.proxmox.containers import Containers
from toolexec_remote.proxmox.failures import ProxmoxError, lost_container, unavailable
from toolexec_remote.proxmox.named import NamedContainer
from toolexec_remote.proxmox.running import RunningContainer

_KIND: Final = "proxmox_lxc"
_WASM_LANGUAGES: Final = frozenset({"python", "javascript", "python-science", "wasm"})
_TRIES: Final = 3


class _Source(Protocol):
    """Where containers come from: the one that is named, or clones."""

    async def verify(self) -> str: ...
    async def acquire(self, ends: float) -> RunningContainer: ...
    async def release(self, running: RunningContainer, *, reusable: bool) -> None: ...
    async def aclose(self) -> None: ...


class ProxmoxBackend:
    """Runs programs by the remote runtime in a container of Proxmox VE, which it starts, clones, stops and removes.

    It reports and is judged by the isolation of the sandbox that the runtime in there has, as `RemoteBackend`. One
    that certainly has not started when its container is found stopped is given to it again, once that runs. When a
    container is stopped or removed under a program, its result has a SandboxFailedError at once, whose details have the
    `reason` and `began`. The time that a container takes to start counts as time of the program that waits for it; the
    start goes on for the next program.

    The methods belong to one event loop.
    """

    kind: str = _KIND

    def __init__(self, settings: ProxmoxSettings, *, client: ProxmoxClient | None = None) -> None:
        self.settings = settings
        self.inner: str = settings.sandbox
        """The kind of sandbox that the code runs in there."""
        self.isolation: str = settings.remote("192.0.2.1").expected_isolation
        self.languages: frozenset[str] = _WASM_LANGUAGES if settings.sandbox == "wasm" else LANGUAGES
        self.client: ProxmoxClient = client or ProxmoxClient(settings)
        containers = Containers(self.client)
        self._clones = ClonePool(containers, self.kind) if settings.template else None
        self._source: _Source = self._clones or NamedContainer(containers, self.kind)
        self._runs = OwnRuns()
        self._sessions: set[_ContainerSession] = set()
        self._underneath: RemoteSandbox | None = None
        self._seen = ""
        self._seen_at = 0.0
        self._version = ""
        self._closed = False

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """Return what the runtime in the containers says that it enforces; only the counts, which are kept here, before
        the first contact."""
        sandbox = self._underneath
        held = sandbox.enforces.get(request.language or "python") if sandbox is not None else None
        return replace(held or LimitsEnforced(), tool_calls=True, chain_steps=True)

    async def check(self) -> Availability:
        """Implement `SandboxBackend.check`.

        The container, or the first clone, is started where that is allowed, to learn what the runtime in it has.
        """
        if self._closed:
            return Availability(ok=False, reason="this backend is closed", remedy="make a new one")
        try:
            if not self._seen or monotonic() - self._seen_at > self.settings.watch:
                self._version = self._version or str((await self.client.get("/version")).get("version", ""))
                self._seen = await self._source.verify()
                self._seen_at = monotonic()
            if self._underneath is None:
                await self._runs.run(self._learn())
        except ProxmoxError as error:
            return Availability(ok=False, reason=error.message, remedy=_REMEDIES.get(error.reason, ""))
        except (ConfigurationError, SecretError, SandboxUnavailableError) as error:
            return Availability(ok=False, reason=error.message)
        return Availability(ok=True, version=f"Proxmox VE {self._version}, {self._seen}")

    async def _learn(self) -> None:
        running = await self._source.acquire(monotonic() + self.settings.start_timeout)
        self._contacted(running)
        await self._source.release(running, reusable=True)

    def _contacted(self, running: RunningContainer) -> None:
        self._underneath = running.remote.underneath or self._underneath
        if self._underneath is not None and self._underneath.languages:
            self.languages: frozenset[str] = self._underneath.languages

    async def check_language(self, language: str) -> Availability:
        """Return whether the runtime in the containers runs programs in *language*."""
        found = await self.check()
        if found.ok and language not in self.languages:
            return Availability(ok=False, reason=f"the runtime does not run {language}", version=found.version)
        return found

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxBackend.execute`.

        Raises SandboxUnavailableError when no container was ready, also not within the time limit; its details have the
        `reason`.
        """
        return await self._runs.run(self._execute(request))

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """Implement `SessionBackend.open_session`; the container is in use as long as the session."""
        return await self._runs.run(self._open_session(request))

    async def sweep(self) -> list[int]:
        """Remove the clones that dead processes have left, and return their numbers; it is done now and then anyway.

        Raises SandboxUnavailableError when that cannot be found out.
        """
        if self._clones is None:
            return []
        try:
            return await self._clones.sweep()
        except ProxmoxError as error:
            raise self._located(error) from error

    async def aclose(self) -> None:
        """Stop what runs, remove the clones, stop the container where the settings say so."""
        self._closed = True
        await self._runs.aclose()
        await asyncio.gather(*(session.aclose() for session in [*self._sessions]))
        await self._source.aclose()
        await self.client.aclose()

    # -- programs -----------------------------------------------------------------------------------------------

    async def _execute(self, request: ExecuteRequest) -> CodeResult:
        began, ends = perf_counter(), monotonic() + request.seconds
        for attempt in range(1, _TRIES + 1):
            running = await self._acquire(ends)
            reusable = False
            try:
                left = max(0.001, ends - monotonic())
                result = await self._run_in(running, replace(request, timeout=left))
                reusable = not isinstance(result.error, SandboxFailedError)
                result.duration = perf_counter() - began
                return result
            except SandboxUnavailableError as error:
                if await running.look() == "running" or attempt == _TRIES or monotonic() >= ends:
                    raise located(error, self) from error.__cause__
            finally:
                await asyncio.shield(self._source.release(running, reusable=reusable))
        raise AssertionError("it returns, or raises, at the last attempt")

    async def _open_session(self, request: ExecuteRequest) -> SandboxSession:
        ends = monotonic() + request.seconds
        running = await self._acquire(ends)
        try:
            left = max(0.001, ends - monotonic())
            session = await running.remote.open_session(replace(request, timeout=left))
        except BaseException:
            await asyncio.shield(self._source.release(running, reusable=False))
            raise
        opened = _ContainerSession(self, running, session)
        self._sessions.add(opened)
        return opened

    async def _acquire(self, ends: float) -> RunningContainer:
        if self._closed:
            raise located(SandboxUnavailableError("this backend is closed; make a new one"), self)
        try:
            running = await self._source.acquire(ends)
        except ProxmoxError as error:
            raise self._located(error) from error
        except SandboxUnavailableError as error:
            raise located(error, self) from error.__cause__
        self._contacted(running)
        return running

    def _located(self, error: ProxmoxError) -> SandboxUnavailableError:
        settings = self.settings
        return located(unavailable(error, settings.node, settings.vmid or settings.template), self)

    async def _run_in(
        self, running: RunningContainer, request: ExecuteRequest, session: SandboxSession | None = None
    ) -> CodeResult:
        """Run a program in a container, or in a session there, unless the container is gone before it has ended."""
        running.runs += 1
        work = asyncio.create_task((session or running.remote).execute(request))
        try:
            await asyncio.wait({work, running.lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        if work.cancelled():
            return self._completed(self._lost(running, request), running)
        try:
            result = work.result()
        except SandboxFailedError:  # the session is lost
            if await running.look() == "running":
                raise
            return self._completed(self._lost(running, request), running)
        if isinstance(result.error, SandboxFailedError) and await running.look() != "running":
            result.error = self._lost(running, request).error
        return self._completed(result, running)

    def _lost(self, running: RunningContainer, request: ExecuteRequest) -> CodeResult:
        """Build the result of a run whose container disappeared."""
        result = CodeResult(stdout=request.output.text(), stderr=request.output.text("stderr"))
        result.error = located(lost_container(self.settings.node, running.vmid, running.lost.result()), self)
        result.tool_calls = trace_of(request.gateway)
        result.language = request.language or "python"
        result.limits_enforced = self.enforces(request)
        return result

    def _completed(self, result: CodeResult, running: RunningContainer) -> CodeResult:
        """Return the result as the caller gets it: with the container that it came from."""
        underneath = result.backend
        details = {"node": self.settings.node, "vmid": running.vmid}
        result.backend = BackendInfo(
            kind=self.kind,
            isolation=underneath.isolation if underneath is not None else self.isolation,
            details={**details, **(underneath.details if underneath is not None else {})},
        )
        return result

    async def run_in_session(
        self, running: RunningContainer, session: SandboxSession, request: ExecuteRequest
    ) -> CodeResult:
        """Run one more program of a session."""
        if running.lost.done():
            raise located(lost_container(self.settings.node, running.vmid, running.lost.result()), self)
        return await self._runs.run(self._run_in(running, request, session))

    async def close_session(self, opened: _ContainerSession, running: RunningContainer) -> None:
        """Free the container of a session; once."""
        if opened in self._sessions:
            self._sessions.discard(opened)
            await asyncio.shield(self._source.release(running, reusable=True))


class _ContainerSession:
    """A session of the runtime in a container."""

    def __init__(self, backend: ProxmoxBackend, running: RunningContainer, session: SandboxSession) -> None:
        self._backend = backend
        self._running = running
        self._session = session

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxSession.execute`."""
        return await self._backend.run_in_session(self._running, self._session, request)

    async def aclose(self) -> None:
        """Implement `SandboxSession.aclose`."""
        await self._session.aclose()
        await self._backend.close_session(self, self._running)


_REMEDIES: Final = {
    "unreachable": "see whether url is right, and Proxmox runs",
    "certificate": "set ca_file or fingerprint in [sandboxes.proxmox]",
    "runtime_silent": "have toolexec runtime serve start with the container",
    "runtime_refused": "see that key_id, runtime_token and signing_key are those of the runtime, and clocks agree",
    "runtime_unfit": "set sandbox and isolation as the runtime in the container has them",
    "no_address": "give the container an address, or set network or runtime",
}
