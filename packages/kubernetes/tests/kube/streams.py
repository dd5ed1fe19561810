"""Attach, exec and logs over HTTP: the websocket protocols `v4.channel.k8s.io` and `v5.channel.k8s.io`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import WSMsgType, web
from packages.kubernetes.tests.kube.containers import Log, RunningContainer
from packages.kubernetes.tests.kube.linux import input_pipe
from packages.kubernetes.tests.kube.node import Node
from packages.kubernetes.tests.kube.objects import ApiError, Object

_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255
_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
_CLOSE_TIMEOUT = 5.0


@dataclass(frozen=True)
class StreamOptions:
    """What a client asks for; kubelets and API servers have other names for the first three."""

    stdin: bool
    stdout: bool
    stderr: bool
    container: str
    command: tuple[str, ...]

    @classmethod
    def of(cls, request: web.Request, *, kubelet: bool = False) -> StreamOptions:
        """Read the query of *request*; raises ApiError."""
        names = ("input", "output", "error") if kubelet else ("stdin", "stdout", "stderr")
        wanted = [request.query.get(name, "") in ("1", "true", "True") for name in names]
        if request.query.get("tty") in ("1", "true", "True"):
            raise ApiError(400, "the node of the tests has no terminals")
        if not any(wanted):
            raise ApiError(400, "you must specify at least 1 of stdin, stdout, stderr")
        return cls(*wanted, request.query.get("container", ""), tuple(request.query.getall("command", [])))


class Streams:
    """The streams of all containers of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._open: dict[int, web.Request] = {}

    def container(self, uid: str, pod: str, name: str) -> RunningContainer:
        """Return a container that runs; raises ApiError for one that does not."""
        runner = self._node.runners.get(uid)
        slot = runner.slot(name) if runner is not None else None
        if runner is not None and slot is None:
            raise ApiError(400, f"container {name} is not valid for pod {pod}")
        if slot is None or slot.running is None or not slot.running.pid or slot.running.ended.is_set():
            code, text = (
                (400, "pod does not exist") if slot is None else (500, f'container not found ("{name or "default"}")')
            )
            raise ApiError(code, f"unable to upgrade connection: {text}")
        return slot.running

    async def attach(
        self, request: web.Request, container: RunningContainer, options: StreamOptions, *, once: bool
    ) -> web.StreamResponse:
        """Copy between the client and a container, until the container ends; *once* ends its stdin with the client's."""

        async def work(channel: _Channel) -> Object:
            source = asyncio.create_task(channel.read_into(container.write)) if options.stdin else None
            attached = asyncio.create_task(container.attach(channel.sink))
            try:
                await asyncio.wait({attached, channel.closed}, return_when=asyncio.FIRST_COMPLETED)
                if source is not None and not attached.done():
                    await source
            finally:
                attached.cancel()
                if source is not None:
                    source.cancel()
                    if once and container.stdin is not None:
                        container.stdin.close()
            return _success()

        async def end_of_input() -> None:
            if once and container.stdin is not None:
                container.stdin.close()

        return await self._serve(request, options, work, end_of_input)

    async def exec(
        self, request: web.Request, container: RunningContainer, options: StreamOptions
    ) -> web.StreamResponse:
        """Run a command in a container."""
        if not options.command:
            raise ApiError(400, "you must specify at least 1 command for the container")
        writers: list[asyncio.StreamWriter] = []

        async def work(channel: _Channel) -> Object:
            reading: int | None = None
            source: asyncio.Task[None] | None = None
            if options.stdin:
                reading, writer = await input_pipe()
                writers.append(writer)

                async def write(data: bytes) -> None:
                    with suppress(ConnectionError):
                        writer.write(data)
                        await writer.drain()

                source = asyncio.create_task(channel.read_into(write))
            try:
                code = await container.exec([*options.command], channel.sink, reading)
            finally:
                if source is not None:
                    source.cancel()
                await end_of_input()
            return _success() if code == 0 else _failure(code)

        async def end_of_input() -> None:
            for writer in writers:
                writer.close()

        return await self._serve(request, options, work, end_of_input)

    async def _serve(
        self,
        request: web.Request,
        options: StreamOptions,
        work: Callable[[_Channel], Awaitable[Object]],
        end_of_input: Callable[[], Awaitable[None]],
    ) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=_PROTOCOLS, compress=False, max_msg_size=0, timeout=_CLOSE_TIMEOUT)
        if not socket.can_prepare(request).ok:
            raise ApiError(400, "Upgrade request required")
        await socket.prepare(request)
        self._open[id(request)] = request
        channel = _Channel(socket, options, self._node.reachable, end_of_input)
        try:
            await channel.greet()
            reading = asyncio.create_task(channel.receive())
            try:
                status = await work(channel)
                with suppress(ConnectionError, RuntimeError):
                    await channel.send(_ERROR, json.dumps(status).encode())
                await socket.close()  # while it is read, or it would not be closed in order
            finally:
                reading.cancel()
        except (ConnectionError, RuntimeError):
            pass  # the client went
        finally:
            self._open.pop(id(request))
        return socket

    def drop(self) -> None:
        """Cut all connections."""
        for request in [*self._open.values()]:
            if request.transport is not None:
                request.transport.abort()


