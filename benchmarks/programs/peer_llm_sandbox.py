"""llm-sandbox on the Docker daemon that DOCKER_HOST names: a session of its own for each program, and one for many."""

from __future__ import annotations

import json
import sys
from time import perf_counter

from llm_sandbox import SandboxBackend, SandboxSession

CODE = "print(1 + 2)"


def opened(image: str) -> SandboxSession:
    """A session in the image that is there, which installs nothing."""
    return SandboxSession(
        backend=SandboxBackend.DOCKER,
        lang="python",
        image=image,
        keep_template=True,
        skip_environment_setup=True,
        runtime_configs={"command": "sleep 3600", "user": "root", "network_mode": "none"},
    )


def run(session: SandboxSession) -> float:
    """Seconds of one program."""
    began = perf_counter()
    said = session.run(CODE)
    assert said.stdout.strip() == "3", (said.stdout, said.stderr, said.exit_code)
    return perf_counter() - began


def main(image: str, rounds: int) -> None:
    """Print the samples as JSON."""
    samples: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(rounds):
        began = perf_counter()
        with opened(image) as session:
            run(session)
            samples["cold"].append(perf_counter() - began)
    with opened(image) as session:
        run(session)
        samples["warm"] = [run(session) for _ in range(rounds)]
    print(json.dumps(samples))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
