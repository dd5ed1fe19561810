"""What is said about a containerd that cannot be used, and what to do about it."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from packages.containers.tests.engines import containerd as daemons
from packages.containers.tests.engines.containerd import ContainerdDaemon

from toolexec_containers.containerd import ContainerdConfig, ContainerdEngine
from toolexec_containers.containerd.checks import look_at_runtime, look_at_socket
from toolexec_containers.containerd.runtimes import (
    Runtime,
    find_runsc,
    program_directories,
    runtime_named,
    shim_name,
    write_wrapper,
)

pytestmark = pytest.mark.anyio
containerd_daemon = daemons.containerd_daemon


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket without a server."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        yield made


class TestSocket:
    def test_absent(self, tmp_path: Path) -> None:
        """No socket: start the daemon, or say where it is."""
        found = look_at_socket(str(tmp_path / "s"))
        assert found is not None
        assert "no socket" in found.reason
        assert "containerd" in found.remedy
        assert "CONTAINERD_ADDRESS" in found.remedy

    def test_absent_program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No program either: install it."""
        monkeypatch.setenv("PATH", str(tmp_path))
        found = look_at_socket(str(tmp_path / "s"))
        assert found is not None
        assert "apt-get install" in found.remedy

    def test_file(self, tmp_path: Path) -> None:
        """A file is none."""
        (tmp_path / "s").touch()
        found = look_at_socket(str(tmp_path / "s"))
        assert found is not None
        assert "is not a socket" in found.reason

    def test_path_through_a_file(self, tmp_path: Path) -> None:
        """A path that makes no sense."""
        (tmp_path / "s").touch()
        found = look_at_socket(str(tmp_path / "s" / "t"))
        assert found is not None
        assert "cannot be used" in found.reason

    def test_nobody_listens(self, listener: socket.socket) -> None:
        """The socket of a daemon that has died."""
        listener.close()
        found = look_at_socket(self.path)
        assert found is not None
        assert "nobody listens" in found.reason

    @pytest.fixture(autouse=True)
    def _remember(self, tmp_path: Path) -> None:
        self.path = str(tmp_path / "s")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
    def test_not_for_this_user(self, listener: socket.socket, tmp_path: Path) -> None:
        """Another user's socket."""
        Path(self.path).chmod(stat.S_IRWXU)
        for directory in (tmp_path, *tmp_path.parents[:4]):
            if directory != Path("/tmp") and directory != Path("/"):
                directory.chmod(0o755)
        os.seteuid(65534)
        try:
            found = look_at_socket(self.path)
        finally:
            os.seteuid(0)
        assert found is not None
        assert "not for this user" in found.reason
        assert "root" in found.remedy

    def test_good(self, listener: socket.socket) -> None:
        """Nothing to say."""
        assert look_at_socket(self.path) is None


