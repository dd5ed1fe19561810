"""The engine against a real Docker daemon: its own, whose data and control groups go away with it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packages.containers.tests.engines.altering import leaving_out
from packages.containers.tests.engines.docker_cases import *  # noqa: F403
from packages.containers.tests.engines.docker_cases import ECHO, read_exactly, run, spec_of, start
from tests.engines.docker import IMAGE, DockerDaemon, docker_daemon, request
from tests.engines.programs import has_ended
from tests.tiers import missing

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.sandbox import Exit, Limits, LimitsEnforced
from toolexec.testing.escapes import ESCAPES
from toolexec.testing.matrix import measure
from toolexec_containers.docker.checks import isolation_of
from toolexec_containers.docker.engine import DockerBackend, DockerConfig, DockerEngine

pytestmark = pytest.mark.full

__all__ = ["docker_daemon"]


@pytest.fixture
def daemon(docker_daemon: DockerDaemon) -> DockerDaemon:
    return docker_daemon


@pytest.fixture
async def engine(daemon: DockerDaemon) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(DockerConfig(host=daemon.host, image=IMAGE, pull="never"))
    yield engine
    await engine.aclose()


async def test_the_check_says_what_is_there_and_what_holds(engine: DockerEngine) -> None:
    assert engine.enforces(Limits()) == LimitsEnforced()
    found = await engine.check()
    assert found.ok
    assert found.version
    assert engine.enforces(Limits()) == LimitsEnforced(memory=True, cpu=True, cpus=True, pids=True, disk=True)
    assert engine.details["engine"] == "docker"
    assert engine.details["runtime"] == "runc"
    assert engine.details["isolation"] == engine.isolation == "container"


async def test_memory_that_ran_out_is_told(engine: DockerEngine) -> None:
    received = await run(engine, "x = bytearray(300 << 20)", memory_bytes=64 << 20)
    assert received.end == Exit(code=137, oom=True)


async def test_memory_that_ran_out_in_a_child_is_told(engine: DockerEngine) -> None:
    received = await run(
        engine,
        """
        import subprocess, sys
        child = subprocess.run([sys.executable, "-c", "x = bytearray(300 << 20)"])
        sys.exit(3 if child.returncode == -9 else 4)
        """,
        memory_bytes=64 << 20,
    )
    assert received.end == Exit(code=3, oom=True)


async def test_open_files_and_core_dumps_are_bounded(engine: DockerEngine) -> None:
    received = await run(
        engine, "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE))"
    )
    assert received.out == "(1024, 1024) (0, 0)\n"


async def test_what_an_image_says_of_itself_changes_nothing(engine: DockerEngine, daemon: DockerDaemon) -> None:
    """Its entry point, health check and user are not used, and the volumes that it wants cannot be written."""
    body = {
        "Image": IMAGE,
        "Entrypoint": ["/bin/echo", "mine"],
        "User": "0:0",
        "Volumes": {"/data": {}, "/tmp": {}},
        "Healthcheck": {"Test": ["CMD", "true"], "Interval": 1_000_000_000},
        "Labels": {"toolexec.owner": "me"},
    }
    assert request(daemon.socket, "POST", "/containers/create?name=odd", json.dumps(body))[0] == 201
    assert request(daemon.socket, "POST", "/commit?container=odd&repo=odd&tag=1", "{}")[0] == 201
    assert request(daemon.socket, "DELETE", "/containers/odd?v=1")[0] == 204
    ours = DockerEngine(replace(engine.config, image="odd:1"))
    received = await run(
        ours,
        """
        import os
        print(os.getuid())
        for path in ("/data", "/tmp"):
            try:
                open(path + "/x", "w").close()
                print("written")
            except OSError as error:
                print(error.errno)
        """,
    )
    assert received.out == "65534\n30\nwritten\n"
    await ours.aclose()
    assert json.loads(request(daemon.socket, "GET", "/volumes")[1])["Volumes"] in (None, [])
    assert request(daemon.socket, "DELETE", "/images/odd:1?force=1")[0] == 200


async def test_a_profile_for_system_calls_is_used(engine: DockerEngine, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    rule = {"names": ["uname"], "action": "SCMP_ACT_ERRNO", "errnoRet": 42}
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}))
    ours = DockerEngine(replace(engine.config, seccomp=str(profile)))
    received = await run(
        ours,
        """
        import os
        try:
            os.uname()
        except OSError as error:
            print(error.errno)
        """,
    )
    assert received.out == "42\n"
    profile.unlink()
    assert (await run(ours, "print(1)")).out == "1\n"  # it was read once
    await ours.aclose()
    absent = DockerEngine(replace(engine.config, seccomp=str(profile)))
    with pytest.raises(SandboxUnavailableError, match=r"profile .*profile.json cannot be read"):
        await start(absent, "1")
    await absent.aclose()


async def test_gvisor_is_really_gvisor(engine: DockerEngine) -> None:
    if shutil.which("runsc") is None:
        missing("runsc is not installed", "sudo apt-get install -y -t bookworm-backports runsc")
    ours = DockerEngine(replace(engine.config, runtime="runsc"))
    assert (await ours.check()).ok
    assert ours.isolation == ours.details["isolation"] == "gvisor"
    assert ours.enforces(Limits()) == LimitsEnforced(memory=True, cpu=True, cpus=True, disk=True)
    received = await run(
        ours, "print(open('/proc/version').read()); import os; print(os.getuid(), os.listdir('/work'))"
    )
    assert "Linux version 4.4.0 #1 SMP Sun Jan 10" in received.out
    assert "65534 []" in received.out
    assert received.end == Exit(code=0)
    assert (await run(ours, "x = bytearray(300 << 20)", memory_bytes=128 << 20)).end.code == 137
    await ours.aclose()


@pytest.mark.parametrize(
    ("runtime", "isolation"),
    [
        ("", "container"),
        ("runc", "container"),
        ("crun", "container"),
        ("runsc", "gvisor"),
        ("runsc-kvm", "gvisor"),
        ("io.containerd.runsc.v1", "gvisor"),
        ("kata-runtime", "vm"),
        ("kata", "vm"),
        ("io.containerd.kata.v2", "vm"),
        ("/usr/bin/kata-runtime", "vm"),
        ("not-kata", "container"),
    ],
)
def test_the_runtime_decides_the_isolation(runtime: str, isolation: str) -> None:
    assert isolation_of(runtime) == isolation


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="pull must be one of never, missing, always"):
        DockerConfig(pull="sometimes")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not a name of an image"):
        DockerConfig(image="No Image")
    with pytest.raises(ConfigurationError, match="max_running"):
        DockerConfig(max_running=0)


async def test_a_daemon_that_is_not_there(tmp_path: Path) -> None:
    engine = DockerEngine(DockerConfig(host=f"unix://{tmp_path}/docker.sock"))
    found = await engine.check()
    assert not found.ok
    assert "there is no socket" in found.reason
    assert "systemctl start docker" in found.remedy
    for attempt in (engine.resolve(IMAGE), start(engine, "1")):
        with pytest.raises(SandboxUnavailableError, match="there is no socket"):
            await attempt
    await engine.sweep()
    await engine.aclose()


async def test_a_host_that_makes_no_sense() -> None:
    engine = DockerEngine(DockerConfig(host="ssh://somewhere"))
    found = await engine.check()
    assert not found.ok
    assert "ssh" in found.reason
    await engine.aclose()


async def test_without_its_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ImportError("No module named 'aiodocker'")

    monkeypatch.setattr("toolexec.runtime.containers.daemon._import_client", absent)
    engine = DockerEngine()
    found = await engine.check()
    assert not found.ok
    assert "pip install 'toolexec[docker]'" in found.remedy
    await engine.aclose()


async def test_something_else_than_a_daemon_is_told(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        writer.close()

    server = await asyncio.start_unix_server(answer, str(tmp_path / "s"))
    engine = DockerEngine(DockerConfig(host=f"unix://{tmp_path}/s"))
    found = await engine.check()
    assert not found.ok
    assert "no Docker daemon" in found.reason
    await engine.aclose()
    server.close()


async def test_a_daemon_that_leaves_options_out_is_found_out(daemon: DockerDaemon, tmp_path: Path) -> None:
    """A check sees from inside what a container lacks of which the daemon says that all is well."""
    asked = [each for each in ESCAPES if each.name in ("privileges", "vsock", "bpf")]
    for names, weaker in ((["SecurityOpt", "CapDrop"], {"privileges", "vsock"}), ([], set())):
        async with leaving_out(daemon.socket, str(tmp_path / "altered"), names) as host:
            backend = DockerBackend(DockerConfig(host=host, image=IMAGE, pull="never"))
            [column] = (await measure([backend], promises=asked)).columns
            await backend.aclose()
        assert column.reason == ""
        assert {outcome.name for outcome in column.weaker} == weaker


class _Own:
    """A daemon for one test, which may kill it."""

    def __init__(self, **settings: Any) -> None:
        self.daemon = DockerDaemon(**settings)

    def __enter__(self) -> DockerDaemon:
        try:
            self.daemon.start()
            self.daemon.load()
        except BaseException:
            self.daemon.stop()
            raise
        return self.daemon

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()


@pytest.mark.parametrize("live_restore", [False, True])
async def test_a_daemon_that_is_killed(live_restore: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of a run is reported at once, and its program ended; with the daemon back all works again, and nothing is
    left."""
    for patience in ("_GIVE_UP", "_REMOVE"):
        monkeypatch.setattr(f"toolexec_containers.docker.container.{patience}", 600.0)
    with _Own(live_restore=live_restore) as daemon:
        engine = DockerEngine(DockerConfig(host=daemon.host, image=IMAGE, pull="never"))
        container = await start(engine, ECHO)
        await container.stream.write(b"x")
        assert await read_exactly(container, 1) == b"x"
        known = json.loads(request(daemon.socket, "GET", f"/containers/{container.id}/json")[1])
        program = known["State"]["Pid"]
        waiting = asyncio.create_task(container.wait())
        reading = asyncio.create_task(container.stream.read())
        image = await engine.resolve(IMAGE)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(daemon.kill)
        end = await asyncio.wait_for(waiting, 5)
        assert "the Docker daemon" in end.lost
        assert end.code is None
        assert await asyncio.wait_for(_quiet(reading), 5) == b""
        with pytest.raises(SandboxUnavailableError, match=r"nothing listens at|cannot be talked to"):
            await engine.start(image, spec_of(engine, image, "1"))
        found = await engine.check()
        assert not found.ok
        assert "nothing listens" in found.reason
        assert engine.enforces(Limits()) == LimitsEnforced()
        await container.aclose()  # which does not wait for another daemon
        assert container.id in engine.left
        assert has_ended(program), "the program goes on without its daemon"
        await asyncio.to_thread(daemon.restart)
        assert (await engine.check()).ok  # and what could not be removed, is
        assert daemon.containers() == []
        assert (await run(engine, "print('again')")).out == "again\n"
        await engine.aclose()


async def _quiet(reading: asyncio.Task[bytes]) -> bytes:
    try:
        return await reading
    except OSError:
        return b""
