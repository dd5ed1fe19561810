"""A real server on a Unix-like machine, for each test that wants one: Valkey where it is installed, else Redis."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError
from tests.engines.programs import free_port

PASSWORD = "a-pass/word"


class Server:
    """A server that can be killed, and started again over the same directory."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self._directory = directory
        self._words: list[str] = []
        self.tls_port: int = 0
        self.port: int = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"valkey://:a-pass%2Fword@127.0.0.1:{self.port}/0"

    def with_tls(self, cert: Path, ca: Path, clients: str = "no") -> None:
        """Start again, with a port for TLS, too; *clients* says whether clients need a certificate (yes, no)."""
        self.kill()
        self.tls_port = free_port()
        files = ["--tls-cert-file", str(cert), "--tls-key-file", str(cert), "--tls-ca-cert-file", str(ca)]
        self._words = ["--tls-port", str(self.tls_port), *files, "--tls-auth-clients", clients]
        self.start()

    def tls_url(self, host: str, query: str) -> str:
        """Return its address over TLS, at a name of this machine."""
        return f"rediss://:a-pass%2Fword@{host}:{self.tls_port}/0?{query}"

    def start(self) -> None:
        words = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._directory)]
        words += [
            "--requirepass",
            PASSWORD,
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "no",
        ]  # it is only killed, and a busy disk would hold up answers

        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen([self._program, *words, *self._words], stdout=log, stderr=log)
        for _ in range(600):
            try:
                with Redis(port=self.port, password=PASSWORD, socket_timeout=20) as client:
                    client.ping()
                    return
            except RedisError:
                pass
            assert self._process.poll() is None, (self._directory / "log").read_text()
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    """Yield a server that runs, with a password, whose records survive a kill; it is killed at the end."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        why = "there is no valkey-server or redis-server; apt-get install redis-server"
        assert os.environ.get("CI") != "true", why
        pytest.skip(why)
    directory = tmp_path / "valkey"
    directory.mkdir()
    server = Server(program, directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
