"""Images from a real registry, and from our own store, by policy and by digest."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from packages.containers.tests.engines.docker_cases import small_image
from packages.containers.tests.engines.registry import AUTH, Registry, locked_registry, registry
from tests.engines.docker import DockerDaemon, docker_daemon, request

from toolexec.containers import Facts, ImageStore, PullPolicy
from toolexec.errors import SandboxUnavailableError
from toolexec_containers.docker import DockerConfig, DockerEngine

__all__ = ["docker_daemon", "locked_registry", "registry"]


@asynccontextmanager
async def engine_of(
    daemon: DockerDaemon, pull: PullPolicy, store: ImageStore | None = None, platform: str = ""
) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(DockerConfig(host=daemon.host, pull=pull, platform=platform), store=store)
    yield engine
    await engine.aclose()


@pytest.fixture
def publish(docker_daemon: DockerDaemon, registry: Registry) -> Callable[[str, bytes], tuple[str, str]]:
    """Put an image of one file into the registry, and nowhere else; gives its name and its digest."""

    def put(name: str, content: bytes) -> tuple[str, str]:
        small_image(docker_daemon, "made:1", content)
        digest = registry.push(docker_daemon, "made:1", name)
        request(docker_daemon.socket, "DELETE", "/images/made:1?force=1")
        return f"{registry.name}/{name}", digest

    return put


@pytest.mark.full
async def test_never_pulls_nothing(docker_daemon: DockerDaemon, publish: Callable[..., tuple[str, str]]) -> None:
    name, _ = publish("never:1", b"one")
    async with engine_of(docker_daemon, "never") as engine:
        with pytest.raises(SandboxUnavailableError, match="may not pull any"):
            await engine.resolve(name)


async def test_missing_pulls_what_is_not_there(
    docker_daemon: DockerDaemon, publish: Callable[..., tuple[str, str]]
) -> None:
    name, digest = publish("missing:1", b"one")
    async with engine_of(docker_daemon, "missing") as engine:
        first = await engine.resolve(name)
        assert first.digest == digest
    publish("missing:1", b"two")  # which also has the daemon forget the name, but not the digest
    async with engine_of(docker_daemon, "missing") as engine:
        second = await engine.resolve(name)
        assert second.digest != digest
        assert second.reference != first.reference
    async with engine_of(docker_daemon, "never") as engine:
        assert await engine.resolve(name) == second


async def test_always_pulls_once_in_the_life_of_an_engine(
    docker_daemon: DockerDaemon, registry: Registry, publish: Callable[..., tuple[str, str]]
) -> None:
    name, _ = publish("always:1", b"one")
    async with engine_of(docker_daemon, "missing") as engine:
        first = await engine.resolve(name)
    publish("always:1", b"two")
    tag = f"/images/{first.reference}/tag?repo={registry.name}/always&tag=1"
    assert request(docker_daemon.socket, "POST", tag)[0] == 201  # the daemon has the old one by that name
    async with engine_of(docker_daemon, "missing") as engine:
        assert (await engine.resolve(name)).reference == first.reference
    async with engine_of(docker_daemon, "always") as engine:
        assert (await engine.resolve(name)).reference != first.reference
        assert request(docker_daemon.socket, "POST", tag)[0] == 201
        assert engine._connection is not None
        engine._connection.images._found.clear()  # ten seconds later
        assert (await engine.resolve(name)).reference == first.reference


async def test_a_pinned_image_is_the_one_that_was_pinned(
    docker_daemon: DockerDaemon, publish: Callable[..., tuple[str, str]]
) -> None:
    name, old = publish("pinned:1", b"old")
    _, new = publish("pinned:1", b"new")
    async with engine_of(docker_daemon, "missing") as engine:
        pinned = await engine.resolve(f"{name}@{old}")
        assert pinned.digest == old
        moved = await engine.resolve(f"{name}@{new}")
        assert moved.digest == new
        assert moved.reference != pinned.reference
        with pytest.raises(SandboxUnavailableError, match="cannot pull it"):
            await engine.resolve(f"{name}@sha256:{'1' * 64}")
    async with engine_of(docker_daemon, "never") as engine:
        assert await engine.resolve(f"{name}@{old}") == pinned
        with pytest.raises(SandboxUnavailableError, match="may not pull"):
            await engine.resolve(f"{name}@sha256:{'1' * 64}")


async def test_an_error_in_the_progress_of_a_pull_is_a_failure(docker_daemon: DockerDaemon, registry: Registry) -> None:
    async with engine_of(docker_daemon, "missing") as engine:
        with pytest.raises(SandboxUnavailableError, match=r"cannot pull it: .*(not found|unknown)"):
            await engine.resolve(f"{registry.name}/nobody/knows:1")
        with pytest.raises(SandboxUnavailableError, match="cannot pull it"):
            await engine.resolve("127.0.0.1:1/nobody:1")
    async with engine_of(docker_daemon, "missing", platform="linux/arm64") as engine:
        with pytest.raises(SandboxUnavailableError, match="there is no image"):
            await engine.resolve(f"{registry.name}/nobody/knows:1")


async def test_a_registry_that_wants_a_password(
    docker_daemon: DockerDaemon, locked_registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password is the one that `docker login` has kept, and it is in no message."""
    small_image(docker_daemon, "made:1", b"locked")
    digest = locked_registry.push(docker_daemon, "made:1", "locked:1")
    request(docker_daemon.socket, "DELETE", "/images/made:1?force=1")
    monkeypatch.setenv("HOME", str(tmp_path))
    async with engine_of(docker_daemon, "missing") as engine:
        with pytest.raises(SandboxUnavailableError, match="cannot pull it") as caught:
            await engine.resolve(f"{locked_registry.name}/locked:1")
        assert AUTH not in str(caught.value)
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": {locked_registry.name: {"auth": AUTH}}}))
    async with engine_of(docker_daemon, "missing") as engine:
        assert (await engine.resolve(f"{locked_registry.name}/locked:1")).digest == digest


