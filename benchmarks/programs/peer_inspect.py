"""The Docker sandbox of inspect-ai on the daemon that DOCKER_HOST names: one for each program, and one for many."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from inspect_ai.util._sandbox.docker.docker import DockerSandboxEnvironment

CODE = "print(1 + 2)"
COMPOSE = """
services:
  default:
    image: "{image}"
    command: "tail -f /dev/null"
    init: true
    network_mode: none
    x-local: true
"""


async def run(sandbox: Any) -> float:
    """Seconds of one program."""
    began = perf_counter()
    done = await sandbox.exec(["python3", "-c", CODE])
    assert done.stdout.strip() == "3", done
    return perf_counter() - began


async def main(image: str, rounds: int) -> None:
    """Print the samples as JSON."""
    samples: dict[str, list[float]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder:
        config = str(Path(folder) / "compose.yaml")
        Path(config).write_text(COMPOSE.format(image=image))
        await DockerSandboxEnvironment.task_init("bench", config)
        for number in range(rounds + 1):
            began = perf_counter()
            sandboxes = await DockerSandboxEnvironment.sample_init("bench", config, {})
            await run(sandboxes["default"])
            if number < rounds:
                samples["cold"].append(perf_counter() - began)
            else:
                samples["warm"] = [await run(sandboxes["default"]) for _ in range(rounds)]
            await DockerSandboxEnvironment.sample_cleanup("bench", config, sandboxes, False)
        await DockerSandboxEnvironment.task_cleanup("bench", config, True)
    print(json.dumps(samples))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
