"""The gateway of a program that runs here: what it asks goes to its caller as it is, and so do the answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Awaitable, Callable
from time import monotonic, perf_counter
from typing import Any, Final, Protocol

from toolexec.errors import ConnectionClosedError, ProtocolError, ToolExecError
from toolexec.remote import (
    CountedGateway,
    JSONObject,
    JSONValue,
    ToolCallRecord,
    encode_message,
    error_payload,
    read_error,
    read_steps,
)
from toolexec.sandbox import JSONCodec, Limits, Message, ProxyGateway

logger: logging.Logger = logging.getLogger(__name__)
_CODEC: Final = JSONCodec()
_ANSWER: Final = re.compile(rb'\{"type":"(response|error)","id":"(\w{1,32})","payload":')
_MAX_RECORDS: Final = 10_000


class Answer:
    """An answer of the caller: its `type` (`response` or `error`) and its payload as JSON."""

    __slots__ = ("payload", "type")

    def __init__(self, kind: str, payload: str) -> None:
        self.type = kind
        self.payload = payload

    def data(self) -> JSONObject:
        """Return the payload itself; an empty one when it is not an object."""
        try:
            found: JSONValue = json.loads(self.payload)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class Route(Protocol):
    """How requests get to the caller of a program."""

    async def ask(self, kind: str, payload: str) -> Answer:
        """Return the answer to a request with this payload (JSON); cancelling it stops the call there, too.

        Raises ConnectionClosedError when the caller is gone.
        """
        ...

    def note(self, kind: str, payload: str) -> None:
        """Send a message that has no answer."""
        ...


class NoRoute:
    """The route of a request that names no gateway: every call fails, and says why."""

    async def ask(self, kind: str, payload: str) -> Answer:
        """Implement `Route.ask`."""
        raise ConnectionClosedError(
            f"this run has no gateway, so it can call no tools ({kind}); name one in gateway.url"
        )

    def note(self, kind: str, payload: str) -> None:
        """Implement `Route.note`."""


class FrameRoute:
    """Over the connection that the request came by, as frames of the guest protocol, which *send* sends."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._last = 0
        self._pending: dict[str, asyncio.Future[Answer]] = {}
        self._lost = ""

    async def ask(self, kind: str, payload: str) -> Answer:
        """Implement `Route.ask`."""
        if self._lost:
            raise ConnectionClosedError(self._lost)
        self._last += 1
        name = str(self._last)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending[name] = answer
        try:
            self._send(encode_message(kind, name, payload).encode())
            return await answer
        except asyncio.CancelledError:
            self._cancel(name)
            raise
        finally:
            del self._pending[name]

    def note(self, kind: str, payload: str) -> None:
        """Implement `Route.note`."""
        if not self._lost:
            self._send(encode_message(kind, "0", payload).encode())

    def _cancel(self, name: str) -> None:
        if not self._lost:
            with contextlib.suppress(ProtocolError):  # so much waits to be sent that this is not, too
                self._send(encode_message("cancel", name, "{}").encode())

    def deliver(self, frame: bytes) -> None:
        """Take a frame with answers; raises ProtocolError when it is malformed. Those to calls that were given up are
        left out."""
        found = _ANSWER.match(frame)
        if found is not None and frame.endswith(b"}") and frame.isascii():
            self._settle(found[2].decode(), Answer(found[1].decode(), frame[found.end() : -1].decode()))
            return
        for message in _CODEC.decode(frame):
            kind = "error" if message.type == "error" else "response"
            self._settle(message.id, Answer(kind, json.dumps(dict(message.payload))))

    def lose(self, why: str) -> None:
        """Fail what is under way, and what comes. What sends is known no more: it knows this, too, and both together
        would be garbage that only a collection finds."""
        self._lost = self._lost or why
        self._send = _drop
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionClosedError(why))

    def _settle(self, name: str, answer: Answer) -> None:
        pending = self._pending.get(name)
        if pending is None or pending.done():
            logger.debug("an answer comes too late: %s", name)
        else:
            pending.set_result(answer)


