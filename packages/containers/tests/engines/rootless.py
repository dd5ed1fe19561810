"""A Podman service of an ordinary user: no part of it has the rights of root on this machine."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from packages.containers.tests.engines.podman import PodmanService
from tests.engines.programs import require_program

_USER: Final = 65534
_BEGIN: Final = """
mount --bind "$1" /etc/subuid && mount --bind "$1" /etc/subgid && mount -t tmpfs tmpfs /dev/shm && shift && exec "$@"
"""
"""The numbers that the user may give to others, for what is started here only: the machine's own files stay. All Podmans
of a user share one lock in `/dev/shm`."""


class RootlessPodman(PodmanService):
    """The service in a user namespace whose other numbers are those of `/etc/subuid`.

    Root is needed to become the user.
    """

    def __init__(self, parent: str) -> None:
        super().__init__(parent=parent)
        require_program("newuidmap", "uidmap")
        name = next(line.split(":")[0] for line in _lines("/etc/passwd") if line.split(":")[2] == str(_USER))
        self._numbers = self.directory / "subuid"
        self._numbers.write_text(f"{name}:{1 << 20}:65536\n")
        self._numbers.chmod(0o644)
        self._home = self.directory / "home"
        self._home.mkdir()
        os.chown(self._home, _USER, _USER)
        os.chown(self.directory, _USER, _USER)  # where its socket is made
        self.directory.chmod(0o711)

    def _command(self, *words: str) -> list[str]:
        own = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _BEGIN, "sh", str(self._numbers)]
        user = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", "env"]
        user += [
            f"HOME={self._home}",
            f"XDG_RUNTIME_DIR={self._home}",
            f"TMPDIR={self._home}",
            "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
        ]
        return [*own, *user, *super()._command(*words)]

    def stop(self) -> None:
        """End it, with the process that keeps its namespaces, and remove everything that it has made."""
        for file in self.directory.rglob("pause.pid"):
            with suppress(ProcessLookupError, ValueError):
                pid = int(file.read_text())
                os.kill(pid, signal.SIGKILL)
        super().stop()


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines()
