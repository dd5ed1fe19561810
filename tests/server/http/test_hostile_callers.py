"""One hostile caller, in each of many ways, at a real server: no other caller gets an error, and each gets its turn."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.server.crowd import HOSTILE, Crowd, Server, key_of, served
from tests.server.hostile import WAYS, hostility

pytestmark = [pytest.mark.full, pytest.mark.anyio]

CALLERS = [f"caller-{number}" for number in range(20)]
EACH = 2
MOST_BYTES = 2 << 30
"""How much memory the server may have: it has 130 MB without a hostile caller, and 1.1 GB at worst, with large bodies."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all callers."""
    with served(tmp_path_factory.mktemp("crowd"), CALLERS) as server:
        yield server


@pytest.mark.parametrize("way", WAYS)
async def test_no_other_caller_gets_an_error(server: Server, way: str) -> None:
    """All calls of 20 others are answered, with what was asked for, while one is hostile; it was until the end, and
    the server's memory is bounded."""
    async with Crowd(server.url, CALLERS) as crowd, hostility(way, server.url) as seen:
        await crowd.calls(EACH)
        memory = server.resident
    assert crowd.errors == []
    assert crowd.answered == dict.fromkeys(CALLERS, EACH)
    assert seen.total() > 0
    assert memory < MOST_BYTES
    assert server.process.poll() is None


async def test_the_hostile_caller_is_served_afterwards(server: Server) -> None:
    """A caller is not locked out for what it did."""
    async with Crowd(server.url, [HOSTILE]) as crowd:
        await crowd.calls(2)
    assert crowd.errors == []
    assert key_of(HOSTILE) not in server.log


async def test_an_error_says_who_made_it(server: Server) -> None:
    """Errors that the server answers and those of the client alone are counted apart, by their kinds."""
    async with Crowd(server.url.replace("/mcp", "/elsewhere"), CALLERS[:1]) as refused:
        await refused.calls(1)
    assert refused.kinds == {"the server: 404": 1}
    with socket.socket() as unused:  # bound, and does not listen
        unused.bind(("127.0.0.1", 0))
        async with Crowd(f"http://127.0.0.1:{unused.getsockname()[1]}/mcp", CALLERS[:1]) as alone:
            await alone.calls(1)
    (kind,) = alone.kinds
    assert kind.startswith("the client: ConnectError, from ConnectionRefusedError in ")
