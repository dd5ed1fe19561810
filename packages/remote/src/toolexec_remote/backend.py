"""A sandbox backend whose sandboxes are on other machines, behind remote runtimes."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from secrets import token_hex
from time import monotonic, perf_counter
from typing import Final

from toolexec.errors import (
    CodeError,
    CodeTimeoutError,
    InvalidRequestError,
    Outcome,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.remote import (
    LANGUAGES,
    GuestSession,
    JSONDict,
    RemoteSettings,
    Stop,
    check_names,
    serve_gateway,
    trace_of,
    walked,
)
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
from toolexec_remote.channel import Channel, Kind, began_after_all
from toolexec_remote.connection import EndpointConnection, RemoteSandbox
from toolexec_remote.endpoints import Endpoints
from toolexec_remote.post import PostClient
from toolexec_remote.signature import Target, sign, timestamp
from toolexec_remote.start import NeverStartedError, Withheld
from toolexec_remote.wire import cut, encode_request, read_response

_WASM_LANGUAGES: Final = frozenset({"python", "javascript", "python-science", "wasm"})
_QUICK_BYTES: Final = 64 << 10
"""How large a response is read on the event loop."""
_STOP_SECONDS: Final = 2.0
"""For how long a caller that gives up waits until the program has stopped."""
_FIRST_RETRY: Final = 0.02
_RETRY_SECONDS: Final = 0.5
_LONGEST_RETRY: Final = 5.0
_OF_THE_KEY: Final = frozenset({"unauthenticated", "signature_invalid", "signature_stale"})
"""What one server says of a key or a clock, and another need not: keys are changed on one after the other."""


class RemoteBackend:
    """Runs each program on one of several remote runtimes, the least busy one; its tools stay here.

    It reports and is judged by the isolation that the settings name, and uses no endpoint that has another one. A
    program that certainly has not started is given to another endpoint; one that may have run never is: then the result
    has a SandboxFailedError, whose details have `began`. A connection that is lost is opened again, and programs go on
    meanwhile. Sessions stay on their endpoint.

    The methods belong to one event loop.
    """

    kind: str = "remote"

    def __init__(self, settings: RemoteSettings) -> None:
        self.settings: RemoteSettings = settings
        self.inner: str = settings.sandbox
        """The kind of sandbox that the code runs in there."""
        self.isolation: str = settings.expected_isolation
        self.languages: frozenset[str] = _WASM_LANGUAGES if settings.sandbox == "wasm" else LANGUAGES
        self._endpoints = Endpoints(settings)
        self._post = PostClient(settings, self._endpoints.discovery) if settings.protocol == "post" else None
        self._runs = OwnRuns()
        self._sessions: set[GuestSession] = set()
        self._closed = False

    @property
    def connections(self) -> tuple[EndpointConnection, ...]:
        """The connections to the endpoints, in the order of the settings: what is known of each."""
        return self._endpoints.connections

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """Return what the endpoints that are up say that they enforce; only the counts before the first contact, as
        they are kept here."""
        sandbox = self.underneath
        held = sandbox.enforces.get(request.language or "python") if sandbox is not None else None
        return replace(held or LimitsEnforced(), tool_calls=True, chain_steps=True)

    @property
    def interrupts(self) -> bool:
        """Whether the endpoints that are up say that a session there outlives a run that is stopped at its time limit;
        one whose caller cancels ends it."""
        sandbox = self.underneath
        return sandbox is not None and sandbox.interrupts

    async def check(self) -> Availability:
        """Implement `SandboxBackend.check`."""
        if self._closed:
            return Availability(ok=False, reason="this backend is closed", remedy="make a new one")
        found = await (self._endpoints.check() if self._post is None else _checked(self._post))
        sandbox = self.underneath
        if sandbox is not None and sandbox.languages:
            self.languages: frozenset[str] = sandbox.languages
        return found

    @property
    def underneath(self) -> RemoteSandbox | None:
        """The sandbox that code runs in there, as the endpoints that are up report it; None before that."""
        return self._endpoints.sandbox if self._post is None else self._post.sandbox

    async def check_language(self, language: str) -> Availability:
        """Return whether the endpoints run programs in *language*."""
        found = await self.check()
        if found.ok and language not in self.languages:
            return Availability(ok=False, reason=f"the endpoints do not run {language}", version=found.version)
        return found

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxBackend.execute`.

        Raises SandboxUnavailableError, too, when no endpoint had room within the time limit.
        """
        return await self._runs.run(
            self._execute(request) if self._post is None else self._by_post(request, self._post)
        )

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """Implement `SessionBackend.open_session`."""
        return await self._runs.run(self._open_session(request))

    async def aclose(self) -> None:
        """Stop what runs, and close the connections."""
        self._closed = True
        await self._runs.aclose()
        await asyncio.gather(*(session.aclose() for session in [*self._sessions]))
        await self._endpoints.aclose()
        if self._post is not None:
            await self._post.aclose()

    # -- which endpoint -----------------------------------------------------------------------------------------

    async def _execute(self, request: ExecuteRequest) -> CodeResult:
        self._admit(request)
        began, ends = perf_counter(), monotonic() + request.seconds
        tries = _Tries()
        while True:
            endpoint = await self._choose(ends, tries.avoid)
            try:
                return await self._run_on(endpoint, request, began, ends)
            except NeverStartedError as error:
                await self._pause(error, endpoint.endpoint, tries, ends)

    async def _by_post(self, request: ExecuteRequest, client: PostClient) -> CodeResult:
        self._admit(request)
        began, ends = perf_counter(), monotonic() + request.seconds
        tries = _Tries()
        while True:
            try:
                endpoint = await client.next_endpoint(tries.avoid, ends)
            except SandboxUnavailableError as refusal:
                raise located(refusal, self) from refusal.__cause__
            error: ToolExecError | None = None
            try:
                result = await client.run(endpoint, request, ends)
            except NeverStartedError as refusal:
                await self._pause(refusal, endpoint, tries, ends)
                continue
            except SandboxFailedError as failure:
                error, result = failure, _captured(request)
            return self._completed(result, error, request, endpoint, began)

    async def _open_session(self, request: ExecuteRequest) -> SandboxSession:
        self._admit(request)
        if self._post is not None:
            raise located(InvalidRequestError("there are no sessions by POST; use the protocol duplex"), self)
        ends = monotonic() + request.seconds
        tries = _Tries()
        while True:
            endpoint = await self._choose(ends, tries.avoid)
            try:
                return await self._session_on(endpoint, request, ends)
            except NeverStartedError as error:
                await self._pause(error, endpoint.endpoint, tries, ends)

    def _admit(self, request: ExecuteRequest) -> None:
        """Raise for a request that cannot run here."""
        if self._closed:
            raise located(SandboxUnavailableError("this backend is closed; make a new one"), self)
        if (request.language or "python") not in self.languages:
            known = ", ".join(sorted(self.languages))
            raise located(InvalidRequestError(f"{self.kind} does not run {request.language!r}; it runs {known}"), self)
        try:
            check_names(request.files)
        except InvalidRequestError as error:
            raise located(error, self) from None

    async def _choose(self, ends: float, avoid: set[str]) -> EndpointConnection:
        try:
            return await self._endpoints.choose(ends, avoid)
        except SandboxUnavailableError as error:
            raise located(error, self) from error.__cause__

    async def _pause(self, error: NeverStartedError, endpoint: str, tries: _Tries, ends: float) -> None:
        """Get ready for another attempt at a program that has not started; raises why there will be none. Waits longer
        and longer, but for a change no longer than that: a server that refuses changes with each attempt, too."""
        cause, avoid = error.error, tries.avoid
        cause.backend = self.kind
        if error.moves:
            avoid.clear()
            avoid.add(endpoint)
            return
        there = self._endpoints.discovery.names
        if error.final:
            tries.refused.add(endpoint)
        if (error.final and (cause.code not in _OF_THE_KEY or tries.refused.issuperset(there))) or monotonic() >= ends:
            raise cause from None
        again = endpoint in avoid  # the others are not there
        avoid.add(endpoint)
        if not again and not avoid.issuperset(there):
            return
        avoid.clear()
        after = cause.details.get("retry_after")
        wait = float(after) if isinstance(after, int | float) else _RETRY_SECONDS
        left = ends - monotonic()
        await asyncio.sleep(min(tries.pause, max(0.0, left)))
        await self._endpoints.changed(max(0.01, min(wait, _LONGEST_RETRY, left) - tries.pause))
        tries.pause = min(2 * tries.pause, _LONGEST_RETRY)

    # -- one program --------------------------------------------------------------------------------------------

    async def _run_on(
        self,
        endpoint: EndpointConnection,
        request: ExecuteRequest,
        began: float,
        ends: float,
        session: str = "",
    ) -> CodeResult:
        """Run a program on one endpoint; raises NeverStartedError, and what it is refused with."""
        fields: JSONDict = {"session": session} if session else {}
        assert request.gateway is not None
        channel = self._ask(endpoint, "execute", request, fields, ends)
        calls = asyncio.create_task(serve_gateway(request.gateway, channel, output=request.output))
        error: ToolExecError | None = None
        try:
            await self._turn(channel, endpoint, ends)
            result = await self._outcome(channel, endpoint, request, ends)
        except (SandboxFailedError, CodeTimeoutError) as failure:
            error, result = failure, _captured(request)
        except asyncio.CancelledError:
            calls.cancel()
            endpoint.leave(channel)
            await self._stopped(channel, endpoint)
            raise
        finally:
            if not channel.is_over_there:
                calls.cancel()
            await asyncio.wait({calls})  # it has what was printed last
            endpoint.leave(channel)
        return self._completed(result, error, request, endpoint.endpoint, began)

    def _ask(
        self, endpoint: EndpointConnection, kind: Kind, request: ExecuteRequest, fields: JSONDict, ends: float
    ) -> Channel:
        """Ask an endpoint for a run or a session; it starts at once where there seems to be room."""
        run = token_hex(16)
        left = max(0.001, ends - monotonic())
        body = encode_request(replace(request, timeout=left), run=run, sandbox=self.settings.sandbox)
        most = endpoint.welcome.max_body
        if most and len(body) > most:
            raise located(
                InvalidRequestError(
                    f"the program with its files has {len(body)} bytes as JSON, and the remote runtime takes {most}; "
                    "send less, or raise its limit"
                ),
                self,
            )
        key, stamp = self._endpoints.key, timestamp()
        target = Target(endpoint.welcome.incarnation, kind, str(fields.get("session", "")), run)
        signed = {
            "timestamp": stamp,
            "signature": sign(key.signing_secret, stamp, target, body),
            "key": key.id,
            **_trace(),
            **fields,
        }
        return endpoint.open(run, kind, signed, body, go=bool(fields) or kind == "open" or endpoint.free > 0)

    async def _turn(self, channel: Channel, endpoint: EndpointConnection, ends: float) -> None:
        """Wait until the endpoint has room, then have the program start, unless it may already."""
        if channel.went:
            return
        endpoint.waiting[channel.run] = channel
        try:
            async with asyncio.timeout(ends - monotonic()):
                await channel.ready.wait()
        except TimeoutError:
            raise located(
                SandboxUnavailableError(
                    "all remote runtimes are busy, and there was no room in time; try again later, or add some",
                    retryable=True,
                ),
                self,
            ) from None
        finally:
            endpoint.waiting.pop(channel.run, None)
        if channel.moves and isinstance(channel.state, Withheld):
            moved = SandboxUnavailableError("another endpoint has room for it", retryable=True)
            raise channel.state.never(moved, moves=True)
        if not channel.ended.done():
            channel.go(round(max(0.001, ends - monotonic()), 3))

    async def _outcome(
        self, channel: Channel, endpoint: EndpointConnection, request: ExecuteRequest, ends: float
    ) -> CodeResult:
        """Wait for the response, which may be a little late; a program that never answers is given up."""
        overhead = self.settings.overhead
        try:
            async with asyncio.timeout(ends + overhead - monotonic()):
                body = await asyncio.shield(channel.ended)
        except TimeoutError:
            if endpoint.up:
                raise CodeTimeoutError(
                    f"limit exceeded: the code did not end within {request.seconds:g} s, and the remote runtime did "
                    "not say so; it is asked to stop it",
                    details={"timeout": request.seconds, "endpoint": endpoint.endpoint},
                ) from None
            raise SandboxFailedError(
                f"the connection to {endpoint.endpoint} was lost, and the time of the program is over; it is not run "
                "again, as it may have done some of its work",
                details={"began": True, "endpoint": endpoint.endpoint},
            ) from None
        read = partial(read_response, body)
        try:
            return read() if len(body) <= _QUICK_BYTES else await walked(read)
        except ToolExecError as error:
            if error.outcome is Outcome.NOT_SENT:  # a result is not a proof of that
                raise began_after_all(error) from error
            if isinstance(error, SandboxFailedError):
                raise
            raise SandboxFailedError(f"the remote runtime failed: {error.message}") from error

    async def _stopped(self, channel: Channel, endpoint: EndpointConnection) -> None:
        """Wait until a program that was given up has stopped there, within reason."""
        if endpoint.up and channel.went:
            with suppress(Exception):
                async with asyncio.timeout(_STOP_SECONDS):
                    await asyncio.shield(channel.ended)

    def _completed(
        self,
        result: CodeResult,
        error: ToolExecError | None,
        request: ExecuteRequest,
        endpoint: str,
        began: float,
    ) -> CodeResult:
        """Return the result as the caller gets it: judged by what the endpoint says of where the code ran."""
        underneath = result.backend
        details: JSONDict = {"endpoint": endpoint}
        isolation = self.isolation
        if underneath is not None:
            details["inner"] = underneath.to_dict()
            isolation = underneath.isolation
        if underneath is None and result.error is None and error is None:
            error = SandboxFailedError(f"{endpoint} does not say what ran the program: its result is not to be trusted")
        if underneath is None:
            result.value, result.files = None, {}
        if underneath is not None and (underneath.kind, isolation) != (self.inner, self.isolation):
            error = SandboxFailedError(
                f"{endpoint} ran the program in {underneath.kind} ({isolation}), not in {self.inner} "
                f"({self.isolation}): its result is not to be trusted"
            )
            result.value, result.files = None, {}
        result.stdout, result.stderr = (cut(text, request.output.limit) for text in (result.stdout, result.stderr))
        result.error = error or result.error
        if result.error is not None:
            result.error.backend = self.kind
        result.backend = BackendInfo(kind=self.kind, isolation=isolation, details=details)
        result.tool_calls = trace_of(request.gateway)
        result.duration = perf_counter() - began
        result.language = request.language or "python"
        result.limits_enforced = replace(
            result.limits_enforced if underneath is not None else self.enforces(request),
            tool_calls=True,
            chain_steps=True,
        )
        return result

    # -- sessions -----------------------------------------------------------------------------------------------

    async def _session_on(self, endpoint: EndpointConnection, request: ExecuteRequest, ends: float) -> SandboxSession:
        """Open a session on one endpoint; raises NeverStartedError."""
        channel = self._ask(endpoint, "open", request, {}, ends)
        try:
            async with asyncio.timeout(ends - monotonic()):
                await channel.opened.wait()
            if channel.ended.done():
                channel.ended.result()
        except TimeoutError:
            endpoint.leave(channel, "close")
            raise located(
                SandboxUnavailableError(f"no guest was there within {request.seconds:g} s; raise the time limit"), self
            ) from None
        except BaseException:
            endpoint.leave(channel, "close")
            raise
        session = GuestSession(
            self, partial(self._run_in_session, endpoint, channel), partial(self._close_session, endpoint, channel)
        )
        self._sessions.add(session)
        return session

    async def _run_in_session(
        self, endpoint: EndpointConnection, channel: Channel, request: ExecuteRequest, _: Stop
    ) -> tuple[CodeResult, bool]:
        """Run one more program in a session; say whether the session can run another one. The server interrupts it at
        its deadline."""
        if channel.ended.done():
            raise located(SandboxFailedError("the session is lost, with its server; open a new one"), self)
        ends = monotonic() + request.seconds
        try:
            result = await self._run_on(endpoint, request, perf_counter(), ends, channel.run)
        except NeverStartedError as error:
            if error.final:
                raise located(error.error, self) from None
            lost = SandboxFailedError(f"the session is lost: {error.error.message}", outcome=Outcome.NOT_SENT)
            raise located(lost, self) from None
        error = result.error
        lives = error is None or isinstance(error, CodeError) or error.details.get("session") == "kept"
        return result, lives and not channel.ended.done()

    async def _close_session(self, endpoint: EndpointConnection, channel: Channel, session: GuestSession) -> None:
        """A session is over."""
        if session in self._sessions:
            self._sessions.discard(session)
            endpoint.leave(channel, "close")


