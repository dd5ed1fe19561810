"""What a request over HTTP says of itself, and short answers of the server."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from toolexec.model.origin import Caller
from toolexec.server.auth.credentials import CALLER

if TYPE_CHECKING:  # the settings need no more than the standard library
    from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")

Refuse: TypeAlias = Callable[[str], None]
"""Is notified of a refused request: the reason in one word."""

Headers: TypeAlias = Sequence[tuple[str, str]]


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of this (lower-case) name, or None."""
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


def peer_of(scope: Scope) -> str:
    """Return the address of the sender of the request."""
    client = scope.get("client")
    address = str(client[0])[:64] if client else ""
    return address if address.isprintable() else ""  # a proxy may hand on anything


def owner_of(scope: Scope) -> str:
    """Return for whom a request counts: its proven caller, else its address."""
    return caller_key(scope) or peer_of(scope)


def caller_key(scope: Scope) -> str:
    """Return what all requests of one proven caller have in common; empty for an anonymous one."""
    caller = scope.get(CALLER)
    return f"{caller.method}/{caller.realm}/{caller.id}" if isinstance(caller, Caller) and caller.id else ""


def is_stream(scope: Scope) -> bool:
    """Return whether the answer goes on until one side ends it, as a subscription does."""
    return scope["method"] == "GET" or header(scope, b"mcp-method") == "subscriptions/listen"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on *host*."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def split_host(host: str) -> tuple[str, int | None] | None:
    """Return name (in lower case, without brackets) and port of a `Host` header; None for an invalid one."""
    found = _HOST.fullmatch(host)
    if found is None:
        return None
    port = int(found[2]) if found[2] else None
    return (found[1].strip("[]").lower().rstrip("."), port) if port is None or port < 65536 else None


async def reply(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    """Answer with *body*."""
    every = [("content-length", str(len(body))), ("cache-control", "no-store"), *headers]
    encoded = [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in every]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


async def reply_text(send: Send, status: int, text: str, headers: Headers = ()) -> None:
    """Answer with plain text."""
    await reply(send, status, text.encode(), [("content-type", "text/plain; charset=utf-8"), *headers])


async def reply_json(send: Send, status: int, value: object, headers: Headers = ()) -> None:
    """Answer with a JSON value."""
    body = json.dumps(value, separators=(",", ":")).encode()
    await reply(send, status, body, [("content-type", "application/json"), *headers])


async def refuse(send: Send, status: int, message: str, headers: Headers = (), *, error: str = "refused") -> None:
    """Answer with an error, and end the connection: a body that is not read must not keep it open."""
    body = {"error": error, "error_description": message}
    await reply_json(send, status, body, [("connection", "close"), *headers])


def get_only(app: ASGIApp) -> ASGIApp:
    """*app* for GET and HEAD; everything else is refused."""

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await refuse(send, 405, "this can only be read", [("allow", "GET, HEAD")])
            return
        await app(scope, receive, send)

    return check
