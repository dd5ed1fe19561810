"""A tool of an HTTP service on loopback: through toolexec, and with a bare httpx2 request, in turn in one process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any

import httpx2

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS, SCHEMA
from toolexec import Exec

_SERVER = """
import asyncio
ANSWER = b'{"text":"hello","count":3,"loud":true}'
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(ANSWER)
async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\\r\\n\\r\\n")).lower()
            length = head.partition(b"content-length:")[2].split(b"\\r\\n")[0].strip() or b"0"
            await reader.readexactly(int(length))
            writer.write(HEAD + ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
"""A service that does next to nothing, so that nothing hides what the client costs."""
_AT_ONCE = 1000


async def batch(call: Callable[[], Awaitable[Any]], count: int) -> float:
    """The seconds of a call, as the mean of *count*."""
    started = perf_counter()
    for _ in range(count):
        await call()
    return (perf_counter() - started) / count


async def main(meter: Meter) -> None:
    """A POST with a small JSON body, one after the other, and a thousand at once on a hundred connections."""
    server = subprocess.Popen([sys.executable, "-I", "-S", "-c", _SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        await compare(meter, f"http://127.0.0.1:{server.stdout.readline().strip()}")
    finally:
        server.kill()
        server.wait()


async def compare(meter: Meter, url: str) -> None:
    """Make the same request both ways; each side has connections of its own."""
    body = {name: "{{" + name + "}}" for name in ARGS}
    tools = {"echo": {"method": "POST", "path": "/echo", "body": body, "input_schema": SCHEMA}}
    async with Exec() as ex, httpx2.AsyncClient(trust_env=False) as client:
        await ex.add_http("bench", url, tools=tools)

        async def ours() -> None:
            assert (await ex.run_tool("bench:echo", ARGS)).ok

        async def bare() -> None:
            assert (await client.post(f"{url}/echo", json=ARGS)).json() == ARGS

        await batch(bare, 50)
        await batch(ours, 50)
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(20 if meter.quick else 150):
            for side in (0, 1) if number % 2 else (1, 0):  # neither side always goes first
                taken[side].append(await batch((bare, ours)[side], 5))
        meter.record("http.bare", *taken[0])
        meter.record("http.call", *taken[1])
        meter.record("http.ratio", median(taken[1]) / median(taken[0]))
        started = perf_counter()
        results = await asyncio.gather(*(ex.run_tool("bench:echo", ARGS) for _ in range(_AT_ONCE)))
        meter.record("http.at_once", perf_counter() - started)
        meter.record("http.errors", sum(not result.ok for result in results))


if __name__ == "__main__":
    run_program(main)
