"""Users that nothing else on this machine runs as, for what root starts and must not be root.

All that starts something as such a user takes its number here: one directory has a file for each number that is taken,
so that no two processes of this machine give out the same one. A number is free again when its claim is released, or
when its owner is dead, nothing runs as that user, and what the claim protects is gone.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.process.caches import cache_directory
from toolexec.process.lock import lock
from toolexec.process.owner import is_orphan, this_owner

UNUSED_USERS: Final = range(0x7000_0000, 0x7FFE_0000)
"""What no distribution gives to users, to containers or to services."""
_SHARED: Final = Path("/run/toolexec/users")
_PROC: Final = Path("/proc")
_PATIENCE: Final = 5.0
"""How long the claims may be locked by another process, in seconds: one that was stopped must not hold up an event loop
for ever."""
_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class UserClaim:
    """The number of a user and of a group, which is this process's until `release`."""

    number: int
    path: Path

    def release(self) -> None:
        """Give the number back: nothing runs as it any more. Twice is fine."""
        self.path.unlink(missing_ok=True)


class UserClaims:
    """Gives out *numbers*, each to one claim among all processes that use *directory*. For any thread.

    *directory* is by default one for the whole machine, which its next start empties: `/run/toolexec/users`, or `users`
    of the cache directory where that cannot be made. *numbers* are `UNUSED_USERS` by default.
    """

    def __init__(self, directory: Path | None = None, *, numbers: Sequence[int] = UNUSED_USERS) -> None:
        self.numbers = numbers
        self._directory = directory

    def take(self, *, name: str = "", protects: Path | None = None) -> UserClaim:
        """Return the claim of a number that no other claim has.

        *name* is the owner, with `-` and a number of its own; by default this process. While *protects* is there, the
        number is not given out again, though its owner be dead. Raises OSError: EUSERS when all numbers are taken,
        EAGAIN when another process keeps the claims locked.
        """
        name = name or f"{this_owner()}-{next(_names)}"
        with self._locked() as directory:
            number = self._free(directory)
            if number is None:
                self._sweep(directory)
                number = self._free(directory)
            if number is None:
                raise OSError(errno.EUSERS, f"all {len(self.numbers)} users are taken")
            path = directory / str(number)
            path.write_text(name if protects is None else f"{name}\n{protects}", "utf-8")
            return UserClaim(number, path)

    def sweep(self) -> None:
        """Give back the numbers of dead owners as which nothing runs. Raises OSError."""
        if self._directory is not None and not self._directory.is_dir():
            return
        with self._locked() as directory:
            self._sweep(directory)

    @contextmanager
    def _locked(self) -> Generator[Path]:
        """Hold the directory alone. A claim is made and written under the lock, so an empty one has a dead owner."""
        directory = self._made()
        file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not lock(file, within=_PATIENCE, pause=0.001):
                raise OSError(errno.EAGAIN, f"another process has kept it locked for {_PATIENCE:g} s", str(directory))
            yield directory
        finally:
            os.close(file)

    def _made(self) -> Path:
        for directory in self._places():
            try:
                directory.mkdir(0o700, parents=True, exist_ok=True)
                is_ours = directory.lstat().st_uid == os.geteuid()  # others could take claims away
            except OSError:
                if self._directory is not None:
                    raise
                continue
            if is_ours and os.access(directory, os.W_OK):
                self._directory = directory
                return directory
        raise OSError(errno.EACCES, "no directory for the claims of users can be made", str(_SHARED))

    def _places(self) -> Generator[Path]:
        yield self._directory or _SHARED
        yield cache_directory("users")

    def _free(self, directory: Path) -> int | None:
        """Return a number without a claim, from a random place on."""
        count = len(self.numbers)
        first = secrets.randbelow(count)
        for step in range(count):
            number = self.numbers[(first + step) % count]
            if not (directory / str(number)).exists():
                return number
        return None

    def _sweep(self, directory: Path) -> None:
        dead = [path for path in directory.iterdir() if _is_over(path)]
        running = _running_users() if dead else ()
        for path in dead:
            if path.name not in running:
                path.unlink(missing_ok=True)


def _is_over(path: Path) -> bool:
    """Return whether the claim *path* has a dead owner, and what it protects is gone."""
    if not path.name.isdecimal():
        return path.is_file()
    try:
        name, _, protects = path.read_text("utf-8", "replace").partition("\n")
    except OSError:
        return False
    if name and not is_orphan(name.rpartition("-")[0]):
        return False
    return not protects or not Path(protects).exists()


def _running_users() -> Collection[str]:
    """Return the numbers of all users, as strings, that a process here has: real, effective or saved."""
    found: set[str] = set()
    for path in _PROC.glob("[0-9]*/status"):
        with suppress(OSError):
            text = path.read_text("utf-8", "replace")
            line = next((line for line in text.splitlines() if line.startswith("Uid:")), "")
            found.update(line.split()[1:])
    return found
