"""A containerd of the tests' own: its data, its state and its socket are in one directory that goes away with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines.images import test_image
from tests.engines.programs import has_ended, mounts_below, processes_of, require_program
from tests.tiers import missing

from toolexec_containers.containerd import ContainerdConfig, ContainerdEngine

NAMESPACE = "toolexec"
_START = 30.0
_CONFIG = """version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = [{disabled}]
[grpc]
  address = "{directory}/c.sock"
[ttrpc]
  address = "{directory}/t.sock"
"""
_DISABLED = (
    "io.containerd.grpc.v1.cri",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.internal.v1.opt",
)


class ContainerdDaemon:
    """A daemon with everything that belongs to it in one short-named directory. `stop` removes all of it.

    Programs in its directory `bin` are found by it before all others.
    """

    def __init__(self, parent: str | None = None) -> None:
        if os.name != "posix" or os.geteuid() != 0:
            missing("only root can start containerd", "sudo -E bash .ci/run")
        self._program = require_program("containerd", "containerd")
        self._ctr = require_program("ctr", "containerd")
        require_program("runc", "runc")
        self.directory = Path(tempfile.mkdtemp(prefix="cd", dir=parent))
        self.socket = str(self.directory / "c.sock")
        self.log = self.directory / "log"
        self.bin = self.directory / "bin"
        self.bin.mkdir()
        self.snapshotter = "overlayfs" if _can_overlay(self.directory) else "native"
        disabled = ", ".join(f'"{name}"' for name in _DISABLED)
        (self.directory / "config.toml").write_text(_CONFIG.format(directory=self.directory, disabled=disabled))
        self.pid = 0

    def start(self) -> None:
        """Start the daemon, and wait until it answers."""
        with self.log.open("ab") as log:
            # Not a child of ours: it is to outlive a test, and tests are looked at for what they leave running.
            subprocess.run(
                ["setsid", "--fork", self._program, "--config", str(self.directory / "config.toml")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}:/usr/sbin:/sbin"},
            )
        ends = time.monotonic() + _START
        while self.try_ctr("version").returncode:
            if time.monotonic() > ends:
                raise TimeoutError(f"containerd did not answer; its log: {self.log.read_text()[-3000:]}")
            time.sleep(0.05)
        self.pid = next(process.pid for process in processes_of(self.directory) if process.name() == "containerd")

    def try_ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `ctr` and return its exit code and output."""
        command = [self._ctr, "--connect-timeout", "2s", "-a", self.socket, "-n", NAMESPACE, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def ctr(self, *words: str) -> str:
        """Return the output of `ctr`."""
        done = self.try_ctr(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def left(self) -> list[str]:
        """Return what remains besides images, in the namespace and outside of the daemon: by `ctr` and by the kernel."""
        found = [f"container {name}" for name in self.ctr("containers", "ls", "-q").split()]
        found += [f"task {name}" for name in self.ctr("tasks", "ls", "-q").split()]
        found += [f"lease {name}" for name in self.ctr("leases", "ls", "-q").split()]
        lines = self.ctr("snapshots", "--snapshotter", self.snapshotter, "ls").splitlines()[1:]
        found += [f"snapshot {line.split()[0]}" for line in lines if not line.endswith("Committed ")]
        found += [f"mount {target}" for target in mounts_below(self.directory)]
        found += [f"process {each.name()}" for each in processes_of(self.directory) if each.pid != self.pid]
        return found

    def check_left(self) -> None:
        """Fail when something is left, and remove that, so that other tests do not fail as well."""
        found = self.left()
        if found:
            self.clear()
        assert not found

    def clear(self) -> None:
        """Remove all but images, as far as the daemon can still do it."""
        for name in self.try_ctr("tasks", "ls", "-q").stdout.split():
            self.try_ctr("tasks", "rm", "--force", name)
        for name in self.try_ctr("containers", "ls", "-q").stdout.split():
            self.try_ctr("containers", "rm", name)
        for name in self.try_ctr("leases", "ls", "-q").stdout.split():
            self.try_ctr("leases", "rm", name)
        snapshots = ("snapshots", "--snapshotter", self.snapshotter)
        for line in self.try_ctr(*snapshots, "ls").stdout.splitlines()[1:]:
            if not line.endswith("Committed "):
                self.try_ctr(*snapshots, "rm", line.split()[0])

    def kill(self) -> None:
        """Kill the daemon as the kernel does when memory is short; its shims and containers live on."""
        os.kill(self.pid, signal.SIGKILL)
        ends = time.monotonic() + 10
        while not has_ended(self.pid) and time.monotonic() < ends:
            time.sleep(0.02)

    def stop(self) -> None:
        """End it, and remove everything that it has made."""
        self.clear()
        for kind in (signal.SIGTERM, signal.SIGKILL):
            found = processes_of(self.directory)
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(kind)
            psutil.wait_procs(found, timeout=10 if kind == signal.SIGTERM else 5)
        for target in reversed(mounts_below(self.directory)):
            subprocess.run(["umount", "-l", target], check=False, capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def stand_in(daemon: ContainerdDaemon, name: str, text: str) -> None:
    """A program *name* that the daemon finds before all others."""
    path = daemon.bin / name
    path.write_text(text)
    path.chmod(0o755)


def require_runsc() -> str:
    """gVisor's program."""
    found = shutil.which("runsc")
    if found is None:
        missing("runsc is not installed", "bash .ci/engines")
    return found


def _can_overlay(directory: Path) -> bool:
    """Return whether overlays can be made of directories here: not where the directory is on one itself."""
    for name in ("lower", "upper", "work", "merged"):
        (directory / name).mkdir()
    where = f"lowerdir={directory}/lower,upperdir={directory}/upper,workdir={directory}/work"
    command = ["mount", "-t", "overlay", "overlay", "-o", where, str(directory / "merged")]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        return False
    subprocess.run(["umount", str(directory / "merged")], check=True)
    return True


_shared: list[ContainerdDaemon] = []


@pytest.fixture(scope="session")
def containerd_daemon() -> Iterator[ContainerdDaemon]:
    """A daemon for all tests, which leave it running; one for all modules that have this fixture."""
    if not _shared:
        daemon = ContainerdDaemon()
        try:
            daemon.start()
        except BaseException:
            daemon.stop()
            raise
        _shared.append(daemon)
    yield _shared[0]
    if _shared:
        _shared.pop().stop()


def engine_for(daemon: ContainerdDaemon, **settings: Any) -> ContainerdEngine:
    """An engine that uses *daemon*, for the image of the tests unless another one is given."""
    if "image" not in settings:
        settings["image"] = test_image().name
    return ContainerdEngine(ContainerdConfig(address=daemon.socket, snapshotter=daemon.snapshotter, **settings))


@pytest.fixture
async def engine(containerd_daemon: ContainerdDaemon) -> AsyncIterator[ContainerdEngine]:
    """An engine for the image of the tests; nothing may be left when it is closed."""
    engine = engine_for(containerd_daemon)
    yield engine
    await engine.aclose()
    containerd_daemon.check_left()
