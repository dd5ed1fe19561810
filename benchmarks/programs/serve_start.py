"""Start `toolexec serve` over twenty backends, five of them dead: until it is ready, and until all tools are there."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio

from benchmarks.meter import Meter, run_program
from benchmarks.programs.mcp_calls import ECHO_SERVER
from benchmarks.programs.serve_stdio import connect, serve_command

LIVING, DEAD = 15, 5
HANGS = "import time; time.sleep(600)"


def config() -> dict[str, Any]:
    """Fifteen servers that work; of the dead ones some are no programs, and some say nothing."""
    servers: dict[str, Any] = {
        f"echo{number}": {"command": sys.executable, "args": ["-I", "-S", ECHO_SERVER]} for number in range(LIVING)
    }
    for number in range(DEAD):
        command = {"command": sys.executable, "args": ["-I", "-S", "-c", HANGS]}
        servers[f"dead{number}"] = command if number % 2 else {"command": f"no-such-program-{number}"}
    return {"mcpServers": servers}


async def statuses(client: Any) -> dict[str, bool]:
    """By backend: whether it is available, as the server tells."""
    reply = await client.call_tool("list_backends", {})
    assert not reply.is_error, reply
    return {entry["name"]: entry["available"] for entry in reply.structured_content["backends"]}


async def main(meter: Meter) -> None:
    """Ready is when the first request is answered; the dead ones must be reported as such."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "servers.json"
        file.write_text(json.dumps(config()))
        for _ in range(1 if meter.quick else 3):
            async with AsyncExitStack() as stack:
                started = perf_counter()
                client = await connect(stack, serve_command(file))
                await client.list_tools()
                meter.record("serve.ready", perf_counter() - started)
                while sum((known := await statuses(client)).values()) < LIVING:
                    await anyio.sleep(0.02)
                meter.record("serve.all_tools", perf_counter() - started)
                dead = sorted(name for name, available in known.items() if not available and name != "local")
                assert len(dead) == DEAD, dead
    meter.facts["serve.backends"] = f"{LIVING + DEAD}, {DEAD} of them dead"


if __name__ == "__main__":
    run_program(main)
