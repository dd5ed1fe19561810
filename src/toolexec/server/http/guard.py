"""Which names and web pages a request may come by: what stops DNS rebinding and hostile pages."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.replies import Refuse, header, refuse, reply
from toolexec.server.http.settings import HttpSettings, is_loopback, split_host

__all__ = ["Guard"]

_METHODS = "GET, POST, DELETE"
_HEADERS = (
    "accept, authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, "
    "mcp-session-id, x-api-key"
)
_EXPOSED = "mcp-session-id, www-authenticate, retry-after"


class Guard:
    """Refuses requests for another host (421) and from web pages that are not allowed (403), on every path; and
    headers that are too long (431) or give two lengths of the body (400).

    The origins in `allowed_origins` get the headers that browsers want to see; no others do. *on_refusal* hears the
    reason in one word.
    """

    def __init__(self, app: ASGIApp, http: HttpSettings, auth: AuthSettings, *, on_refusal: Refuse) -> None:
        self._app = app
        self._tell = on_refusal
        self._local = not http.public
        self._most = http.max_header_bytes
        named = [found for found in map(split_host, http.allowed_hosts) if found is not None]
        if auth.resource_url:
            named.append(((urlsplit(auth.resource_url).hostname or "").lower(), None))
        if is_loopback(http.host) or not named:
            named.append((http.host.strip("[]").lower(), None))
        self._any_port = {name for name, port in named if port is None}
        self._exact = {(name, port) for name, port in named if port is not None}
        self._origins = frozenset(origin.lower() for origin in http.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._most:
            self._tell("header_size")
            await refuse(send, 431, f"the headers are longer than {self._most} bytes")
            return
        if header(scope, b"transfer-encoding") is not None and header(scope, b"content-length") is not None:
            self._tell("framing")  # a proxy in front may have read another length out of it
            await refuse(send, 400, "a request has either content-length or transfer-encoding")
            return
        host = split_host(header(scope, b"host") or "")
        if host is None or not self._is_ours(host):
            self._tell("host")
            await refuse(send, 421, "this server is not known under that Host; see allowed_hosts")
            return
        origins = [value.decode("latin-1").lower() for key, value in scope["headers"] if key == b"origin"]
        if not origins:
            await self._app(scope, receive, send)
            return
        listed = len(origins) == 1 and origins[0] in self._origins
        if not listed and not (len(origins) == 1 and self._is_near(origins[0], host)):
            self._tell("origin")
            await refuse(send, 403, "web pages of that Origin may not use this server; see allowed_origins")
            return
        if not listed:
            await self._app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method") is not None:
            await _preflight(scope, send, origins[0])
            return
        await self._app(scope, receive, _with_origin(send, origins[0]))

    def _is_ours(self, host: tuple[str, int | None]) -> bool:
        name, _ = host
        return name in self._any_port or host in self._exact or (self._local and is_loopback(name))

    def _is_near(self, origin: str, host: tuple[str, int | None]) -> bool:
        """Whether the page is of this very server; or, for a local server, of this machine."""
        try:
            parts = urlsplit(origin)
            found = split_host(parts.netloc)
        except ValueError:
            return False
        if found is None or parts.scheme not in ("http", "https"):
            return False
        return found == host or (self._local and is_loopback(found[0]))


async def _preflight(scope: Scope, send: Send, origin: str) -> None:
    wanted = (header(scope, b"access-control-request-headers") or "").lower().split(",")
    extra = [name for name in map(str.strip, wanted) if name.startswith("mcp-param-") and name.isascii()]
    headers = [
        ("access-control-allow-origin", origin),
        ("access-control-allow-methods", _METHODS),
        ("access-control-allow-headers", ", ".join([_HEADERS, *extra])),
        ("access-control-max-age", "600"),
        ("vary", "origin"),
    ]
    await reply(send, 204, b"", headers)


def _with_origin(send: Send, origin: str) -> Send:
    added = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED.encode("ascii")),
        (b"vary", b"origin"),
    ]

    async def send_with_origin(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await send(message)

    return send_with_origin
