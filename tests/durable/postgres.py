"""A PostgreSQL server of the test's own, in a directory of its own, reached by a socket in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import tiers
from tests.waiting import until_blocking

_QUICK = ("fsync=off", "autovacuum=off", "max_parallel_workers=0", "listen_addresses=", "shared_buffers=16MB")


def _binaries() -> Path:
    """Find the newest server that Debian has installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[4]))
    if not found:
        tiers.missing("PostgreSQL is not installed", "apt-get install postgresql")
    return found[-1].parent


class Server:
    """A running server; `dsn` connects to it. It can be killed and started again."""

    def __init__(self, directory: Path, user: str | None) -> None:
        self.directory = directory
        self.dsn = f"host={directory} user=tests dbname=postgres"
        self._binaries = _binaries()
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        command = [self._binaries / "initdb", "-D", self.directory / "data", "-U", "tests", "-A", "trust", "-N"]
        done = subprocess.run(
            [*command, "-E", "UTF8", "--locale=C.UTF-8"], user=self._user, cwd="/", capture_output=True, timeout=120
        )
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        settings = [
            part for setting in (*_QUICK, f"unix_socket_directories={self.directory}") for part in ("-c", setting)
        ]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.directory / "data", *settings],
                user=self._user,
                cwd="/",
                stdout=log,
                stderr=log,
                process_group=0,
            )
        ready = [self._binaries / "pg_isready", "-q", "-h", self.directory]
        until_blocking(lambda: subprocess.run(ready, timeout=10).returncode == 0, pause=0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends all connections, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None


@contextmanager
def server() -> Iterator[Server]:
    """Start a server; it refuses to run as root, so that then another user has it."""
    directory = Path(tempfile.mkdtemp(prefix="toolexec-pg-", dir="/tmp"))
    user = None
    try:
        if os.geteuid() == 0:
            user = "postgres"  # the package makes it
            shutil.chown(directory, user)
        made = Server(directory, user)
        made.make()
        made.start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
