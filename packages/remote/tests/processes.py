"""Remote runtimes as the tests start them: each a process of its own, which can be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.engines.programs import free_port
from tests.waiting import until_blocking

from toolexec.remote import RemoteSettings, SigningKey

KEY = SigningKey(id="tests", token="a token of the tests", secret="a secret of the tests")


def settings_for(*servers: RemoteServer, **fields: Any) -> RemoteSettings:
    """Return the settings of a client of these servers."""
    endpoints = tuple(server.endpoint for server in servers)
    own: dict[str, Any] = {"key_id": KEY.id, "token": KEY.token, "signing_key": KEY.secret}
    own["plain_http"] = any(server.host != "127.0.0.1" for server in servers)  # in a namespace of this machine
    return RemoteSettings(endpoints=endpoints, **{**own, **fields})


class RemoteServer:
    """A server process with one sandbox, of *kind* (`scripted`: a program is a number, which it has counted); *fields*
    are further settings of it.

    It listens at *host*, in front of *command* (to be in another network namespace, for one). With *user*, which needs
    root, it is served by the user of that number, who must own *directory*. `with` starts and ends
    it; `kill` and `start` may be called in between, on the same port and with the same state.
    """

    def __init__(
        self,
        directory: Path,
        kind: str = "wasm",
        *,
        host: str = "127.0.0.1",
        command: Sequence[str] = (),
        user: int | None = None,
        **fields: Any,
    ) -> None:
        self.port = free_port()
        self.host = host
        scheme = "https" if fields.get("tls_cert") else "http"
        self.endpoint = f"{scheme}://{host}:{self.port}/v1/execute"
        self.log = directory / f"server-{self.port}.log"
        state = directory / f"state-{self.port}"
        self._given = {"host": host, "port": self.port, "state_directory": str(state), **fields}
        self._kind = kind
        self._command = command
        self._module = ["packages.remote.tests.process"]
        self._environment: dict[str, str] = {}
        if user is not None:
            self._module = ["packages.remote.tests.as_user", str(user)]
            self._environment = {"TOOLEXEC_TEST_PLACE": str(directory)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        given = json.dumps({"kind": self._kind, "settings": self._given})
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, sys.executable, "-m", *self._module, given],
                env={**os.environ, **self._environment},
                cwd=Path(__file__).parents[3],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        word = self._process.stdout.readline().strip()
        assert word == b"ready", f"the server did not start: {self.log.read_text()[-3000:]}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill it without a warning."""
        self._end(signal.SIGKILL)

    def drain(self) -> int:
        """Have it end in peace; return its exit code."""
        return self._end(signal.SIGTERM)

    def terminate(self) -> None:
        """Send the signal to end in peace, and do not wait."""
        os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> int:
        """Wait until it has ended; return its exit code."""
        process, self._process = self._process, None
        assert process is not None
        code = process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
        return code

    def _end(self, how: signal.Signals) -> int:
        os.kill(self.pid, how)
        return self.wait()

    def pause(self) -> None:
        """Have it do nothing, though it is there."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def is_listening(self) -> bool:
        """Return whether it accepts connections."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.host, self.port)) == 0

    def __enter__(self) -> Self:
        self.start()
        until_blocking(self.is_listening, 0.02)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self.kill()
