"""The host's talk with one guest over a stream of bytes: hello, execute, calls and answers, prints, result.

Whoever starts guests brings a `Stream` and holds the deadline; all else is here. Nothing that a guest sends can harm
the host: what breaks the protocol is answered with an error, too much of it ends the talk, and memory stays bounded.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import json
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from toolexec.errors import ConnectionClosedError, InvalidRequestError, ProtocolError
from toolexec.runtime.base import ExecuteRequest
from toolexec.runtime.gateway.protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL,
    REQUESTS,
    VERSION,
    FrameReader,
    HostState,
    JSONCodec,
    Message,
    encode_message,
)
from toolexec.runtime.gateway.server import GatewayServer
from toolexec.runtime.outcome import Ending
from toolexec.runtime.stream import Stream

__all__ = ["MAX_OPEN", "Conversation", "execute_payload"]

logger = logging.getLogger(__name__)
MAX_OPEN: Final = 1000
"""How many requests of a guest are worked on at once; while there are as many, nothing more is read from it."""

_MAX_OFFENCES = 100
_MAX_UNSENT = 256 << 20
_MAX_SKIPPED = 4 * MAX_FRAME_BYTES
_GRACE = 2.0
_CODEC = JSONCodec()


class Conversation:
    """A talk with one guest, which runs programs one after the other until `aclose`.

    Make it on the event loop that the tools belong to. The guest speaks first; `start` waits for that.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._frames = FrameReader()
        self._state = HostState()
        self._sender = _Sender(stream)
        self._offences = 0
        self._run: _Run | None = None
        self._runs = 0
        self._ending: Ending | None = None
        self._greeted = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def start(self) -> None:
        """Wait for the guest's hello.

        Raises ProtocolError when the guest is of another release or speaks something else, ConnectionClosedError when
        it hangs up before.
        """
        await self._greeted.wait()
        if self._ending is not None:
            kind = ProtocolError if self._ending.stopped else ConnectionClosedError
            raise kind(self._ending.stderr or "the guest hung up before it said hello")

    async def run(self, request: ExecuteRequest) -> Ending:
        """Have the guest run one program and answer its calls with the gateway of *request*, until its result is there.

        The prints of the program go to the output of *request*. What is known about the end comes back: the result if
        there is one, else why not. Calls that are still under way then are cancelled. There is no time limit here;
        cancelling ends the calls, and leaves a guest that must be stopped.

        Raises InvalidRequestError for a program that does not fit into a message, and ProtocolError while another one
        runs; both with nothing run.
        """
        text = _execute_text(request)
        await self._greeted.wait()
        if self._ending is not None:
            return self._ending
        self._state.execute(run_id := str(self._runs + 1))
        self._runs += 1
        run = self._run = _Run(request)
        self._sender.put(encode_message("execute", run_id, text))
        try:
            return await run.ending
        finally:
            self._run = None
            await run.aclose()

    async def aclose(self) -> None:
        """Say good-bye if the guest still listens, and close the stream."""
        if self._ending is None:
            self._sender.put(encode_message("bye", "0", "{}"))
        self._listening.cancel()
        await asyncio.wait({self._listening})
        await self._sender.aclose()
        await self._stream.aclose()

    # -- what the guest says --------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Read until the guest hangs up or does too much harm."""
        ending = Ending()
        try:
            while self._state.phase != "closed" and (data := await self._stream.read()):
                for frame in self._frames.feed(data):
                    await self._take(frame)
                if self._frames.pending > _MAX_SKIPPED:
                    raise _OffenceError("it announced a message that is far too large")
            if self._frames.pending:
                ending = Ending(stderr="the guest hung up in the middle of a message")
        except _OffenceError as error:
            ending = Ending(stopped="violation", stderr=str(error))
        except OSError as error:
            ending = Ending(stderr=f"the connection to the guest is lost: {error}")
        except Exception:
            logger.exception("the talk with a guest failed")
            ending = Ending(stderr="the host failed in the talk with the guest")
        finally:
            self._ending = ending
            self._greeted.set()
            if self._run is not None:
                self._run.finish(ending)

    async def _take(self, frame: bytes | ProtocolError) -> None:
        try:
            if isinstance(frame, ProtocolError):
                raise frame
            messages = _CODEC.decode(frame)
        except ProtocolError as error:
            self._refuse(Message("", "0", {}), error)
            return
        for message in messages:
            try:
                self._state.receive(message)
                await self._handle(message)
            except ProtocolError as error:
                self._refuse(message, error)

    async def _handle(self, message: Message) -> None:
        """Do what a message asks for that may come now."""
        run = self._run
        match message.type:
            case "hello":
                limits = {"frame_bytes": MAX_FRAME_BYTES, "open_requests": MAX_OPEN}
                payload = {"protocol": PROTOCOL, "version": VERSION, "limits": limits}
                self._sender.put(encode_message("hello", "0", json.dumps(payload)))
                self._greeted.set()
            case "wait":
                raise ProtocolError("a guest on a stream waits for what it reads, and does not ask for it")
            case _ if run is None:
                return  # of a run that has been given up
            case "result":
                run.finish(Ending(result=message.payload))
            case "print" | "println":
                run.print(message)
            case "cancel":
                run.cancel(message.id)
            case kind if kind in REQUESTS:
                await self._begin(run, message)
            case _:
                return

    async def _begin(self, run: _Run, message: Message) -> None:
        """Start to answer a request, once there is room for it."""
        if self._sender.unsent > _MAX_UNSENT:
            raise _OffenceError("it asks more and more and does not read the answers")
        await run.room()
        if run.over:
            return
        task = run.answer(message)
        task.add_done_callback(lambda task: self._answered(run, message, task))

    def _answered(self, run: _Run, message: Message, task: asyncio.Task[str]) -> None:
        run.ended(message.id)
        if run.over:
            return
        if task.cancelled() or task.exception() is not None:
            answer = run.server.refusal(message, ProtocolError("the call was cancelled"))
        else:
            answer = task.result()
        self._state.answered(message.id)
        self._sender.put(answer)

    def _refuse(self, message: Message, error: ProtocolError) -> None:
        """Answer what breaks the protocol; a guest that keeps on doing it is not a guest."""
        self._offences += 1
        if self._offences > _MAX_OFFENCES or not self._greeted.is_set():
            raise _OffenceError(str(error))
        payload = {"error": error.message, "code": error.code, "retryable": False}
        self._sender.put(encode_message("error", message.id, json.dumps(payload)))


