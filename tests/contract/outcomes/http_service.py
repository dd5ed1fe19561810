"""An HTTP service that answers with bytes of a script, counts its work, and breaks HTTP's rules where asked to."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http.client import responses

from toolexec.errors import Outcome

LIMIT = 4096
"""The most bytes of a response that the providers of these tests take."""
_TLS = b"\x16"
"""With what a client begins that wants TLS."""


@dataclass(frozen=True)
class Answer:
    """What goes back as it is; then the connection is closed, is reset, or stays as it is (`hangs`). `works` says that
    the service does its work before."""

    data: bytes = b""
    works: bool = True
    resets: bool = False
    hangs: bool = False


Reply = Callable[[str, bytes], Answer]
"""Takes the head and the body of a request."""


@dataclass
class OddService:
    """Where it is, what it answers, and how often it has worked; `stop` has it take no further connections."""

    reply: Reply
    url: str = ""
    effects: int = 0
    heads: list[str] = field(default_factory=list)
    stop: Callable[[], None] = lambda: None

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, or none if it is not one of HTTP."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            first = await reader.readexactly(1)
            if first == _TLS:
                return
            head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            body = await reader.readexactly(_length(head))
            self.heads.append(head)
            answer = self.reply(head, body)
            self.effects += answer.works
            writer.write(answer.data)
            await writer.drain()
            if answer.hangs:
                await reader.read()  # until the client goes away
            if answer.resets:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        try:
            await self.handle(reader, writer)
        finally:
            writer.close()


def _length(head: str) -> int:
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0


@asynccontextmanager
async def serving(reply: Reply) -> AsyncIterator[OddService]:
    """Serve on this event loop until the block is left."""
    service = OddService(reply)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    service.stop = server.close
    try:
        yield service
    finally:
        server.close()


def response(
    status: int, body: bytes = b"", media: str = "application/json", length: int = -1, **headers: str
) -> bytes:
    """Return the bytes of a response; *headers* have underscores for hyphens, and *length* is what it claims."""
    head = {"Content-Type": media, "Content-Length": str(len(body) if length < 0 else length), "Connection": "close"}
    head |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} {responses.get(status, 'Odd')}", *(f"{name}: {text}" for name, text in head.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


_CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_TEXT = json.dumps({"text": "x" * 500}).encode()
_UNREADABLE = {
    "NaN": response(200, b'{"a": NaN}'),
    "Infinity": response(201, b"[-Infinity]"),
    "broken JSON": response(200, b'{"a": '),
    "JSON of another encoding": response(200, b'\xff\xfe{"a": 1}'),
    "JSON too deep": response(200, b"[" * 4000),
    "too long, as its head says": response(200, length=LIMIT + 1),
    "too long, in chunks": _CHUNKED + b"2000\r\n" + b" " * 0x2000 + b"\r\n0\r\n\r\n",
    "broken gzip": response(200, _TEXT, Content_Encoding="gzip"),
    "cut gzip": response(200, gzip.compress(_TEXT)[:-9], Content_Encoding="gzip"),
    "a gzip bomb": response(200, gzip.compress(bytes(LIMIT * 300)), Content_Encoding="gzip"),
    "an encoding that was not asked for": response(200, _TEXT, Content_Encoding="br"),
    "cut body": response(200, b'{"a": ', length=1000),
    "cut chunk": _CHUNKED + b"50\r\nhello\r\n",
    "a chunk of no size": _CHUNKED + b"nonsense\r\n",
}
_REFUSED = (
    307,
    308,
    400,
    401,
    402,
    403,
    404,
    405,
    406,
    407,
    409,
    410,
    411,
    412,
    413,
    414,
    415,
    416,
    417,
    418,
    421,
    422,
)
_REFUSED_LATER = (423, 424, 425, 426, 428, 429, 431, 451, 501, 505)
_OPEN = (301, 302, 408, 499, 500, 502, 503, 504, 507, 508, 520, 521, 522, 523, 524, 530, 599)
_BODY = b'{"error": "odd"}'


def _status(status: int, *, works: bool, **headers: str) -> Answer:
    location = {"Location": "/elsewhere"} if 300 <= status < 400 else {}
    return Answer(response(status, _BODY, **location, **headers), works=works)


def _answers() -> dict[str, tuple[Answer, Outcome]]:
    found = {name: (Answer(data), Outcome.DONE) for name, data in _UNREADABLE.items()}
    found |= {f"status {each}": (_status(each, works=True), Outcome.UNKNOWN) for each in _OPEN}
    refused = (*_REFUSED, *_REFUSED_LATER)
    found |= {f"status {each}": (_status(each, works=False), Outcome.REFUSED) for each in refused}
    head = response(200, length=100)
    return found | {
        "status 303": (_status(303, works=True), Outcome.DONE),
        "status 503 with a time to wait": (_status(503, works=False, Retry_After="0"), Outcome.REFUSED),
        "a lost connection after the head": (Answer(head), Outcome.DONE),
        "a reset connection after the head": (Answer(head, resets=True), Outcome.DONE),
        "silence after the head": (Answer(head, hangs=True), Outcome.DONE),
        "half a refusal": (Answer(response(400, b'{"err', length=100), works=False), Outcome.REFUSED),
        "half a failure": (Answer(response(500, b'{"err', length=100)), Outcome.UNKNOWN),
        "a closed connection": (Answer(), Outcome.UNKNOWN),
        "a reset connection": (Answer(resets=True), Outcome.UNKNOWN),
        "half a head": (Answer(b"HTTP/1.1 200 OK\r\nContent-Ty"), Outcome.UNKNOWN),
        "no HTTP": (Answer(b"\x00\x01 this is not HTTP\r\n\r\n"), Outcome.UNKNOWN),
        "silence": (Answer(hangs=True), Outcome.UNKNOWN),
    }


ANSWERS = _answers()
"""Each odd answer to a POST, and what became of the call."""
