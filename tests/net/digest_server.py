"""A server on loopback that asks for digest authentication, checks it, and counts what it sees."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.request import parse_http_list, parse_keqv_list


@dataclass
class DigestServer:
    """Accepts `me` with the password `pass-word`. `location` sends those that it accepts elsewhere."""

    url: str = ""
    algorithm: str = "SHA-256"
    qop: str = "auth"
    nonce: str = "nonce-1"
    location: str = ""
    media: str = "application/json"
    heads: list[tuple[str, str]] = field(default_factory=list)
    """The target and the authorization of each request."""
    bodies: list[bytes] = field(default_factory=list)
    counts: set[tuple[str, str]] = field(default_factory=set)
    """Each nonce that was accepted, with its count, which must not come again."""

    def accepts(self, method: str, target: str, value: str, sent: bytes = b"") -> bool:
        """Return whether the authorization is the right one for this very request, with this body."""
        scheme, _, rest = value.partition(" ")
        if scheme != "Digest":
            return False
        given = parse_keqv_list(parse_http_list(rest))

        name = self.algorithm.removesuffix("-sess").replace("-", "").lower()

        def hashed(*parts: str) -> str:
            return hashlib.new(name, ":".join(parts).encode()).hexdigest()

        first, second = hashed("me", "here", "pass-word"), hashed(method, target)
        if self.algorithm.endswith("-sess"):
            first = hashed(first, self.nonce, given["cnonce"])
        qop = "auth" if "auth" in self.qop.split(",") else self.qop
        if qop == "auth-int":
            second = hashed(method, target, hashlib.new(name, sent).hexdigest())
        wanted = (target, self.nonce, qop, hashed(first, self.nonce, given["nc"], given["cnonce"], qop, second))
        count = (self.nonce, given["nc"])
        if wanted != (given["uri"], given["nonce"], given["qop"], given["response"]) or count in self.counts:
            return False
        self.counts.add(count)
        return True

    def answer(self, method: str, target: str, value: str, sent: bytes = b"") -> tuple[str, str, bytes]:
        """Return the status, further headers and the body of an answer."""
        if not self.accepts(method, target, value, sent):
            challenge = f'Digest realm="here", nonce="{self.nonce}", qop="{self.qop}", algorithm={self.algorithm}'
            return "401 No", f"WWW-Authenticate: {challenge}\r\n", b"{}"
        if self.location:
            return "302 There", f"Location: {self.location}\r\n", b"{}"
        return "200 OK", "", json.dumps({"authorization": value}).encode()


@asynccontextmanager
async def digest_server() -> AsyncGenerator[DigestServer]:
    """Run the server on this event loop."""
    found = DigestServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                found.bodies.append(await reader.readexactly(int(headers.get("content-length", 0))))
                method, target, _ = head.split()
                found.heads.append((target, headers.get("authorization", "")))
                status, more, body = found.answer(method, target, found.heads[-1][1], found.bodies[-1])
                more += f"Content-Type: {found.media}\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"HTTP/1.1 {status}\r\n{more}\r\n".encode() + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
