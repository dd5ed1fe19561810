"""The host's half of a gateway over a connection: it receives requests and sends the answers."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final

from toolexec.code.gateway import Gateway
from toolexec.code.tools import Tools
from toolexec.code.types import Output
from toolexec.errors import ConnectionClosedError, ProtocolError
from toolexec.runtime.guest.python.protocol import PROTOCOL, VERSION
from toolexec.runtime.protocol.connections import Connection
from toolexec.runtime.protocol.messages import REQUESTS, Codec, HostState, JSONCodec, Message, read_message
from toolexec.runtime.protocol.server import RequestServer
from toolexec.runtime.protocol.turns import Turns

logger: logging.Logger = logging.getLogger(__name__)
_JSON: Final = JSONCodec()
_MAX_WAITING: Final = 10_000
_MAX_WAITING_BYTES: Final = 64 << 20
_GRACE: Final = 5.0


async def serve_gateway(
    gateway: Gateway,
    connection: Connection,
    *,
    codec: Codec = _JSON,
    output: Output | None = None,
    max_requests: int = 256,
) -> None:
    """Answer what comes over *connection* until the other side says `bye` or is gone; then the requests under way are
    cancelled and the connection is closed, as they are when this is cancelled.

    At most *max_requests* are answered at once; up to 10,000 (or 64 MiB of them) wait, and what is over that is
    refused. *output* takes what the other side prints (default: the gateway's own output, if it has one). A message
    that is malformed, too large, of an unknown type or out of order is answered with an error of code `protocol`.
    """
    service = _Service(gateway, connection, codec, output, max_requests)
    try:
        await service.hear()
    finally:
        await service.aclose()


class _Service:
    """One connection being served."""

    def __init__(
        self, gateway: Gateway, connection: Connection, codec: Codec, output: Output | None, max_requests: int
    ) -> None:
        self._server = RequestServer(gateway)
        self._connection = connection
        self._codec = codec
        self._tools = gateway if isinstance(gateway, Tools) else None
        self._output = output or (self._tools.output if self._tools is not None else None)
        self._slots = asyncio.Semaphore(max_requests)
        self._state: HostState | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bytes = 0
        self._closing = False

    async def hear(self) -> None:
        """Take what comes, until there is no more."""
        turns = Turns()
        while True:
            try:
                frame = await self._connection.receive()
                messages = self._codec.decode(frame)
            except ProtocolError as error:
                if not await self._refuse(Message("error", "", {}), error):
                    return
                continue
            except ConnectionClosedError:
                return
            share = len(frame) // max(len(messages), 1)
            for message in messages:
                begun = len(self._tasks)
                if not await self._take(message, share):
                    return
                await (turns.start() if len(self._tasks) > begun else turns.read())

    async def aclose(self) -> None:
        """Cancel what is under way and close the connection."""
        self._closing = True
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                _, stuck = await asyncio.wait(tasks, timeout=_GRACE)
                if stuck:
                    logger.warning("%d requests of a closed gateway do not end", len(stuck))
        finally:
            await self._connection.aclose()

    async def _take(self, message: Message, size: int) -> bool:
        """Do what a message asks for; False when it was the last one."""
        kind = message.type
        try:
            self._check(message)
            if kind in REQUESTS and (len(self._tasks) >= _MAX_WAITING or self._bytes + size > _MAX_WAITING_BYTES):
                self._open.answered(message.id)
                raise ProtocolError("too many requests wait for an answer; wait for some of them before you send more")
        except ProtocolError as error:
            return await self._refuse(message, error)
        if kind == "bye":
            return False
        if kind == "hello":
            return await self._greet(message)
        if kind in REQUESTS:
            self._begin(message, size)
        elif kind == "cancel":
            task = self._tasks.get(message.id)
            if task is not None:
                task.cancel()
        elif kind == "release":
            self._server.release(message)
        else:
            self._print(message)
        return True

    def _check(self, message: Message) -> None:
        """Raises ProtocolError for a message that must not come now."""
        if self._state is None:  # a greeting is not needed, but if there is one, it is the first message
            state = HostState(handshake=message.type == "hello")
            if message.type == "hello":
                state.receive(message)
            state.execute("")
            self._state = state
            if message.type == "hello":
                return
        if message.type in ("result", "wait"):
            raise ProtocolError(f"a message of type {message.type!r} does not go to a gateway")
        self._state.receive(message)

    @property
    def _open(self) -> HostState:
        assert self._state is not None
        return self._state

    async def _greet(self, message: Message) -> bool:
        limits = self._tools.limits.to_dict() if self._tools is not None else {}
        greeting = {"protocol": PROTOCOL, "version": VERSION, "limits": limits, "capabilities": ["cancel", "handles"]}
        return await self._send(Message("hello", message.id, greeting))

    def _begin(self, message: Message, size: int) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(message))
        self._tasks[message.id] = task
        self._bytes += size

        def ended(_: object) -> None:
            del self._tasks[message.id]
            self._bytes -= size
            self._open.answered(message.id)

        task.add_done_callback(ended)

    async def _answer(self, message: Message) -> None:
        answer = ""
        try:
            async with self._slots:  # until it is sent: who does not read answers gets no more of them
                answer = await self._server.answer(message)
                await self._send_text(answer)
        except ProtocolError as error:  # it is too large for this connection, or this codec
            await self._refuse(message, error)
        except asyncio.CancelledError:
            if not answer and not self._closing:
                await self._refuse(message, ProtocolError("the request was cancelled"))
            raise

    def _print(self, message: Message) -> None:
        text = message.payload.get("text")
        if self._output is not None and isinstance(text, str):
            stream = "stderr" if message.payload.get("stream") == "stderr" else "stdout"
            self._output.write(f"{text}\n" if message.type == "println" else text, stream)

    async def _refuse(self, message: Message, error: ProtocolError) -> bool:
        return await self._send_text(self._server.refusal(message, error))

    async def _send_text(self, text: str) -> bool:
        """Send a message that is JSON already; False when the other side is gone."""
        if type(self._codec) is JSONCodec:
            return await self._send_frame(text.encode())
        return await self._send(read_message(json.loads(text)))

    async def _send(self, message: Message) -> bool:
        return await self._send_frame(self._codec.encode([message]))

    async def _send_frame(self, frame: bytes) -> bool:
        try:
            await self._connection.send(frame)
        except ConnectionClosedError:
            return False
        return True
