"""A Podman service of the tests' own, on a socket that speaks Docker's API."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.docker import DockerDaemon
from tests.engines.programs import has_ended, mounts_below, processes_of, remove_cgroup, require_program, wait_until
from tests.tiers import missing

_SETTINGS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "{runtime}"
[engine.runtimes]
runsc = ["{directory}/runsc"]
"""
_RUNSC = """\
#!/bin/sh
exec {runsc} --platform=systrap --network=none "$@"
"""


class PodmanService(DockerDaemon):
    """The service with all its images and containers in one short-named directory. `stop` removes all of it.

    Its own default bounds of files and processes are over what some machines let even root have.
    """

    def __init__(self, runtime: str = "runc", parent: str | None = None) -> None:
        if os.name != "posix" or os.geteuid() != 0:
            missing("only root can start this Podman", "sudo -E bash .ci/run")
        self._program = require_program("podman", "podman")
        require_program("runc", "runc")
        self._runtime = runtime
        self.directory = Path(tempfile.mkdtemp(prefix="pm", dir=parent))
        self.socket = str(self.directory / "podman.sock")
        self.host = f"unix://{self.socket}"
        self.log = self.directory / "log"
        self._cgroups_before = set(_cgroups())
        self.pid = 0

    def start(self) -> None:
        """Start the service, and wait until it answers."""
        runsc = shutil.which("runsc")
        if runsc:
            (self.directory / "runsc").write_text(_RUNSC.format(runsc=runsc))
            (self.directory / "runsc").chmod(0o755)
        settings = self.directory / "containers.conf"
        settings.write_text(_SETTINGS.format(runtime=self._runtime, directory=self.directory))
        with self.log.open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", *self._command("system", "service", "--time=0", self.host)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                env={**os.environ, "CONTAINERS_CONF": str(settings)},
                cwd=self.directory,  # where its helpers leave files
            )
        wait_until(self._answers, 60, "the Podman service did not answer")

    def _command(self, *words: str) -> list[str]:
        directories = [
            "--root",
            f"{self.directory}/root",
            "--runroot",
            f"{self.directory}/run",
            "--tmpdir",
            f"{self.directory}/tmp",
        ]
        drivers = ["--storage-driver", "overlay", "--events-backend", "file", "--cgroup-manager", "cgroupfs"]
        return [self._program, *directories, *drivers, "--runtime", self._runtime, *words]

    def stop(self) -> None:
        """End it, and remove everything that it has made."""
        for _ in range(2):
            found = processes_of(self.directory)
            for process in found:
                process.send_signal(signal.SIGKILL)
            wait_until(lambda found=found: all(has_ended(each.pid) for each in found), 10, "it did not end")
        for target in reversed(mounts_below(self.directory)):
            subprocess.run(["umount", "-l", target], check=False, capture_output=True)
        for directory in set(_cgroups()) - self._cgroups_before:
            remove_cgroup(directory)
        shutil.rmtree(self.directory, ignore_errors=True)


def _cgroups() -> Iterator[Path]:
    """Where Podman puts its containers, whatever its settings say."""
    return Path("/sys/fs/cgroup").glob("*/libpod_parent")


_shared: list[PodmanService] = []


@pytest.fixture(scope="session")
def podman_service() -> Iterator[PodmanService]:
    """A service with the image of the tests, for all tests that leave it as it is."""
    if not _shared:
        service = PodmanService()
        try:
            service.start()
            service.load()
        except BaseException:
            service.stop()
            raise
        _shared.append(service)
    yield _shared[0]
    if _shared:
        _shared.pop().stop()
