"""The walls around the process of a virtual machine monitor: a guest that breaks out of its machine has nothing.

A jail is a private directory, a user that nothing else on this host runs as, a control group, and namespaces of its
own: no network but an unused loopback, no other process in sight. All of it is named by its owner (see `owner`), and
what a dead one has left is removed by `Jails.sweep`: processes with the group, then the directory, then the claim on
the user. Namespaces and mounts end with the processes in them.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import shutil
import signal
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolexec.containers import is_orphan, this_owner, unavailable
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import (
    UNUSED_USERS,
    VMM_NAMESPACES,
    VMM_PROCESSES,
    Cgroups,
    Group,
    UserClaim,
    UserClaims,
    cache_directory,
    find_cgroups,
    remove_tree,
)

logger: logging.Logger = logging.getLogger(__name__)

_BASE: Final = Path("/var/lib/toolexec/jails")
_CLAIMS: Final = "users"
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_SCRIPT: Final = """\
while [ "$1" != -- ]; do
    mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" || exit 71
    shift 2
done
shift
"$@"
exit $?
"""
"""Binds pairs of files or directories, in a mount namespace that ends with its processes, and runs a command.

It stays as the first process of its namespace: that one is immune to the signal of a lifeline (see `Child`), which the
kernel sends without a sender, and the command must not be.
"""
_SHELL_KILLED: Final = 128 + 9
_KILLED: Final = "sigprocmask unblock failed"
_OPEN: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_numbers = itertools.count(1)


@dataclass(slots=True, kw_only=True)
class Jail:
    """One jail; made by `Jails.create`. Every method blocks for a moment.

    `id` is its name on this host. `directory` belongs to the user `uid` and the group of the same number, and `claim`
    keeps other jails from it. `group` bounds what runs in it, None where no control groups can be made.
    """

    id: str
    directory: Path
    uid: int
    claim: UserClaim
    group: Group | None = None
    _binds: list[str] = field(default_factory=list[str])

    def put(self, name: str, source: Path) -> None:
        """Make the file *source* readable in the jail as *name*; it cannot be written there.

        It is one more name of the same file where that is possible, else bound to it, and a copy only where the user of
        the jail may not read it. Raises SandboxUnavailableError.
        """
        target = self.directory / name
        try:
            if source.stat().st_mode & stat.S_IROTH:
                self._link(source.resolve(), target)
            else:
                shutil.copyfile(source, target)
                target.chmod(0o400)
                os.chown(target, self.uid, self.uid)
        except OSError as error:
            raise _unprepared(f"{source.name} cannot be put into it", error) from error

    def _link(self, source: Path, target: Path) -> None:
        try:
            target.hardlink_to(source)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
                raise
            target.touch(0o400)
            self._binds += [str(source), str(target)]

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs *command* in the jail: in its control group, in namespaces of its own.

        That is still root: it changes the root directory and becomes the user of the jail by itself. The outermost
        process stays outside, keeps the descriptors it inherits, and ends with the jailed one: see `exit_code`.
        """
        apart = ["unshare", *(f"--{name}" for name in VMM_NAMESPACES), "--fork", "--kill-child", "--"]
        command = [*apart, "/bin/sh", "-c", _SCRIPT, "sh", *self._binds, "--", *command]
        return self.group.joining(command) if self.group is not None else command

    def remove(self) -> None:
        """Kill what runs in it and remove all of it; what stays is logged, and left to `Jails.sweep`."""
        if self.group is not None and not self.group.remove():
            return
        try:
            remove_tree(self.directory)
        except OSError as error:
            logger.warning("the directory %s of a virtual machine cannot be removed: %s", self.directory, error)
            return
        self.claim.release()


