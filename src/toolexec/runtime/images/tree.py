"""Directory trees of images: how much they hold, and their end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def walk(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield everything below *root* with its status, directories before what is in them; follows no link."""
    directories = [root]
    while directories:
        with os.scandir(directories.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                status = entry.stat(follow_symlinks=False)
                yield Path(entry.path), status
                if stat.S_ISDIR(status.st_mode):
                    directories.append(Path(entry.path))


def tree_size(root: Path) -> int:
    """Return what the tree takes on the disk, in bytes; a file with several names counts once."""
    blocks = {(status.st_dev, status.st_ino): status.st_blocks for _, status in walk(root)}
    return 512 * sum(blocks.values())


def open_to_all(root: Path) -> None:
    """Let everybody read what is in *root*, and run what its owner can: the same modes whatever the umask was."""
    for path, status in ((root, root.stat()), *walk(root)):
        if not stat.S_ISLNK(status.st_mode):
            path.chmod(0o755 if stat.S_ISDIR(status.st_mode) or status.st_mode & 0o100 else 0o644)


def remove_tree(root: Path) -> None:
    """Delete *root* and everything in it, whatever modes it has. What is not there is fine.

    Raises OSError when something stays, such as another file system that is mounted in it: that is not touched.
    """
    try:
        device = root.lstat().st_dev
    except FileNotFoundError:
        return
    directories, found = [root], list[Path]()
    while directories:
        directory = directories.pop()
        found.append(directory)
        with suppress(OSError):
            directory.chmod(0o700)
        with os.scandir(directory) as entries:
            inner = [*entries]
        for entry in inner:
            if not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink()
            elif entry.stat(follow_symlinks=False).st_dev == device:
                directories.append(Path(entry.path))
    for directory in reversed(found):
        directory.rmdir()
