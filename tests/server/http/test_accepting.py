"""Connections are taken one by one, and none is left open by a server that closes."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from toolexec.server.http.accepting import Accepting
from toolexec.server.http.seats import Seats


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_comes_at_the_end_is_closed(turns: int) -> None:
    """Whichever turn of the loop the server closes in, no socket is lost."""
    seats = Seats(4, proven=True)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = bound.getsockname()
        accepting = Accepting((bound,), seats, lambda _: asyncio.Protocol(), tls=None, handshake_timeout=5)
    with socket.create_connection(address):
        for _ in range(turns):
            await asyncio.sleep(0)
        accepting.close()
        await accepting.wait_closed()
    gc.collect()  # an open socket is a warning then, and warnings are errors
