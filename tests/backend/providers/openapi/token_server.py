"""An API on loopback that takes the tokens of its own OAuth2 endpoint, and revokes them."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl


@dataclass
class TokenServer:
    """Counts what arrives. `accepted` are the tokens that it takes, each with the client it was given to.

    With `hold`, it answers refused calls only once so many of them are there.
    """

    url: str = ""
    accepted: dict[str, str] = field(default_factory=dict)
    issued: int = 0
    asked: list[dict[str, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    refused: int = 0
    hold: int = 0
    down: bool = False
    refresh_tokens: dict[str, str] = field(default_factory=dict)
    """Refresh tokens that may be used once, each with the user that it is for."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def revoke(self) -> None:
        """Take none of the tokens any more."""
        self.accepted.clear()

    def document(self, flow: str = "clientCredentials", **urls: str) -> dict[str, Any]:
        """Return the description of the API."""
        flows = {flow: {"tokenUrl": f"{self.url}/token", "scopes": {}, **urls}}
        return {
            "openapi": "3.0.3",
            "info": {"title": "Items", "version": "1"},
            "servers": [{"url": self.url}],
            "components": {"securitySchemes": {"oauth": {"type": "oauth2", "flows": flows}}},
            "security": [{"oauth": []}],
            "paths": {"/items": {"get": {"operationId": "items", "responses": {"200": {"description": "them"}}}}},
        }

    async def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        """Return the status and the data of an answer."""
        if path == "/token":
            return self.token(headers, dict(parse_qsl(body.decode())))
        token = headers.get("authorization", "").removeprefix("Bearer ")
        self.calls.append(token)
        if token in self.accepted:
            return 200, {"for": self.accepted[token], "echo": token}
        self.refused += 1
        self.changed.set()
        while self.refused < self.hold:
            self.changed.clear()
            await self.changed.wait()
        return 401, {"error": "invalid_token", "echo": token}

    def token(self, headers: dict[str, str], fields: dict[str, str]) -> tuple[int, Any]:
        """Return the answer to a request for a token."""
        self.asked.append(fields)
        if self.down:
            return 503, {"error": "temporarily_unavailable"}
        self.issued += 1
        token = f"access-token-number-{self.issued}"
        if fields["grant_type"] == "refresh_token":
            user = self.refresh_tokens.pop(fields["refresh_token"], "")
            if not user:
                return 400, {"error": "invalid_grant"}
            self.refresh_tokens[f"refresh-token-{self.issued}"] = self.accepted[token] = user
            return 200, {"access_token": token, "expires_in": 3600, "refresh_token": f"refresh-token-{self.issued}"}
        self.accepted[token] = b64decode(headers["authorization"].removeprefix("Basic ")).decode().partition(":")[0]
        return 200, {"access_token": token, "expires_in": 3600}


@asynccontextmanager
async def token_server() -> AsyncGenerator[TokenServer]:
    """Run the API on this event loop."""
    found = TokenServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                status, data = await found.answer(head.split()[1], headers, body)
                text = json.dumps(data).encode()
                writer.write(
                    f"HTTP/1.1 {status} It\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode()
                    + text
                )
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
