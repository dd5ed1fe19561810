"""The host's talk with one guest over a stream of bytes: hello, files, execute, calls and answers, prints, result.

The caller that starts guests brings a `Stream` and holds the deadline; all else is here. Nothing that a guest sends can
harm the host: what breaks the protocol is answered with an error, too much of it ends the talk, and memory stays
bounded.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import json
import logging
from collections.abc import Coroutine, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from toolexec.backend.failures import cancel_begun
from toolexec.code.types import ExecuteRequest
from toolexec.errors import ConnectionClosedError, GatewayError, InvalidRequestError, ProtocolError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.process.directory import MAX_FILES
from toolexec.process.stream import Stream
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES, PROTOCOL, VERSION
from toolexec.runtime.outcome import Ending
from toolexec.runtime.protocol.messages import (
    MAX_HEADER_BYTES,
    REQUESTS,
    FrameReader,
    HostState,
    JSONCodec,
    Message,
    encode_message,
    is_data_frame,
    read_data_frame,
    too_large_result,
)
from toolexec.runtime.protocol.pieces import messages_in_pieces
from toolexec.runtime.protocol.sender import Sender
from toolexec.runtime.protocol.server import RequestServer
from toolexec.runtime.protocol.transfer import MAX_FILE_BYTES, Transfers
from toolexec.runtime.protocol.tunnel import Connect, Tunnels
from toolexec.runtime.protocol.turns import Turns

logger: logging.Logger = logging.getLogger(__name__)
MAX_OPEN: Final = 1000
"""How many requests of a guest are worked on at once; while there are as many, nothing more is read from it."""

_MAX_OFFENCES = 100
_MAX_UNSENT = 256 << 20
_MAX_SKIPPED = 4 * MAX_FRAME_BYTES
_LARGE = 1 << 16
_GRACE = 0.1
_CODEC = JSONCodec()


class Conversation:
    """A talk with one guest, which runs programs one after the other until `aclose`.

    Make it on the event loop that the tools belong to. The guest speaks first; `start` waits for that. With *connect*
    the guest can open network connections while a program runs: each is given to *connect*, in a task that is
    cancelled at the end of the run. Without it that is forbidden.
    """

    def __init__(self, stream: Stream, connect: Connect | None = None) -> None:
        self._stream = stream
        self._frames = FrameReader()
        self._state = HostState(network=connect is not None)
        self._sender = Sender(stream)
        self._nothing_new = False
        self._tunnels = Tunnels(connect, self._sender) if connect is not None else None
        self._hello: JSONObject = MappingProxyType({})
        self._offences = 0
        self._run: _Run | None = None
        self._runs = 0
        self._ending: Ending | None = None
        self._greeted = asyncio.Event()
        self._turns = Turns()
        self._listening = asyncio.create_task(self._listen())

    async def start(self) -> None:
        """Wait for the guest's hello.

        Raises ProtocolError when the guest is of another release or speaks something else, ConnectionClosedError when
        it hangs up before.
        """
        await self._greeted.wait()
        if self._ending is not None:
            raise _gone(self._ending)

    @property
    def hello(self) -> JSONObject:
        """What the guest said of itself in its first message (at most 64 KiB of JSON), unchecked; empty before."""
        return self._hello

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the guest said that it can do: at most 64 short strings; none before its first message."""
        return self._state.capabilities

    @property
    def over(self) -> bool:
        """Whether the guest has hung up or was hung up on."""
        return self._ending is not None

    async def put_files(self, files: Mapping[str, bytes]) -> None:
        """Put *files*, by relative path, into the guest's working directory; without any, nothing is sent.

        There is no time limit here; cancelling leaves a guest that must be stopped. Raises InvalidRequestError for
        files that cannot be there: for paths that make no sense before anything is sent. Raises ProtocolError while a
        program runs, and ConnectionClosedError when the guest is gone.
        """
        await self._greeted.wait()
        if self._ending is not None or not await self._files.put(files):
            raise _gone(self._ending or Ending())

    async def take_files(
        self, *, max_files: int = MAX_FILES, max_bytes: int = MAX_FILE_BYTES
    ) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """Return the files that the last program has made or changed, by relative path, and the names of those that
        were left out as there were more than *max_files*, or more bytes than *max_bytes* in all.

        A guest that is gone has none. There is no time limit here; cancelling leaves a guest that must be stopped.
        Raises ProtocolError before there is a result, and for a guest that breaks the rules or cannot give its files.
        """
        await self._greeted.wait()
        found: tuple[dict[str, bytes], tuple[str, ...]] = ({}, ())
        if self._ending is None:
            found = await self._files.take(max_files, max_bytes, nothing_new=self._nothing_new)
        if self._ending is not None and self._ending.stopped:
            raise _gone(self._ending)
        return found

    async def run(self, request: ExecuteRequest, extra: JSONObject | None = None) -> Ending:
        """Have the guest run one program and answer its calls with the gateway of *request*, until its result is there.

        The prints of the program go to the output of *request*. What is known about the end comes back: the result if
        there is one, else why not. Calls that are still under way then are cancelled. There is no time limit here;
        cancelling ends the calls, and leaves a guest that must be stopped. *extra* goes into the message beside what it
        says of *request*.

        Raises InvalidRequestError for a program that does not fit into a message, and ProtocolError while another one
        runs; both with nothing run.
        """
        text = execute_text(request, extra or {})
        await self._greeted.wait()
        if self._ending is not None:
            return self._ending
        self._state.execute(run_id := str(self._runs + 1))
        self._runs += 1
        self._nothing_new = False
        if self._tunnels is not None:
            self._tunnels.begin()
        run = self._run = _Run(request)
        self._sender.put(encode_message("execute", run_id, text))
        try:
            return await run.ending
        finally:
            self._run = None
            if self._tunnels is not None:
                self._tunnels.stop()
            await run.aclose()
            if self._tunnels is not None:
                await self._tunnels.wait()

    def interrupt(self) -> bool:
        """Have the guest stop the program that runs, and go on itself; the result of the run then has `interrupted`.

        Return False where the guest cannot do that, or is gone. A program may go on all the same.
        """
        if "interrupt" not in self.capabilities or self._ending is not None or self._run is None:
            return False
        self._sender.put(encode_message("cancel", self._state.run_id, "{}"))
        return True

    async def aclose(self) -> None:
        """Say good-bye if the guest still listens, and close the stream."""
        if self._ending is None:
            self._sender.put(encode_message("bye", "0", "{}"))
        self._listening.cancel()
        await asyncio.wait({self._listening})
        if self._tunnels is not None:
            self._tunnels.stop()
            await self._tunnels.wait()
        await self._sender.aclose()
        await self._stream.aclose()

    @cached_property
    def _files(self) -> Transfers:
        """The files that go in and out; of many guests none do."""
        return Transfers(self._state, self._sender)

    # -- what the guest says --------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Read until the guest hangs up or does too much harm."""
        ending = Ending()
        try:
            while self._state.phase != "closed" and (data := await self._stream.read()):
                for frame in self._frames.feed(data):
                    await self._take(frame)
                    await self._turns.read()
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
            if self._tunnels is not None:
                self._tunnels.lose()
            if "_files" in self.__dict__:
                self._files.lose()
            if self._run is not None:
                self._run.finish(ending)
        self._sender.give_up()

    async def _take(self, frame: bytes | ProtocolError) -> None:
        try:
            if isinstance(frame, ProtocolError):
                raise frame
            if self._state.phase == "new" and len(frame) > MAX_HEADER_BYTES:
                raise ProtocolError(f"the guest says hello with {len(frame)} bytes")
            if is_data_frame(frame):
                self._take_data(*read_data_frame(frame))
                return
            messages = _CODEC.decode(frame) if len(frame) <= _LARGE else await messages_in_pieces(frame)
        except ProtocolError as error:
            self._refuse(Message("", "0", {}), error)
            return
        for message in messages:
            try:
                self._state.receive(message)
                await self._handle(message)
            except ProtocolError as error:
                self._refuse(message, error)
            await self._turns.read()

    def _take_data(self, message: Message, data: bytes) -> None:
        try:
            self._state.receive(message, with_data=True)
            if message.type == "net_data":
                self._take_network(message, data)
            else:
                self._take_file(message, data)
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
                self._hello = MappingProxyType(dict(message.payload))
                self._greeted.set()
            case "wait":
                raise ProtocolError("a guest on a stream waits for what it reads, and does not ask for it")
            case "response" | "error":
                self._take_file(message)
            case kind if kind.startswith("net_"):
                self._take_network(message)
            case _ if run is None:
                return  # of a run that has been given up
            case "result":
                self._nothing_new = message.payload.get("files") is False
                refused = message.refused
                run.finish(Ending(result=message.payload if refused is None else too_large_result(refused.message)))
            case "print" | "println":
                run.print(message)
            case "cancel":
                run.cancel(message.id)
            case "release":
                run.server.release(message)
            case kind if kind in REQUESTS:
                await self._begin(run, message)
            case _:
                return

    def _take_network(self, message: Message, data: bytes = b"") -> None:
        assert self._tunnels is not None  # without a network such a message has been refused
        self._tunnels.receive(message, data)

    def _take_file(self, message: Message, data: bytes = b"") -> None:
        """A piece of a file, or the end of all; after a wrong one the others make no sense."""
        try:
            if message.type == "file":
                self._files.receive(message, data)
            else:
                self._files.finish(message)
        except ProtocolError as error:
            raise _OffenceError(str(error)) from error

    async def _begin(self, run: _Run, message: Message) -> None:
        """Start to answer a request, once there is room for it."""
        if self._sender.unsent > _MAX_UNSENT:
            raise _OffenceError("it asks more and more and does not read the answers")
        await run.room()
        if run.over:
            return
        run.begin(message, self._answer(run, message))
        await self._turns.start()

    async def _answer(self, run: _Run, message: Message) -> None:
        try:
            answer = await run.server.answer(message)
        except asyncio.CancelledError:
            if run.over:
                raise
            answer = run.server.refusal(message, ProtocolError("the call was cancelled"))
        finally:
            alone = run.ended(message.id)
        if run.over:
            return
        self._state.answered(message.id)
        if alone:
            self._sender.put_alone(answer)
        else:
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
        self.server = RequestServer(request.gateway)
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._output = request.output
        self._context = contextvars.copy_context()
        self._tasks: dict[str, asyncio.Task[None]] = {}
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
        if not text.isascii():  # half a character of UTF-16 is not text, and would fail far from here
            text = text.encode("utf-8", "replace").decode()
        stream = "stderr" if message.payload.get("stream") == "stderr" else "stdout"
        self._output.write(text if message.type == "print" else f"{text}\n", stream)
        self._output.drop(message.payload.get("dropped"), stream)

    def cancel(self, message_id: str) -> None:
        task = self._tasks.get(message_id)
        if task is not None:
            cancel_begun(task)

    async def room(self) -> None:
        """Wait until another request can be worked on."""
        while len(self._tasks) >= MAX_OPEN and not self.over:
            self._room.clear()
            await self._room.wait()

    def begin(self, message: Message, work: Coroutine[Any, Any, None]) -> None:
        """Start to work on a request; in a context like that of the caller, whom the tools belong to."""
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks[message.id] = task

    def ended(self, message_id: str) -> bool:
        """Note that the work is done; return whether it was the only one."""
        self._tasks.pop(message_id, None)
        self._room.set()
        return not self._tasks

    async def aclose(self) -> None:
        """Cancel what is under way and wait for it, though not for ever: a tool may refuse to be cancelled."""
        self.ending.cancel()
        self._room.set()
        tasks = [*self._tasks.values()]
        for task in tasks:
            cancel_begun(task)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_GRACE)
            if left:
                logger.warning("%d tool calls go on though their run is over: they ignore cancellation", len(left))


def _gone(ending: Ending) -> GatewayError:
    """Why there is no guest to talk to."""
    kind = ProtocolError if ending.stopped else ConnectionClosedError
    return kind(ending.stderr or "the guest has hung up")


def execute_payload(request: ExecuteRequest) -> JSONDict:
    """Return what an `execute` message says about *request*; its files and its working directory are the backend's
    affair.
    """
    payload: JSONDict = {
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
    if request.names:
        payload["names"] = dict(request.names)
    return payload


def execute_text(request: ExecuteRequest, extra: JSONObject) -> str:
    """Return the payload of an `execute` message as JSON, with *extra* beside what it says of *request*.

    Raises InvalidRequestError for what does not fit into a message.
    """
    payload: JSONObject = {**execute_payload(request), **extra}
    text = json.dumps(payload)
    if len(text) > MAX_FRAME_BYTES - 1024:
        raise InvalidRequestError(
            f"the program with its environment, arguments and input has {len(text)} bytes as JSON; at most "
            f"{MAX_FRAME_BYTES} fit: put what is large into files"
        )
    return text
