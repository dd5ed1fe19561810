"""Requests from their arrival to their end, when things go wrong in between."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from toolexec.server.http.middleware import BrokenOffError, Requests

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/mcp", "headers": [], "client": ("192.0.2.1", 5)}


class Wire:
    """What a client gets to see."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def ended(self) -> bool:
        return not self.messages[-1].get("more_body", False)


async def never() -> Any:
    await asyncio.Event().wait()


async def begin(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})


async def test_an_answer_that_fails_half_way(caplog: pytest.LogCaptureFixture) -> None:
    """The connection has to be closed, and the reason is logged once, here."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await begin(send)
        raise ValueError("half way")

    with pytest.raises(BrokenOffError) as caught:
        await Requests(app)(SCOPE, never, Wire().send)
    assert caught.value.__suppress_context__
    assert caplog.text.count("ValueError: half way") == 1


async def test_an_answer_that_is_left_open() -> None:
    """The open answer is ended properly."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await begin(send)

    wire = Wire()
    await Requests(app)(SCOPE, never, wire.send)
    assert (wire.status, wire.ended) == (200, True)


@pytest.mark.full
async def test_draining() -> None:
    """Streams end at once, short calls are answered, long ones are given up, new ones are refused."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/short":
            await asyncio.sleep(0.1)
            await begin(send)
            return
        if scope["path"] == "/stream":
            await begin(send)
        await asyncio.sleep(60)

    requests = Requests(app)
    listening = {"headers": [(b"mcp-method", b"subscriptions/listen")]}
    kinds = [
        {"path": "/stream", "method": "GET"},
        {"path": "/stream", **listening},
        {"path": "/short"},
        {"path": "/long"},
    ]
    wires = [Wire() for _ in kinds]
    tasks = [
        asyncio.create_task(requests(SCOPE | kind, never, wire.send)) for kind, wire in zip(kinds, wires, strict=True)
    ]
    await asyncio.sleep(0.05)
    draining = asyncio.create_task(requests.drain(0.5))
    await asyncio.wait(tasks[:2])
    assert not tasks[3].done()
    late = Wire()
    await requests(SCOPE, never, late.send)
    await draining
    await asyncio.gather(*tasks)
    assert [wire.status for wire in (*wires, late)] == [200, 200, 200, 503, 503]
    assert all(wire.ended for wire in wires)


async def test_what_others_chose_is_harmless_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a path nor a forwarded address can make a line of its own."""
    caplog.set_level(logging.INFO)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await begin(send)

    await Requests(app)(SCOPE | {"path": "/a\nb" + "c" * 999, "client": ("x\ny", 1)}, never, Wire().send)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 300