class _Channel:
    """A connection as channels: the first byte of each message is the number of one."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        options: StreamOptions,
        reachable: asyncio.Event,
        end_of_input: Callable[[], Awaitable[None]],
    ) -> None:
        self._socket = socket
        self._options = options
        self._reachable = reachable
        self._end_of_input = end_of_input
        self._input: asyncio.Queue[bytes] = asyncio.Queue(64)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def greet(self) -> None:
        """Send an empty message, as API servers do when the streams are there."""
        await self.send(_STDOUT if self._options.stdout else _STDERR if self._options.stderr else _ERROR, b"")

    async def send(self, channel: int, data: bytes) -> None:
        """Send *data*; raises ConnectionError when the client is gone."""
        await self._reachable.wait()
        await self._socket.send_bytes(bytes([channel]) + data)

    async def sink(self, channel: int, data: bytes) -> None:
        """Send output, where the client asked for that channel."""
        if self._options.stdout if channel == _STDOUT else self._options.stderr:
            await self.send(channel, data)

    async def receive(self) -> None:
        """Sort what comes in, until the end of the connection."""
        try:
            async for message in self._socket:
                await self._reachable.wait()
                if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
                    break
                data = message.data if isinstance(message.data, bytes) else message.data.encode()
                if data[:1] == bytes([_STDIN]) and self._options.stdin:
                    await self._input.put(data[1:])
                elif data == bytes([_CLOSE, _STDIN]) and self._socket.ws_protocol == _PROTOCOLS[0]:
                    await self._input.put(b"")
        finally:
            if not self.closed.done():
                self.closed.set_result(None)

    async def read_into(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Copy the client's input to *write*; ends with the connection, and the input with its close message."""
        while True:
            getting = asyncio.ensure_future(self._input.get())
            await asyncio.wait({getting, self.closed}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                return
            data = getting.result()
            if data:
                await write(data)
            else:
                await self._end_of_input()


def _success() -> Object:
    return {"metadata": {}, "status": "Success"}


def _failure(code: int) -> Object:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: error executing command, exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def serve_log(request: web.Request, log: Log) -> web.StreamResponse:
    """Answer with a log: `follow`, `timestamps`, `tailLines`, `limitBytes`."""
    query = request.query
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    limit = int(query["limitBytes"]) if "limitBytes" in query else None
    sent = 0
    first = max(0, len(log.lines()) - int(query["tailLines"])) if "tailLines" in query else 0
    with_times = query.get("timestamps") == "true"
    follows = query.get("follow") == "true"
    while True:
        is_complete = log.is_complete
        lines = log.lines()
        if lines and not lines[-1][1].endswith(b"\n") and follows and not is_complete:
            lines.pop()
        for time, line in lines[first:]:
            data = (f"{time} ".encode() if with_times else b"") + line
            data = data if limit is None else data[: limit - sent]
            sent += len(data)
            await response.write(data)
        first = len(lines)
        if not follows or is_complete or (limit is not None and sent >= limit):
            break
        await log.changed()
    await response.write_eof()
    return response
