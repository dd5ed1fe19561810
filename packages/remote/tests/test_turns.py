"""A connection with much to send, and the others of its server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from packages.remote.tests.servers import KEY

from toolexec_remote.messages import RemoteMessage
from toolexec_remote.server.duplex_connection import DuplexConnection


class Roomy:
    """A socket whose other side reads faster than anything is written."""

    def __init__(self) -> None:
        self.sent = 0

    async def send_bytes(self, data: bytes) -> None:
        """Send without a pause."""
        self.sent += 1


async def test_it_sends_little_at_a_time() -> None:
    """Everything else has its turn after a few messages, however much its socket takes."""
    socket: Any = Roomy()
    shared: Any = SimpleNamespace(service=SimpleNamespace(shares=SimpleNamespace(sending=None)))
    connection = DuplexConnection(shared, socket, KEY, "/v1/execute/connect")
    connection._is_greeted = True
    for number in range(100):
        connection.put(RemoteMessage("gone", f"run-{number}"))
    sending = asyncio.create_task(connection._send())
    most, before = 0, 0
    while socket.sent < 100 and not sending.done():
        await asyncio.sleep(0)
        most, before = max(most, socket.sent - before), socket.sent
    sending.cancel()
    await asyncio.wait([sending])
    assert socket.sent == 100
    assert 0 < most <= 8
