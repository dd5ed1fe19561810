"""The time to import each of the modules given on the command line, without the interpreter's own start.

`package:name` stands for `from package import name`. Interpreters are started in turn, one with each import and one
without, and the medians are subtracted, as hyperfine would.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from time import perf_counter

from benchmarks.meter import Meter, run_program

HEAVY = ("aiohttp", "anyio", "httpcore", "httpcore2", "httpx", "httpx2", "mcp", "mcp_types", "requests", "starlette")
HEAVY += ("urllib3", "uvicorn", "wasmtime", "websockets")
"""Modules that speak MCP or HTTP, or run wasm; importing the package must load none of them."""


def statement(target: str) -> str:
    """The import that *target* stands for."""
    module, _, name = target.partition(":")
    return f"from {module} import {name}" if name else f"import {module}"


def start_seconds(code: str) -> float:
    """How long an interpreter takes that runs *code*."""
    started = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return perf_counter() - started


def loaded_modules(target: str) -> list[str]:
    """The names in `sys.modules` after the import."""
    code = f"{statement(target)}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    return json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


async def main(meter: Meter) -> None:
    """Each target in turn, many times over."""
    targets = [target for target in sys.argv[1:] if not target.startswith("--")]
    for target in targets:
        subprocess.run([sys.executable, "-c", statement(target)], check=True)  # writes the byte code
    starts: dict[str, list[float]] = {target: [] for target in ["", *targets]}
    for _ in range(5 if meter.quick else 20):
        for target, taken in starts.items():
            taken.append(start_seconds(statement(target) if target else "pass"))
    bare = median(starts.pop(""))
    meter.record("imports.interpreter", bare)
    for target, taken in starts.items():
        meter.record(f"imports.{target}", *(seconds - bare for seconds in taken))
        loaded = loaded_modules(target)
        heavy = [name for name in HEAVY if name in loaded]
        meter.facts[f"imports.{target}"] = {"modules": len(loaded), "heavy": heavy}
        meter.record(f"imports.heavy.{target}", len(heavy))


if __name__ == "__main__":
    run_program(main)
