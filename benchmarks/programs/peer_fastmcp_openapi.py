"""FastMCP's `from_openapi` with GitHub's description, from the file to the tools."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import perf_counter

import httpx2
from fastmcp import FastMCP

from benchmarks.meter import Meter, run_program


async def main(meter: Meter) -> None:
    """Read it twice."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    modules = Path(os.environ.get("TOOLEXEC_NPM") or Path(cache) / "toolexec" / "npm") / "node_modules"
    path = modules / "@octokit" / "openapi" / "generated" / "api.github.com.json"
    for _ in range(2):
        started = perf_counter()
        async with httpx2.AsyncClient(base_url="https://api.github.com") as client:
            server = FastMCP.from_openapi(json.loads(path.read_bytes()), client=client)
            tools = await server.list_tools()
        meter.record("openapi.fastmcp", perf_counter() - started)
        assert len(tools) > 1000, len(tools)


if __name__ == "__main__":
    run_program(main)