class Jails:
    """Where jails are made: below *base*, for the *users*. For any thread; only root can make jails.

    *base* is `/var/lib/toolexec/jails` by default, and `jails` of the cache directory where TOOLEXEC_CACHE is set.
    """

    def __init__(self, base: Path | None = None, *, users: Sequence[int] = UNUSED_USERS) -> None:
        self.base: Path = base or (cache_directory("jails") if "TOOLEXEC_CACHE" in os.environ else _BASE)
        self.users: Sequence[int] = users
        self._claims = UserClaims(None if base is None else base / _CLAIMS, numbers=users)
        self._cgroups: Cgroups | None = None
        self._looked = False

    @property
    def cgroups(self) -> Cgroups | None:
        """Return where its control groups are made; None where this user can make none."""
        if not self._looked:
            self._cgroups = find_cgroups()
            self._looked = True
        return self._cgroups

    def create(self, *, memory_bytes: int = 0, pids: int = VMM_PROCESSES) -> Jail:
        """Return a new jail, whose processes use at most so much together; 0 is no bound.

        Raises SandboxUnavailableError, which is retryable unless the system refuses what it is made of.
        """
        name = f"{this_owner()}-{next(_numbers)}"
        jail: Jail | None = None
        try:
            self.base.mkdir(0o711, parents=True, exist_ok=True)
            directory = self.base / name
            claim = self._claims.take(name=name, protects=directory)
            jail = Jail(id=name, directory=directory, uid=claim.number, claim=claim)
            jail.directory.mkdir(0o700)
            os.chown(jail.directory, jail.uid, jail.uid)
            if self.cgroups is not None:
                jail.group = self.cgroups.create(memory_bytes=memory_bytes, pids=pids)
        except OSError as error:
            if jail is not None:
                jail.remove()
            raise _unprepared(f"nothing can be made in {self.base}", error) from error
        return jail

    def sweep(self) -> None:
        """Remove the jails of owners that are dead, with all that still runs in them. Raises OSError."""
        if self.cgroups is not None:
            self.cgroups.sweep()  # first, as it ends what may still use the directories
        with suppress(FileNotFoundError):
            for entry in sorted(self.base.iterdir()):
                if is_orphan(entry.name.rpartition("-")[0]):
                    remove_tree(entry)
        self._claims.sweep()


def exit_code(code: int, said: str) -> int:
    """Return how the jailed process ended, by the exit code of the outermost process, and what it *said*.

    Some releases of unshare (2.38) do not end by SIGKILL as what they have started did, but complain.
    """
    return -signal.SIGKILL if code == _SHELL_KILLED or (code == 1 and _KILLED in said) else code


def open_inside(directory: Path, name: str, kind: int, flags: int = 0) -> int:
    """Return a descriptor of the entry *name* in the *directory* of a jail, if it is of that *kind* (`stat.S_IFSOCK`,
    `stat.S_IFREG`); by default one that only names it, and `/proc/self/fd/N` then leads to this very entry.

    What runs in the jail may put anything there: no link is followed. Raises OSError.
    """
    found = os.open(directory / name, (flags or getattr(os, "O_PATH", 0)) | _OPEN)
    if stat.S_IFMT(os.fstat(found).st_mode) == kind:
        return found
    os.close(found)
    raise OSError(errno.ELOOP, f"{name} in the jail is not what it should be")


def adopt_file(directory: Path, name: str, target: Path) -> None:
    """Move the plain file *name* out of the *directory* of a jail to *target*: ours, readable, and written by no user.

    Raises OSError.
    """
    found = open_inside(directory, name, stat.S_IFREG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if os.fstat(found).st_nlink != 1:
            raise OSError(errno.EMLINK, f"{name} in the jail has another name")
        try:
            (directory / name).rename(target)
            if not os.path.samestat(target.lstat(), os.fstat(found)):
                raise OSError(errno.ESTALE, f"{name} in the jail was exchanged")
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with os.fdopen(os.dup(found), "rb") as file, target.open("xb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
        os.chown(target, os.geteuid(), os.getegid(), follow_symlinks=False)
        target.chmod(0o444)
    finally:
        os.close(found)


def _unprepared(what: str, error: OSError) -> SandboxUnavailableError:
    full = error.errno in _NO_SPACE
    fix = "free some space" if full else ""
    if error.errno == errno.EINVAL:
        fix = "the user namespace of this process has too few users: choose others with `users`"
    made = unavailable(f"the jail of a virtual machine cannot be prepared: {what}: {error.strerror or error}", fix)
    scarce = (errno.EUSERS, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
    made.retryable = full or error.errno in scarce
    return made
