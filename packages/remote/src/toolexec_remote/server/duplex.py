"""The duplex route: many runs over one WebSocket, which go on over the next one when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from secrets import token_hex
from time import time
from typing import Any, Final

from aiohttp import WSMsgType, web

from toolexec.errors import (
    InvalidRequestError,
    ProtocolError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.remote import JSONObject, SigningKey, Stream
from toolexec_remote.incarnation import WELCOME
from toolexec_remote.messages import (
    HELLO_METHOD,
    SUBPROTOCOL,
    VERSION,
    Link,
    RemoteMessage,
    decode_remote,
    encode_remote,
)
from toolexec_remote.server.capacity import Capacity
from toolexec_remote.server.doors import Door
from toolexec_remote.server.relay import FrameRoute
from toolexec_remote.server.runs import Outcome, RemoteRun, RunService
from toolexec_remote.signature import KeyRing, ReplayCache, Target
from toolexec_remote.wire import RemoteRequest, encode_error, read_request

__all__ = ["DuplexConnection", "DuplexHub", "DuplexRun"]

logger: logging.Logger = logging.getLogger(__name__)
_MAX_OUTBOX: Final = 128 << 20
_LARGE: Final = 64 << 10
"""From how many bytes on a message waits for its share of what is on its way out."""
_HEAD_BYTES: Final = 200
_MAX_PRINTS: Final = 1 << 20
_MAX_UNACKNOWLEDGED: Final = 20_000
"""How many runs of a tenant are kept that it has not acknowledged the end of."""
_PUSH: Final = 0.05
_LINGER: Final = 5.0


class DuplexHub:
    """All connections of a server, and the runs that came by them."""

    def __init__(
        self,
        service: RunService,
        ring: KeyRing,
        replays: ReplayCache,
        capacity: Capacity,
        which: JSONObject | None = None,
    ) -> None:
        self.service = service
        self.which = which or {}
        """Which process this is, where there are several behind the port."""
        self.ring = ring
        self.replays = replays
        self.capacity = capacity
        self._runs: dict[tuple[str, str], DuplexRun] = {}
        self._counts: Counter[str] = Counter()
        self._connections: dict[tuple[str, str], DuplexConnection] = {}
        self._push: asyncio.TimerHandle | None = None
        self._left = asyncio.Event()  # a run has left, or its client has
        service.admission.changed = self.push_soon

    async def serve(
        self, socket: web.WebSocketResponse, key: SigningKey, client: str, path: str, door: Door | None = None
    ) -> None:
        """Serve a connection to its end, which came by *path* with the token of *key*. An older one of the same client
        ends as soon as this one has shown that it has the secret of the key."""
        connection = DuplexConnection(self, socket, key, path, door)
        name = key.account, client or str(id(connection))
        try:
            await connection.serve(lambda: self._admit(name, connection))
        finally:
            if self._connections.get(name) is connection:
                del self._connections[name]
            if connection.is_admitted:
                self.service.metrics.connected(-1)
                for run in [*self._runs.values()]:
                    run.leave(connection)
            self._left.set()

    def _admit(self, name: tuple[str, str], connection: DuplexConnection) -> None:
        older = self._connections.get(name)
        self._connections[name] = connection
        if older is not None:
            older.close_soon()
        connection.is_admitted = True
        self.service.metrics.connected(1)

    def find(self, account: str, run: str) -> DuplexRun | None:
        """Return a run that came by some connection of this tenant."""
        return self._runs.get((account, run))

    def add(self, run: DuplexRun) -> None:
        """Keep a run; raises ProtocolError for a client that never acknowledges the ends of its runs."""
        if self._counts[run.account] >= _MAX_UNACKNOWLEDGED:
            raise ProtocolError(f"{_MAX_UNACKNOWLEDGED} runs are not over, or their ends not acknowledged")
        self._runs[run.account, run.link.run] = run
        self._counts[run.account] += 1

    def drop(self, run: DuplexRun) -> None:
        """Forget a run, whose end has arrived, or whose client did not come back."""
        if self._runs.get((run.account, run.link.run)) is run:
            del self._runs[run.account, run.link.run]
            self._counts[run.account] -= 1
            self._left.set()

    def push_soon(self) -> None:
        """Schedule a broadcast of the capacity to all clients."""
        if self._push is None and self._connections:
            self._push = asyncio.get_running_loop().call_later(_PUSH, self.push)

    def push(self) -> None:
        """Send the capacity to all clients."""
        if self._push is not None:
            self._push.cancel()
            self._push = None
        for connection in self._connections.values():
            connection.put(RemoteMessage("capacity", fields=self.capacity.counts(connection.key.account)))

    async def aclose(self, linger: float = _LINGER) -> None:
        """Deliver what is left to those who listen, within *linger* seconds, and close all connections."""
        self.push()
        for run in [*self._runs.values()]:
            run.end_session()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(linger):
                while any(run.is_listened_to for run in self._runs.values()):
                    self._left.clear()
                    await self._left.wait()
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))
        if self._push is not None:
            self._push.cancel()


class DuplexConnection:
    """One WebSocket of one client."""

    def __init__(
        self, hub: DuplexHub, socket: web.WebSocketResponse, key: SigningKey, path: str, door: Door | None = None
    ) -> None:
        self.hub = hub
        self.key = key
        self.is_admitted: bool = False
        """Whether the other side has shown that it has the secret of the key."""
        self._path = path
        self._door = door
        self._socket = socket
        self._outbox: deque[RemoteMessage] = deque()
        self._unsent = 0
        self._wake = asyncio.Event()
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
            async for message in self._socket:
                if self._is_closed:
                    break
                if message.type is WSMsgType.BINARY:
                    if self._door is not None:
                        self._door.consumed(len(message.data))
                    await asyncio.sleep(self.hub.service.shares.pause(self.key.account))  # 0: the others come first
                    self._take(message.data)
                elif message.type is WSMsgType.TEXT:
                    raise ProtocolError("messages are binary here")
        except ProtocolError as error:
            logger.warning("a connection of %s is closed: %s", self.key.id, error)
            await self._socket.close(code=1002, message=str(error).encode()[:100])
        finally:
            self._is_closed = True
            tasks = [*self._tasks, *([sending] if sending is not None else [])]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _challenged(self) -> tuple[str, str] | None:
        """Have the client sign what only this process asks, and only now; return both nonces, or None when it is
        gone. A handshake that was seen elsewhere, or before, opens nothing. Raises ProtocolError."""
        nonce, incarnation = token_hex(16), self.hub.service.incarnation.id
        spoken = {"protocol": SUBPROTOCOL, "version": VERSION}
        challenge = RemoteMessage("challenge", fields={**spoken, "incarnation": incarnation, "nonce": nonce})
        try:
            async with asyncio.timeout(self.hub.service.settings.header_timeout):
                await self._socket.send_bytes(encode_remote(challenge))
                message = await self._socket.receive()
        except (TimeoutError, ConnectionError, RuntimeError):
            await self.aclose()
            return None
        if message.type is not WSMsgType.BINARY:
            return None
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
            self.hub.ring.check(self.key, stamp, signature, target, theirs.encode(), time(), self.hub.replays)
        except SandboxDeniedError as error:
            self.hub.service.metrics.refused(error)
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
        self._is_closed = True
        self._later(self.aclose())

    async def aclose(self) -> None:
        """Close it; its runs wait for the next one."""
        self._is_closed = True
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await self._socket.close(code=1001)

    async def _greeting(self, nonces: tuple[str, str]) -> JSONObject:
        settings, incarnation = self.hub.service.settings, self.hub.service.incarnation
        return {
            "protocol": SUBPROTOCOL,
            "version": VERSION,
            "incarnation": incarnation.id,
            "proof": incarnation.state(WELCOME, *nonces),
            "keeps": settings.reconnect,
            "remembers": settings.keeps,
            **self.hub.which,
            "limits": {"body_bytes": settings.max_body_bytes, "message_bytes": settings.max_message_bytes},
            "capacity": self.hub.capacity.counts(self.key.account),
            "backends": await self.hub.capacity.backends(),
        }

    async def _send(self) -> None:
        while True:
            while self._outbox:
                message = self._outbox.popleft()
                self._unsent -= len(message.body) + _HEAD_BYTES
                try:
                    await self._send_one(message)
                except (ConnectionError, RuntimeError):  # the reading task will notice, too
                    self._is_closed = True
                    self._outbox.clear()
                    return
            self._wake.clear()
            await self._wake.wait()

    async def _send_one(self, message: RemoteMessage) -> None:
        """Send a message. What is large waits until little else of its tenant is on its way, and is copied then."""
        if message.type == "result" and not message.body:
            body = await self.hub.service.journal.read_body(self.key.account, message.run)
            message = replace(message, body=body)
        size, sending = len(message.body), self.hub.service.shares.sending
        if size < _LARGE:
            await self._socket.send_bytes(encode_remote(message))
            return
        await sending.wait(self.key.account, size)
        try:
            await self._socket.send_bytes(encode_remote(message))
        finally:
            sending.give(self.key.account, size)

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what comes in --------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        message = decode_remote(data)
        if not message.run:
            raise ProtocolError(f"a message of type {message.type} names no run")
        known = self.hub.find(self.key.account, message.run)
        if message.type == "resume":
            self._resume(message, known)
        elif known is not None:
            known.take(message, self)
        elif message.type in ("execute", "open"):
            self._begin(message)
        # else: of a run that is over, and forgotten

    def _resume(self, message: RemoteMessage, known: DuplexRun | None) -> None:
        service, account = self.hub.service, self.key.account
        service.metrics.resumed()
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
        record = self.hub.service.recall(self.key.account, run)
        if record is not None and record.state == "ended" and record.incarnation == incarnation:
            self.put(RemoteMessage("result", run, {"statement": record.statement}, record.body))
        else:
            self.put(RemoteMessage("gone", run, {"state": "was_running"}))

    def _begin(self, message: RemoteMessage) -> None:
        """Begin a run, or a session, that is new here."""
        hub, account = self.hub, self.key.account
        duplex = DuplexRun(hub, account, message.run, self)
        duplex.link.receive(message)
        hub.add(duplex)
        try:
            request = self._verified(message)
            if message.type == "open":
                duplex.opening = asyncio.create_task(self._open(duplex, request))
                duplex.opening.add_done_callback(duplex.note_given_up)
            else:
                fields = message.fields
                duplex.run = hub.service.submit(
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
            hub.service.metrics.refused(error)
            duplex.done(Outcome.refused(error))

    def _verified(self, message: RemoteMessage) -> RemoteRequest:
        """Return the request in a message that its sender has signed just now, for this run."""
        settings, fields = self.hub.service.settings, message.fields
        if len(message.body) > settings.max_body_bytes:
            raise InvalidRequestError(
                f"the request has {len(message.body)} bytes, more than {settings.max_body_bytes}; send less",
                code="request_too_large",
            )
        key = self.hub.ring.get(str(fields.get("key") or self.key.id))
        if key is None or key.account != self.key.account:
            raise SandboxDeniedError("the key of this request is not known here", code="unauthenticated")
        stamp, signature = fields.get("timestamp"), fields.get("signature")
        if not isinstance(stamp, str) or not isinstance(signature, str):
            raise SandboxDeniedError("the request is not signed", code="signature_invalid")
        target = Target(self.hub.service.incarnation.id, message.type, str(fields.get("session") or ""), message.run)
        self.hub.ring.check(key, stamp, signature, target, message.body, time(), self.hub.replays)
        request = read_request(message.body)
        if request.run != message.run:
            raise InvalidRequestError(f"the body is for the run {request.run or '(none)'}, not for {message.run}")
        return request

    async def _open(self, duplex: DuplexRun, request: RemoteRequest) -> None:
        try:
            await self.hub.service.open_session(
                self.key.account, duplex.link.run, request, duplex.route, duplex.end_session
            )
        except ToolExecError as error:
            self.hub.service.metrics.refused(error)
            duplex.done(Outcome.refused(error))
        else:
            duplex.opened()


class DuplexRun:
    """A run, or a session, of a client that comes by connections: the watcher of the run."""

    def __init__(self, hub: DuplexHub, account: str, run_id: str, connection: DuplexConnection) -> None:
        self.account = account
        self._key = connection.key.id
        self._has_begun = False
        self.link = Link(run_id)
        self.route = FrameRoute(self._send_frame)
        self.run: RemoteRun | None = None
        self._hub = hub
        self._connection: DuplexConnection | None = connection
        self._loop = asyncio.get_running_loop()
        self._held = 0  # bytes of what is not acknowledged, that its tenant has of those that are shared
        self._printed: deque[tuple[Stream, str]] = deque()
        self._flush_is_due = False
        self._is_over = False
        self._is_session = False
        self._away: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self.opening: asyncio.Task[None] | None = None

    @property
    def is_listened_to(self) -> bool:
        """Whether its end is on the way to a client that is there."""
        return self._is_over and self._connection is not None

    # -- the connection -----------------------------------------------------------------------------------------------

    def take(self, message: RemoteMessage, connection: DuplexConnection) -> None:
        """Act on a message of the client; raises ProtocolError. What an older connection still brings is left out."""
        if connection is not self._connection:
            return
        is_new = self.link.receive(message)
        self._give_back()
        if self._is_over and not self.link.kept_count:
            self._forget()
            return
        if not is_new:
            return
        match message.type:
            case "frame":
                self.route.deliver(message.body)
            case "go":
                self._confirm(message.fields)
            case "cancel" | "close":
                self._stop(SandboxFailedError("the program was stopped by its caller"))
                self.end_session()
            case _:
                raise ProtocolError(f"a message of type {message.type} does not go to a server")
        if self.link.ack_is_due:
            connection.put(self.link.ack())

    def resume(self, message: RemoteMessage, connection: DuplexConnection) -> None:
        """Go on over a new connection, with what the client does not have."""
        self.link.receive(message)
        self._give_back()
        if self._away is not None:
            self._away.cancel()
            self._away = None
        self._connection = connection
        if self._is_over and not self.link.kept_count:
            self._forget()
        connection.put(self.link.ack())
        for kept in self.link.again():
            connection.put(kept)

    def leave(self, connection: DuplexConnection) -> None:
        """Wait for the client to come back, if this was its connection."""
        if connection is self._connection:
            self._connection = None
            self._away = self._loop.call_later(self._hub.service.settings.reconnect, self._give_up)

    def _give_up(self) -> None:
        """Stop what has no caller any more."""
        self._stop(SandboxFailedError("the connection to the caller was lost, and it did not come back in time"))
        self.end_session()
        self._forget()

    def _give_back(self, kept: int | None = None) -> None:
        """Give back the bytes that were acknowledged, or all but *kept*."""
        kept = min(self._held, self.link.kept_bytes if kept is None else kept)
        self._hub.service.shares.held.give(self.account, self._held - kept)
        self._held = kept

    def _forget(self) -> None:
        self._give_back(0)
        self._hub.drop(self)
        if self._away is not None:
            self._away.cancel()
        if self.run is not None:
            self._hub.service.forget(self.run)

    def _stop(self, why: ToolExecError) -> None:
        self.route.lose(why.message)
        if self.run is not None:
            self.run.stop(why)
        if self.opening is not None and not self._is_session:
            self.opening.cancel()

    def _confirm(self, fields: JSONObject) -> None:
        seconds = fields.get("seconds")
        if self.run is not None:
            if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
                self.run.seconds = float(seconds)
            self.run.confirmed.set()

    def end_session(self) -> None:
        """Close the session, if this is one; its last message says so."""
        if self._is_session:
            self._is_session, self._is_over = False, True
            self._closing = self._hub.service.close_session(self.account, self.link.run)
            self.route.lose("the session is closed")
            self._send("result")

    # -- what becomes of the run --------------------------------------------------------------------------------------

    def ready(self, seconds: float) -> None:
        """Implement `Watcher.ready`."""
        self._send("ready", {"seconds": seconds})

    def started(self) -> None:
        """Implement `Watcher.started`: its sandbox may refuse it still, so there is nothing to say yet."""

    def note_given_up(self, opening: asyncio.Task[None]) -> None:
        """Say that there is no session when its opening was cancelled, be it before its first step."""
        if opening.cancelled():
            self.done(Outcome.refused(SandboxUnavailableError("the session was given up before it was open")))

    def opened(self) -> None:
        """Note that the session is open."""
        self._is_session = True
        self._send("opened")

    def printed(self, stream: Stream, text: str) -> None:
        """Implement `Watcher.printed`. From any thread."""
        self._printed.append((stream, text))
        if not self._flush_is_due:
            self._flush_is_due = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: there is no listener left
                self._loop.call_soon_threadsafe(self._flush)

    def done(self, outcome: Outcome) -> None:
        """Implement `Watcher.done`."""
        self._flush()
        self._is_over = True
        self.route.lose("the run is over")
        fields: JSONObject = {}
        if outcome.kind == "refused" and not self._has_begun:
            fields = {"proof": self._hub.service.prove_never(self.account, self.link.run, self._key)}
        self._send(outcome.kind, fields, outcome.body)

    def _flush(self) -> None:
        """Send what was printed; but not to a client that is far behind, as the result has all of it."""
        self._flush_is_due = False
        said: list[tuple[Stream, list[str]]] = []
        while self._printed:
            stream, text = self._printed.popleft()
            if said and said[-1][0] == stream:
                said[-1][1].append(text)
            else:
                said.append((stream, [text]))
        if not said or self._is_over or self.link.kept_bytes > _MAX_PRINTS:
            return
        if not self._hub.service.shares.held.may_take(
            self.account, sum(len(part) for _, parts in said for part in parts)
        ):
            return
        prints = [{"type": "print", "id": "0", "payload": {"text": "".join(parts), "stream": at}} for at, parts in said]
        self._show(json.dumps(prints).encode())

    def _send_frame(self, frame: bytes) -> None:
        self._flush()
        self._show(frame)

    def _show(self, frame: bytes) -> None:
        """Send what the program does; before the first of it, that it has begun."""
        if not self._has_begun:
            self._has_begun = True
            self._send("started")
        self._send("frame", body=frame)

    def _send(self, kind: str, fields: JSONObject | None = None, body: bytes = b"") -> None:
        service = self._hub.service
        is_held = not body or service.shares.held.take(self.account, len(body))
        if not is_held and kind == "frame":
            raise ProtocolError(f"too many bytes for {self.account} are held here; the other side is away, or too slow")
        is_spilled = not is_held and kind == "result" and self.run is not None and self._is_on_disk()
        message = self.link.send(kind, fields, body, keeps_body=not is_spilled)
        self._held += len(body) if is_held else 0
        if is_spilled and self.run is not None:
            service.forget(self.run)
            self.run = None
        if self._connection is not None:
            self._connection.put(message)

    def _is_on_disk(self) -> bool:
        return self._hub.service.journal.has_ended(self.account, self.link.run)
