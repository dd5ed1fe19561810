"""Runs by POST, for remote runtimes that know nothing else: each is a request of its own, its tools are over HTTP."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from toolexec.errors import (
    Outcome,
    ProtocolError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.remote import JSONObject, RemoteSettings, SigningKey, outcome_of_status, pauses, retry_after, trace_of
from toolexec.sandbox import CodeResult, ExecuteRequest
from toolexec_remote.channel import NeverStartedError, began_after_all
from toolexec_remote.connection import RemoteSandbox, read_welcome, refusal_of
from toolexec_remote.endpoints import common, tls_context, too_late
from toolexec_remote.events import EventReader, ServerEvent
from toolexec_remote.gateway import HttpGateway
from toolexec_remote.signature import signed_headers
from toolexec_remote.wire import encode_request, read_response

if TYPE_CHECKING:
    import ssl

    import aiohttp

__all__ = ["PostClient"]

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_MAX_REFUSAL: Final = 64 << 10
_NOT_NOW: Final = (429, 502, 503, 504)


@dataclass(slots=True)
class _Attempt:
    """One run: what it asks, and how far its events were read."""

    run: str
    body: bytes
    endpoint: str
    ends: float
    request: ExecuteRequest
    last: str = ""
    printed: dict[str, list[str]] = field(default_factory=lambda: {"stdout": [], "stderr": []})

    @property
    def began(self) -> bool:
        """Whether the program has shown that it started: it printed something, or made a call."""
        return any(self.printed.values()) or bool(trace_of(self.request.gateway))


class PostClient:
    """Sends runs to endpoints by POST, and answers for their tools at an `HttpGateway` that lives as long as it does.

    Belongs to one event loop.
    """

    def __init__(self, settings: RemoteSettings) -> None:
        self.settings = settings
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._gateway: HttpGateway | None = None
        self._key: SigningKey | None = None
        self._tls: ssl.SSLContext | None = None
        self._known: dict[str, RemoteSandbox] = {}
        self._turn = random.randrange(len(settings.endpoints))  # noqa: S311 - which endpoint comes first

    def next_endpoint(self) -> str:
        """Return the endpoints in turn."""
        self._turn = (self._turn + 1) % len(self.settings.endpoints)
        return self.settings.endpoints[self._turn]

    async def check(self, endpoint: str) -> str:
        """Return why an endpoint cannot be used; "" when it can, or when nothing is known against it."""
        import aiohttp

        try:
            session, key = await self._opened()
            headers = {"Authorization": f"Bearer {key.token}"}
            timeout = aiohttp.ClientTimeout(total=self.settings.connect_timeout)
            async with session.get(
                f"{endpoint}/capacity",
                headers=headers,
                ssl=self._ssl,
                timeout=timeout,
                server_hostname=self.settings.server_name or None,
            ) as response:
                body = await response.content.read(_MAX_REFUSAL)
                if response.status in (401, 403):
                    return str(refusal_of(response.status, body))
                return self._note(endpoint, body) if response.status == 200 else ""
        except TimeoutError:
            return too_late(self.settings)
        except (aiohttp.ClientError, OSError, ToolExecError) as error:
            return str(error) or type(error).__name__

    def _note(self, endpoint: str, body: bytes) -> str:
        """Record what an endpoint says of itself; return why it cannot be used, if so."""
        try:
            data = json.loads(body)
        except ValueError:
            return ""
        if not isinstance(data, dict) or "backends" not in data:
            return ""
        settings, welcome = self.settings, read_welcome(cast("JSONObject", data))
        found = welcome.sandbox(settings.sandbox)
        if found is None or found.isolation != settings.expected_isolation:
            return f"it does not run code in {settings.sandbox} ({settings.expected_isolation})"
        self._known[endpoint] = found
        return ""

    @property
    def sandbox(self) -> RemoteSandbox | None:
        """What those endpoints that were asked say of the sandbox that is wanted."""
        return common([*self._known.values()])

    async def run(self, endpoint: str, request: ExecuteRequest, ends: float) -> CodeResult:
        """Run a program on *endpoint*; the output of *request* gets what is printed.

        Raises NeverStartedError, and SandboxFailedError for a run that is lost, which may have been run.
        """
        _, _ = await self._opened()
        assert self._gateway is not None
        assert request.gateway is not None
        run = token_hex(16)
        async with self._gateway.serve(run, request.gateway, request.output) as address:
            left = max(0.001, ends - monotonic())
            asked = replace(request, timeout=left)
            sandbox = self.settings.sandbox
            body = encode_request(asked, run=run, gateway=address, stream=True, sandbox=sandbox)
            attempt = _Attempt(run, body, endpoint, ends + self.settings.overhead, request)
            try:
                async with asyncio.timeout(attempt.ends - monotonic()):
                    return await self._until_there(attempt)
            except TimeoutError:
                raise self._lost(attempt, "it did not answer within the time of the program") from None

    async def aclose(self) -> None:
        """Close the connections, and the gateway."""
        await self._stack.aclose()

    # -- one run ------------------------------------------------------------------------------------------------

    async def _until_there(self, attempt: _Attempt) -> CodeResult:
        """Ask, and when the stream of events breaks off, ask for the rest of it."""
        import aiohttp

        waits, lost_at = pauses(_FIRST_PAUSE, _LONGEST_PAUSE, spread=True), 0.0
        while True:
            try:
                async with self._posted(attempt) as response:
                    lost_at = 0.0
                    return await self._read(attempt, response)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                if not attempt.last:
                    unavailable = SandboxUnavailableError(f"{attempt.endpoint} is not there: {error}", retryable=True)
                    raise NeverStartedError(unavailable) from error
                reason = str(error)
            except (aiohttp.ClientError, OSError, ProtocolError) as error:
                reason = str(error) or type(error).__name__
                if not attempt.last:  # whether the server would know this run again is not known
                    raise self._lost(attempt, reason) from error
            except ToolExecError as error:
                if error.outcome is Outcome.NOT_SENT and attempt.began:
                    raise began_after_all(error) from error
                raise
            lost_at = lost_at or monotonic()
            if monotonic() - lost_at > self.settings.reconnect:
                raise self._lost(attempt, reason)
            await asyncio.sleep(next(waits))

    @asynccontextmanager
    async def _posted(self, attempt: _Attempt) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send the request with a new signature; raises what it is refused with."""
        session, key = await self._opened()
        headers = {
            **signed_headers(key, attempt.body),
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Idempotency-Key": attempt.run,
        }
        if attempt.last:
            headers["Last-Event-ID"] = attempt.last
        async with session.post(
            attempt.endpoint,
            data=BytesIO(attempt.body),
            headers=headers,
            ssl=self._ssl,
            allow_redirects=False,
            server_hostname=self.settings.server_name or None,
        ) as response:
            if response.status != 200:
                body = await response.content.read(_MAX_REFUSAL)
                raise self._refused(attempt, response.status, body, response.headers)
            yield response

    def _refused(self, attempt: _Attempt, status: int, body: bytes, headers: Mapping[str, str]) -> Exception:
        """Return what a response that is not 200 means."""
        error = refusal_of(status, body)
        if attempt.last:
            return self._lost(attempt, str(error))
        known = {name.lower(): value for name, value in headers.items()}
        # A server that states the outcome knows it. Others, and the proxies before them, say it by the status: many of
        # theirs are sent for requests that were under way, too.
        if not error.states_outcome:
            said = outcome_of_status(status, known)
            error.outcome = Outcome.NOT_SENT if said is Outcome.REFUSED else Outcome.UNKNOWN
        if error.outcome is not Outcome.NOT_SENT:
            return self._lost(attempt, error)
        if status not in _NOT_NOW:
            return NeverStartedError(error, final=True)
        if (after := retry_after(known)) is not None:
            error.details.setdefault("retry_after", after)
        error.retryable = True
        return NeverStartedError(error)

    async def _read(self, attempt: _Attempt, response: aiohttp.ClientResponse) -> CodeResult:
        """Read a response, be it events or the whole of it."""
        if response.content_type != "text/event-stream":
            return read_response(await response.read())
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
            result = _failed(event.data)
        else:
            return None
        result.stdout = result.stdout or "".join(attempt.printed["stdout"])
        result.stderr = result.stderr or "".join(attempt.printed["stderr"])
        return result

    def _lost(self, attempt: _Attempt, why: object) -> SandboxFailedError:
        return SandboxFailedError(
            f"the run on {attempt.endpoint} is lost ({why}); the program is not run again, as it may have run",
            details={"began": True, "endpoint": attempt.endpoint},
        )

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


def _failed(data: str) -> CodeResult:
    """Return what an event `error` says: a response with an error, or, from others, the reason as it is."""
    if data.startswith("{"):
        return read_response(data.encode())
    return CodeResult(error=SandboxFailedError(f"the remote runtime failed: {data[:2000]}"))
