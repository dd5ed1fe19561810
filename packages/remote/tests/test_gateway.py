"""Tools over HTTP: one token for each run, while it lasts, and messages that are checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
import pytest
from packages.remote.tests.tools import Workshop
from tests.waiting import PATIENCE, until

from toolexec.sandbox import Output
from toolexec_remote.gateway import HttpGateway
from toolexec_remote.wire import GatewayAddress

CALL = {"type": "run_tool", "id": "1", "payload": {"id": "shop:count", "args": {"item": 3}}}


class Caller:
    """Posts messages to a gateway, as a server of sandboxes does."""

    def __init__(self, session: aiohttp.ClientSession, address: GatewayAddress) -> None:
        self.session = session
        self.address = address

    async def post(self, message: Any, token: str | None = None) -> tuple[int, Any]:
        """Return status and body of an answer."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        headers = {"Authorization": f"Bearer {self.address.token if token is None else token}"}
        async with self.session.post(self.address.url, data=BytesIO(body), headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text


@asynccontextmanager
async def opened(shop: Workshop, output: Output | None = None) -> AsyncGenerator[Caller]:
    """Give a caller of one run's tools."""
    gateway = shop.request("1").gateway
    assert gateway is not None
    async with (
        HttpGateway() as http,
        aiohttp.ClientSession() as session,
        http.serve("run1", gateway, output) as address,
    ):
        yield Caller(session, address)


async def test_a_call_is_answered() -> None:
    """The answer has the ID of the request, and the value."""
    shop = Workshop()
    async with opened(shop) as caller:
        status, answer = await caller.post(CALL)
    assert (status, answer["type"], answer["id"], answer["payload"]["structured"]) == (200, "response", "1", 3)
    assert shop.calls == {3: 1}


async def test_a_call_that_is_sent_again_is_not_made_again() -> None:
    """A proxy in between may say everything twice."""
    shop = Workshop()
    async with opened(shop) as caller:
        await caller.post(CALL)
        status, answer = await caller.post(CALL)
        assert (await caller.post({**CALL, "id": "2"}))[0] == 200
    assert (status, answer["payload"]["code"]) == (400, "protocol")
    assert shop.calls == {3: 2}


async def test_a_failure_is_an_answer() -> None:
    """An unknown tool is an error with its code, and no failure of the transport."""
    async with opened(Workshop()) as caller:
        status, answer = await caller.post({**CALL, "payload": {"id": "shop:nothing"}})
    assert (status, answer["type"], answer["payload"]["code"]) == (200, "error", "tool_not_found")


@pytest.mark.parametrize("token", ["", "wrong", "x" * 43])
async def test_a_wrong_token_is_refused(token: str) -> None:
    """Nothing is called without the token of the run."""
    shop = Workshop()
    async with opened(shop) as caller:
        assert (await caller.post(CALL, token))[0] == 401
    assert not shop.calls


async def test_a_token_ends_with_its_run() -> None:
    """After the run its address is unknown, while another run's goes on."""
    shop = Workshop()
    gateway = shop.request("1").gateway
    assert gateway is not None
    async with HttpGateway() as http, aiohttp.ClientSession() as session:
        async with http.serve("one", gateway) as one:
            pass
        async with http.serve("two", gateway) as two:
            assert (await Caller(session, one).post(CALL))[0] == 401
            assert (await Caller(session, GatewayAddress(url=two.url, token=one.token)).post(CALL))[0] == 401
            assert (await Caller(session, two).post(CALL))[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"no JSON", id="no-json"),
        pytest.param(b"[]", id="no-message"),
        pytest.param(json.dumps([CALL, CALL]).encode(), id="two-messages"),
        pytest.param(b'{"type":"hello","id":"1"}', id="unknown-type"),
        pytest.param(b'{"type":"run_tool","id":""}', id="no-id"),
    ],
)
async def test_what_is_not_a_request_is_refused(body: bytes) -> None:
    """The status is 400, and the body says why."""
    async with opened(Workshop()) as caller:
        status, answer = await caller.post(body)
    assert (status, answer["type"], answer["payload"]["code"]) == (400, "error", "protocol")


async def test_a_body_that_is_too_large_is_refused() -> None:
    """The status is 413."""
    async with opened(Workshop()) as caller:
        assert (await caller.post(b" " * (17 << 20)))[0] == 413


async def test_prints_go_to_the_output() -> None:
    """`println` ends the line, `print` does not."""
    output = Output()
    async with opened(Workshop(), output) as caller:
        await caller.post({"type": "print", "id": "0", "payload": {"text": "a"}})
        await caller.post({"type": "println", "id": "0", "payload": {"text": "b", "stream": "stderr"}})
    assert (output.text(), output.text("stderr")) == ("a", "b\n")


async def test_hanging_up_cancels_the_call() -> None:
    """A server that gives up a call stops the tool; so does the end of the run."""
    shop = Workshop()
    wait = {**CALL, "payload": {"id": "shop:wait"}}
    async with opened(shop) as caller:
        asking = asyncio.ensure_future(caller.post(wait))
        await asyncio.wait_for(shop.begun.wait(), PATIENCE)
        asking.cancel()
        await until(lambda: shop.stopped == 1)
        shop.begun.clear()
        asking = asyncio.ensure_future(caller.post({**wait, "id": "2"}))
        await asyncio.wait_for(shop.begun.wait(), PATIENCE)
    await until(lambda: shop.stopped == 2)
    await asyncio.wait({asking}, timeout=PATIENCE)
    assert asking.done()
    asking.exception()
