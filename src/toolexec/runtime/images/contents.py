"""What is to become a root file system, as data: put together from untrusted layers, then written.

Nothing of a layer touches the disk before all of them are in. Links are resolved here, inside of the tree, and when it
is written each directory is a new one that is entered by descriptor: no name and no link leads out of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.runtime.images.region import Region

MAX_ENTRIES: Final = 400_000
"""How many files, directories and links the layers of an image may have together."""
MAX_BYTES: Final = 16 << 30
"""How much they may hold together."""

_MAX_DEPTH: Final = 100
_MAX_PATH: Final = 2000
_MAX_NAME: Final = 255
_MAX_LINKS: Final = 40
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PLACES: Final = {"dev": 0o755, "proc": 0o555, "sys": 0o555, "tmp": 0o1777, "work": 0o755}
"""Directories that sandboxes have file systems of their own at, and their modes: what an archive has there, such as
devices, is of no use."""

Kind: TypeAlias = Literal["file", "directory", "link"]


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """One file, directory or symbolic link. A file in the tree twice is a hard link."""

    kind: Kind
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    link: str = ""
    content: Region | None = None
    layer: int = 0
    children: dict[str, Node] = field(default_factory=dict[str, "Node"])


class Contents:
    """A tree that layers are put into, the lowest one first; then `write` makes it real.

    Its methods raise ConfigurationError for what an honest archive has not: names that lead out of the tree, circles of
    links, more than `MAX_ENTRIES` or `MAX_BYTES`.
    """

    def __init__(self) -> None:
        self.root: Node = Node(kind="directory")
        self._layer = 0
        self._entries = 0
        self._bytes = 0

    @staticmethod
    def is_covered(path: str) -> bool:
        """Return whether sandboxes have something of their own at *path*, so that nothing of the image is seen
        there.
        """
        parts = [part for part in path.split("/") if part not in ("", ".")]
        return bool(parts) and parts[0] in PLACES

    def next_layer(self) -> None:
        """Begin a layer on top of what is there."""
        self._layer += 1

    def put(self, path: str, node: Node) -> None:
        """Have *node* at *path*; what a layer wants gone is taken away."""
        parts = self._parts(path)
        self._count(node.content.size if node.content is not None else 0)
        node.layer = self._layer
        if not parts:
            if node.kind == "directory":
                self._take_over(self.root, node)
            return
        if parts[0] in PLACES:
            return
        parent = self._directory(parts[:-1])
        name = parts[-1]
        if name == _OPAQUE:
            self._hide_all(parent)
        elif name.startswith(_WHITEOUT):
            self._hide(parent, name.removeprefix(_WHITEOUT))
        else:
            known = parent.children.get(name)
            if known is not None and known.kind == node.kind == "directory":
                self._take_over(known, node)
            else:
                parent.children[name] = node

    def put_hard_link(self, path: str, target: str) -> None:
        """Have the file at *target* also at *path*."""
        parts, source = self._parts(path), self._parts(target)
        self._count(0)
        if not parts or parts[0] in PLACES:
            return
        found = self._directory(source[:-1]).children.get(source[-1]) if source else None
        if found is None or found.kind == "directory":
            raise _refusal(path, f"it is a link to {target[:200]!r}, which is not a file of the image")
        self._directory(parts[:-1]).children[parts[-1]] = found

    def find(self, path: str) -> Node | None:
        """Return what is at *path* once all links are followed; None for nothing."""
        try:
            return self._walk(self._parts(path), make=False)
        except ConfigurationError:
            return None

    def write(self, root: Path, report: Callable[[], None] = lambda: None) -> None:
        """Make it real as the new directory *root*; *report* is called now and then, and may raise.

        Only root gives files to their owners; for others all belongs to them. Rights to run as another user, devices
        and extended attributes are left out. Raises OSError.
        """
        for name, mode in PLACES.items():
            self.root.children[name] = Node(kind="directory", mode=mode, mtime=self.root.mtime)
        root.mkdir(mode=0o700)
        directory = os.open(root, _DIRECTORY)
        try:
            _Writer(report).fill(directory, self.root, ())
        finally:
            os.close(directory)

    def _count(self, size: int) -> None:
        self._entries += 1
        self._bytes += size
        if self._entries > MAX_ENTRIES or self._bytes > MAX_BYTES:
            raise ConfigurationError(
                f"the image is too large: it may have {MAX_ENTRIES} files and {MAX_BYTES >> 30} GiB altogether"
            )

    def _parts(self, path: str) -> list[str]:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in path:
            raise _refusal(path, "it leads out of the image")
        if len(parts) > _MAX_DEPTH or len(os.fsencode(path)) > _MAX_PATH:
            raise _refusal(path, "it is too deep or too long")
        if any(len(os.fsencode(part)) > _MAX_NAME for part in parts):
            raise _refusal(path, "it is too long")
        return parts

    def _directory(self, parts: list[str]) -> Node:
        """Return the directory at *parts*, made where it is missing; links on the way lead to places in the tree."""
        found = self._walk(parts, make=True)
        if found is None or found.kind != "directory":
            raise _refusal("/".join(parts), "it is used as a directory and is none")
        return found

    def _walk(self, parts: list[str], *, make: bool) -> Node | None:
        trail = [self.root]
        left, links = [*reversed(parts)], 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                trail[1:] = trail[1:-1]
                continue
            node = trail[-1].children.get(part)
            if node is None:
                if not make:
                    return None
                self._count(0)
                node = trail[-1].children[part] = Node(kind="directory", layer=self._layer)
            if node.kind == "link":
                links += 1
                if links > _MAX_LINKS or len(left) > _MAX_PATH:
                    raise _refusal("/".join(parts), "there are too many links on the way")
                if node.link.startswith("/"):
                    trail = [self.root]
                left += reversed(node.link.split("/"))
            elif node.kind == "directory" or not left:
                trail.append(node)
                if len(trail) > _MAX_DEPTH:
                    raise _refusal("/".join(parts), "it is too deep or too long")
            else:
                return None if not make else node
        return trail[-1]

    def _take_over(self, known: Node, node: Node) -> None:
        known.mode, known.uid, known.gid, known.mtime = node.mode, node.uid, node.gid, node.mtime
        known.layer = node.layer

    def _hide(self, parent: Node, name: str) -> None:
        """Take away what lower layers have there; what this layer has itself stays."""
        node = parent.children.get(name)
        if node is None:
            return
        if node.kind == "directory":
            self._hide_all(node)
        if node.layer < self._layer and not node.children:
            del parent.children[name]

    def _hide_all(self, parent: Node) -> None:
        for name in [*parent.children]:
            self._hide(parent, name)


class _Writer:
    """Writes nodes into open directories that were new."""

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report
        self._written: dict[int, tuple[str, ...]] = {}
        self._is_root = os.geteuid() == 0
        self._roots: list[int] = []

    def fill(self, directory: int, node: Node, trail: tuple[str, ...]) -> None:
        """Write what is in *node* into its open *directory*, and then give that its mode and time."""
        if not trail:
            self._roots.append(directory)
        for name, child in sorted(node.children.items()):
            if child.kind == "directory":
                os.mkdir(name, 0o700, dir_fd=directory)
                inner = os.open(name, _DIRECTORY, dir_fd=directory)
                try:
                    self.fill(inner, child, (*trail, name))
                finally:
                    os.close(inner)
            elif id(child) in self._written:
                first = "/".join(self._written[id(child)])
                os.link(first, name, src_dir_fd=self._roots[0], dst_dir_fd=directory, follow_symlinks=False)
            else:
                self._written[id(child)] = (*trail, name)
                self._write(directory, name, child)
        self._own(directory, node)
        os.fchmod(directory, stat.S_IMODE(node.mode) & 0o1777 | (0 if self._is_root else 0o700))
        os.utime(directory, (node.mtime, node.mtime))

    def _write(self, directory: int, name: str, node: Node) -> None:
        if node.kind == "link":
            os.symlink(node.link, name, dir_fd=directory)
            if self._is_root:
                os.chown(name, node.uid, node.gid, dir_fd=directory, follow_symlinks=False)
            os.utime(name, (node.mtime, node.mtime), dir_fd=directory, follow_symlinks=False)
            return
        with os.fdopen(os.open(name, _NEW, 0o600, dir_fd=directory), "wb") as file:
            self._report()
            for data in node.content.chunks(self._report) if node.content is not None else ():
                file.write(data)
            file.flush()
            self._own(file.fileno(), node)
            os.fchmod(file.fileno(), stat.S_IMODE(node.mode) & 0o777 | (0 if self._is_root else 0o400))
            os.utime(file.fileno(), (node.mtime, node.mtime))

    def _own(self, descriptor: int, node: Node) -> None:
        if self._is_root:
            os.fchown(descriptor, node.uid, node.gid)


def _refusal(path: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"the image cannot be used: {path[:200]!r} in it is not acceptable, {why}")
