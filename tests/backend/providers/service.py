"""An HTTP service on loopback for the tests of providers: it counts what arrives, and misbehaves where asked to."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

ZEROS = 24 << 20
"""How long the bombs are once decoded."""


@dataclass(frozen=True)
class Seen:
    """A request that has arrived, as it was written."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> object:
        return json.loads(self.body)


@dataclass
class Service:
    """Where the service is, and what has arrived there. `raw` answers without HTTP's rules: see `_RAW`."""

    url: str = ""
    raw: str = ""
    seen: list[Seen] = field(default_factory=list)
    documents: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Further files to serve below /documents/, each with its media type; tests may change them."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when the client of a raw response that never ends has closed its connection."""

    def paths(self) -> list[str]:
        return [each.path for each in self.seen]


_RAW = {
    "/reset": b"",
    "/close": b"",
    "/half": b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nContent-Type: application/json\r\n\r\n{"a": ',
    "/half-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "/garbage": b"\x00\x01\x02 this is not HTTP\r\n\r\n",
    "/headers": b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"a" * 200_000 + b"\r\n\r\n",
    "/drip": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n1",
    "/hang": b"",
    "/lines": b'HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{"n": 1}\n{"n": 2, "t": "hunter2hunter2"}\n{"n"',
    "/cut-lines": b'HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: 99\r\n\r\n{"n": 1}\n',
}
"""What the raw server sends before it closes, resets (`/reset`) or waits (`/hang`, `/drip`, `/lines`)."""


@cache
def _zeros(kind: str) -> bytes:
    if kind == "gzip":
        return gzip.compress(bytes(ZEROS), 9)
    return zlib.compress(bytes(ZEROS), 9)


def _app(service: Service) -> Starlette:
    async def keep(request: Request) -> Seen:
        seen = Seen(
            request.method,
            request.scope["raw_path"].decode(),
            request.url.query,
            dict(request.headers),
            await request.body(),
        )
        service.seen.append(seen)
        return seen

    async def echo(request: Request) -> Response:
        seen = await keep(request)
        return JSONResponse(
            {"method": seen.method, "path": seen.path, "query": seen.query, "headers": seen.headers, "body": seen.body.decode("latin-1")}
        )  # fmt: skip

    async def echo_lines(request: Request) -> Response:
        seen = await keep(request)
        if request.path_params["how"] == "refused":
            return JSONResponse({"headers": seen.headers}, status_code=403)
        last = "{}" if request.path_params["how"] == "whole" else seen.headers.get("authorization", "")[-100:]
        lines = [json.dumps({"path": seen.path, "headers": seen.headers}), last]
        return Response("\n".join(lines), headers={"content-type": "application/x-ndjson"})

    async def other(request: Request, _: Exception) -> Response:
        return await echo(request)

    async def status(request: Request) -> Response:
        await keep(request)
        code = int(request.path_params["code"])
        headers = {"retry-after": "7"} if code in (429, 503) else {}
        return JSONResponse({"error": "no such luck", "token": "hunter2hunter2"}, status_code=code, headers=headers)

    async def go(request: Request) -> Response:
        await keep(request)
        code = int(request.query_params.get("code", "302"))
        return Response(status_code=code, headers={"location": request.query_params["to"]})

    async def loop(request: Request) -> Response:
        await keep(request)
        return Response(status_code=302, headers={"location": "/loop"})

    async def large(request: Request) -> Response:
        await keep(request)
        size = int(request.query_params["size"])

        async def pieces() -> object:
            for _ in range(size // 65536):
                yield bytes(65536)

        return StreamingResponse(pieces(), media_type="application/octet-stream")  # type: ignore[arg-type]

    async def encoded(request: Request) -> Response:
        await keep(request)
        kind = request.path_params["kind"]
        text = json.dumps({"kind": kind, "text": "x" * 1000}).encode()
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        bodies = {
            "gzip": ("gzip", gzip.compress(text)),
            "members": ("gzip", gzip.compress(text[:500]) + gzip.compress(text[500:])),
            "deflate": ("deflate", zlib.compress(text)),
            "raw": ("deflate", deflate.compress(text) + deflate.flush()),
            "br": ("br", b"\x8b\x01\x80hello\x03"),
            "twice": ("gzip, gzip", gzip.compress(gzip.compress(text))),
            "wrong": ("gzip", text),
            "cut": ("gzip", gzip.compress(text)[:-12]),
            "bomb-gzip": ("gzip", _zeros("gzip")),
            "bomb-deflate": ("deflate", _zeros("deflate")),
        }
        name, body = bodies[kind]
        return Response(body, media_type="application/json", headers={"content-encoding": name})

    async def content(request: Request) -> Response:
        await keep(request)
        kinds = {
            "html": ("text/html; charset=utf-8", b"<h1>Please log in</h1>"),
            "text": ("text/plain; charset=latin-1", "gr\u00fc\u00df".encode("latin-1")),
            "binary": ("application/octet-stream", bytes(range(256))),
            "broken-json": ("application/json", b'{"a": '),
            "broken-utf8": ("application/json; charset=utf-8", b'{"a": "\xff\xfe"}'),
            "unknown-charset": ("text/plain; charset=klingon", b"Qapla"),
            "nan": ("application/json", b'{"a": NaN}'),
            "deep": ("application/json", b"[" * 100_000),
            "png": ("image/png", b"\x89PNG\r\n\x1a\n" + bytes(16)),
            "empty": ("application/json", b""),
            "ndjson": ("application/x-ndjson; charset=utf-8", b'{"n": 1}\n\n{"n": 2}\r\n3'),
            "sse": ("text/event-stream", b': hi\ndata: {"n": 1}\n\nevent: end\nid: 7\ndata: a\ndata: b\n\n'),
            "bad-lines": ("application/jsonl", b'{"n": 1}\n{"n": \n'),
            "json-as-text": ("text/plain", b'{"a": [1]}'),
            "json-as-html": ("text/html; charset=utf-8", b'{"a": [1]}'),
            "json-as-bytes": ("application/octet-stream", b'{"a": [1]}'),
        }
        media, body = kinds[request.path_params["kind"]]
        more = {"etag": '"v1"', "x-trace": "hunter2hunter2", "set-cookie": "s=1"}
        return Response(body, headers={"content-type": media, **more})

    async def items(request: Request) -> Response:
        seen = await keep(request)
        if request.method == "POST":
            return JSONResponse({"created": seen.json}, status_code=201)
        if request.method == "DELETE":
            return Response(status_code=204)
        found = [{"id": number, "name": f"item {number}"} for number in range(3)]
        return JSONResponse({"data": {"items": found}, "total": 3})

    async def document(request: Request) -> Response:
        await keep(request)
        media, body = service.documents[request.path_params["name"]]
        return Response(body, headers={"content-type": media})

    every = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
    return Starlette(
        routes=[
            Route("/status/{code:int}", status, methods=every),
            Route("/go", go, methods=every),
            Route("/loop", loop),
            Route("/large", large),
            Route("/encoded/{kind}", encoded),
            Route("/content/{kind}", content),
            Route("/echo-lines/{how}", echo_lines, methods=every),
            Route("/items", items, methods=every),
            Route("/documents/{name}", document),
            Route("/{rest:path}", echo, methods=every),
        ],
        exception_handlers={404: other},  # no route matches a line break
    )


async def _raw(service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path = head.split()[:2]
        service.seen.append(Seen(method, path, "", {}, b""))
        writer.write(_RAW[path])
        await writer.drain()
        if path in ("/hang", "/drip", "/lines"):
            await reader.read()  # until the client goes away
            service.gone.set()
        if path == "/reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.close()
    with suppress(ConnectionError, asyncio.CancelledError):
        await writer.wait_closed()


@contextmanager
def serving() -> Iterator[Service]:
    """Run the service in a thread of its own until the block is left."""
    service = Service()
    # With its protocol, for asyncio switches Nagle's algorithm off only then: else each answer takes 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(2048)  # before the server serves, so that no client comes too early
        config = uvicorn.Config(_app(service), log_level="critical", lifespan="off", backlog=2048)
        server = uvicorn.Server(config)
        service.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        ready = threading.Event()

        async def main() -> None:
            raw = await asyncio.start_server(lambda *ends: _raw(service, *ends), "127.0.0.1", 0)
            service.raw = f"http://127.0.0.1:{raw.sockets[0].getsockname()[1]}"
            ready.set()
            try:
                await server.serve(sockets=[listening])
            finally:
                raw.close()

        thread = threading.Thread(target=lambda: asyncio.run(main()), name="test-service")
        thread.start()
        try:
            assert ready.wait(10)
            yield service
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join(10)
            assert not thread.is_alive()
