"""One hostile tenant, or stranger, in each of many ways, at a real server with a real sandbox: the neighbours get no
error, and the server stays within its memory."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest
from packages.remote.tests.hostile import WAYS, memory_of, peak_of, reset_peak
from packages.remote.tests.servers import Client, ServerProcess, server_process, signed_get
from tests.waiting import until

QUICK = ("connections", "strangers", "half_messages", "sessions", "hanging_calls")
"""Those of the full tier; the others are of the soak tier, as they fill memory by the hundred megabytes."""
HELD = 16 << 20
BOUND = 4 * HELD + (128 << 20)
"""What the server may have beyond what it has when it is quiet: what it holds, with copies, and what its sandboxes take
in its process. Each way asks for more than that."""


class Log:
    """What a server logs: read at once, as a pipe that is not read stops the server when it is full."""

    def __init__(self, server: ServerProcess) -> None:
        assert server.process is not None
        assert server.process.stderr is not None
        self.size = 0
        self._file = server.process.stderr.fileno()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while data := os.read(self._file, 1 << 16):
                self.size += len(data)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with few places, little memory, and room for few connections."""
    with server_process(
        tmp_path_factory.mktemp("hostile"),
        wasm_workers=0,  # which would come in the middle of a test
        max_running=6,
        max_queued=200,
        max_held=HELD,
        max_body_bytes=8 << 20,
        max_connections=50,
        max_anonymous=10,
        slot_idle=0.3,
        reconnect=0.5,
        go_timeout=600.0,
    ) as found:
        yield found


@pytest.fixture(scope="module")
def log(server: ServerProcess) -> Log:
    """What that server logs."""
    return Log(server)


async def neighbour(endpoint: str, runs: int = 5) -> None:
    """Run some programs, each of which calls a tool."""
    async with Client(endpoint, name="neighbour") as client:
        for _ in range(runs):
            run = f"neighbour-{uuid4()}"
            await client.execute(run, "return tools.math.add(a=1, b=2)", timeout=60)
            await client.answer(run, lambda _: 3)
            result = await client.result(run)
            assert (result.error, result.value) == (None, 3)


async def quiet(endpoint: str) -> None:
    """Wait until nothing is left of what was there before."""

    async def is_quiet() -> bool:
        _, body = await signed_get(f"{endpoint}/capacity", endpoint)
        found = json.loads(body)["capacity"]
        return found["running"] == found["queued"] == 0

    await until(is_quiet, 0.05)


@pytest.mark.full
async def test_strangers_fill_no_log(server: ServerProcess, log: Log) -> None:
    """A request that is not HTTP costs at most 100 bytes of log, and is counted."""
    before = log.size
    async with WAYS["nonsense"](server.endpoint):
        pass
    _, counts = await signed_get(server.endpoint.replace("/v1/execute", "/metrics"), server.endpoint)
    assert b'toolexec_remote_cut_total{why="malformed"}' in counts
    assert log.size - before <= 100 * 100


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.full if way in QUICK else pytest.mark.soak) for way in WAYS]
)
async def test_neighbours_notice_nothing(way: str, server: ServerProcess, log: Log) -> None:
    """The programs of another tenant run as ever, and the memory of the server stays under its bound."""
    assert server.process is not None
    pid = server.process.pid
    await quiet(server.endpoint)
    await neighbour(server.endpoint, 2)
    base = memory_of(pid)
    reset_peak(pid)
    async with WAYS[way](server.endpoint):
        await neighbour(server.endpoint)
    assert peak_of(pid) - base < BOUND, f"{(peak_of(pid) - base) >> 20} MB more"
