"""How much a model reads at the start: the definitions of 500 tools, and what `toolexec serve` shows in their place.

The tools are those of two real servers, over and over under other names, so that definitions are as long as real ones.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.meter import Meter, run_program
from toolexec import Exec
from toolexec.server.instructions import instructions
from toolexec.server.tools.catalogue import meta_tools

TOOLS = 500


async def definitions() -> list[dict[str, Any]]:
    """What the servers say of their tools."""
    async with Exec() as ex:
        await ex.add_mcp("git", command=[sys.executable, "-m", "mcp_server_git"])
        await ex.add_mcp("time", command=[sys.executable, "-m", "mcp_server_time"])
        return [entry.tool.to_mcp() for entry in ex.index.tools()]


def size(data: Any) -> int:
    """The bytes of JSON data, as compact as it goes over the wire."""
    return len(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode())


async def main(meter: Meter) -> None:
    """All tools, against the server's own and its instructions."""
    real = await definitions()
    assert len(real) > 10
    every = size([{**real[n % len(real)], "name": f"service{n}__{real[n % len(real)]['name']}"} for n in range(TOOLS)])
    for expose in ("meta", "code"):
        shown = size({"tools": [tool.to_mcp() for tool in meta_tools(expose, code_enabled=True)]})
        shown += size(instructions(expose, tools=TOOLS, code_enabled=True))
        meter.record(f"serve.start_{expose}", shown / every)
        if expose == "meta":
            meter.record("serve.start_bytes", shown)
        meter.facts[f"serve.start_{expose}"] = f"{shown:,} bytes in place of {every:,}"


if __name__ == "__main__":
    run_program(main)
