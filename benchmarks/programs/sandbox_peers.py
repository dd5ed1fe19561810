"""The same program through toolexec, llm-sandbox and inspect-ai, on one Docker daemon."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from time import perf_counter

from benchmarks.meter import Meter, run_program
from benchmarks.peers import FOLDER, ROOT
from benchmarks.programs.sandbox import opened, run
from benchmarks.sandboxes import IMAGE, Place, place

CODE = "print(1 + 2)"
PEERS = {"llm_sandbox": "peer_llm_sandbox", "inspect": "peer_inspect"}


async def main(meter: Meter) -> None:
    """Ours and each peer's, cold and warm."""
    rounds = 3 if meter.quick else 10
    with place("docker") as here:
        await ours(meter, here, rounds)
        for name, module in PEERS.items():
            await asyncio.to_thread(peer, meter, here, name, module, rounds)


async def ours(meter: Meter, here: Place, rounds: int) -> None:
    """A container for each program, and one that is ready."""
    async with opened(here) as ex:
        await run(ex, CODE)
        for _ in range(rounds):
            began = perf_counter()
            assert (await run(ex, CODE)).stdout == "3\n"
            meter.record("sandbox_peers.cold", perf_counter() - began)
            await asyncio.sleep(0.3)
    async with opened(here, warm=2) as ex:
        await run(ex, CODE)
        for _ in range(rounds):
            while ex.runtime.backends[0].warm_stats.idle < 2:  # type: ignore[attr-defined]
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)
            began = perf_counter()
            await run(ex, CODE)
            meter.record("sandbox_peers.warm", perf_counter() - began)


def peer(meter: Meter, here: Place, name: str, module: str, rounds: int) -> None:
    """One of the others, in its own environment; what keeps it from running is a fact of the report."""
    python = str(FOLDER / "bin" / "python")
    env = {**os.environ, "DOCKER_HOST": here.host}
    command = [python, "-m", f"benchmarks.programs.{module}", f"{IMAGE}:latest", str(rounds)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=240)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        meter.facts[f"sandbox_peers.{name}"] = (lines or ["it failed without a word"])[-1][:300]
        return
    for kind, samples in json.loads(done.stdout.splitlines()[-1]).items():
        meter.record(f"sandbox_peers.{name}_{kind}", *samples)


if __name__ == "__main__":
    run_program(main)