class _OffenceError(Exception):
    """The guest broke the protocol so badly, or so often, that the talk is over."""


class _Run:
    """One program that is running in the guest."""

    def __init__(self, request: ExecuteRequest) -> None:
        assert request.gateway is not None
        self.server = GatewayServer(request.gateway)
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._output = request.output
        self._context = contextvars.copy_context()
        self._tasks: dict[str, asyncio.Task[str]] = {}
        self._room = asyncio.Event()

    @property
    def over(self) -> bool:
        return self.ending.done()

    def finish(self, ending: Ending) -> None:
        if not self.ending.done():
            self.ending.set_result(ending)

    def print(self, message: Message) -> None:
        text = message.payload.get("text")
        if not isinstance(text, str):
            raise ProtocolError(f"{message.type} needs a text")
        if not text.isascii():  # half a character of UTF-16 is no text, and would fail far from here
            text = text.encode("utf-8", "replace").decode()
        stream = "stderr" if message.payload.get("stream") == "stderr" else "stdout"
        self._output.write(text if message.type == "print" else f"{text}\n", stream)
        self._output.drop(message.payload.get("dropped"), stream)

    def cancel(self, message_id: str) -> None:
        task = self._tasks.get(message_id)
        if task is not None:
            task.cancel()

    async def room(self) -> None:
        """Wait until another request can be worked on."""
        while len(self._tasks) >= MAX_OPEN and not self.over:
            self._room.clear()
            await self._room.wait()

    def answer(self, message: Message) -> asyncio.Task[str]:
        """Start to work on a request; in a context like that of the caller, whom the tools belong to."""
        work = self.server.answer(message)
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks[message.id] = task
        return task

    def ended(self, message_id: str) -> None:
        self._tasks.pop(message_id, None)
        self._room.set()

    async def aclose(self) -> None:
        """Cancel what is under way and wait for it, though not for ever: a tool may refuse to be cancelled."""
        self.ending.cancel()
        self._room.set()
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_GRACE)
            if left:
                logger.warning("%d tool calls go on though their run is over: they ignore cancellation", len(left))


class _Sender:
    """Sends messages in order; those that are ready at the same time travel in one frame."""

    def __init__(self, stream: Stream) -> None:
        self.unsent = 0
        """In characters."""
        self._stream = stream
        self._frames = FrameReader()
        self._ready: deque[str] = deque()
        self._task: asyncio.Task[None] | None = None
        self._lost = False

    def put(self, message: str) -> None:
        """Send *message* soon; does nothing when the guest is gone."""
        if self._lost:
            return
        self._ready.append(message)
        self.unsent += len(message)
        if self._task is None:
            self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._ready:
                batch = self._batch()
                await self._stream.write(self._frames.pack(f"[{','.join(batch)}]".encode()))
                self.unsent -= sum(map(len, batch))
        except OSError:  # who reads from the guest will notice, too
            self._lost = True
            self._ready.clear()
        finally:
            self._task = None

    def _batch(self) -> list[str]:
        """As much of what is ready as fits into one frame; JSON from here is ASCII, so that characters are bytes."""
        batch = [self._ready.popleft()]
        size = len(batch[0]) + 2
        while self._ready and size + len(self._ready[0]) + 1 <= MAX_FRAME_BYTES:
            size += len(self._ready[0]) + 1
            batch.append(self._ready.popleft())
        return batch

    async def aclose(self) -> None:
        """Send what is left if the guest takes it at once."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=0.1)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._lost = True


def execute_payload(request: ExecuteRequest) -> dict[str, Any]:
    """What an `execute` message says about *request*; its files and its working directory are the backend's affair."""
    payload: dict[str, Any] = {
        "code": request.code,
        "language": request.language or "python",
        "env": dict(request.env),
        "args": list(request.args),
        "output_limit": request.output.limit,
    }
    if request.stdin:
        payload["stdin"] = base64.b64encode(request.stdin).decode()
    if request.seed is not None:
        payload["seed"] = request.seed
    return payload


def _execute_text(request: ExecuteRequest) -> str:
    payload: Mapping[str, Any] = execute_payload(request)
    text = json.dumps(payload)
    if len(text) > MAX_FRAME_BYTES - 1024:
        raise InvalidRequestError(
            f"the program with its environment, arguments and input has {len(text)} bytes as JSON; at most "
            f"{MAX_FRAME_BYTES} fit: put what is large into files"
        )
    return text
