"""A proxy for code in sandboxes: allows, refuses, puts secrets in and takes them out, and reports all requests."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from toolexec.errors import SecretError
from toolexec.net.address import LookUp, look_up
from toolexec.process.stream import Stream
from toolexec.runtime.egress.authority import Authority
from toolexec.runtime.egress.exchange import BrokenError, Exchange
from toolexec.runtime.egress.policy import Egress, EgressRecord, Origin
from toolexec.runtime.egress.request import ParsedRequest, RefusedError, asked_of_origin, asked_of_proxy, tunnel_to
from toolexec.runtime.egress.secrets import KnownSecrets, ResolveSecret, Swap
from toolexec.runtime.egress.tls import TlsStream
from toolexec.runtime.egress.upstream import Upstream, client_context
from toolexec.runtime.egress.wire import Ahead, Wire, require_h11

if TYPE_CHECKING:
    import h11

logger: logging.Logger = logging.getLogger(__name__)
_SHOWN: Final = 200
_HANDSHAKE: Final = 0x16
_LEFT_OVER: Final = 1 << 20
_PATIENCE: Final = 2.0
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class EgressProxy:
    """Serves the connections of code in sandboxes, which speak HTTP/1.1 as to any proxy: whole URLs, and CONNECT.

    TLS ends here and begins again towards the host, whose certificate is verified; so each request is seen, and is
    refused unless its target, its Host header and the name in the TLS greeting are one host that *policy* allows.
    *resolve_secret* gives the secrets of the policy (see `resolve_with`). They are never logged or recorded. A secret
    that was used is hidden in heads and bodies of responses in every spelling that `Mask` knows; responses that come
    encoded although the host was asked not to, and compressed files with a secret in them, are refused. A host that
    changes a secret in another way on purpose, such as to encrypt it or to send it in pieces, can still hand it to
    code: name only hosts that can be trusted with it. A secret of less than 8 characters is not used.

    *on_request* receives every request, refused ones too. *authority* signs for hosts (default: a new one); its
    certificate is what code has to trust. *find* looks up names, *trust* verifies hosts (default: as the system does).
    *known* are the secrets that were used, for proxies that share them (default: this one's own).

    One proxy serves any number of connections, of one event loop. Raises MissingExtraError without the `egress` extra,
    and SecretError when the policy has secrets and there is no *resolve_secret*.
    """

    def __init__(
        self,
        policy: Egress,
        resolve_secret: ResolveSecret | None = None,
        *,
        on_request: Callable[[EgressRecord], None] | None = None,
        authority: Authority | None = None,
        find: LookUp = look_up,
        trust: ssl.SSLContext | None = None,
        known: KnownSecrets | None = None,
    ) -> None:
        require_h11()
        if policy.secrets and resolve_secret is None:
            raise SecretError("the egress policy has secrets, and there is nothing that resolves them")
        self.policy = policy
        self.authority: Authority = authority or Authority()
        self._resolve = resolve_secret or _no_secrets
        self._on_request = on_request
        self._find = find
        self._trust = trust or client_context()
        self._known = known or KnownSecrets()
        self._open = 0

    @property
    def ca_pem(self) -> bytes:
        """The certificate that code has to trust, in PEM. Public."""
        return self.authority.ca_pem

    async def serve(self, stream: Stream) -> None:
        """Serve one connection of code until it ends, and close it. Raises nothing; it can be cancelled."""
        self._open += 1
        try:
            if self._open <= self.policy.max_connections:
                await self._serve(stream)
            elif self._open <= 2 * self.policy.max_connections:
                await self._turn_away(stream)
        finally:
            self._open -= 1
            with suppress(OSError):
                await stream.aclose()

    async def _serve(self, stream: Stream) -> None:
        upstream = Upstream(self.policy, self._find, self._trust)
        try:
            await _Connection(self, upstream).serve(stream)
        except (OSError, TimeoutError, require_h11().ProtocolError) as error:
            logger.debug("a connection of code has ended: %s", error)
        finally:
            with suppress(OSError):
                await upstream.aclose()

    def swap(self, origin: Origin) -> Swap:
        """Return what puts secrets into one request to *origin*."""
        return Swap(self.policy, origin, self._resolve, self._known)

    @property
    def known(self) -> KnownSecrets:
        """The secrets that have been used."""
        return self._known

    def report(self, record: EgressRecord) -> None:
        """Report one request."""
        if self._on_request is not None:
            try:
                self._on_request(record)
            except Exception:
                logger.exception("what listens to requests of code has failed")

    async def _turn_away(self, stream: Stream) -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await stream.write(_BUSY)
                await stream.read()  # closed before it is read, it could take the answer with it


class _Connection:
    """One connection of code, with one to the host behind it at a time."""

    def __init__(self, proxy: EgressProxy, upstream: Upstream) -> None:
        self._proxy = proxy
        self._policy = proxy.policy
        self._upstream = upstream

    async def serve(self, stream: Stream) -> None:
        client = Wire(stream, server_side=True, patience=self._policy.idle_seconds)
        while (request := await self._head(client)) is not None:
            if request.method == b"CONNECT":
                await self._tunnel(client, request)
                return
            if not await self._one(client, request, None):
                return
            client.state.start_next_cycle()

    async def _head(self, client: Wire) -> h11.Request | None:
        """Return the next request; None at the end, also for an invalid request, which is answered with an error."""
        h11 = require_h11()
        try:
            return await client.head(self._policy.idle_seconds, self._policy.header_seconds)
        except h11.RemoteProtocolError as error:
            refused = RefusedError(error.error_status_hint, f"this is not a valid request: {error}")
        except TimeoutError:
            refused = RefusedError(408, "the request did not come in time")
        self._report(None, None, refused.status, reason=str(refused), allowed=False)
        await self._refuse(client, refused)
        return None

    async def _tunnel(self, client: Wire, request: h11.Request) -> None:
        """CONNECT: what comes next is a connection to one host, with TLS or without."""
        h11 = require_h11()
        try:
            host, port = tunnel_to(request.target, request.headers)
            self._allow(host, port)
        except RefusedError as error:
            self._report(request, None, error.status, reason=str(error), allowed=False)
            await self._refuse(client, error)
            return
        await client.next(self._policy.header_seconds)
        await client.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        ahead = client.state.trailing_data[0]
        if not ahead:
            async with asyncio.timeout(self._policy.header_seconds):
                ahead = await client.stream.read()
        if ahead[:1] == bytes([_HANDSHAKE]):
            await self._secured(client.stream, ahead, Origin("https", host, port))
        elif ahead:
            await self._inside(Ahead(client.stream, ahead), Origin("http", host, port))

    async def _secured(self, stream: Stream, ahead: bytes, origin: Origin) -> None:
        """The server's side of TLS for *origin*."""
        context = await self._proxy.authority.context(origin.host)
        inner = TlsStream(stream, context, server_side=True, received=ahead)
        try:
            async with asyncio.timeout(self._policy.header_seconds):
                await inner.handshake()
        except (OSError, TimeoutError) as error:
            why = error.reason if isinstance(error, ssl.SSLError) else "the connection ended"
            asked = ParsedRequest(origin, "")
            self._report(None, asked, 0, reason=f"no TLS with the code: {why}", allowed=False)
            return
        try:
            await self._inside(inner, origin)
        finally:
            with suppress(OSError):
                await inner.aclose()

    async def _inside(self, stream: Stream, origin: Origin) -> None:
        client = Wire(stream, server_side=True, patience=self._policy.idle_seconds)
        while (request := await self._head(client)) is not None and await self._one(client, request, origin):
            client.state.start_next_cycle()

    async def _one(self, client: Wire, request: h11.Request, origin: Origin | None) -> bool:
        """Answer one request; whether there may be another one on this connection."""
        asked: ParsedRequest | None = None
        exchange: Exchange | None = None
        told = False

        def tell(status: int, reason: str = "", *, allowed: bool = True) -> None:
            nonlocal told
            if not told:
                self._report(request, asked, status, exchange, reason=reason, allowed=allowed)
            told = True

        try:
            if origin is None:
                asked = asked_of_proxy(request.target, request.headers)
            else:
                asked = asked_of_origin(request.target, request.headers, origin)
            self._allow(asked.origin.host, asked.origin.port)
            swap = self._proxy.swap(asked.origin)
            one = exchange = Exchange(self._policy, client, self._upstream, swap, self._proxy.known)
            await one.run(request, asked, lambda: tell(one.status))
        except RefusedError as error:
            await self._upstream.aclose()
            tell(error.status, str(error), allowed=error.status in (502, 504))
            await self._refuse(client, error)
            return False
        except BrokenError as error:
            tell(exchange.status if exchange else 0, str(error))
            return False
        except (asyncio.CancelledError, OSError, TimeoutError):
            tell(exchange.status if exchange else 0, "the connection ended", allowed=exchange is not None)
            raise
        state = client.state
        return str(state.our_state) == "DONE" and str(state.their_state) == "DONE"

    def _allow(self, host: str, port: int) -> None:
        if not self._policy.allows(host, port):
            raise RefusedError(403, f"{host}:{port} is not among the hosts that code may reach here")

    async def _refuse(self, client: Wire, error: RefusedError) -> None:
        """Answer with the error, read the rest of the request for a while, and close."""
        h11 = require_h11()
        state = client.state
        if str(state.our_state) not in ("IDLE", "SEND_RESPONSE"):
            return
        text = f"toolexec: {error}\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
        ]
        with suppress(OSError, TimeoutError, h11.ProtocolError):
            async with asyncio.timeout(_PATIENCE):
                await client.send(
                    h11.Response(status_code=error.status, headers=headers), h11.Data(data=text), h11.EndOfMessage()
                )
                left = _LEFT_OVER
                while left > 0 and (data := await client.stream.read()):
                    left -= len(data)

    def _report(
        self,
        request: h11.Request | None,
        asked: ParsedRequest | None,
        status: int,
        exchange: Exchange | None = None,
        *,
        allowed: bool,
        reason: str = "",
    ) -> None:
        host, port, path = "", 0, ""
        if asked is not None:
            host, port, path = asked.origin.host, asked.origin.port, asked.path
        elif request is not None:
            host = request.target.decode("ascii", "replace").partition("?")[0]
        self._proxy.report(
            EgressRecord(
                host=host[:_SHOWN],
                port=port,
                method=request.method.decode("ascii", "replace")[:_SHOWN] if request is not None else "",
                path=path[:_SHOWN],
                status=status,
                sent=exchange.sent if exchange else 0,
                received=exchange.received if exchange else 0,
                allowed=allowed,
                reason=reason[:_SHOWN],
            )
        )


async def _no_secrets(_: str) -> str:
    raise SecretError("there are no secrets")
