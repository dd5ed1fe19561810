"""What this server asks its clients while it works on their calls, and answers that reach another server than this."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest
from pydantic_core import from_json
from starlette.types import Message, Receive, Scope, Send

from toolexec.errors import ConfigurationError, StateError
from toolexec.model.json_value import JSONDict
from toolexec.server.http.replies import reply, reply_json
from toolexec.server.http.stream import SessionLog, Stream
from toolexec.server.kept_replies import KeptReplies, QuestionName

logger: logging.Logger = logging.getLogger(__name__)
HandIn: TypeAlias = Callable[[SessionLog, JSONDict], Awaitable[None]]
"""Gives a session a message of its client."""

_INVALID_REQUEST: Final = -32600
_INTERNAL_ERROR: Final = -32603
_REFUSED: Final = {
    "gone": "no server waits for this answer: the question is answered or timed out, or the server that asked has "
    "ended; nothing was done for it",
    "too_long": "this answer came to another server than the one that asked, and is too long to be passed on "
    "(256 KiB); nothing was done for it",
}


@dataclass(slots=True)
class _Question:
    """A question that is open: the ID that the SDK has for it, and the stream that it was sent on. `coming` waits for
    an answer from another server, `event` is the question as it was sent, with its number."""

    number: int | str
    log: SessionLog
    stream: Stream
    coming: asyncio.Task[None] | None = None
    event: tuple[int, str] | None = None


class Asked:
    """The open questions of this process, each with an ID that no other server gives: the SDK counts them, so that the
    answer to one would be taken for that to another server's.

    With *kept*, an answer that another server gets comes here, and one that this one gets goes to the server that waits
    for it. *hand_in* takes what comes.
    """

    def __init__(self, kept: KeptReplies | None, hand_in: HandIn) -> None:
        self._kept = kept
        self._hand_in = hand_in
        self._open: dict[str, _Question] = {}
        self._jobs: set[asyncio.Task[None]] = set()

    async def sending(self, log: SessionLog, stream: Stream, message: JSONRPCMessage) -> None:
        """Give a question that is about to be sent its ID, and end one that is taken back."""
        if isinstance(message, JSONRPCRequest):
            name = secrets.token_urlsafe(18)
            question = self._open[name] = _Question(message.id, log, stream)
            message.id = name
            if self._kept is not None and log.id and await self._kept.open(_name(log, name)):
                question.coming = self._do(self._wait(self._kept, name, question))
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            params: JSONDict = message.params or {}
            number = params.get("requestId")
            for name, question in [*self._open.items()]:
                if question.stream is stream and question.number == number:
                    message.params = {**params, "requestId": name}
                    self._close(name)

    async def sent(self, message: JSONRPCMessage, event: tuple[int, str]) -> None:
        """Keep a question as it is sent, for a client that has lost its connection and comes back at another server."""
        question = self._open.get(str(message.id)) if isinstance(message, JSONRPCRequest) else None
        if question is not None and question.coming is not None:  # others can pass the answer on
            question.event = event
            await self._keep(question.stream)

    async def _keep(self, stream: Stream) -> None:
        """Have other servers know what a call asks."""
        async with stream.asking:
            asks = [each.event for each in self._open.values() if each.stream is stream and each.event is not None]
            await stream.ask(asks)

    def end(self, stream: Stream) -> None:
        """Forget the questions of a stream that is over."""
        for name in [name for name, question in self._open.items() if question.stream is stream]:
            self._close(name)

    async def aclose(self) -> None:
        """Forget all questions; other servers know that at the end."""
        for name in [*self._open]:
            self._close(name)
        if self._jobs:
            await asyncio.wait(self._jobs)

    async def take(
        self,
        log: SessionLog,
        answer: JSONDict,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Give a client's answer to the question that it is for: to *app*, where this server asked, else to the one
        that did. Answers 202, 400 where none waits for it, and 503 where that is not known."""
        name = answer.get("id")
        question = self._open.get(name) if isinstance(name, str) else None
        if question is not None and question.log is log:
            parts = [_request({**answer, "id": question.number})]

            async def read() -> Message:
                return parts.pop() if parts else await receive()

            self._close(str(name))
            await app(scope, read, send)
            return
        outcome = "gone"
        if question is None and isinstance(name, str) and self._kept is not None:
            try:
                outcome = await self._kept.give(_name(log, name), json.dumps(answer).encode())
            except (ConfigurationError, StateError) as error:
                logger.error("an answer cannot be passed on for now: %s", error)
                text = "It is not known which server waits for this answer: their store cannot be reached; try again"
                await reply_json(send, 503, _error(_INTERNAL_ERROR, text), [("retry-after", "5")])
                return
        if outcome == "taken":
            await reply(send, 202, b"")
        else:
            await reply_json(send, 400, _error(_INVALID_REQUEST, _REFUSED[outcome]))

    async def _wait(self, kept: KeptReplies, name: str, question: _Question) -> None:
        """Take an answer that another server gets."""
        answer: Any = json.loads(await kept.answer(_name(question.log, name)))
        if self._open.pop(name, None) is not None:
            if question.event is not None:
                await self._keep(question.stream)
            await self._hand_in(question.log, {**answer, "id": question.number})

    def _close(self, name: str) -> None:
        question = self._open.pop(name)
        if question.coming is not None and self._kept is not None:
            question.coming.cancel()
            self._do(self._kept.close(_name(question.log, name)))
        if question.event is not None:
            self._do(self._keep(question.stream))

    def _do(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task


def reply_in(body: bytes) -> JSONDict | None:
    """Return the client's answer that *body* is, if it is one."""
    if b'"result"' not in body and b'"error"' not in body:
        return None
    try:
        found = from_json(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "method" not in found and "id" in found else None


def _name(log: SessionLog, question: str) -> QuestionName:
    return QuestionName(log.id, question, log.owner)


def _request(answer: JSONDict) -> Message:
    return {"type": "http.request", "body": json.dumps(answer).encode(), "more_body": False}


def _error(code: int, text: str) -> JSONDict:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}