@dataclass(slots=True)
class _Tries:
    """The endpoints that have refused a program, those that do not know the key, and how long the next attempt waits
    when all have refused it."""

    avoid: set[str] = field(default_factory=set[str])
    refused: set[str] = field(default_factory=set[str])
    pause: float = _FIRST_RETRY


def _trace() -> JSONDict:
    """Return where the span of the caller is, for those of the server to join it; empty without OpenTelemetry."""
    if "opentelemetry" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return {name: value for name, value in carrier.items() if name == "traceparent"}


def _captured(request: ExecuteRequest) -> CodeResult:
    """Build the result of a run that was lost."""
    return CodeResult(stdout=request.output.text(), stderr=request.output.text("stderr"))


async def _checked(client: PostClient) -> Availability:
    """Return whether one of the endpoints of a client answers."""
    await client.discovery.use(client.settings.connect_timeout)
    endpoints = client.discovery.names
    problems = await asyncio.gather(*map(client.check, endpoints))
    found = [*zip(endpoints, problems, strict=True)]
    error = client.unavailable(found)
    states = "; ".join(f"{endpoint}: {problem or 'it answers'}" for endpoint, problem in found)
    usable = problems.count("")
    if usable:
        return Availability(ok=True, version=f"{usable} of {len(endpoints)} endpoints ({states})")
    reason = error.message.partition(": ")[2]
    return Availability(ok=False, reason=reason, remedy="start it with toolexec runtime serve", error=error)