class RelayGateway(CountedGateway):
    """Passes what a program asks on over *route*, counts its calls, and keeps to *limits*.

    Sandboxes use `relay`, which changes nothing on the way; the methods of a `Gateway` are there for those that do not
    know it.
    """

    def __init__(self, route: Route, limits: Limits) -> None:
        self._connection = connection = _RouteConnection(self._asked)
        proxy = ProxyGateway(connection)
        connection.deliver = proxy.deliver
        super().__init__(proxy, limits)
        self.has_asked: bool = False
        """Whether the program has asked anything: then it has begun."""
        self.waits_since: float = 0.0
        """Since when it waits for an answer and has got none; 0: it asks nothing."""
        self._asking = 0
        self._route = route
        self._records: list[ToolCallRecord] = []

    async def relay(self, message: Message) -> str:
        """Return the answer to a request, as a message. Raises ToolCallLimitError and ChainStepLimitError, with nothing
        asked, and ConnectionClosedError."""
        if message.type == "run_tool":
            self._count.reserve()
        elif message.type == "run_chain":
            return await self._relay_chain(message)
        answer = await self._asked(message)
        return encode_message(answer.type, message.id, answer.payload)

    async def _relay_chain(self, message: Message) -> str:
        """Return the answer to a chain; the attempts that were not made are not counted."""
        steps = read_steps(message.payload)
        most = len(steps) + sum(step.retries for step in steps)
        self._count.reserve_chain(len(steps), most)
        done = 0
        try:
            answer = await self._asked(message)
            done = sum(_attempts(item) for item in _list(answer.data(), "stepResults"))
        finally:
            self._count.give_back(most - min(done, most))
        return encode_message(answer.type, message.id, answer.payload)

    async def _asked(self, message: Message) -> Answer:
        """Return the answer to a request, and record the calls in it."""
        began = perf_counter()
        self.has_asked = True
        answer: Answer | None = None
        self._asking += 1
        self.waits_since = self.waits_since or monotonic()
        try:
            answer = await self._route.ask(message.type, json.dumps(dict(message.payload)))
            return answer
        finally:
            self._asking -= 1
            self.waits_since = monotonic() if self._asking else 0.0
            if message.type == "run_tool":
                self._note("run", message.payload.get("id"), answer, perf_counter() - began)
            elif message.type == "run_chain" and answer is not None:
                self._note_chain(answer, perf_counter() - began)

    def release(self, message: Message) -> None:
        """Pass on that the program holds some results no longer."""
        self._route.note("release", json.dumps(dict(message.payload)))

    def close(self) -> None:
        """Ask nothing more, as the run is over: what has a part in it is free at once, without a collection."""
        self._connection.close()

    def tool_calls(self) -> list[ToolCallRecord]:
        """Return the calls that were made, without their arguments and values, which the caller has."""
        return [*self._records]

    def _note(self, op: str, tool_id: object, answer: Answer | None, seconds: float) -> None:
        if len(self._records) >= _MAX_RECORDS or not isinstance(tool_id, str):
            return
        failed = answer is None or answer.type == "error"
        error = read_error(answer.data()) if answer is not None and failed else None
        kind = "" if answer is None else _backend_kind(answer.payload)
        self._records.append(
            ToolCallRecord(tool_id, error=error, error_op=op if failed else "", duration=seconds, backend_kind=kind)
        )

    def _note_chain(self, answer: Answer, seconds: float) -> None:
        """Record the steps that were executed."""
        done = [item for item in _list(answer.data(), "stepResults") if isinstance(item, dict)]
        for item in done:
            if not item.get("skipped"):
                failed = "error" in item
                whole = Answer("error" if failed else "response", json.dumps(item["error"] if failed else item))
                self._note("chain", item.get("toolId"), whole, seconds / len(done))


def _attempts(item: object) -> int:
    """Return how many calls a step's outcome says that it took, at least the one that it is."""
    made = item.get("attempts") if isinstance(item, dict) else 1
    return made if type(made) is int and made > 0 else 1


def _list(data: JSONObject, name: str) -> list[Any]:
    found = data.get(name)
    return found if isinstance(found, list) else []


_KIND: Final = re.compile(r'"backendKind":\s?"(\w{1,32})"')


def _backend_kind(payload: str) -> str:
    """Return where a tool ran; it stands before the value in an answer."""
    found = _KIND.search(payload, 0, 1000)
    return found[1] if found is not None else ""


def _drop(_: object) -> None:
    """Send nothing."""


async def _refuse(_: Message) -> Answer:
    raise ConnectionClosedError("the run is over")


class _RouteConnection:
    """Has a `ProxyGateway` ask over a route."""

    def __init__(self, ask: Callable[[Message], Awaitable[Answer]]) -> None:
        self.deliver: Callable[[Message], None] = lambda _: None
        self._ask_route = ask
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def send(self, frame: bytes) -> None:
        """Implement `Connection.send`."""
        for message in _CODEC.decode(frame):
            if message.type == "cancel":
                if message.id in self._tasks:
                    self._tasks[message.id].cancel()
            else:
                self._tasks[message.id] = asyncio.create_task(self._ask(message))

    async def receive(self) -> bytes:
        """Implement `Connection.receive`: answers are delivered, and not received."""
        raise ConnectionClosedError("nothing is received here")

    async def aclose(self) -> None:
        """Implement `Connection.aclose`."""
        for task in [*self._tasks.values()]:
            task.cancel()

    def close(self) -> None:
        """Forget who asks, and who is asked."""
        self.deliver, self._ask_route = _drop, _refuse

    async def _ask(self, message: Message) -> None:
        try:
            answer = await self._ask_route(message)
            answered = Message(answer.type, message.id, answer.data())
        except ToolExecError as error:
            answered = Message("error", message.id, error_payload(error))
        finally:
            del self._tasks[message.id]
        try:
            self.deliver(answered)
        except ToolExecError:
            logger.debug("an answer comes too late", exc_info=True)
