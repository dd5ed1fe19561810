"""One WebSocket of the duplex route: its handshake, what it brings, and what is on its way out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from time import time
from typing import Any, Final

from aiohttp import WSMsgType, web

from toolexec.errors import InvalidRequestError, ProtocolError, SandboxDeniedError, ToolExecError
from toolexec.remote import JSONObject, SigningKey
from toolexec_remote.incarnation import WELCOME
from toolexec_remote.messages import (
    HELLO_METHOD,
    SUBPROTOCOL,
    VERSION,
    RemoteMessage,
    decode_remote,
    encode_remote,
)
from toolexec_remote.server.capacity import Capacity
from toolexec_remote.server.doors import Door
from toolexec_remote.server.duplex_run import DuplexRun, DuplexRuns
from toolexec_remote.server.remote_run import Outcome
from toolexec_remote.server.runs import RunService
from toolexec_remote.signature import KeyRing, ReplayCache, Target
from toolexec_remote.wire import RemoteRequest, encode_error, read_request

logger: logging.Logger = logging.getLogger(__name__)
_MAX_OUTBOX: Final = 128 << 20
_LARGE: Final = 64 << 10
"""From how many bytes on a message waits for its share of what is on its way out."""
_HEAD_BYTES: Final = 200
_CONTROL: Final = (WSMsgType.PING, WSMsgType.PONG)
_MOST_CONTROL: Final = 10
"""How many pings may come before the first message."""
_MOST_UNSENT: Final = 1000
"""How many messages a connection may have on its way out and still be read: what comes in is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplexShared:
    """What all connections of a server share; *which* process this is, where there are several behind the port."""

    service: RunService
    ring: KeyRing
    replays: ReplayCache
    capacity: Capacity
    which: JSONObject
    runs: DuplexRuns


