"""The body of a request: it is taken in whole, and refused where it would cost the others too much."""

from __future__ import annotations

import re
from functools import partial
from typing import Literal, TypeAlias

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolexec.run.deadline import DeadlineExceededError, with_deadline
from toolexec.runtime.priority import COMPANY
from toolexec.server.http.replies import Refuse, header, owner_of, refuse, reply_json
from toolexec.server.http.settings import HttpSettings
from toolexec.server.http.turns import Turns

# A text that does not end is one token as well: beginning again at each of its quotes would take quadratic time.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*"?|[\[\]{}]', re.DOTALL)
_TOKEN_OR_COMMA = re.compile(rb'"(?:[^"\\]++|\\.)*"?|[\[\]{},]', re.DOTALL)
_DIGITS = 18
_PARSE_ERROR = -32700
_COMMA = ord(",")
_AT_ONCE = 64 * 1024
"""A body of fewer bytes is looked at on the event loop: that takes a few milliseconds at most."""

Refusal: TypeAlias = Literal["json_depth", "json_values"]
"""Why a body is refused, in one word: what it has too much of."""


class BodyLimits:
    """Takes in the whole body of a POST before anything is done with it.

    Answers 415 for what is not JSON, 413 for a body that is too long (whether it says so or not), 408 for one that
    does not arrive in time and 400 for JSON that nests too deeply or has too many values: all others would wait
    while it is decoded. What is taken waits for one of the *turns* of its caller. *on_refusal* receives the reason in
    one word.
    """

    def __init__(self, app: ASGIApp, http: HttpSettings, turns: Turns, *, on_refusal: Refuse) -> None:
        self._app = app
        self._turns = turns
        self._most = http.max_body_bytes
        self._depth = http.max_json_depth
        self._values = http.max_json_values
        self._seconds = http.body_timeout
        self._tell = on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json" or (header(scope, b"content-encoding") or "identity").lower() != "identity":
            self._tell("content_type")
            await refuse(send, 415, "the body must be application/json, not compressed")
            return
        length = header(scope, b"content-length") or "0"
        if len(length) > _DIGITS or not length.isascii() or not length.isdigit() or int(length) > self._most:
            await self._too_long(send)
            return
        try:
            body = await with_deadline(self._read(receive), self._seconds)
        except DeadlineExceededError:
            self._tell("body_timeout")
            await refuse(send, 408, f"the body did not arrive within {self._seconds:g} s")
            return
        if body is not None and len(body) > self._most:
            await self._too_long(send)
            return
        if body is not None:
            large = len(body) >= _AT_ONCE
            async with self._turns.taken(owner_of(scope), large=large, gone=partial(_gone, receive)) as is_here:
                if is_here:
                    COMPANY.set(self._turns.here)
                    await self._answer(body, scope, receive, send)
                    return
        self._tell("disconnected")

    async def _answer(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := await self._refusal_of(body):
            self._tell(refusal)
            problem = {"code": _PARSE_ERROR, "message": f"Parse error: {self._explained(refusal)}"}
            await reply_json(send, 400, {"jsonrpc": "2.0", "id": None, "error": problem})
        else:
            await self._app(scope, _replay(body, receive), send)

    async def _refusal_of(self, body: bytes) -> Refusal | None:
        if len(body) < _AT_ONCE:
            return refusal_of(body, self._depth, self._values)
        return await anyio.to_thread.run_sync(refusal_of, body, self._depth, self._values)

    def _explained(self, refusal: Refusal) -> str:
        if refusal == "json_depth":
            return f"nested more than {self._depth} levels deep"
        return f"more than {self._values} values; send less at once"

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the body, or as much of it as shows that it is too long; None when the client went away."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > self._most or not message.get("more_body", False):
                return bytes(body)

    async def _too_long(self, send: Send) -> None:
        self._tell("body_size")
        await refuse(send, 413, f"the body is longer than {self._most} bytes")


def refusal_of(body: bytes, depth: int, values: int) -> Refusal | None:
    """Return whether JSON nests more than *depth* levels deep or has more than *values* values, None if neither.

    Values are its commas, lists and objects, which is at most twice what they are. Also right for what is not valid
    JSON. It takes linear time, and stops where it knows.
    """
    opened = body.count(b"[") + body.count(b"{")
    many = opened + body.count(b",") > values
    if opened <= depth and not many:
        return None
    level = seen = 0
    for token in (_TOKEN_OR_COMMA if many else _TOKEN).finditer(body):
        first = body[token.start()]
        if first in b"[{":
            level += 1
            if level > depth:
                return "json_depth"
        elif first in b"]}":
            level -= 1
            continue
        elif first != _COMMA:
            continue
        seen += 1
        if seen > values:
            return "json_values"
    return None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
