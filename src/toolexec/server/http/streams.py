"""Streams that a client comes back to with `Last-Event-ID`: it gets what it has missed, here or at another server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter
from pydantic_core import from_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolexec.errors import StateError
from toolexec.model.bound import Bound
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import ANYONE
from toolexec.process.poll import pauses
from toolexec.server.auth.credentials import CALLER
from toolexec.server.http.asked import Asked, HandIn, reply_in
from toolexec.server.http.event_ids import EventID, request_id
from toolexec.server.http.replies import header, refuse
from toolexec.server.http.stream import Ended, SessionLog, Stream
from toolexec.server.kept_answers import DENIED, ChecksAnswers, cut_off
from toolexec.server.kept_streams import BEAT, WORK, CallName, KeepsStreams, KeptEvents, KeptStreams, Standing

logger: logging.Logger = logging.getLogger(__name__)
RETRY_MS: Final = 2000
"""After how many milliseconds a client is to come back: a server has begun again by then."""
_LONG: Final = 0.5  # a call that takes so many seconds is known to other servers
_NOTICES: Final = 30
_NOTICE_BYTES: Final = 32 << 10
_PRIMED: Final = "2025-11-25"  # from here on the SDK announces a stream to clients before its first event
_MEANINGS: Final[dict[Standing, str]] = {
    "not_run": "the server that had this call has ended before anything was done for it; call it again",
    "unknown": "the server that had this call has ended, or its answer is not there; what it did is unknown, and "
    "nothing was run again",
    "denied": DENIED,
    "over": "this call is over, but its answer was too long to be kept, or too old; nothing was run again",
}
_SENTINEL: Final = SessionLog("")


class Streams(EventStore):
    """The event streams of the sessions of *lowlevel*: those of requests, of which each ends with an answer, and those
    of notices.

    What has been sent is kept in memory, within the bounds of `Ended`. Where *lowlevel* has `kept_streams`, an answer
    that no client was there to take, and that a server works on a call for more than half a second, is known to other
    servers over the same store. A client that comes back for what no server has gets an error that says how the call
    stands: it never waits for nothing, and nothing is run twice.

    What a call asks its client has an answer in a request of its own, which may reach another server; see `Asked`.
    *hand_in* takes those that come from there.

    Without *keeps* there are no such streams: what a client says that it has got last is not looked at.

    The SDK asks for events by the names of requests, without their session. So each request is passed on by `serve`,
    and the work of a session is begun in its `within`; both say in a context variable whose events they are.
    """

    def __init__(self, lowlevel: Server[Any], hand_in: HandIn, *, keeps: bool = True) -> None:
        self._lowlevel = lowlevel
        self._keeps = keeps
        self._kept: KeptStreams | None = lowlevel.kept_streams if isinstance(lowlevel, KeepsStreams) else None
        self._rights = lowlevel.answer_rights if isinstance(lowlevel, ChecksAnswers) else None
        self._asked = Asked(self._kept.replies if self._kept is not None else None, hand_in)
        self.ended: Ended = Ended()
        self._log: ContextVar[SessionLog] = ContextVar("toolexec_session_log", default=_SENTINEL)
        self._stream: ContextVar[Stream | None] = ContextVar("toolexec_stream", default=None)
        self._own = EventID(self._kept.server if self._kept is not None else f"{id(self):016x}", 0, None)
        self._at_work: set[Stream] = set()
        self._beating: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Streams can be kept in the block; at its end other servers know that this one works on nothing."""
        try:
            yield
        finally:
            if self._beating is not None:
                self._beating.cancel()
            await self._asked.aclose()
            if self._jobs:
                await asyncio.wait(self._jobs)
            if self._kept is not None and self._beating is not None:
                await self._kept.end()

    @contextmanager
    def within(self, log: SessionLog) -> Generator[None]:
        """Have what is begun in the block belong to the session *log*."""
        with Bound(self._log, log):
            yield

    async def serve(self, app: ASGIApp, log: SessionLog, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of the session *log* by *app*, and keep what the client has missed when it goes away."""
        if not self._keeps:
            headers = [(name, value) for name, value in scope["headers"] if name != b"last-event-id"]
            await app({**scope, "headers": headers}, receive, send)
            return
        log.caller = scope.get(CALLER, ANYONE)
        with self.within(log):
            if scope["method"] != "POST":
                last = header(scope, b"last-event-id")
                if last and EventID.read(last) is None:  # there is no request to answer
                    await refuse(send, 400, "Last-Event-ID is of no event of this server", error="unknown_event")
                    return
                await app(scope, receive, send)
                return
            parts = [await receive()]  # a body comes in one part; see `BodyLimits`
            body: bytes = parts[0].get("body", b"")

            async def read() -> Message:
                return parts.pop() if parts else await receive()

            if (answer := reply_in(body)) is not None:
                await self._asked.take(log, answer, app, scope, read, send)
                return
            stream = Stream(log, self._kept)
            stream.body = body
            if (header(scope, b"mcp-protocol-version") or "") < _PRIMED:
                self._open_unprimed(stream)

            async def write(message: Message) -> None:
                await send(message)
                if message["type"] == "http.response.body" and not message.get("more_body", False):
                    stream.is_taken = stream.is_over

            timer = asyncio.get_running_loop().call_later(_LONG, self._mark, stream)
            stream.readers = 1
            try:
                with Bound(self._stream, stream):
                    await app({**scope, WORK: stream}, read, write)
            finally:
                timer.cancel()
                self._left(stream)

    def end(self, log: SessionLog) -> None:
        """Forget the streams of a session that is over, and that this server works on its calls."""
        for stream in log.streams.values():
            self._asked.end(stream)
            if stream in self._at_work:
                self._do(self._over(stream))
        self.ended.end(log)

    # -- what the SDK asks for ----------------------------------------------------------------------------------

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event, and return its ID; empty for one of a stream that no client can come back to."""
        log = self._log.get()
        if message is None:
            stream = self._stream.get()
            if stream is None:
                return ""
            if (earlier := log.streams.get(stream_id)) is not None and earlier.is_over:
                self.ended.drop(earlier)  # its client takes the ID for another request
            stream.open(stream_id, request_id(stream.body, stream_id))
            return EventID(self._own.server, 0, stream.request).text()
        stream = log.streams.get(stream_id)
        if stream is None and stream_id == GET_STREAM_KEY:
            stream = self._notices(log)
        if stream is None or stream.is_over:
            return ""
        is_last = isinstance(message, JSONRPCResponse | JSONRPCError)
        if isinstance(message, JSONRPCRequest) and (marking := self._mark(stream)) is not None:
            await marking  # a person takes long
        await self._asked.sending(log, stream, message)
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
        number = stream.add(text, last=is_last)
        await self._asked.sent(message, (number, text))
        if is_last:
            self._asked.end(stream)
            self.ended.add(stream)
            if not stream.readers:
                await self._keep(stream)
        return EventID(self._own.server, number, stream.request).text()

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after an event, and what comes, until the stream is over. Returns None: what goes on is sent
        here, without a gap, and not by the SDK."""
        log, last = self._log.get(), EventID.read(last_event_id)
        if last is None:
            return None
        if last.request is None:
            is_here = last.server == self._own.server
            stream = log.streams.get(GET_STREAM_KEY) or self._notices(log)
            if not is_here:
                await self._say_all_changed(log, send_callback)
            await self._follow(stream, last.number if is_here else 0, send_callback)
        elif last.server == self._own.server and (stream := log.streams.get(str(last.request))) is not None:
            await self._follow(stream, last.number, send_callback)
        else:
            await self._fetch(log, last, send_callback)
        return None

    # -- streams of this server ---------------------------------------------------------------------------------

    def _notices(self, log: SessionLog) -> Stream:
        stream = Stream(log, most=_NOTICES, longest=_NOTICE_BYTES)
        stream.open(GET_STREAM_KEY, None)
        return stream

    def _open_unprimed(self, stream: Stream) -> None:
        """Have a stream be known before its first event, where the SDK says nothing of it."""
        try:
            found = from_json(stream.body)
        except ValueError:
            return
        request = found.get("id") if isinstance(found, dict) and "method" in found else None
        if isinstance(request, int | str) and not isinstance(request, bool):
            stream.open(str(request), request)

    async def _follow(self, stream: Stream, number: int, send: EventCallback) -> None:
        stream.readers += 1
        try:
            while True:
                if stream.after(number) and not await self._may_have(stream.log, stream.tools):
                    await self._say(EventID(self._own.server, number, stream.request), "denied", send)
                    return
                for number, text in stream.after(number):  # noqa: B020 - where it goes on from
                    await send(self._event(EventID(self._own.server, number, stream.request), text))
                if stream.is_over:
                    break
                await stream.changed()
            if not stream.is_whole:
                await self._say(EventID(self._own.server, number, stream.request), "over", send)
            stream.is_taken = True
        finally:
            self._left(stream)

    def _left(self, stream: Stream) -> None:
        """Note that a connection has left a stream."""
        stream.readers -= 1
        if stream.readers or stream.request is None:
            return
        if not stream.is_over:
            self._mark(stream)
        elif not stream.is_taken:
            self._do(self._keep(stream))
        elif stream.is_marked:
            self._do(self._over(stream))

    # -- what other servers know --------------------------------------------------------------------------------

    def _mark(self, stream: Stream) -> asyncio.Task[None] | None:
        """Have other servers know of a call that is not over; return what does, where they do not know of it yet."""
        if self._kept is None or not stream.name or stream.is_over or stream.is_marked:
            return None
        self._at_work.add(stream)
        if self._beating is None or self._beating.done():
            self._beating = asyncio.get_running_loop().create_task(self._beat(self._kept))
        return self._do(stream.mark())

    async def _beat(self, kept: KeptStreams) -> None:
        while self._at_work:
            await asyncio.sleep(BEAT)
            await kept.beat()

    async def _keep(self, stream: Stream) -> None:
        if self._kept is not None and stream.is_whole and not stream.is_kept:
            stream.is_kept = True
            await self._kept.keep(stream.call, stream.after(0), stream.tools)
        await self._over(stream)

    async def _over(self, stream: Stream) -> None:
        self._at_work.discard(stream)
        if self._kept is not None:
            await self._kept.over(stream.call)

    def _do(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    # -- streams of other servers -------------------------------------------------------------------------------

    async def _fetch(self, log: SessionLog, last: EventID, send: EventCallback) -> None:
        """Send what another server has kept of a stream; wait for that as long as it works on it, and put its questions
        meanwhile."""
        call = CallName(log.id, str(last.request), log.owner)
        for pause in pauses(0.1, 1.0):
            asked = None
            try:
                standing: Standing = await self._kept.standing(call) if self._kept is not None else "unknown"
                found = await self._kept.answer(call) if self._kept is not None else None  # kept before it is over
                if found is None and standing == "at_work" and self._kept is not None:
                    asked = await self._kept.questions(call)
            except StateError as error:  # the client comes back once more
                logger.error("a stream cannot go on for now: %s", error)
                return
            if found is not None and not await self._may_have(log, found.tools):
                await self._say(last, "denied", send)
                return
            for server, number, text in _after(last, found or asked):
                event = self._event(EventID(server, number, last.request), text)
                if found is None or not isinstance(event.message, JSONRPCRequest):  # no question of a call that is over
                    last = EventID(server, number, last.request)
                    await send(event)
            if found is not None:
                return
            if standing != "at_work":
                await self._say(last, standing, send)
                return
            await asyncio.sleep(pause)

    async def _may_have(self, log: SessionLog, tools: Collection[str]) -> bool:
        """Return whether the caller may have by now what came of these tools."""
        return not tools or self._rights is None or await self._rights.allows(log.caller, tools)

    async def _say(self, last: EventID, standing: Standing, send: EventCallback) -> None:
        """Answer a call with how it stands."""
        error = cut_off(_MEANINGS[standing], standing)
        await send(
            self._message(EventID(last.server, last.number + 1, last.request), {"id": last.request, "error": error})
        )

    async def _say_all_changed(self, log: SessionLog, send: EventCallback) -> None:
        """Send a client what it may have missed while no server had its session: that anything may have changed."""
        has = self._lowlevel.create_initialization_options().capabilities
        kinds = {"tools": has.tools, "resources": has.resources, "prompts": has.prompts}
        names = [f"notifications/{kind}/list_changed" for kind, offer in kinds.items() if offer and offer.list_changed]
        notices: list[JSONDict] = [{"method": name} for name in names]
        notices += [{"method": "notifications/resources/updated", "params": {"uri": uri}} for uri in log.watched]
        for notice in notices:
            await send(self._message(EventID(self._own.server, 0, None), notice))

    def _message(self, at: EventID, body: JSONDict) -> EventMessage:
        return EventMessage(
            jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **body}, by_name=False), at.text()
        )

    def _event(self, at: EventID, text: str) -> EventMessage:
        return EventMessage(jsonrpc_message_adapter.validate_json(text, by_name=False), at.text())


def _after(last: EventID, kept: KeptEvents | None) -> list[tuple[str, int, str]]:
    """Return the events of a server that a client has not got yet which has got that one last."""
    events = kept.events if kept is not None else ()
    server = kept.server if kept is not None else ""
    return [(server, number, text) for number, text in events if server != last.server or number > last.number]
