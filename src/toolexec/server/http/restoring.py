"""Opening a session again: the messages that have made it, given to the server as its client gave them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final

from starlette.types import ASGIApp, Message, Scope

from toolexec.model.json_value import JSONDict
from toolexec.server.kept_sessions import RESTORED, KeptSession

logger: logging.Logger = logging.getLogger(__name__)
_SECONDS: Final = 30.0
_MOST: Final = 64 << 10


async def reopened(app: ASGIApp, session: KeptSession, scope: Scope) -> str:
    """Open a session at *app* that is as *session* was, by the caller of the request *scope*; return its new ID. Empty
    where that is refused."""
    inner = ""
    try:
        async with asyncio.timeout(_SECONDS):
            for message in session.messages():
                headers = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
                if inner:
                    headers.append((b"mcp-session-id", inner.encode("latin-1")))
                opening = {**scope, RESTORED: session, "toolexec.session": session.id}
                began, body = await post(app, opening, headers, message)
                found = next((value for key, value in began["headers"] if key.lower() == b"mcp-session-id"), b"")
                if began["status"] < 400:
                    inner = inner or found.decode("latin-1")
                if inner and (began["status"] >= 400 or _is_refused(body)):
                    logger.warning("a session goes on without its %s, which was refused", message["method"])
                if not inner:
                    logger.warning("a session cannot go on: %s was refused", message["method"])
                    return ""
    except TimeoutError:
        logger.warning("a session cannot go on: opening it again took more than %.0f s", _SECONDS)
        return ""
    return inner


async def post(
    app: ASGIApp, scope: Scope, headers: list[tuple[bytes, bytes]], message: JSONDict
) -> tuple[Message, bytes]:
    """Give *app* one message; return how its answer begins, and what it says, once that is complete."""
    body = json.dumps(message).encode()
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    began: Message = {"status": 500, "headers": ()}
    said = bytearray()

    async def receive() -> Message:
        if parts:
            return parts.pop()
        await asyncio.Event().wait()  # this client does not leave before the answer is complete
        raise AssertionError

    async def send(part: Message) -> None:
        if part["type"] == "http.response.start":
            began.update(part)
        elif len(said) < _MOST:
            said.extend(part.get("body", b""))

    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await app({**scope, "method": "POST", "headers": headers}, receive, send)
    return began, bytes(said)


def _is_refused(said: bytes) -> bool:
    """Return whether an answer is an error of JSON-RPC, which may come as an event of a stream."""
    for line in said.splitlines():
        try:
            found = json.loads(line.removeprefix(b"data: "))
        except ValueError:
            continue
        if isinstance(found, dict) and "error" in found:
            return True
    return False
