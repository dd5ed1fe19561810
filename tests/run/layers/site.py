"""A real HTTP server in the test's own process, and the OpenAPI document of what it offers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

Reply: TypeAlias = tuple[int, dict[str, str], Any]
"""A status (0: the connection is closed without an answer), headers, and a value as JSON; None for no body."""


class Site:
    """Answers each request with what *answer* returns for its method and path; `seen` has the requests, in order."""

    def __init__(self, answer: Callable[[str, str], Reply]) -> None:
        self.answer = answer
        self.seen: list[tuple[str, str]] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Site]:
        """Listen until the block ends, or `stop` is called."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    def document(self, *operations: str) -> dict[str, Any]:
        """Return the document of *operations*, each as in `"read GET /things/{n}"`."""
        paths: dict[str, Any] = {}
        for each in operations:
            name, method, path = each.split()
            number = {"name": "n", "in": "path", "required": True, "schema": {"type": "integer"}}
            node = {"operationId": name, "responses": {"200": {"description": "done"}}}
            if "{n}" in path:
                node["parameters"] = [number]
            paths.setdefault(path, {})[method.lower()] = node
        servers = [{"url": f"http://127.0.0.1:{self.port}"}]
        return {"openapi": "3.1.0", "info": {"title": "site", "version": "1"}, "servers": servers, "paths": paths}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split(" ", 2)
            self.seen.append((method, path))
            status, headers, value = self.answer(method, path)
            if not status:
                return
            body = b"" if value is None else json.dumps(value).encode()
            lines = [f"HTTP/1.1 {status} so", f"content-length: {len(body)}", "connection: close"]
            lines += [f"{name}: {text}" for name, text in {"content-type": "application/json", **headers}.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await writer.drain()
        except (ConnectionError, EOFError):
            pass  # the client has left
        finally:
            writer.close()
