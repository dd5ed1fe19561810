"""A daemon that is not at a Unix socket: over TCP, over TLS, and where TLS fails."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from packages.containers.tests.engines.altering import leaving_out
from packages.containers.tests.engines.docker_cases import ECHO, read_exactly, run, start
from tests.engines.certificates import make_certificates
from tests.engines.docker import IMAGE, DockerDaemon, docker_daemon, request
from tests.engines.programs import has_ended

from toolexec.errors import SandboxUnavailableError
from toolexec.sandbox import Container
from toolexec_containers.docker import DockerConfig, DockerEngine
from toolexec_containers.docker.container import DockerContainer

__all__ = ["docker_daemon"]


@asynccontextmanager
async def relayed(path: str) -> AsyncIterator[str]:
    """A TCP port that leads to a Unix socket, to the end of the block."""
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(path)
        writers.extend((writer, back))
        await asyncio.gather(copy(reader, back), copy(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0.05)


async def test_a_daemon_over_tcp(docker_daemon: DockerDaemon) -> None:
    async with relayed(docker_daemon.socket) as host:
        engine = DockerEngine(DockerConfig(host=host, image=IMAGE, pull="never"))
        assert (await engine.check()).ok
        assert (await run(engine, "print('over tcp')")).out == "over tcp\n"
        container = await start(engine, ECHO)
        used = await container.cpu_seconds()  # asked of the daemon: it could be on another machine
        assert used is not None
        assert used > 0
        await container.aclose()
        await engine.aclose()


async def test_nothing_here_is_killed_for_a_daemon_elsewhere(docker_daemon: DockerDaemon) -> None:
    """A daemon that is reached over TCP names the container, and may name one of another user of this machine."""
    async with relayed(docker_daemon.socket) as host:
        engine = DockerEngine(DockerConfig(host=host, image=IMAGE, pull="never"))
        container = await start(engine, "import time\ntime.sleep(600)")
    await container.aclose()
    try:
        assert container.id in engine.left
        assert known(docker_daemon, container.id)["State"]["Running"] is True
    finally:
        request(docker_daemon.socket, "DELETE", f"/containers/{container.id}?force=1&v=1")
        await engine.aclose()


async def looked_for(container: Container) -> None:
    """Wait until it is known whether a container runs here."""
    assert isinstance(container, DockerContainer)
    assert container._proving is not None
    await container._proving


def known(daemon: DockerDaemon, id: str) -> dict[str, Any]:
    """What the daemon itself says of a container."""
    return json.loads(request(daemon.socket, "GET", f"/containers/{id}/json")[1])


@pytest.mark.parametrize("claimed_process", ["its own", "one outside"])
async def test_a_socket_that_leads_elsewhere_ends_nothing_here(
    docker_daemon: DockerDaemon, tmp_path: Path, claimed_process: str
) -> None:
    """A daemon behind a forwarded socket claims the ID and the process of a container of this machine as those of ours,
    and hangs up: that one goes on, as it was there before ours was asked for."""
    host = DockerEngine(DockerConfig(host=docker_daemon.host, image=IMAGE, pull="never"))
    sleeping = await start(host, "import time\ntime.sleep(600)")
    theirs = known(docker_daemon, sleeping.id)
    process = theirs["State"]["Pid"] if claimed_process == "its own" else os.getpid()
    claimed = (theirs["Id"], process)
    try:
        async with leaving_out(docker_daemon.socket, str(tmp_path / "far"), [], claimed) as far:
            engine = DockerEngine(DockerConfig(host=far, image=IMAGE, pull="never"))
            container = await start(engine, "import time\ntime.sleep(600)")
            await looked_for(container)
        await container.aclose()
        assert container.id in engine.left
        assert known(docker_daemon, sleeping.id)["State"]["Running"] is True
        assert known(docker_daemon, container.id)["State"]["Running"] is True
        request(docker_daemon.socket, "DELETE", f"/containers/{container.id}?force=1&v=1")
        await engine.aclose()
    finally:
        await sleeping.aclose()
        await host.aclose()
    assert docker_daemon.containers() == []


async def test_a_socket_that_leads_to_this_machine(docker_daemon: DockerDaemon, tmp_path: Path) -> None:
    """A program that is proven to run here is ended without its daemon, whatever the socket is of."""
    async with leaving_out(docker_daemon.socket, str(tmp_path / "near"), []) as near:
        engine = DockerEngine(DockerConfig(host=near, image=IMAGE, pull="never"))
        container = await start(engine, ECHO)
        await container.stream.write(b"x")
        assert await read_exactly(container, 1) == b"x"
        program = known(docker_daemon, container.id)["State"]["Pid"]
        await looked_for(container)
    await container.aclose()
    assert has_ended(program)
    request(docker_daemon.socket, "DELETE", f"/containers/{container.id}?force=1&v=1")
    await engine.aclose()


async def test_a_daemon_over_tls(docker_daemon: DockerDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_daemon.tls_host)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(docker_daemon.certificates))
    engine = DockerEngine(DockerConfig(image=IMAGE, pull="never"))
    found = await engine.check()
    assert found.ok, found
    container = await start(engine, ECHO)
    data = bytes(range(256)) * 20_000
    writing = asyncio.create_task(container.stream.write(data))
    assert await read_exactly(container, len(data)) == data
    await writing
    await container.aclose()
    await engine.aclose()
    assert docker_daemon.containers() == []


async def test_a_daemon_that_is_not_who_it_should_be(
    docker_daemon: DockerDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("tls")
    make_certificates(directory)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(directory))
    engine = DockerEngine(DockerConfig(host=docker_daemon.tls_host, image=IMAGE))
    found = await engine.check()
    assert not found.ok
    assert "no TLS connection" in found.reason
    assert "DOCKER_CERT_PATH" in found.remedy
    await engine.aclose()


async def test_a_daemon_that_wants_a_certificate(docker_daemon: DockerDaemon) -> None:
    engine = DockerEngine(DockerConfig(host=docker_daemon.tls_host, image=IMAGE))  # no TLS at all
    found = await engine.check()
    assert not found.ok
    with pytest.raises(SandboxUnavailableError):
        await engine.resolve(IMAGE)
    await engine.aclose()