class DuplexConnection:
    """One WebSocket of one client."""

    def __init__(
        self, shared: DuplexShared, socket: web.WebSocketResponse, key: SigningKey, path: str, door: Door | None = None
    ) -> None:
        self._shared = shared
        self.key = key
        self.is_admitted: bool = False
        """Whether the other side has shown that it has the secret of the key."""
        self._path = path
        self._door = door
        self._socket = socket
        self._outbox: deque[RemoteMessage] = deque()
        self._unsent = 0
        self._wake = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_closed = False
        self._is_greeted = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, admit: Callable[[], None]) -> None:
        """Challenge the client; *admit* it, and take what it sends until it is gone."""
        sending: asyncio.Task[None] | None = None
        try:
            nonces = await self._challenged()
            if nonces is None:
                return
            admit()
            sending = asyncio.create_task(self._send())
            greeting = RemoteMessage("welcome", fields=await self._greeting(nonces))
            self._is_greeted = True
            self.put(greeting)
            await self._read()
        except ProtocolError as error:
            logger.warning("a connection of %s is closed: %s", self.key.id, error)
            await self._socket.close(code=1002, message=str(error).encode()[:100])
        finally:
            self._end()
            tasks = [*self._tasks, *([sending] if sending is not None else [])]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await self.aclose()  # one that was lost, too: else what it brought stays until its next ping is due

    async def _read(self) -> None:
        """Take what comes, as fast as its tenant may send it and as it reads the answers. Raises ProtocolError."""
        shares = self._shared.service.shares
        async for message in self._socket:
            if self._door is not None and isinstance(message.data, bytes):
                self._door.consumed(len(message.data))
            await shares.turn(self.key.account)
            if self._is_closed:
                return
            if message.type is WSMsgType.BINARY:
                self._take(message.data)
            elif message.type is WSMsgType.PING:
                shares.reading.waste(self.key.account)
                await self._socket.pong(message.data)
            elif message.type is WSMsgType.TEXT:
                raise ProtocolError("messages are binary here")
            while len(self._outbox) > _MOST_UNSENT and not self._is_closed:
                self._has_room.clear()
                await self._has_room.wait()

    async def _challenged(self) -> tuple[str, str] | None:
        """Have the client sign what only this process asks, and only now; return both nonces, or None when it is
        gone. A handshake that was seen elsewhere, or before, opens nothing. Raises ProtocolError."""
        nonce, incarnation = token_hex(16), self._shared.service.incarnation.id
        spoken = {"protocol": SUBPROTOCOL, "version": VERSION}
        challenge = RemoteMessage("challenge", fields={**spoken, "incarnation": incarnation, "nonce": nonce})
        try:
            async with asyncio.timeout(self._shared.service.settings.header_timeout):
                await self._socket.send_bytes(encode_remote(challenge))
                message = await self._socket.receive()
                for _ in range(_MOST_CONTROL):
                    if message.type in _CONTROL:
                        message = await self._socket.receive()
        except (TimeoutError, ConnectionError, RuntimeError):
            await self.aclose()
            return None
        if message.type is not WSMsgType.BINARY:
            return None
        await self._shared.service.shares.turn(self.key.account)
        hello = decode_remote(message.data)
        fields = hello.fields
        theirs, stamp, signature = fields.get("nonce"), fields.get("timestamp"), fields.get("signature")
        if hello.type != "hello" or not (
            isinstance(theirs, str)
            and isinstance(stamp, str)
            and isinstance(signature, str)
            and 16 <= len(theirs) <= 64
        ):
            raise ProtocolError("a connection begins with hello, which has a nonce, a timestamp and a signature")
        target = Target(incarnation, HELLO_METHOD, self._path, nonce)
        try:
            self._shared.ring.check(self.key, stamp, signature, target, theirs.encode(), time(), self._shared.replays)
        except SandboxDeniedError as error:
            self._shared.service.refuse(self.key.account, error)
            with contextlib.suppress(ConnectionError, RuntimeError):
                await self._socket.send_bytes(encode_remote(RemoteMessage("denied", body=encode_error(error))))
                await self._socket.close(code=1008, message=error.code.encode())
            return None
        return nonce, theirs

    def put(self, message: RemoteMessage) -> None:
        """Send a message soon; does nothing when the connection is closed."""
        if self._is_closed or not self._is_greeted:
            return
        self._outbox.append(message)
        self._unsent += len(message.body) + _HEAD_BYTES
        self._wake.set()
        if self._unsent > _MAX_OUTBOX:
            logger.warning("a connection of %s is closed: it does not read what it is sent", self.key.id)
            self.close_soon()

    def close_soon(self) -> None:
        """Take nothing more from it, and close it."""
        self._end()
        self._later(self.aclose())

    async def aclose(self) -> None:
        """Close it; its runs wait for the next one."""
        self._end()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await self._socket.close(code=1001)

    def _end(self) -> None:
        self._is_closed = True
        self._has_room.set()

    async def _greeting(self, nonces: tuple[str, str]) -> JSONObject:
        settings, incarnation = self._shared.service.settings, self._shared.service.incarnation
        return {
            "protocol": SUBPROTOCOL,
            "version": VERSION,
            "incarnation": incarnation.id,
            "proof": incarnation.state(WELCOME, *nonces),
            "keeps": settings.reconnect,
            "remembers": settings.keeps,
            **self._shared.which,
            "limits": {"body_bytes": settings.max_body_bytes, "message_bytes": settings.max_message_bytes},
            "capacity": self._shared.capacity.counts(self.key.account),
            "backends": await self._shared.capacity.backends(),
        }

    async def _send(self) -> None:
        while True:
            while self._outbox:
                await self._shared.service.shares.writing.turn(self.key.account)
                message = self._outbox.popleft()
                self._unsent -= len(message.body) + _HEAD_BYTES
                self._has_room.set()
                try:
                    await self._send_one(message)
                except (ConnectionError, RuntimeError):  # the reading task will notice, too
                    self._end()
                    self._outbox.clear()
                    return
                except Exception:  # nothing would be sent any more: over the next connection, all of it is
                    logger.exception("a message of the run %s of %s cannot be sent", message.run, self.key.id)
                    self.close_soon()
                    return
            self._wake.clear()
            await self._wake.wait()

    async def _send_one(self, message: RemoteMessage) -> None:
        """Send a message. What is large waits until little else of its tenant is on its way, and is copied then."""
        if message.type == "result" and not message.body:
            body = await self._shared.service.journal.read_body(self.key.account, message.run)
            message = message._replace(body=body)
        size = len(message.body)
        if size < _LARGE:
            await self._socket.send_bytes(encode_remote(message))
            return
        async with self._shared.service.shares.sending.taken(self.key.account, size):
            await self._socket.send_bytes(encode_remote(message))

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what comes in --------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        message = decode_remote(data)
        if not message.run:
            raise ProtocolError(f"a message of type {message.type} names no run")
        known = self._shared.runs.find(self.key.account, message.run)
        if message.type == "resume":
            self._resume(message, known)
        elif known is not None:
            known.take(message, self)
        elif message.type in ("execute", "open"):
            self._begin(message)
        else:  # of a run that is over, and forgotten
            self._shared.service.shares.reading.waste(self.key.account)

    def _resume(self, message: RemoteMessage, known: DuplexRun | None) -> None:
        service, account = self._shared.service, self.key.account
        service.metrics.resumed()
        if known is None:
            service.shares.reading.waste(account)
        asked = message.fields.get("incarnation")
        if asked != service.incarnation.id:
            self._recall(message.run, str(asked))
            return
        if known is not None:
            known.resume(message, self)
            return
        run = service.find(account, message.run)
        if run is not None and run.outcome is not None and run.outcome.kind == "result":
            self.put(RemoteMessage("result", message.run, body=run.outcome.body))
        elif proof := service.prove_never(account, message.run, self.key.id):
            self.put(RemoteMessage("gone", message.run, {"state": "never_started", "proof": proof}))
        else:
            self._recall(message.run, service.incarnation.id)

    def _recall(self, run: str, incarnation: str) -> None:
        """Pass on how a run of some incarnation has ended, in its own words; else nothing but that it is gone."""
        record = self._shared.service.recall(self.key.account, run)
        if record is not None and record.state == "ended" and record.incarnation == incarnation:
            self.put(RemoteMessage("result", run, {"statement": record.statement}, record.body))
        else:
            self.put(RemoteMessage("gone", run, {"state": "was_running"}))

    def _begin(self, message: RemoteMessage) -> None:
        """Begin a run, or a session, that is new here."""
        shared, account = self._shared, self.key.account
        duplex = DuplexRun(shared.runs, account, message.run, self)
        duplex.link.receive(message)
        shared.runs.add(duplex)
        try:
            request = self._verified(message)
            if message.type == "open":
                duplex.opening = asyncio.create_task(self._open(duplex, request))
                duplex.opening.add_done_callback(duplex.note_given_up)
            else:
                fields = message.fields
                duplex.run = shared.service.submit(
                    account,
                    message.run,
                    message.body,
                    request,
                    route=duplex.route,
                    watcher=duplex,
                    confirmed=fields.get("go") is True,
                    traceparent=str(fields.get("traceparent") or "")[:100],
                    session=str(fields.get("session") or ""),
                )
        except ToolExecError as error:
            shared.service.refuse(account, error)
            duplex.done(Outcome.refused(error))

    def _verified(self, message: RemoteMessage) -> RemoteRequest:
        """Return the request in a message that its sender has signed just now, for this run."""
        service, fields = self._shared.service, message.fields
        settings = service.settings
        if len(message.body) > settings.max_body_bytes:
            raise InvalidRequestError(
                f"the request has {len(message.body)} bytes, more than {settings.max_body_bytes}; send less",
                code="request_too_large",
            )
        key = self._shared.ring.get(str(fields.get("key") or self.key.id))
        if key is None or key.account != self.key.account:
            raise SandboxDeniedError("the key of this request is not known here", code="unauthenticated")
        stamp, signature = fields.get("timestamp"), fields.get("signature")
        if not isinstance(stamp, str) or not isinstance(signature, str):
            raise SandboxDeniedError("the request is not signed", code="signature_invalid")
        target = Target(
            self._shared.service.incarnation.id, message.type, str(fields.get("session") or ""), message.run
        )
        self._shared.ring.check(key, stamp, signature, target, message.body, time(), self._shared.replays)
        request = read_request(message.body)
        if request.run != message.run:
            raise InvalidRequestError(f"the body is for the run {request.run or '(none)'}, not for {message.run}")
        return request

    async def _open(self, duplex: DuplexRun, request: RemoteRequest) -> None:
        try:
            await self._shared.service.open_session(
                self.key.account, duplex.link.run, request, duplex.route, duplex.end_session
            )
        except ToolExecError as error:
            self._shared.service.refuse(self.key.account, error)
            duplex.done(Outcome.refused(error))
        else:
            duplex.opened()
