"""Runs on Temporal while workers, callers and the server are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from packages.temporal.tests.server.programs import CHAIN_VALUE, CODE_VALUE, PAUSE, WORKFLOW_VALUE
from packages.temporal.tests.server.servers import DevServer

_KINDS = {"chain": CHAIN_VALUE, "workflow": WORKFLOW_VALUE, "code": CODE_VALUE}
_ROOT = Path(__file__).parents[4]
_LONGEST = 400.0


class _Process:
    """A process of `programs`, which is started again when it was killed."""

    def __init__(self, pause: float, *args: str) -> None:
        self._args = args
        self._pause = str(pause)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", "packages.temporal.tests.server.programs", *self._args]
            environment = {**os.environ, PAUSE: self._pause}
            self._process = subprocess.Popen(
                command, cwd=_ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)


@contextmanager
def _killed_at_the_end(processes: list[_Process]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def survive(directory: Path, kills: int, seed: int) -> tuple[dict[str, object], Counter[str]]:
    """Run a chain, a workflow and code with so many kills among them, and one restart of the server; return the results
    and how often each charge was made."""
    chance = random.Random(seed)
    server = DevServer(directory / "temporal.db")
    effects = directory / "effects"
    settings = json.dumps({"address": server.address, "heartbeat_timeout": 2.0, "linger": 0.5})
    pause = 0.2 if kills < 10 else 0.7  # so that nothing is done before the last kill
    workers = [_Process(pause, "worker", settings, str(effects)) for _ in range(2)]
    files = {kind: directory / f"{kind}.json" for kind in _KINDS}
    callers = {
        kind: _Process(pause, "caller", settings, str(effects), kind, f"run-{kind}", str(files[kind]))
        for kind in _KINDS
    }
    ends = time.monotonic() + _LONGEST
    with ExitStack() as stack:
        server.start()
        stack.callback(server.stop)
        stack.enter_context(_killed_at_the_end([*workers, *callers.values()]))
        left = kills
        while open_kinds := [kind for kind, file in files.items() if not file.exists()]:
            assert time.monotonic() < ends, f"{', '.join(open_kinds)} did not end"
            for process in (*workers, *(callers[kind] for kind in open_kinds)):
                process.start()
            time.sleep(chance.uniform(0.5, 4.0))
            if left:
                left -= 1
                chance.choice([*workers, *(callers[kind] for kind in open_kinds)]).kill()
                if left == kills // 2:
                    server.stop(kill=True)
                    server.start()
        assert left == 0, f"all was done before the last {left} kills"
    results = {kind: json.loads(file.read_text()) for kind, file in files.items()}
    return results, Counter(effects.read_text().split())


def check_results(results: dict[str, object], charges: Counter[str]) -> None:
    """Require the exact results, and each effect once."""
    for kind, expected in _KINDS.items():
        found = results[kind]
        assert isinstance(found, dict)
        assert found["error"] == "", f"{kind}: {found['error']}"
        assert (found["value"][:2] if kind == "code" else found["value"]) == expected, kind
    assert {number: count for number, count in charges.items() if count != 1} == {}
    assert len(charges) == 180


def test_runs_survive_kills_and_a_restart_of_the_server(tmp_path: Path) -> None:
    """A chain of 100 steps, a workflow with `parallel for` and code with 50 calls end with the exact result, and each
    effect happens once."""
    check_results(*survive(tmp_path, kills=4, seed=1))


@pytest.mark.soak
def test_runs_survive_twenty_kills(tmp_path: Path) -> None:
    """The same with twenty kills."""
    check_results(*survive(tmp_path, kills=20, seed=2))
