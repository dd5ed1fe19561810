"""Where the programs of a server with several tenants run."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import psutil
import pytest
from packages.remote.tests.servers import Client, server_process
from tests.waiting import until

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="priorities are those of threads on Linux alone"),
]


def lowest_priority(pid: int) -> int:
    """Return how nice the nicest thread is of what a server has started."""
    found = [os.getpriority(os.PRIO_PROCESS, pid)]
    for child in psutil.Process(pid).children():
        with suppress(psutil.Error, OSError):  # it has just ended
            found += [os.getpriority(os.PRIO_PROCESS, thread.id) for thread in child.threads()]
    return max(found)


async def test_a_program_that_is_alone_gives_way(tmp_path: Path) -> None:
    """Its thread, in a worker process, gets a lower priority once it has computed for long."""
    with server_process(tmp_path) as server:
        assert server.process is not None
        pid = server.process.pid
        usual = lowest_priority(pid)
        async with Client(server.endpoint) as client, aiohttp.ClientSession() as session:

            async def is_ready() -> bool:
                async with session.get(server.endpoint.replace("/v1/execute", "/ready")) as response:
                    return response.status == 200

            await until(is_ready)
            await client.execute("endless", "while True: pass", timeout=60)
            await until(lambda: lowest_priority(pid) > usual)
