"""The engine against Podman's socket: the same as with Docker, but for what Podman does in its own way."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from packages.containers.tests.engines.docker_cases import *  # noqa: F403
from packages.containers.tests.engines.docker_cases import run, start
from packages.containers.tests.engines.podman import PodmanService, podman_service
from tests.engines.docker import IMAGE
from tests.tiers import missing
from tests.wall import broken, fallen

from toolexec.errors import SandboxUnavailableError
from toolexec.sandbox import Limits, LimitsEnforced
from toolexec_containers.docker import DockerBackend, DockerConfig, DockerEngine

__all__ = ["podman_service"]


@pytest.fixture
def daemon(podman_service: PodmanService) -> PodmanService:
    return podman_service


@pytest.fixture
async def engine(daemon: PodmanService) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(DockerConfig(host=daemon.host, image=IMAGE, pull="never"))
    yield engine
    await engine.aclose()


async def test_the_check_says_what_is_there_and_what_holds(engine: DockerEngine) -> None:
    assert (await engine.check()).ok
    assert engine.enforces(Limits()) == LimitsEnforced(memory=True, cpu=True, cpus=True, pids=True, disk=True)
    assert engine.details["engine"] == "podman"


async def test_a_runtime_that_podman_would_not_use_is_refused(engine: DockerEngine) -> None:
    """Podman accepts the name of any runtime and uses its own: code would be less isolated than reported."""
    ours = DockerEngine(replace(engine.config, runtime="runsc"))
    found = await ours.check()
    assert not found.ok
    assert "with runc only, not with 'runsc'" in found.reason
    assert found.remedy == "start its service with it: podman --runtime runsc system service"
    with pytest.raises(SandboxUnavailableError, match="with runc only"):
        await start(ours, "1")
    await ours.aclose()


@pytest.mark.full
async def test_a_service_that_was_started_with_gvisor() -> None:
    if shutil.which("runsc") is None:
        missing("runsc is not installed", "sudo apt-get install -y -t bookworm-backports runsc")
    service = PodmanService(runtime="runsc")
    try:
        service.start()
        service.load()
        engine = DockerEngine(DockerConfig(host=service.host, image=IMAGE, runtime="runsc", pull="never"))
        assert (await engine.check()).ok
        assert engine.details["isolation"] == "gvisor"
        assert "Linux version 4.4.0" in (await run(engine, "print(open('/proc/version').read())")).out
        await engine.aclose()
    finally:
        service.stop()


async def test_the_wall_keeps_what_is_recorded(daemon: PodmanService) -> None:
    """All that asks the kernel gets what the recorded table says; for Docker the battery does that one by one."""
    found = await fallen(DockerBackend(DockerConfig(host=daemon.host, image=IMAGE, pull="never")))
    assert broken("podman", "root", found) == {}


async def test_a_podman_that_lacks_our_filter(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that was forwarded leads to a machine without the file of the filter: the error says what to do, and
    nothing runs without it."""
    missing = "/nowhere/seccomp.profile"
    monkeypatch.setattr("toolexec_containers.docker.engine.seccomp_option", lambda *_, **__: missing)
    with pytest.raises(SandboxUnavailableError, match=r"a Podman of another machine.*to the same path there") as caught:
        await start(engine, "print(1)")
    assert missing in caught.value.message
