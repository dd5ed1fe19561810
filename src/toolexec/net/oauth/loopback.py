"""Where a browser comes back to after a login: a place on this machine, for one answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from toolexec.errors import LoginError

FIXED_PATH: Final = "/callback"
_MOST: Final = 32_768
_READ_SECONDS: Final = 10.0
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>toolexec</title>"
    "<p style='font:1.2em sans-serif;margin:4em'>{text} You can close this window.</p>"
)


class Comeback:
    """A place that a browser comes back to: its `url`, and the answer that arrives there."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.url = ""
        self.is_ours: Callable[[Mapping[str, str]], bool] = lambda _: False
        """Says whether an answer is the one that is waited for; any other is refused, and waited on."""
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float) -> dict[str, str]:
        """Return the parameters of the answer; raises LoginError where there is none within *seconds*."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._answer)
        except TimeoutError:
            raise LoginError(f"there was no login within {seconds:g} seconds") from None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
            async with asyncio.timeout(_READ_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status, text = self._take(head.split("\r\n", 1)[0])
            page = _PAGE.format(text=text).encode()
            lines = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n"
            writer.write(f"{lines}Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n".encode() + page)
            await writer.drain()

    def _take(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.rpartition(" ")[0])
        if method != "GET" or not secrets.compare_digest(target.path.encode(), self.path.encode()):
            return "404 Not Found", "There is nothing here."
        answer = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=50))
        if self._answer.done() or not self.is_ours(answer):
            return "400 Bad Request", "This is not the answer to a login that is waited for."
        self._answer.set_result(answer)
        return "200 OK", "The login goes on in your terminal."


@asynccontextmanager
async def comeback(port: int = 0, *, fixed: bool = False) -> AsyncGenerator[Comeback]:
    """Listen on 127.0.0.1, at *port* or any, and give where: a path that is used once, unless it has to be *fixed*.

    Raises LoginError where the port is taken.
    """
    found = Comeback(FIXED_PATH if fixed else f"/{secrets.token_urlsafe(24)}")
    try:
        server = await asyncio.start_server(found.serve, "127.0.0.1", port, limit=_MOST)
    except OSError as error:
        raise LoginError(f"cannot listen on port {port} of this machine: {error.strerror or error}") from error
    try:
        found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{found.path}"
        yield found
    finally:
        server.close()
        await server.wait_closed()
