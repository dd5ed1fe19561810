"""Images from a Dockerfile: a real daemon builds them, and keeps them as well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.engines.docker import DockerDaemon, docker_daemon, request
from tests.engines.programs import require_program

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.process.steps import BuildStep
from toolexec.runtime.images.dockerfile import build_dockerfile
from toolexec.runtime.images.store import ImageStore

__all__ = ["docker_daemon"]

DOCKERFILE = "FROM scratch\nCOPY motd /etc/motd\nCOPY motd /bin/sh\nENV GREETING=hello\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a Dockerfile, and what it needs."""
    made = tmp_path / "context"
    made.mkdir()
    (made / "Dockerfile").write_text(DOCKERFILE)
    (made / "motd").write_text("hello")
    return made


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """A store of the test's own."""
    return ImageStore(tmp_path / "images")


@pytest.fixture
def daemon(docker_daemon: DockerDaemon, monkeypatch: pytest.MonkeyPatch) -> DockerDaemon:
    """A daemon that the docker command talks to."""
    require_program("docker", "docker.io")
    monkeypatch.setenv("DOCKER_HOST", docker_daemon.host)
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")
    return docker_daemon


@pytest.mark.full
def test_it_is_built_and_kept(daemon: DockerDaemon, directory: Path, store: ImageStore) -> None:
    """In the store and in the daemon; a second time only if it is said."""
    steps: set[str] = set()

    def hear(step: BuildStep) -> None:
        steps.add(step.message)

    image = build_dockerfile(store, "from-file:1", directory / "Dockerfile", progress=hear)
    assert (image.root / "etc/motd").read_text() == "hello"
    assert image.env["GREETING"] == "hello"
    assert "building from the Dockerfile" in steps
    assert request(daemon.socket, "GET", "/images/from-file:1/json")[0] == 200
    with pytest.raises(ConfigurationError, match="--replace"):
        build_dockerfile(store, "from-file:1", directory / "Dockerfile")
    (directory / "motd").write_text("new")
    again = build_dockerfile(store, "from-file:1", directory / "Dockerfile", replace=True)
    assert (again.root / "etc/motd").read_text() == "new"
    assert store.list() == [again]


def test_what_docker_says_of_a_failure(daemon: DockerDaemon, directory: Path, store: ImageStore) -> None:
    """The store is as before."""
    (directory / "Dockerfile").write_text("FROM scratch\nCOPY absent /etc/motd\n")
    with pytest.raises(ConfigurationError, match=r"docker build failed: [\s\S]*absent"):
        build_dockerfile(store, "from-file", directory / "Dockerfile")
    assert store.list() == []
    assert os.listdir(store.directory / "new") == []


def test_where_there_is_nothing_to_build_with(
    directory: Path, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a file, nor docker or podman."""
    with pytest.raises(ConfigurationError, match="there is no file"):
        build_dockerfile(store, "from-file", directory / "absent")
    monkeypatch.setenv("PATH", str(directory))
    with pytest.raises(SandboxUnavailableError, match="neither is on the PATH"):
        build_dockerfile(store, "from-file", directory / "Dockerfile")
