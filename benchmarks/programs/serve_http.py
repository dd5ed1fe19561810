"""A tool of an MCP backend, called through `toolexec serve` over HTTP, directly, and through FastMCP's proxy, in turn.

Each side has a backend process of its own; the client is the SDK's own for both servers, in the era that it agrees on
with each. Both serve one client on loopback, without keys.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from time import monotonic

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.meter import Meter, run_program
from benchmarks.peers import ROOT
from benchmarks.programs.echo import ARGS
from benchmarks.programs.serve_stdio import (
    BACKEND,
    PEER_PYTHON,
    PROXY,
    call_of,
    direct_call,
    measure_in_turn,
    serve_command,
)

PATIENCE = 60.0


@contextmanager
def running(command: list[str], log: Path) -> Generator[subprocess.Popen[bytes]]:
    """Run a server, whose output goes into a file, and whose state into a directory of its own."""
    with tempfile.TemporaryDirectory() as state, log.open("wb") as output:
        env = {**os.environ, "XDG_STATE_HOME": state}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # users' machines keep what is compiled
        with subprocess.Popen(command, stdout=output, stderr=output, env=env, cwd=ROOT) as process:
            try:
                yield process
            finally:
                process.terminate()


async def address_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address that `toolexec serve` says it listens at."""
    ends = monotonic() + PATIENCE
    while process.poll() is None and monotonic() < ends:
        if found := re.search(r"at (http://\S+)", log.read_text(errors="replace")):
            return found[1]
        await asyncio.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-500:]}")


async def listening(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server takes connections."""
    ends = monotonic() + PATIENCE
    while process.poll() is None and monotonic() < ends:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise RuntimeError("FastMCP's proxy did not start")


async def connect(stack: AsyncExitStack, url: str) -> Client:
    """The SDK's client of a server over HTTP."""
    http = await stack.enter_async_context(httpx2.AsyncClient(timeout=PATIENCE, verify=False))
    return await stack.enter_async_context(Client(streamable_http_client(url, http_client=http)))


def free_port() -> int:
    """A port that no server has now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


async def sides(stack: AsyncExitStack, folder: Path) -> dict[str, Callable[[], Awaitable[None]]]:
    """By name: one call of the same tool."""
    config, direct = await direct_call(stack, folder)
    found: dict[str, Callable[[], Awaitable[None]]] = {"direct": direct}
    for name, expose, tool, args in (
        ("run_tool", "meta", "run_tool", {"tool_id": "echo:echo", "args": ARGS}),
        ("exposed", "direct", "echo__echo", ARGS),
    ):
        log = folder / name
        command = serve_command(config, "--expose", expose, "--transport", "http", "--port", "0")
        process = stack.enter_context(running(command, log))
        client = await connect(stack, await address_in(log, process))
        found[name] = call_of(client, tool, args)
    if PEER_PYTHON.exists():
        port = free_port()
        command = [str(PEER_PYTHON), "-m", PROXY, "--http", str(port), *BACKEND]
        process = stack.enter_context(running(command, folder / "fastmcp"))
        await listening(port, process)
        found["fastmcp"] = call_of(await connect(stack, f"http://127.0.0.1:{port}/mcp"), "echo", ARGS)
    return found


async def ready(call: Callable[[], Awaitable[None]]) -> None:
    """Call until the backend is there, and then some more."""
    ends = monotonic() + PATIENCE
    while True:
        try:
            await call()
            break
        except AssertionError:
            if monotonic() > ends:
                raise
            await asyncio.sleep(0.1)
    for _ in range(20):
        await call()


async def main(meter: Meter) -> None:
    """The median of calls in blocks, in turn, and what the server adds to the direct call at the median."""
    async with AsyncExitStack() as stack:
        calls = await sides(stack, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        for call in calls.values():
            await ready(call)
        added = await measure_in_turn(meter, "serve_http", calls)
        if "fastmcp" in added:
            for name in ("run_tool", "exposed"):
                meter.record(f"serve_http.{name}_to_fastmcp", added[name] / added["fastmcp"])


if __name__ == "__main__":
    run_program(main)
