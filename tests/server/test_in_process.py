"""JSON-RPC messages as mappings, answered by the server itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION
from tests.waiting import until

from toolexec import Exec, ToolContext
from toolexec.errors import ToolExecError
from toolexec.model.origin import current_origin
from toolexec.server.app import ToolServer
from toolexec.server.in_process import InProcessClient
from toolexec.server.settings import ServeSettings


class Bench:
    """A server with a few tools, a client of it, and what its tools did."""

    def __init__(self) -> None:
        self.ex = Exec()
        self.running = 0
        self.ended: list[str] = []
        self.go = asyncio.Event()
        for name, function in (("echo", self._echo), ("wait", self._wait), ("fail", self._fail), ("ask", self._ask)):
            self.ex.add(function, f"t:{name}")
        self.server = ToolServer(self.ex, ServeSettings(expose="direct", list_changed_debounce=0.01))
        self.client = InProcessClient(self.server.lowlevel)

    async def _echo(self, value: Any) -> Any:
        return value

    async def _wait(self, ctx: ToolContext) -> str:
        self.running += 1
        ctx.report(1, 2, "half")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return "done"

    async def _fail(self) -> None:
        raise ValueError("no")

    async def _ask(self) -> bool:
        return current_origin().ask is not None

    async def send(self, method: str, id: Any = 1, **params: Any) -> Any:
        return await self.client.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    async def call(self, name: str, id: Any = 1, **arguments: Any) -> Any:
        return await self.send("tools/call", id, name=f"t__{name}", arguments=arguments)

    async def until_running(self, count: int = 1) -> None:
        await until(lambda: self.running >= count)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """The server, started."""
    bench = Bench()
    async with bench.server:
        yield bench
        await bench.client.aclose()


def hello(version: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}


async def test_no_handshake_is_needed(bench: Bench) -> None:
    """Tools are listed and called, and each listed name can be called."""
    listed = await bench.send("tools/list", "a")
    assert listed["id"] == "a"
    names = [tool["name"] for tool in listed["result"]["tools"]]
    assert "t__echo" in names
    called = await bench.call("echo", 7, value={"x": None})
    assert called == {"jsonrpc": "2.0", "id": 7, "result": called["result"]}
    assert called["result"]["structuredContent"] == {"x": None}
    assert (await bench.send("ping", "")) == {"jsonrpc": "2.0", "id": "", "result": {}}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_the_handshake_negotiates(bench: Bench, version: str) -> None:
    """The version that the client asks for is the one that is spoken; each handshake begins again."""
    for _ in range(2):
        answer = await bench.send("initialize", **hello(version))
        assert answer["result"]["protocolVersion"] == version
        assert answer["result"]["serverInfo"]["name"] == "toolexec"
        assert await bench.client.send({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
        assert (await bench.call("echo", value=1))["result"]["content"][0]["text"] == "1"
    unknown = await bench.send("initialize", **hello("1999-01-01"))
    assert unknown["result"]["protocolVersion"] == "2025-11-25"


async def test_the_newer_era(bench: Bench) -> None:
    """A request that says all about itself is answered beside those of the older one."""
    meta = {
        PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    }
    for _ in range(2):
        modern = await bench.send("tools/call", 2, name="t__echo", arguments={"value": "new"}, _meta=meta)
        assert modern["result"]["resultType"] == "complete"
        assert modern["result"]["content"][0]["text"] == "new"
        assert "resultType" not in (await bench.call("echo", value="old"))["result"]
    task = asyncio.create_task(bench.send("tools/call", 9, name="t__wait", arguments={}, _meta=meta))
    await bench.until_running()
    await bench.client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}})
    await until(lambda: bench.ended)
    task.cancel()
    await asyncio.wait([task])


async def test_failures(bench: Bench) -> None:
    """A tool that fails is a result; what is wrong with the request is an error of the protocol."""
    failed = await bench.call("fail")
    assert failed["result"]["isError"] is True
    assert "result" not in (unknown := await bench.call("nothing"))
    assert unknown["error"]["code"] == -32602
    assert (await bench.send("no/such"))["error"]["code"] == -32601
    assert (await bench.send("tools/call"))["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("message", "id"),
    [
        ({"jsonrpc": "1.0", "id": 5, "method": "ping"}, 5),
        ({"id": "five", "method": "ping"}, "five"),
        ({"jsonrpc": "2.0", "id": 5, "method": 5}, 5),
        ({"jsonrpc": "2.0", "id": 5, "method": "ping", "params": [1]}, 5),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": [5], "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None),
        ([{"jsonrpc": "2.0", "id": 5, "method": "ping"}], None),
        ("ping", None),
        (None, None),
        ({}, None),
    ],
)
async def test_what_is_no_message(bench: Bench, message: Any, id: Any) -> None:
    """Answers with an invalid request, with its ID where it has one."""
    answer = await bench.client.send(message)
    assert answer == {"jsonrpc": "2.0", "id": id, "error": answer["error"]}  # type: ignore[index]
    assert answer["error"]["code"] == -32600


async def test_notifications_have_no_answer(bench: Bench) -> None:
    """Whatever they are; nor has an answer to nothing."""
    for message in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}},
        {"jsonrpc": "2.0", "method": "no/such", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}},
    ):
        assert await bench.client.send(message) is None


async def test_many_at_once_with_one_id(bench: Bench) -> None:
    """Each caller gets the answer to its own request."""
    answers = await asyncio.gather(*(bench.call("echo", 1, value=number) for number in range(50)))
    assert [answer["result"]["content"][0]["text"] for answer in answers] == [str(number) for number in range(50)]


async def test_a_request_can_be_cancelled(bench: Bench) -> None:
    """By a notification with its ID, or by the waiting caller: the tool is stopped."""
    first = asyncio.create_task(bench.call("wait", "mine"))
    await bench.until_running()
    await bench.client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine"}})
    await until(lambda: len(bench.ended) >= 1)
    second = asyncio.create_task(bench.call("wait", 2))
    await bench.until_running(2)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await until(lambda: len(bench.ended) >= 2)
    first.cancel()
    await asyncio.wait([first])
    assert (await bench.call("echo", value=1))["id"] == 1


async def test_nobody_is_asked(bench: Bench) -> None:
    """A client here can answer no questions, so tools are told that there is nobody; a client that says otherwise gets
    an answer for its server, and nothing hangs. Notices go nowhere."""
    assert (await bench.call("ask"))["result"]["content"][0]["text"] == "false"
    await bench.send("initialize", **hello(elicitation={}))
    await bench.client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (await bench.call("ask"))["result"]["content"][0]["text"] == "true"

    async def really() -> str:
        from toolexec.model.origin import ApprovalRequest

        ask = current_origin().ask
        assert ask is not None
        try:
            answer: Any = ask(ApprovalRequest(tool_id="x", args={}, reason="why"))
            return str(await answer)
        except ToolExecError as error:
            return error.code

    bench.ex.add(really, "t:really")
    await asyncio.sleep(0.1)
    answer = await bench.call("really")
    assert answer["result"]["content"][0]["text"] in ("no", "approval_required")


async def test_after_the_end(bench: Bench) -> None:
    """Requests that are under way get an error, as do later ones; notifications are dropped."""
    waiting = asyncio.create_task(bench.call("wait"))
    await bench.until_running()
    await bench.client.aclose()
    assert "error" in await waiting
    assert bench.ended == ["cancelled"]
    assert (await bench.call("echo", value=1))["error"]["message"] == "the server is closed"
    assert await bench.client.send({"jsonrpc": "2.0", "method": "x"}) is None
    await bench.client.aclose()


async def test_a_server_that_fails() -> None:
    """Nothing hangs: the answer says that it has ended."""

    @asynccontextmanager
    async def broken(_: Any) -> AsyncIterator[dict[str, Any]]:
        raise OSError("no")
        yield {}

    client = InProcessClient(Server("broken", lifespan=broken))
    for _ in range(2):
        answer = await client.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert answer == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "the server has ended"}}
        assert await client.send({"jsonrpc": "2.0", "method": "x"}) is None
    await client.aclose()