async def test_an_image_of_the_store_is_loaded_and_follows_it(docker_daemon: DockerDaemon, tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")

    def keep(content: str) -> str:
        root = tmp_path / "root"
        root.mkdir()
        (root / "file").write_text(content)
        return store.add("kept", root, Facts()).digest

    old = keep("old")
    async with engine_of(docker_daemon, "never", store) as engine:
        first = await engine.resolve("kept")
        assert first.digest == old
        assert (await engine.resolve(f"kept@{old}")).reference == first.reference
    new = keep("new")
    async with engine_of(docker_daemon, "always", store) as engine:  # the store is where it comes from
        second = await engine.resolve("kept")
        assert second.digest == new
        assert second.reference != first.reference
        with pytest.raises(SandboxUnavailableError, match="there is no image"):
            await engine.resolve(f"kept@{old}")
    store.remove("kept")
    async with engine_of(docker_daemon, "never", store) as engine:
        assert (await engine.resolve("kept")).reference == second.reference
    request(docker_daemon.socket, "DELETE", "/images/kept?force=1")


async def test_an_image_that_somebody_else_made_under_a_name_of_the_store_is_used(
    docker_daemon: DockerDaemon, tmp_path: Path
) -> None:
    small_image(docker_daemon, "kept:2", b"mine")
    store = ImageStore(tmp_path / "store")
    root = tmp_path / "root"
    root.mkdir()
    stored = store.add("kept:2", root, Facts())
    async with engine_of(docker_daemon, "never", store) as engine:
        assert (await engine.resolve("kept:2")).digest != stored.digest
        assert (await engine.resolve(f"kept:2@{stored.digest}")).digest == stored.digest
    request(docker_daemon.socket, "DELETE", "/images/kept:2?force=1")


async def test_another_platform_is_not_what_was_asked_for(docker_daemon: DockerDaemon) -> None:
    small_image(docker_daemon, "plain:1")
    machine = json.loads(request(docker_daemon.socket, "GET", "/images/plain:1/json")[1])["Architecture"]
    async with engine_of(docker_daemon, "never", platform=f"linux/{machine}") as engine:
        assert (await engine.resolve("plain:1")).name == "plain:1"
    async with engine_of(docker_daemon, "never", platform="linux/riscv64") as engine:
        with pytest.raises(SandboxUnavailableError, match="there is no image"):
            await engine.resolve("plain:1")
    request(docker_daemon.socket, "DELETE", "/images/plain:1?force=1")
