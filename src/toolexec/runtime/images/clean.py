"""What a fresh installation of Debian has and a sandbox needs not, or what makes two of them differ, taken away."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolexec.runtime.images.tree import remove_tree, walk

# Caches, logs, strings for people, and the places where each sandbox has file systems of its own.
_EMPTIED: Final = (
    *("boot", "dev", "proc", "root", "run", "sys", "tmp", "var/backups", "var/cache", "var/log", "var/tmp"),
    *("var/lib/apt/lists", "usr/share/bug", "usr/share/info", "usr/share/lintian", "usr/share/man"),
    *("usr/share/zoneinfo/posix", "usr/share/zoneinfo/right"),
)
# What identifies the machine that it was built on, or the moment.
_REMOVED: Final = (
    *("etc/.pwd.lock", "etc/group-", "etc/gshadow-", "etc/hostname", "etc/machine-id", "etc/passwd-", "etc/shadow-"),
    *(
        "etc/subgid-",
        "etc/subuid-",
        "etc/apt/sources.list",
        "var/lib/dpkg/available-old",
        "var/lib/dpkg/diversions-old",
    ),
    *("var/lib/dpkg/statoverride-old", "var/lib/dpkg/status-old", "var/lib/systemd/random-seed"),
)
_WRITTEN: Final = {"etc/hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost\n", "etc/resolv.conf": ""}
_KEPT_TEXTS: Final = "copyright"
_KEPT_LOCALE: Final = "locale.alias"
_PLACES: Final = {"work": 0o755, "tmp": 0o1777, "var/tmp": 0o1777, "dev": 0o755, "proc": 0o755, "sys": 0o755}


def make_small(root: Path) -> None:
    """Take from the tree *root* what it can do without, and what depends on when and where it was built.

    Raises OSError.
    """
    for name in _EMPTIED:
        _empty(root / name)
    for name in _REMOVED:
        with suppress(FileNotFoundError):
            (root / name).unlink()
    for name, text in _WRITTEN.items():
        with suppress(FileNotFoundError):
            (root / name).unlink()  # it may be a link
        (root / name).write_text(text)
        (root / name).chmod(0o644)
    for path, status in [*walk(root / "usr/share/doc")]:
        if not stat.S_ISDIR(status.st_mode) and path.name != _KEPT_TEXTS:
            path.unlink()
    for path in (root / "usr/share/locale").glob("*"):
        if path.name != _KEPT_LOCALE:
            remove_tree(path)
    for name, mode in _PLACES.items():
        (root / name).mkdir(exist_ok=True)
        (root / name).chmod(mode)
    _forget_the_day(root / "etc/shadow")


def settle(root: Path, began: int) -> None:
    """Give all in the tree *root* that was made after *began* (in Unix time) the time of the newest thing before that.

    Thus what packages brought keeps its time, and nothing shows when the tree was made. Programs lose the right to run
    as another user. Raises OSError.
    """
    found = [*walk(root)]
    files = [status.st_mtime_ns for _, status in found if not stat.S_ISDIR(status.st_mode)]
    latest = max((moment for moment in files if moment < began * 10**9), default=0)
    for path, status in found:
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            path.chmod(status.st_mode & 0o777)
    for path, status in reversed(found):
        moment = latest if stat.S_ISDIR(status.st_mode) else min(status.st_mtime_ns, latest)
        os.utime(path, ns=(moment, moment), follow_symlinks=False)


def _empty(directory: Path) -> None:
    if directory.is_symlink() or not directory.is_dir():
        return
    for path in [*directory.iterdir()]:
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink()


def _forget_the_day(shadow: Path) -> None:
    """The day of the last change of each password: it is that of the build."""
    if not shadow.is_file():
        return
    lines = [line.split(":") for line in shadow.read_text().splitlines()]
    shadow.write_text("".join(":".join([*line[:2], "1", *line[3:]]) + "\n" for line in lines))
