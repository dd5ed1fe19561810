"""A Docker daemon of the tests' own: its data, its socket and its control groups are in places that go away with it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines.certificates import make_certificates
from tests.engines.images import TEST_IMAGE, test_image
from tests.engines.programs import (
    free_port,
    has_ended,
    mounts_below,
    processes_of,
    remove_cgroup,
    require_program,
    wait_until,
)
from tests.tiers import missing

from toolexec.runtime.images.store import ImageStore

IMAGE = TEST_IMAGE
_START = 60.0


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=120)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(120)
        self.sock.connect(self._path)


def request(
    path: str, method: str, url: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """A request to the daemon at the socket *path*: for what tests look at behind the back of the engine."""
    connection = _Connection(path)
    try:
        kind = {"Content-Type": "application/json" if isinstance(body, str) else "application/x-tar"}
        connection.request(method, url, body=body, headers=kind | (headers or {}), encode_chunked=hasattr(body, "read"))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class DockerDaemon:
    """A daemon with everything that belongs to it in one short-named directory. `stop` removes all of it.

    It listens on a Unix socket and, with TLS for clients that have a certificate in `certificates`, on `tls_host`.
    Its directory is in *parent*, if that is given, as all that `tempfile` makes is closed to other users.
    """

    def __init__(self, *, live_restore: bool = False, parent: str | None = None) -> None:
        if os.name != "posix" or os.geteuid() != 0:
            missing("only root can start a Docker daemon", "sudo -E bash .ci/run")
        self._program = require_program("dockerd", "docker.io")
        self.directory = Path(tempfile.mkdtemp(prefix="dk", dir=parent))
        self.socket = str(self.directory / "docker.sock")
        self.host = f"unix://{self.socket}"
        self.log = self.directory / "log"
        self._cgroups = f"toolexec-{self.directory.name}"
        self.certificates = self.directory / "tls"
        self.tls_host = f"tcp://127.0.0.1:{free_port()}"
        make_certificates(self.certificates)
        self._settings: dict[str, Any] = {
            "data-root": str(self.directory / "data"),
            "exec-root": str(self.directory / "exec"),
            "pidfile": str(self.directory / "docker.pid"),
            "hosts": [self.host, self.tls_host],
            "tlsverify": True,
            "tlscacert": f"{self.certificates}/ca.pem",
            "tlscert": f"{self.certificates}/server-cert.pem",
            "tlskey": f"{self.certificates}/server-key.pem",
            "iptables": False,
            "ip6tables": False,
            "ip-forward": False,
            "ip-masq": False,
            "bridge": "none",
            "live-restore": live_restore,
            "cgroup-parent": f"/{self._cgroups}",
            "storage-driver": "overlay2",
        }
        runsc = shutil.which("runsc")
        if runsc:
            arguments = ["--platform=systrap", "--network=none"]
            self._settings["runtimes"] = {"runsc": {"path": runsc, "runtimeArgs": arguments}}
        self.pid = 0

    def start(self) -> None:
        """Start the daemon, and wait until it answers."""
        try:
            self._start()
        except TimeoutError:
            if "overlay" not in self.log.read_text("utf-8", "replace"):
                raise
            self._end()
            self._settings["storage-driver"] = (
                "vfs"  # the directory is on a file system that overlays cannot be made of
            )
            self._start()

    def _start(self) -> None:
        settings = self.directory / "daemon.json"
        settings.write_text(json.dumps(self._settings))
        with self.log.open("ab") as log:
            # Not a child of ours: it is to outlive a test, and tests are looked at for what they leave running.
            subprocess.run(
                ["setsid", "--fork", self._program, "--config-file", str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                env={key: value for key, value in os.environ.items() if not key.startswith("DOCKER_")},
            )
        try:
            wait_until(self._answers, _START, "the Docker daemon did not answer")
        except TimeoutError as error:
            text = self.log.read_text("utf-8", "replace")[-3000:]
            raise TimeoutError(f"{error}; its log: {text}") from None
        self.pid = int((self.directory / "docker.pid").read_text())

    def _answers(self) -> bool:
        try:
            return request(self.socket, "GET", "/_ping")[0] == 200
        except OSError:
            return False

    def load(self) -> None:
        """Give it the image of the tests."""
        archive = ImageStore().archive(test_image())
        with archive.open("rb") as file:
            status, said = request(self.socket, "POST", "/images/load", file)
        assert status == 200, said
        assert b'"error"' not in said, said

    def containers(self) -> list[dict[str, Any]]:
        """All containers, whatever their state."""
        return json.loads(request(self.socket, "GET", "/containers/json?all=1")[1])

    def kill(self) -> None:
        """Kill the daemon as the kernel does when memory is short."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: has_ended(self.pid), 10, "the daemon did not die")

    def restart(self) -> None:
        """Start it again after `kill`, which its containerd has not survived either."""
        for left in ("docker.pid", "docker.sock", "exec/containerd/containerd.pid"):  # a zombie has its number for long
            (self.directory / left).unlink(missing_ok=True)
        self._start()

    def stop(self) -> None:
        """End it, and remove everything that it has made."""
        self._end()
        for _ in range(3):
            for target in reversed(mounts_below(self.directory)):
                subprocess.run(["umount", "-l", target], check=False, capture_output=True)
        for controller in Path("/sys/fs/cgroup").glob(f"*/{self._cgroups}"):
            remove_cgroup(controller)
        remove_cgroup(Path("/sys/fs/cgroup") / self._cgroups)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self) -> None:
        """The daemon first, then what it has started: its containerd, and one shim for each container."""
        for kind in (signal.SIGTERM, signal.SIGKILL):
            for name in ("dockerd", "containerd", ""):
                found = [each for each in processes_of(self.directory) if each.name() == name or not name]
                for process in found:
                    try:
                        process.send_signal(kind)
                    except psutil.NoSuchProcess:
                        continue
                try:
                    wait_until(lambda found=found: all(has_ended(each.pid) for each in found), 10, "it did not end")
                except TimeoutError:
                    continue


_shared: list[DockerDaemon] = []


@pytest.fixture(scope="session")
def docker_daemon() -> Iterator[DockerDaemon]:
    """A daemon with the image of the tests, for all tests that leave it as it is."""
    if not _shared:
        daemon = DockerDaemon()
        try:
            daemon.start()
            daemon.load()
        except BaseException:
            daemon.stop()
            raise
        _shared.append(daemon)
    yield _shared[0]
    if _shared:
        _shared.pop().stop()
