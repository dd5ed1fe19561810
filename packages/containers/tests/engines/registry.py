"""A registry of the tests' own on the loopback, with and without a password."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.docker import DockerDaemon, request
from tests.engines.programs import free_port, require_program, wait_until

_HASH = "$2y$05$iKhObeRRdEl0HVh2mNUDS.VSQih4.eOnMfJUZCJ.5LyhhBtP0yjvO"  # of "secret"
USER, PASSWORD = "someone", "secret"
AUTH = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class Registry:
    """A registry that keeps its images in a directory that goes away with it."""

    def __init__(self, *, locked: bool = False) -> None:
        program = require_program("docker-registry", "docker-registry")
        self.directory = Path(tempfile.mkdtemp(prefix="rg"))
        self.port = free_port()
        self.name = f"127.0.0.1:{self.port}"
        self.locked = locked
        (self.directory / "users").write_text(f"{USER}:{_HASH}\n")
        settings = {
            "version": "0.1",
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": str(self.directory / "data")}, "delete": {"enabled": True}},
            "http": {"addr": self.name},
        }
        if locked:
            settings["auth"] = {"htpasswd": {"realm": "tests", "path": str(self.directory / "users")}}
        (self.directory / "config.yml").write_text(json.dumps(settings))
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, "serve", str(self.directory / "config.yml")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            wait_until(self._answers, 30, "the registry did not answer")
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.name}/v2/", timeout=5) as answer:
                return answer.status == 200
        except urllib.error.HTTPError as error:
            with error:
                return error.code == 401 and self.locked
        except OSError:
            return False

    def push(self, daemon: DockerDaemon, image: str, name: str) -> str:
        """Push an image of a daemon, then have the daemon forget the name; gives the digest in the registry."""
        repository, _, tag = name.rpartition(":")
        assert request(daemon.socket, "POST", f"/images/{image}/tag?repo={self.name}/{repository}&tag={tag}")[0] == 201
        login = json.dumps({"username": USER, "password": PASSWORD, "serveraddress": self.name})
        headers = {"X-Registry-Auth": base64.urlsafe_b64encode(login.encode()).decode()}
        status, said = request(
            daemon.socket, "POST", f"/images/{self.name}/{repository}/push?tag={tag}", headers=headers
        )
        assert status == 200, said
        assert b'"error"' not in said, said
        request(daemon.socket, "DELETE", f"/images/{self.name}/{name}")
        lines = [json.loads(line) for line in said.splitlines()]
        return next(str(line["aux"]["Digest"]) for line in lines if "Digest" in line.get("aux", {}))

    def stop(self) -> None:
        """End it, and remove its images."""
        self._process.kill()
        self._process.wait(10)
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """A registry without a password."""
    found = Registry()
    yield found
    found.stop()


@pytest.fixture(scope="session")
def locked_registry() -> Iterator[Registry]:
    """A registry that wants a password."""
    found = Registry(locked=True)
    yield found
    found.stop()
