"""A tool of an MCP backend, called through `toolexec serve` over stdio, directly, and through FastMCP's proxy, in turn.

Each side has a backend process of its own; the client is the SDK's own for both servers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

from benchmarks.meter import Meter, run_program
from benchmarks.peers import FOLDER, ROOT
from benchmarks.programs.echo import ARGS
from benchmarks.programs.mcp_calls import ECHO_SERVER
from toolexec import Exec

BACKEND = [sys.executable, "-I", "-S", ECHO_SERVER]
PEER_PYTHON = FOLDER / "bin" / "python"
BLOCK = 25  # calls in a row: an agent's calls come in bursts, too
PROXY = "benchmarks.programs.serve_fastmcp_proxy"


def serve_command(config: Path, *options: str) -> list[str]:
    """The command line of the server over the backends of a file."""
    allowed = "policy.remote_destructive=allow"  # there is nobody here to ask, and the policy is on all the same
    return [sys.executable, "-m", "toolexec", "serve", "-c", str(config), "--set", allowed, *options]


async def connect(stack: AsyncExitStack, command: list[str]) -> Client:
    """The SDK's client of a server that this starts; its stderr goes nowhere, and its pins and its audit log into a
    folder of its own: the user's are none of a benchmark's business."""
    state = stack.enter_context(tempfile.TemporaryDirectory())
    env = {**os.environ, "XDG_STATE_HOME": state}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # users' machines keep what is compiled
    nowhere = stack.enter_context(open(os.devnull, "w"))  # noqa: SIM115 - the stack closes it
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env, cwd=str(ROOT))
    return await stack.enter_async_context(Client(stdio_client(parameters, errlog=nowhere)))


def call_of(client: Client, tool: str, args: dict[str, Any]) -> Callable[[], Awaitable[None]]:
    """One call of a tool, which must succeed."""

    async def call() -> None:
        reply = await client.call_tool(tool, args)
        assert not reply.is_error, reply

    return call


async def direct_call(stack: AsyncExitStack, folder: Path) -> tuple[Path, Callable[[], Awaitable[None]]]:
    """The settings file with the backend, and a call of it without a server between."""
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"echo": {"command": BACKEND[0], "args": BACKEND[1:]}}}))
    ex = await stack.enter_async_context(Exec())
    await ex.add_mcp("echo", command=BACKEND)

    async def direct() -> None:
        assert (await ex.run_tool("echo:echo", ARGS)).ok

    return config, direct


async def measure_in_turn(
    meter: Meter, what: str, calls: Mapping[str, Callable[[], Awaitable[None]]]
) -> dict[str, float]:
    """Record the median of each call, made in blocks, in turn; return what each adds to the first at the median."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(5 if meter.quick else 40):
        for name in names[number % len(names) :] + names[: number % len(names)]:  # none always goes first
            for _ in range(BLOCK):
                started = perf_counter()
                await calls[name]()
                taken[name].append(perf_counter() - started)
    medians = {name: median(samples) for name, samples in taken.items()}
    for name, seconds in medians.items():
        meter.record(f"{what}.{name}", seconds)
    added = {name: medians[name] - medians[names[0]] for name in names[1:]}
    for name, seconds in added.items():
        meter.record(f"{what}.{name}_added", seconds)
    return added


async def sides(stack: AsyncExitStack, folder: Path) -> dict[str, Callable[[], Awaitable[None]]]:
    """By name: one call of the same tool."""
    config, direct = await direct_call(stack, folder)
    meta = await connect(stack, serve_command(config, "--expose", "meta"))
    plain = await connect(stack, serve_command(config, "--expose", "direct"))
    found: dict[str, Callable[[], Awaitable[None]]] = {
        "direct": direct,
        "run_tool": call_of(meta, "run_tool", {"tool_id": "echo:echo", "args": ARGS}),
        "exposed": call_of(plain, "echo__echo", ARGS),
    }
    if PEER_PYTHON.exists():
        proxy = await connect(stack, [str(PEER_PYTHON), "-m", PROXY, *BACKEND])
        found["fastmcp"] = call_of(proxy, "echo", ARGS)
    return found


async def main(meter: Meter) -> None:
    """The median of calls in blocks, in turn, and what the server adds to the direct call at the median."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        calls = await sides(stack, Path(folder))
        for call in calls.values():
            for _ in range(20):
                await call()
        await measure_in_turn(meter, "serve", calls)


if __name__ == "__main__":
    run_program(main)