class TestDaemon:
    async def test_it_works(self, containerd_daemon: ContainerdDaemon) -> None:
        """A daemon that is fine has a version."""
        engine = daemons.engine_for(containerd_daemon, image="x")
        found = await engine.check()
        assert found.ok, found
        assert found.version[0].isdecimal()
        await engine.aclose()
        await engine.aclose()

    async def test_something_else(self, tmp_path: Path) -> None:
        """A web server, as Docker's socket is one."""
        path = str(tmp_path / "s")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            thread = threading.Thread(target=_serve, args=(server,), daemon=True)
            thread.start()
            engine = ContainerdEngine(ContainerdConfig(address=path))
            found = await engine.check()
            await engine.aclose()
            server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        assert not found.ok
        assert "does not answer as containerd does" in found.reason

    async def test_nobody(self, tmp_path: Path) -> None:
        """No daemon at all."""
        engine = ContainerdEngine(ContainerdConfig(address=str(tmp_path / "s")))
        assert "no socket" in (await engine.check()).reason
        await engine.sweep()
        await engine.aclose()

    async def test_snapshotter(self, containerd_daemon: ContainerdDaemon) -> None:
        """A snapshotter that it does not have."""
        engine = ContainerdEngine(ContainerdConfig(address=containerd_daemon.socket, snapshotter="stargz"))
        found = await engine.check()
        await engine.aclose()
        assert not found.ok
        assert "snapshotter stargz" in found.reason
        assert "ctr plugins ls" in found.remedy

    async def test_runtime(self, containerd_daemon: ContainerdDaemon) -> None:
        """A runtime whose shim it does not find."""
        engine = daemons.engine_for(containerd_daemon, image="x", runtime="io.containerd.spin.v2")
        found = await engine.check()
        await engine.aclose()
        assert not found.ok
        assert found.version
        assert "containerd-shim-spin-v2" in found.reason
        assert found.remedy == "install containerd-shim-spin-v2"

    def test_missing_extra(self, containerd_daemon: ContainerdDaemon) -> None:
        """Without grpcio it names the extra, and the module can be imported all the same."""
        program = (
            "import asyncio, sys; sys.modules['grpc'] = None\n"
            "from toolexec_containers.containerd import *\n"
            f"engine = ContainerdEngine(ContainerdConfig(address={containerd_daemon.socket!r}))\n"
            "print(asyncio.run(engine.check()))\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert "ok=False" in done.stdout
        assert "toolexec[containerd]" in done.stdout

    def test_loops_one_after_the_other(self, containerd_daemon: ContainerdDaemon) -> None:
        """Engines on several event loops of one process, the last one not closed: no warning, and no hanging."""
        program = f"""
import asyncio
from toolexec_containers.containerd import *

async def main(close):
    engine = ContainerdEngine(ContainerdConfig(address={containerd_daemon.socket!r}))
    assert (await engine.check()).ok
    waiting = asyncio.create_task(engine.check())
    await asyncio.sleep(0)
    if close:
        await waiting
        await engine.aclose()

for close in (True, True, False):
    asyncio.run(main(close))
print("done")
"""
        done = subprocess.run(
            [sys.executable, "-W", "error", "-X", "dev", "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout == "done\n"
        assert not done.stderr


def _serve(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


class TestRuntimes:
    @pytest.mark.parametrize(
        ("name", "full", "isolation"),
        [
            ("runc", "io.containerd.runc.v2", "container"),
            ("runsc", "io.containerd.runsc.v1", "gvisor"),
            ("kata", "io.containerd.kata.v2", "vm"),
            ("io.containerd.kata-fc.v2", "io.containerd.kata-fc.v2", "vm"),
            ("io.containerd.runsc.v1", "io.containerd.runsc.v1", "gvisor"),
            ("aws.firecracker", "aws.firecracker", "vm"),
            ("io.containerd.wasmtime.v1", "io.containerd.wasmtime.v1", "container"),
            ("/opt/bin/containerd-shim-kata-v2", "/opt/bin/containerd-shim-kata-v2", "vm"),
        ],
    )
    def test_names(self, name: str, full: str, isolation: str) -> None:
        """Short names, and those of containerd; what surrounds the code is told from them."""
        runtime = runtime_named(name)
        assert (runtime.name, runtime.isolation) == (full, isolation)

    def test_shims(self) -> None:
        """The program that containerd looks for."""
        assert shim_name("io.containerd.runc.v2") == "containerd-shim-runc-v2"
        assert shim_name("/opt/shim") == "/opt/shim"

    async def test_what_is_missing(self, containerd_daemon: ContainerdDaemon) -> None:
        """The daemon's own directories count, and each program that is not there."""
        address = containerd_daemon.socket
        assert await look_at_runtime(address, runtime_named("runc")) is None
        assert str(containerd_daemon.bin) in program_directories(address)
        kata = await look_at_runtime(address, runtime_named("kata"))
        assert kata is not None
        assert "kata-containers" in kata.remedy
        other = await look_at_runtime(address, Runtime(name="io.containerd.runc.v2", binary="/nowhere/runsc"))
        assert other is not None
        assert "finds no /nowhere/runsc" in other.reason
        old = await look_at_runtime(address, Runtime(name="io.containerd.runc.v7"))
        assert old is not None
        assert "apt-get install" in old.remedy

    def test_directories_of_a_daemon_that_hides_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The usual directories, and those of our own PATH."""
        monkeypatch.setenv("PATH", "/somewhere")
        directories = program_directories(str(tmp_path / "nobody")).split(":")
        assert directories[0] == "/somewhere"
        assert "/usr/bin" in directories

    def test_gvisor_wrapper(self, tmp_path: Path) -> None:
        """The wrapper passes its arguments on, without a network."""
        runsc = tmp_path / "run sc"
        runsc.write_text('#!/bin/sh\necho "$@"\n')
        runsc.chmod(0o755)
        write_wrapper(tmp_path / "wrapper", str(runsc))
        done = subprocess.run([tmp_path / "wrapper", "a b", "c"], capture_output=True, text=True, check=True)
        assert "--network=none" in done.stdout
        assert done.stdout.endswith(" a b c\n")
        assert find_runsc(str(runsc)) == str(runsc)
        assert find_runsc("/nowhere") == ""
