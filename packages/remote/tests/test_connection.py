"""The connection to a remote runtime: it is closed however it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, web
from tests.waiting import until

from toolexec_remote.connection import EndpointConnection
from toolexec_remote.incarnation import WELCOME, Incarnation
from toolexec_remote.messages import SUBPROTOCOL, VERSION, RemoteMessage, decode_remote, encode_remote


@pytest.mark.parametrize("turns", range(6))
async def test_a_second_cancellation_leaves_nothing_open(turns: int) -> None:
    """Two that close it, so many turns of the loop apart, leave no socket behind: it is closed when both return."""
    server_ended, incarnation = asyncio.Event(), Incarnation()

    async def serve(request: web.Request) -> web.WebSocketResponse:
        there = web.WebSocketResponse(protocols=(SUBPROTOCOL,))
        await there.prepare(request)
        spoken = {"protocol": SUBPROTOCOL, "version": VERSION, "incarnation": incarnation.id}
        await there.send_bytes(encode_remote(RemoteMessage("challenge", fields={**spoken, "nonce": "n"})))
        nonce = str(decode_remote(await there.receive_bytes()).fields["nonce"])
        spoken["proof"] = incarnation.state(WELCOME, "n", nonce)
        await there.send_bytes(encode_remote(RemoteMessage("welcome", fields=spoken)))
        async for _ in there:
            pass
        server_ended.set()
        return there

    application = web.Application()
    application.router.add_get("/connect", serve)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    opened: list[ClientWebSocketResponse] = []
    async with ClientSession() as session:

        async def dial(endpoint: str) -> ClientWebSocketResponse:
            opened.append(await session.ws_connect(endpoint, protocols=(SUBPROTOCOL,)))
            return opened[0]

        connection = EndpointConnection(f"{site.name}/connect", dial, lambda *said: {"nonce": said[-1]})
        assert await connection.known(10.0)
        raw: Any = opened[0].get_extra_info("socket")
        first = asyncio.create_task(connection.aclose())
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.gather(first, connection.aclose())
        assert opened[0].closed
        await until(lambda: raw.fileno() == -1, 0)
        await server_ended.wait()
    await runner.cleanup()
