"""Runs by POST, for remote runtimes that know nothing else: each is a request of its own, its tools are over HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import (
    Outcome,
    ProtocolError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.remote import JSONDict, RemoteSettings, SigningKey, pauses, retry_after, trace_of
from toolexec.sandbox import CodeResult, ExecuteRequest
from toolexec_remote.choice import common
from toolexec_remote.connection import RemoteSandbox, Welcome, read_welcome, refusal_of
from toolexec_remote.discovery import Discovery
from toolexec_remote.endpoints import path_of, tls_context, too_late
from toolexec_remote.events import EventReader, ServerEvent
from toolexec_remote.gateway import HttpGateway
from toolexec_remote.homes import new_run
from toolexec_remote.incarnation import HERE, is_stated
from toolexec_remote.messages import SUBPROTOCOL, VERSION
from toolexec_remote.signature import Target, signed_headers
from toolexec_remote.sources import Member
from toolexec_remote.start import Begun, Released, Withheld
from toolexec_remote.wire import encode_request, read_object, read_proof, read_response

if TYPE_CHECKING:
    import ssl

    import aiohttp

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_MAX_REFUSAL: Final = 64 << 10
_FRESH: Final = 1.0
"""For how many seconds it is taken for granted that the same server process answers, and knows the key."""


@dataclass(slots=True)
class _Attempt:
    """One run: what it asks, and how far its events were read."""

    run: str
    body: bytes
    member: Member
    ends: float
    request: ExecuteRequest
    state: Released | Begun
    last: str = ""
    printed: dict[str, list[str]] = field(default_factory=lambda: {"stdout": [], "stderr": []})

    @property
    def endpoint(self) -> str:
        """Where it goes."""
        return self.member.endpoint

    def look(self) -> Released | Begun:
        """Return what is known of its start: it has begun when it has printed something, or made a call."""
        if isinstance(self.state, Released) and (any(self.printed.values()) or trace_of(self.request.gateway)):
            self.state = self.state.begin()
        return self.state


class PostClient:
    """Sends runs to endpoints by POST, and answers for their tools at an `HttpGateway` that lives as long as it does.

    Belongs to one event loop.
    """

    def __init__(self, settings: RemoteSettings, discovery: Discovery) -> None:
        self.settings = settings
        self.discovery = discovery
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._gateway: HttpGateway | None = None
        self._key: SigningKey | None = None
        self._tls: ssl.SSLContext | None = None
        self._known: dict[str, RemoteSandbox] = {}
        self._identities: dict[str, tuple[Welcome, float]] = {}
        self._let: dict[str, float] = {}
        self._refusals: dict[str, ToolExecError] = {}
        self._turn = random.randrange(1 << 16)  # noqa: S311 - which endpoint comes first

    async def next_endpoint(self, avoid: Collection[str], ends: float) -> str:
        """Return the endpoints in turn; one of those to *avoid* only where there is no other. Waits until *ends* (of
        `monotonic()`) for the first one.

        Raises SandboxUnavailableError when there is none by then.
        """
        while True:
            await self.discovery.use(ends - monotonic())
            names = self.discovery.names
            if names:
                break
            if self.discovery.is_hopeless or monotonic() >= ends:
                raise self.unavailable(())
            await asyncio.sleep(max(0.0, min(_FIRST_PAUSE, ends - monotonic())))
        self._turn += 1
        for step in range(len(names)):
            if (name := names[(self._turn + step) % len(names)]) not in avoid:
                return name
        return names[self._turn % len(names)]

    def unavailable(self, found: Collection[tuple[str, str]]) -> SandboxUnavailableError:
        """Return that no endpoint takes a program, given what is wrong with each; one failure stays what it is."""
        states: JSONDict = {**dict(found), **self.discovery.states}
        listed = "; ".join(f"{endpoint}: {state}" for endpoint, state in states.items())
        error = SandboxUnavailableError(
            f"no remote runtime can take this: {listed}",
            retryable=not self.is_hopeless,
            details={"endpoints": states},
        )
        problems = [*(self._refusals.get(endpoint) for endpoint, _ in found), *self.discovery.problems.values()]
        if len(problems) == 1:
            error.__cause__ = problems[0]
        return error

    async def check(self, endpoint: str) -> str:
        """Return why an endpoint cannot be used; "" when it can, or when nothing is known against it."""
        import aiohttp

        try:
            await self._opened()
            async with asyncio.timeout(self.settings.connect_timeout):
                return await self._look(endpoint)
        except TimeoutError:
            return too_late(self.settings)
        except ToolExecError as error:
            self._refusals[endpoint] = error
            return str(error)
        except (aiohttp.ClientError, OSError) as error:
            return str(error) or type(error).__name__

    async def _look(self, endpoint: str) -> str:
        """Ask an endpoint what it has; return why it cannot be used, if so. Raises the error that it refuses with."""
        known = await self._identity(endpoint)
        status, body = await self._get(self.discovery.member(endpoint), "/capacity", known.incarnation)
        if status == 421:  # another process answers by now
            self._identities.pop(endpoint, None)
        if status != 200:
            raise refusal_of(status, body)
        self._refusals.pop(endpoint, None)
        data = read_object(body)
        settings, welcome = self.settings, read_welcome(data)
        found = welcome.sandbox(settings.sandbox)
        if found is None or found.isolation != settings.expected_isolation:
            return f"it does not run code in {settings.sandbox} ({settings.expected_isolation})"
        self._known[endpoint] = found
        return ""

    async def _get(self, member: Member, path: str, incarnation: str) -> tuple[int, bytes]:
        """Return status and body of a request, which is signed where it is known for whom."""
        session, key = await self._opened()
        url = f"{member.endpoint}{path}"
        headers = signed_headers(key, Target(incarnation, "GET", path_of(url))) if incarnation else {}
        async with session.get(
            url,
            headers={**headers, **member.headers},
            ssl=self._ssl,
            allow_redirects=False,
            server_hostname=self.settings.server_name or member.tls_name or None,
        ) as response:
            return response.status, await response.content.read(_MAX_REFUSAL)

    async def _identity(self, endpoint: str) -> Welcome:
        """Return which server process answers at an endpoint, which has shown that it is that one.

        Raises OSError, aiohttp.ClientError, ProtocolError, and the error that it refuses with.
        """
        known, when = self._identities.get(endpoint, (Welcome(), 0.0))
        if known.incarnation and monotonic() - when < _FRESH:
            return known
        nonce = token_hex(16)
        status, body = await self._get(self.discovery.member(endpoint), f"/identity?nonce={nonce}", "")
        data = read_object(body) if status == 200 else {}
        if data.get("protocol") != SUBPROTOCOL or data.get("version") != VERSION:
            if status != 200 and status not in (404, 405):
                raise refusal_of(status, body)
            raise ProtocolError(
                f"{endpoint} does not say that it speaks {SUBPROTOCOL}, version {VERSION} (status {status}); update "
                "toolexec-remote on the side that is older"
            )
        found = read_welcome(data)
        if not is_stated(found.incarnation, data.get("proof"), HERE, nonce):
            raise SandboxDeniedError(
                f"{endpoint} says that it is a server process whose key it has not", code="identity_unproven"
            )
        self._identities[endpoint] = found, monotonic()
        return found

    @property
    def is_hopeless(self) -> bool:
        """Whether every endpoint has refused us in a way that waiting does not change."""
        found = [self._refusals.get(endpoint) for endpoint in self.discovery.names]
        return self.discovery.is_hopeless and all(error is not None and not error.retryable for error in found)

    @property
    def sandbox(self) -> RemoteSandbox | None:
        """What those endpoints that were asked say of the sandbox that is wanted."""
        return common([found for name in self.discovery.names if (found := self._known.get(name)) is not None])

    async def run(self, endpoint: str, request: ExecuteRequest, ends: float) -> CodeResult:
        """Run a program on *endpoint*; the output of *request* gets what is printed.

        Raises NeverStartedError, and SandboxFailedError for a run that is lost, which may have been run.
        """
        run = token_hex(16)
        withheld = Withheld(run)
        key, known = await self._introduced(endpoint, withheld, ends)
        if known.processes > 1:  # its ID says which process has it
            run = new_run(known.process, known.processes)
            withheld = Withheld(run)
        assert self._gateway is not None
        assert request.gateway is not None
        async with self._gateway.serve(run, request.gateway, request.output) as address:
            left = max(0.001, ends - monotonic())
            asked = replace(request, timeout=left)
            sandbox = self.settings.sandbox
            body = encode_request(asked, run=run, gateway=address, stream=True, sandbox=sandbox)
            released = withheld.release(known.incarnation, key.id, at=monotonic(), remembers=known.remembers)
            attempt = _Attempt(
                run, body, self.discovery.member(endpoint), ends + self.settings.overhead, request, released
            )
            try:
                async with asyncio.timeout(attempt.ends - monotonic()):
                    return await self._until_there(attempt, withheld)
            except TimeoutError:
                raise self._lost(attempt, "it did not answer within the time of the program") from None

    async def _introduced(self, endpoint: str, state: Withheld, ends: float) -> tuple[SigningKey, Welcome]:
        """Return the key, and which server process will get the run; raises NeverStartedError when there is none."""
        import aiohttp

        _, key = await self._opened()
        try:
            async with asyncio.timeout(min(self.settings.connect_timeout, max(0.001, ends - monotonic()))):
                known = await self._identity(endpoint)
                await self._let_in(endpoint, known)
                return key, known
        except TimeoutError as error:
            why: ToolExecError = SandboxUnavailableError(f"{endpoint}: {too_late(self.settings)}", retryable=True)
            raise state.never(why) from error
        except (aiohttp.ClientError, OSError) as error:
            why = SandboxUnavailableError(f"{endpoint} is not there: {error}", retryable=True)
            raise state.never(why) from error
        except ProtocolError as error:
            raise state.never(SandboxUnavailableError(error.message), final=True) from error
        except ToolExecError as error:
            raise state.never(error, final=not error.retryable) from error

    async def _let_in(self, endpoint: str, known: Welcome) -> None:
        """Raise what a server process refuses the key with, if it does: before the run is sent, it is not started."""
        if monotonic() - self._let.get(endpoint, -_FRESH) < _FRESH:
            return
        path = f"/runs/{new_run(known.process, known.processes)}"  # unknown; only that it may be asked counts
        status, body = await self._get(self.discovery.member(endpoint), path, known.incarnation)
        if status in (401, 421):
            self._identities.pop(endpoint, None)
            raise refusal_of(status, body)
        self._let[endpoint] = monotonic()

    async def aclose(self) -> None:
        """Close the connections, and the gateway."""
        await self._stack.aclose()

    # -- one run ------------------------------------------------------------------------------------------------

    async def _until_there(self, attempt: _Attempt, withheld: Withheld) -> CodeResult:
        """Ask, and when the stream of events breaks off, ask for the rest of it."""
        import aiohttp

        waits, lost_at, has_left = pauses(_FIRST_PAUSE, _LONGEST_PAUSE, spread=True), 0.0, False
        while True:
            try:
                async with self._posted(attempt, goes_on=has_left) as response:
                    lost_at, has_left = 0.0, True
                    return await self._read(attempt, response)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                self._identities.pop(attempt.endpoint, None)
                if not has_left:
                    unavailable = SandboxUnavailableError(f"{attempt.endpoint} is not there: {error}", retryable=True)
                    raise withheld.never(unavailable) from error
                reason = str(error)
            except (aiohttp.ClientError, OSError, ProtocolError) as error:
                reason, has_left = str(error) or type(error).__name__, True
            lost_at = lost_at or monotonic()
            if monotonic() - lost_at > self.settings.reconnect:
                raise self._lost(attempt, reason)
            await asyncio.sleep(next(waits))

    @asynccontextmanager
    async def _posted(self, attempt: _Attempt, *, goes_on: bool) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send the request with a new signature, for the server process that has the run; raises what it is refused
        with. With *goes_on* it never begins what is not known there."""
        session, key = await self._opened()
        last = (attempt.last or f"{attempt.run}:0") if goes_on else ""
        target = Target(attempt.state.incarnation, "POST", path_of(attempt.endpoint), attempt.run, last)
        headers = {
            **signed_headers(key, target, attempt.body),
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Idempotency-Key": attempt.run,
            **attempt.member.headers,
        }
        if last:
            headers["Last-Event-ID"] = last
        async with session.post(
            attempt.member.endpoint,
            data=BytesIO(attempt.body),
            headers=headers,
            ssl=self._ssl,
            allow_redirects=False,
            server_hostname=self.settings.server_name or attempt.member.tls_name or None,
        ) as response:
            if response.status != 200:
                body = await response.content.read(_MAX_REFUSAL)
                raise self._refused(attempt, refusal_of(response.status, body), read_proof(body), response.headers)
            yield response

    def _refused(
        self, attempt: _Attempt, error: ToolExecError, proof: str, headers: Mapping[str, str] | None = None
    ) -> Exception:
        """Return what it means that a run was refused: without the proof of its server process, it may have been run,
        whatever status, proxy or text says otherwise."""
        if error.code == "wrong_incarnation":
            self._identities.pop(attempt.endpoint, None)
        self._let.pop(attempt.endpoint, None)
        known = {name.lower(): value for name, value in (headers or {}).items()}
        if (after := retry_after(known)) is not None:
            error.details.setdefault("retry_after", after)
        state = attempt.look()
        if isinstance(state, Begun):
            return self._lost(attempt, error)
        refused = state.never(proof, error, now=monotonic(), final=not error.retryable)
        return self._lost(attempt, error) if isinstance(refused, SandboxFailedError) else refused

    async def _read(self, attempt: _Attempt, response: aiohttp.ClientResponse) -> CodeResult:
        """Read a response, be it events or the whole of it."""
        if response.content_type != "text/event-stream":
            body = await response.read()
            try:
                return read_response(body)
            except ToolExecError as error:
                if error.outcome is not Outcome.NOT_SENT:
                    raise
                raise self._refused(attempt, error, read_proof(body)) from error
        events = EventReader()
        async for piece in response.content.iter_any():
            for event in events.feed(piece):
                result = self._take(attempt, event)
                if result is not None:
                    return result
        raise ProtocolError("the stream of events ended without a result")

    def _take(self, attempt: _Attempt, event: ServerEvent) -> CodeResult | None:
        attempt.last = event.id or attempt.last
        if event.type == "stdout" or event.type == "stderr":
            attempt.printed[event.type].append(event.data)
            attempt.request.output.write(event.data, event.type)
            return None
        if event.type == "result":
            result = read_response(f'{{"result":{event.data}}}'.encode())
        elif event.type == "error":
            result = self._failed(attempt, event.data)
        else:
            return None
        result.stdout = result.stdout or "".join(attempt.printed["stdout"])
        result.stderr = result.stderr or "".join(attempt.printed["stderr"])
        return result

    def _failed(self, attempt: _Attempt, data: str) -> CodeResult:
        """Return what an event `error` says: a response with an error; raises the refusal of the sandbox."""
        if not data.startswith("{"):
            return CodeResult(error=SandboxFailedError(f"the remote runtime failed: {data[:2000]}"))
        try:
            return read_response(data.encode())
        except ToolExecError as error:
            if error.outcome is not Outcome.NOT_SENT:
                raise
            raise self._refused(attempt, error, read_proof(data.encode())) from error

    def _lost(self, attempt: _Attempt, why: object) -> SandboxFailedError:
        state, reason = attempt.look(), f"the run on {attempt.endpoint} is lost ({why})"
        lost = state.lost(reason, why if isinstance(why, ToolExecError) else None)
        lost.details["endpoint"] = attempt.endpoint
        return lost

    # -- what it needs -------------------------------------------------------------------------------------------

    @property
    def _ssl(self) -> Any:
        return self._tls if self._tls is not None else True

    async def _opened(self) -> tuple[aiohttp.ClientSession, SigningKey]:
        import aiohttp

        async with self._starting:
            if self._session is None or self._key is None:
                settings = self.settings
                self._key = await asyncio.to_thread(settings.key)
                self._tls = await asyncio.to_thread(tls_context, settings)
                own = HttpGateway(settings.gateway_host, settings.gateway_port, url=settings.gateway_url)
                self._gateway = await self._stack.enter_async_context(own)
                timeout = aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_timeout)
                session = aiohttp.ClientSession(
                    timeout=timeout,
                    trust_env=False,
                    connector=aiohttp.TCPConnector(
                        force_close=True
                    ),  # an idle one may be closed as we send: was it run?
                )
                self._session = await self._stack.enter_async_context(session)
            return self._session, self._key
