"""One hostile tenant, or stranger, in each of many ways, at a real server with a real sandbox: the neighbours get no
error, and the server stays within its memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from packages.remote.tests.hostile import WAYS, memory_of, peak_of, reset_peak
from packages.remote.tests.servers import Client, ServerProcess, server_process

pytestmark = [pytest.mark.full]

HELD = 48 << 20
BOUND = 4 * HELD
"""What the server may have beyond what it has when it is quiet: what it holds, copies that are on their way, and what
its sandboxes take."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with few places, little memory, and room for few connections."""
    with server_process(
        tmp_path_factory.mktemp("hostile"),
        max_running=6,
        max_queued=200,
        max_held=HELD,
        max_connections=50,
        max_anonymous=10,
        slot_idle=0.3,
        reconnect=0.5,
        go_timeout=600.0,
    ) as found:
        yield found


async def neighbour(endpoint: str, runs: int = 5) -> None:
    """Run some programs, each of which calls a tool."""
    async with Client(endpoint, name="neighbour") as client:
        for number in range(runs):
            run = f"neighbour-{number}-{id(client)}"
            await client.execute(run, "return tools.math.add(a=1, b=2)", timeout=60)
            await client.answer(run, lambda _: 3)
            result = await client.result(run)
            assert (result.error, result.value) == (None, 3)


@pytest.mark.parametrize("way", [*WAYS])
async def test_neighbours_notice_nothing(way: str, server: ServerProcess) -> None:
    """The programs of another tenant run as ever, and the memory of the server stays under its bound."""
    assert server.process is not None
    pid = server.process.pid
    await neighbour(server.endpoint, 2)
    base = memory_of(pid)
    reset_peak(pid)
    async with WAYS[way](server.endpoint):
        await neighbour(server.endpoint)
    assert peak_of(pid) - base < BOUND, f"{(peak_of(pid) - base) >> 20} MB more"
