"""A call of a tool in the era without a handshake: made by the task of its request, and by no other."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from toolexec import Exec, ToolContext
from toolexec.server.app import ToolServer
from toolexec.server.auth import AuthSettings
from toolexec.server.http import HttpSettings
from toolexec.server.http.app import HttpApp, build_app

from .conftest import JSON_HEADERS, MODERN

CAN: Any = "io.modelcontextprotocol/clientCapabilities"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, CAN: {}}


class Exchange:
    """One request to the application, without a socket: what it is sent, and what it receives."""

    def __init__(self, app: HttpApp, name: str, *, token: str = "", can: Any = None, **headers: str) -> None:
        self.app = app
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        meta = META | ({"progressToken": token} if token else {}) | ({CAN: can} if can else {})
        params = {"name": "run_tool", "arguments": {"tool_id": name}, "_meta": meta}
        self._parts = [json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()]
        said = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "run_tool", **JSON_HEADERS}
        said |= {"host": "localhost", "content-length": str(len(self._parts[0])), **headers}
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": [(key.encode(), value.encode()) for key, value in said.items()],
            "client": ("127.0.0.1", 1),
        }

    async def receive(self) -> dict[str, Any]:
        if self._parts:
            return {"type": "http.request", "body": self._parts.pop(), "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def run(self) -> Any:
        """Make it; returns the answer."""
        await self.app(self.scope, self.receive, self.send)
        return json.loads(self.body) if self.body and not self.is_stream else None

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.sent)

    @property
    def is_stream(self) -> bool:
        return (b"content-type", b"text/event-stream") in self.sent[0]["headers"]


@asynccontextmanager
async def serving(**tools: Callable[..., Awaitable[Any]]) -> AsyncGenerator[HttpApp]:
    """The application over a server with these tools."""
    ex = Exec()
    for name, work in tools.items():
        ex.add(work, f"it:{name}")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ToolServer(ex))
        app = build_app(server.lowlevel, HttpSettings(port=0), AuthSettings())
        await stack.enter_async_context(app.running())
        yield app


async def greet() -> str:
    return "hello"


async def test_a_call_needs_no_other_task() -> None:
    """A call that is over at once is made by the task of its request alone."""
    async with serving(greet=greet) as app:
        await Exchange(app, "it:greet").run()  # the first call of a server loads more
        loop, made = asyncio.get_running_loop(), list[str]()

        def note(loop: asyncio.AbstractEventLoop, coro: Any, **settings: Any) -> asyncio.Task[Any]:
            made.append(coro.__qualname__)
            return asyncio.Task(coro, loop=loop, **settings)

        loop.set_task_factory(note)
        try:
            answer = await Exchange(app, "it:greet").run()
        finally:
            loop.set_task_factory(None)
        assert answer["result"]["structuredContent"]["structured"] == "hello"
        assert made == []


async def test_a_client_that_goes_away_ends_its_call() -> None:
    """A tool is stopped, and nothing is sent, once the client of a call is gone."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(wait=wait) as app:
        exchange = Exchange(app, "it:wait")
        running = asyncio.create_task(exchange.run())
        await begun.wait()
        exchange.gone.set()
        await running
        assert stopped.is_set()
        assert not any(b"result" in each.get("body", b"") for each in exchange.sent)


@pytest.mark.parametrize("can", [{}, {"elicitation": {"form": {}}}], ids=["asked nothing", "asked"])
async def test_a_call_that_was_stopped_leaves_no_garbage(can: dict[str, Any]) -> None:
    """All of it is freed at once: a client that hangs up on many would have the loop held by collections."""
    begun, kept = asyncio.Event(), list[weakref.ref[Exchange]]()

    async def wait() -> None:
        mark = Exchange(app, "it:wait")
        kept.append(weakref.ref(mark))
        begun.set()
        await asyncio.Event().wait()

    async def hang_up() -> None:
        begun.clear()
        exchange = Exchange(app, "it:wait", can=can)
        running = asyncio.create_task(exchange.run())
        await begun.wait()
        exchange.gone.set()
        await running

    async with serving(wait=wait) as app:
        await hang_up()
        gc.disable()
        try:
            await hang_up()
            await asyncio.sleep(0)
            assert kept[-1]() is None
        finally:
            gc.enable()


async def test_what_a_call_says_goes_out_at_once() -> None:
    """Progress reaches the client before the call is over, and its answer ends the same stream."""

    async def steps(context: ToolContext) -> str:
        context.report(1, 2)
        return "done"

    async with serving(steps=steps) as app:
        exchange = Exchange(app, "it:steps", token="p")
        await exchange.run()
        assert exchange.is_stream
        events = [json.loads(part.split(b"data: ")[1]) for part in exchange.body.split(b"\r\n\r\n") if part]
        assert events[0]["method"] == "notifications/progress"
        assert events[-1]["id"] == 1
        assert not exchange.sent[-1]["more_body"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"accept": "application/json"}, 406),
        ({"mcp-name": "other"}, 400),
        ({"mcp-protocol-version": "2999-01-01"}, 400),
    ],
)
async def test_a_call_that_contradicts_its_headers(headers: dict[str, str], status: int) -> None:
    """A call is refused where its headers say something else than its body, or that its answer cannot be read."""
    ran: list[str] = []

    async def work() -> None:
        ran.append("it")

    async with serving(work=work) as app:
        exchange = Exchange(app, "it:work", **headers)
        await exchange.app(exchange.scope, exchange.receive, exchange.send)
        assert exchange.sent[0]["status"] == status
        assert ran == []
