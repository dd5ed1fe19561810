"""Tools over HTTP, for runs that are asked for by POST: each run has an address and a token of its own, while it lasts.

A request is one message of the guest protocol, `{"type", "id", "payload"}`, and so is its answer, of type `response` or
`error`. A wrong token is answered with 401, a body that is too large with 413, one that is not a message with 400.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final, Self

from toolexec.errors import ConfigurationError, ProtocolError
from toolexec.remote import MAX_FRAME_BYTES, REQUESTS, cancel_begun, decode_frame, error_payload
from toolexec.sandbox import Gateway, Message, Output, RequestServer
from toolexec_remote.wire import GatewayAddress

if TYPE_CHECKING:
    from aiohttp import web

_PATH: Final = "/gateway"
_GRACE: Final = 1.0
_MOST: Final = 256
"""How many calls of one run are worked on at a time."""
_MOST_IDS: Final = 100_000
"""How many calls of one run are remembered: it makes no more."""


class HttpGateway:
    """Answers for the tools of runs at `http://host:port/gateway`; `async with` starts and ends it.

    *url* is its address as remote runtimes see it (default: the one where it listens). With *tls* it speaks HTTPS. It
    knows only the runs that are open: each has a token, which is worth nothing after the run. Raises
    ConfigurationError when it cannot listen.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, *, url: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.url = url
        self._host = host
        self._port = port
        self._tls = tls
        self._runs: dict[str, _OpenRun] = {}
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        from aiohttp import web

        app = web.Application(client_max_size=MAX_FRAME_BYTES)
        app.router.add_post(f"{_PATH}/{{run}}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GRACE, handler_cancellation=True)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigurationError(f"the gateway cannot listen at {self._host}:{self._port}: {error}") from error
        host, port = self._runner.addresses[0][:2]
        host = f"[{host}]" if ":" in host else host
        self.url: str = self.url or f"{'https' if self._tls else 'http'}://{host}:{port}{_PATH}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop listening; calls that are under way are cancelled."""
        runner, self._runner = self._runner, None
        for run in [*self._runs.values()]:
            await run.aclose()
        if runner is not None:
            await runner.cleanup()

    @asynccontextmanager
    async def serve(self, run: str, gateway: Gateway, output: Output | None = None) -> AsyncGenerator[GatewayAddress]:
        """Answer for the tools of *run* with *gateway* within the block; give its address and its token. *output* takes
        what the program prints, if that comes here. At the end, its calls that are under way are cancelled."""
        opened = _OpenRun(gateway, output)
        self._runs[run] = opened
        try:
            yield GatewayAddress(url=f"{self.url}/{run}", token=opened.token)
        finally:
            del self._runs[run]
            await opened.aclose()

    async def _answer(self, request: web.Request) -> web.Response:
        from aiohttp import web

        run = self._runs.get(request.match_info["run"])
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if run is None or kind.lower() != "bearer" or not run.accepts(token.strip()):
            return _reply(401, Message("error", "", {"error": "the token is not that of an open run"}))
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            error = f"a request may have {MAX_FRAME_BYTES} bytes"
            return _reply(413, Message("error", "", {"error": error, "code": ProtocolError.code}))
        try:
            messages = decode_frame(body.decode("utf-8", "replace"))
            if len(messages) != 1:
                raise ProtocolError("a request is one message")
            text = await run.answer(messages[0])
        except ProtocolError as error:
            return _reply(400, Message("error", "", error_payload(error)))
        return web.Response(text=text, content_type="application/json")


class _OpenRun:
    """One run whose calls are answered."""

    def __init__(self, gateway: Gateway, output: Output | None) -> None:
        self.token = token_urlsafe(32)
        self._server = RequestServer(gateway)
        self._output = output
        self._slots = asyncio.Semaphore(_MOST)
        self._tasks: dict[str, asyncio.Task[str]] = {}
        self._seen: set[str] = set()  # the IDs of calls that were begun

    def accepts(self, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self.token.encode())

    async def answer(self, message: Message) -> str:
        """Return the answer to a message. Raises ProtocolError for one that makes no sense here."""
        if message.type in REQUESTS:
            return await self._call(message)
        match message.type:
            case "cancel":
                task = self._tasks.get(str(message.payload.get("id", message.id)))
                if task is not None:
                    cancel_begun(task)
            case "release":
                self._server.release(message)
            case "print" | "println":
                self._print(message)
            case kind:
                raise ProtocolError(f"unknown message type {kind[:50]!r}")
        return json.dumps({"type": "response", "id": message.id, "payload": {}})

    async def _call(self, message: Message) -> str:
        if len(self._seen) >= _MOST_IDS:
            raise ProtocolError(
                f"one run may make {_MOST_IDS} calls over HTTP; use a duplex connection, or several runs"
            )
        if not message.id or message.id in self._seen:
            raise ProtocolError(
                f"the request id {message.id!r} was here before, or is empty; what is sent again is not done again"
            )
        self._seen.add(message.id)
        async with self._slots:
            task = self._tasks[message.id] = asyncio.create_task(self._server.answer(message))
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:  # who asked has hung up
                cancel_begun(task)
                raise
            finally:
                del self._tasks[message.id]
        if task.cancelled():
            return self._server.refusal(message, ProtocolError("the request was cancelled"))
        return task.result()

    def _print(self, message: Message) -> None:
        text = message.payload.get("text")
        if self._output is not None and isinstance(text, str):
            stream = "stderr" if message.payload.get("stream") == "stderr" else "stdout"
            self._output.write(f"{text}\n" if message.type == "println" else text, stream)

    async def aclose(self) -> None:
        """Cancel the calls that are under way; the token is worth nothing any more."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            cancel_begun(task)
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE)


def _reply(status: int, message: Message) -> web.Response:
    from aiohttp import web

    data = {"type": message.type, "id": message.id, "payload": dict(message.payload)}
    return web.json_response(data, status=status)
