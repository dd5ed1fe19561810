"""`toolexec serve` as processes over one state directory: what waits when one is killed goes on in another, once."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, InputRequiredResult
from tests.config.commands import COMMAND
from tests.server.processes import served

from toolexec.server.auth.credentials import hash_key

pytestmark = pytest.mark.full
APP = '''
from pathlib import Path
from toolexec import tool


@tool("shop:pay")
def pay(order: int) -> int:
    """Pay an order."""
    with Path(__file__).with_name("paid").open("a") as out:
        out.write(f"{order}\\n")
    return order


@tool("shop:orders", read_only=True)
def orders() -> list[dict[str, int]]:
    """All orders."""
    return [{"order": number, "price": number * 7} for number in range(20_000)]
'''
SETTINGS = f"""
[sources]
python = ["app.py"]
[server]
expose = "meta"
port = 0
[[policy.rules]]
name = "asks"
effect = "ask"
tools = ["shop:pay"]
[[auth.api_keys]]
id = "ann"
sha256 = "{hash_key("ann's")}"
[[auth.api_keys]]
id = "bob"
sha256 = "{hash_key("bob's")}"
"""
YES = {"approval-1": ElicitResult(action="accept", content={"answer": "once"})}
NO = {"approval-1": ElicitResult(action="decline")}


class Shop:
    """Servers over one state directory, their callers, and the orders that were paid."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "app.py").write_text(APP)
        (directory / "toolexec.toml").write_text(SETTINGS)
        (directory / "paid").touch()
        self.words = [*COMMAND, "serve", "-c", str(directory / "toolexec.toml")]

    def serve(self) -> Any:
        return served(self.words, self.directory)

    @property
    def paid(self) -> Counter[int]:
        return Counter(map(int, (self.directory / "paid").read_text().split()))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop without orders."""
    return Shop(tmp_path)


@asynccontextmanager
async def caller(url: str, key: str) -> AsyncGenerator[Client]:
    async def never(context: Any, params: Any) -> ElicitResult:
        raise NotImplementedError  # the tests answer by themselves

    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60, verify=False) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode="2026-07-28", elicitation_callback=never) as client:
            yield client


async def pay(client: Client, order: int, **more: Any) -> Any:
    args = {"tool_id": "shop:pay", "args": {"order": order}}
    return await client.session.call_tool("run_tool", args, allow_input_required=True, **more)


async def suspended(client: Client, order: int) -> str:
    """Return the state of a call that waits."""
    first = await pay(client, order)
    assert isinstance(first, InputRequiredResult)
    assert first.request_state
    return first.request_state


async def outcome(client: Client, order: int, state: str, replies: Any = YES) -> str:
    """Answer a call that waits; return what came of it in a word or two."""
    try:
        result = await pay(client, order, input_responses=replies, request_state=state)
    except MCPError as error:
        return error.error.message
    return "denied" if result.is_error else "paid"


async def listed(client: Client) -> str:
    """Have the server list all orders; return the handle of the list, which is too long for a reply."""
    result = await client.session.call_tool("run_tool", {"tool_id": "shop:orders"})
    return re.findall(r"r-[\w-]{16}", result.model_dump_json())[0]


async def price(client: Client, handle: str, number: int) -> int | str:
    """Return the price of one of the orders that are kept under a handle, or why it cannot be read."""
    args = {"handle": handle, "path": f"[{number}].price"}
    result = await client.session.call_tool("read_result", args, allow_input_required=True)
    assert not isinstance(result, InputRequiredResult)
    value: Any = result.structured_content
    return value["error"]["code"] if result.is_error else value["value"]


async def post(url: str, key: str, message: dict[str, Any], session_id: str = "") -> httpx2.Response:
    """Send a message of the handshake era by hand."""
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    if session_id:
        headers["mcp-session-id"] = session_id
    async with httpx2.AsyncClient(timeout=60, verify=False) as http:
        return await http.post(url, json={"jsonrpc": "2.0", **message}, headers=headers)


async def opened(url: str, key: str) -> str:
    """Return the ID of a new session."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    answer = await post(url, key, {"id": 1, "method": "initialize", "params": params})
    session_id = answer.headers["mcp-session-id"]
    await post(url, key, {"method": "notifications/initialized"}, session_id)
    return session_id


LIST = {"id": 2, "method": "tools/list"}


async def test_approvals_survive_a_kill(shop: Shop) -> None:
    """Fifty calls that wait for approval when their server is killed are answered at the next one, where each is made
    once, by its caller, as it was asked, however often it is answered; a session goes on with its ID, and a long result
    is read by its handle."""
    orders = range(50)
    with shop.serve() as url:
        session_id = await opened(url, "ann's")
        async with caller(url, "ann's") as ann:
            states = await asyncio.gather(*(suspended(ann, order) for order in orders))
            handle = await listed(ann)
    with shop.serve() as url:
        async with caller(url, "ann's") as ann, caller(url, "bob's") as bob:
            assert [await price(client, handle, 19_999) for client in (bob, ann)] == ["result_not_found", 139_993]
            assert (await post(url, "bob's", LIST, session_id)).status_code == 404
            assert (await post(url, "ann's", LIST, session_id)).status_code == 200
            assert "requestState" in await outcome(bob, 0, states[0])
            assert "requestState" in await outcome(ann, 1, states[0])
            assert not shop.paid
            assert await outcome(ann, 49, states[49], NO) == "denied"
            twice = [outcome(ann, order, states[order]) for order in orders[:49] for _ in range(2)]
            outcomes = Counter(await asyncio.gather(*twice))
            assert outcomes.pop("paid") == 49
            [(refusal, count)] = outcomes.items()
            assert (count, "used before" in refusal) == (49, True)
            assert "used before" in await outcome(ann, 49, states[49])
    assert shop.paid == dict.fromkeys(orders[:49], 1)
    with shop.serve() as url:
        async with caller(url, "ann's") as ann:
            assert "used before" in await outcome(ann, 7, states[7])
            assert await price(ann, handle, 9) == 63
    assert shop.paid[7] == 1


async def test_two_servers_share_approvals(shop: Shop) -> None:
    """Of two servers that run at the same time either takes the answer to a call, and only one of them makes it; a
    session, and a long result, at one goes on at the other."""
    orders = range(12)
    with shop.serve() as here, shop.serve() as there:
        async with caller(here, "ann's") as ann, caller(there, "ann's") as again:
            states = await asyncio.gather(*(suspended(ann, order) for order in orders))
            assert await price(again, await listed(ann), 9) == 63
            both = (outcome(client, order, states[order]) for order in orders for client in (again, ann))
            outcomes = Counter(await asyncio.gather(*both))
            session_id = await opened(here, "ann's")
            assert [(await post(url, "ann's", LIST, session_id)).status_code for url in (there, here)] == [200, 200]
    assert outcomes["paid"] == 12
    assert shop.paid == dict.fromkeys(orders, 1)
