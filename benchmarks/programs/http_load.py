"""Fifty clients at once at one server over HTTP, each with 200 calls.

The server is a process of its own, with one API key and every check on. The clients are the official ones, in this
process, each with a connection and a session of its own.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from statistics import quantiles
from time import perf_counter
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.meter import Meter, run_program
from benchmarks.peers import ROOT
from benchmarks.programs.echo import ARGS, SCHEMA

KEY = "txk_a-key-for-this-benchmark"
ERAS = {"handshake": "legacy", "modern": "2026-07-28"}
CLIENTS = 50
CALLS = 200


async def serve() -> None:
    """Print the address, and serve until SIGTERM."""
    from toolexec import Exec, Tool
    from toolexec.server.app import ToolServer
    from toolexec.server.auth import ApiKey, AuthSettings
    from toolexec.server.auth.credentials import hash_key
    from toolexec.server.http import HttpSettings, Metrics, serve_http

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    metrics = Metrics()
    ex = Exec(trace=metrics)
    tool = Tool(name="echo", namespace="bench", input_schema=SCHEMA, output_schema=SCHEMA)
    ex.add(tool, handler=echo)
    auth = AuthSettings(api_keys=(ApiKey(id="load", sha256=hash_key(KEY)),))
    async with ToolServer(ex) as server:
        await serve_http(
            server, HttpSettings(port=0), auth, metrics=metrics, stop=stop, ready=lambda url: print(url, flush=True)
        )


async def echo(args: dict[str, Any]) -> dict[str, Any]:
    """The tool."""
    return args


async def load(url: str, mode: str, clients: int, calls: int) -> dict[str, float]:
    """All clients are connected first; then each makes its calls, one after the other."""
    taken: list[float] = []
    errors: list[str] = []
    async with AsyncExitStack() as stack:
        connected: list[Client] = []
        for _ in range(clients):
            headers = {"authorization": f"Bearer {KEY}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60))
            transport: Any = streamable_http_client(url, http_client=http)
            connected.append(await stack.enter_async_context(Client(transport, mode=mode)))
        await asyncio.gather(*(client.list_tools() for client in connected))
        began = perf_counter()
        await asyncio.gather(*(work(client, calls, taken, errors) for client in connected))
        whole = perf_counter() - began
    cuts = quantiles(taken, n=100, method="inclusive")
    assert not errors, errors[0]
    return {"rate": whole / len(taken), "p50": cuts[49], "p99": cuts[98], "p99_to_p50": cuts[98] / cuts[49]}


async def work(client: Client, calls: int, taken: list[float], errors: list[str]) -> None:
    """The calls of one client."""
    for _ in range(calls):
        began = perf_counter()
        try:
            result = await client.call_tool("run_tool", {"tool_id": "bench:echo", "args": ARGS})
            if result.is_error:
                errors.append(str(result.content))
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
        taken.append(perf_counter() - began)


async def main(meter: Meter) -> None:
    """Both eras, each at a server of its own."""
    for era, mode in ERAS.items():
        command = [sys.executable, "-m", "benchmarks.programs.http_load", "--serve"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            try:
                url = (await asyncio.to_thread(process.stdout.readline)).strip()
                found = await load(url, mode, CLIENTS, CALLS // 10 if meter.quick else CALLS)
            finally:
                process.terminate()
        for name, value in found.items():
            meter.record(f"http.{era}_{name}", value)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(serve())
    else:
        run_program(main)
