"""A private tree of files in memory: what a guest sees as its disk, with a quota on bytes and on entries."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from toolexec.errors import ConfigurationError
from toolexec.process.directory import MAX_DEPTH
from toolexec.runtime.wasm.refused import RefusedError

DEFAULT_BYTES = 64 * 1024 * 1024
DEFAULT_ENTRIES = 4096
_NAME_BYTES = 255  # as on a common disk
_DEPTH = MAX_DEPTH - 1  # of directories: each file can be given back, and nothing that walks the tree runs deep


class Node:
    """A file or directory. `number` is its own in this tree, `modified` in nanoseconds since 1970.

    `linked` is false once it is deleted; who has it open may still use it.
    """

    __slots__ = ("linked", "modified", "number")

    def __init__(self, number: int, modified: int) -> None:
        self.number: int = number
        self.modified: int = modified
        self.linked: bool = True


class File(Node):
    """A file's content. What was put in from outside is shared, and copied at the first write."""

    __slots__ = ("data", "opened")

    def __init__(self, number: int, modified: int, data: bytes = b"") -> None:
        super().__init__(number, modified)
        self.data: bytes | bytearray = data
        self.opened: int = 0


class Directory(Node):
    """A directory: names and what they stand for, in the order they were made."""

    __slots__ = ("depth", "entries")

    def __init__(self, number: int, modified: int, depth: int = 0) -> None:
        super().__init__(number, modified)
        self.entries: dict[str, Node] = {}
        self.depth: int = depth


class MemoryFiles:
    """A tree of files that exists only in memory. There are no links, owners or permissions. Beside the `root` there is
    a directory `temporary`, whose files count as all others do, and are in no mapping.

    At most *max_bytes* of content (default 64 MiB) and *max_entries* files and directories (default 4096) can exist;
    a file that is deleted while it is open counts until it is closed. *now* gives the time in nanoseconds since 1970.

    The operations raise RefusedError with a code of WASI, among them `no-entry`, `exist`, `not-directory`,
    `is-directory`, `not-empty`, `invalid`, `name-too-long`, `not-permitted` for a path that leaves the tree, and
    `insufficient-space` for the quota; the tree is then as before.
    """

    def __init__(
        self,
        *,
        max_bytes: int = DEFAULT_BYTES,
        max_entries: int = DEFAULT_ENTRIES,
        now: Callable[[], int] = lambda: 0,
    ) -> None:
        if max_bytes < 0 or max_entries < 0:
            raise ConfigurationError("a quota of files cannot be negative")
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._now = now
        self._numbers = itertools.count(1)
        self._given: dict[str, bytes] = {}
        self.root: Directory = Directory(next(self._numbers), now())
        self.temporary: Directory = Directory(next(self._numbers), now())
        self.bytes_used: int = 0
        self.entries_used: int = 0

    @classmethod
    def from_mapping(
        cls,
        files: Mapping[str, bytes],
        *,
        max_bytes: int = DEFAULT_BYTES,
        max_entries: int = DEFAULT_ENTRIES,
        now: Callable[[], int] = lambda: 0,
    ) -> MemoryFiles:
        """Make a tree with these files: relative paths with "/" between names, and their content.

        Raises ConfigurationError for a path that is absolute, empty, has an empty, "." or ".." segment or is too long,
        for content that is not bytes, for a file that is also a directory, and for more than the quota.
        """
        tree = cls(max_bytes=max_bytes, max_entries=max_entries, now=now)
        for path, content in files.items():
            tree.put(path, content)
        return tree

    def put(self, path: str, content: bytes) -> None:
        """Add a file that was not there, and the directories that lead to it; raises as `from_mapping`."""
        _check_given(path, content)
        content = bytes(content)  # the same object if it is bytes; a copy of anything that could change
        *folders, name = path.split("/")
        directory = self.root
        try:
            for folder in folders:
                node = directory.entries.get(folder)
                directory = self._add_directory(directory, folder) if node is None else _directory(node)
            if name in directory.entries:
                raise RefusedError("exist")
            self._reserve(len(content))
            self._add(directory, name, File(next(self._numbers), self._now(), content))
        except RefusedError as error:
            raise ConfigurationError(
                f"cannot put file {path!r} into the sandbox: {_WHY.get(error.reason, error.reason)}",
                details={"path": path, "reason": error.reason},
            ) from None
        self.bytes_used += len(content)
        self._given[path] = content

    # Files out.

    def to_mapping(self) -> dict[str, bytes]:
        """Return every file: its path relative to the tree's root, and its content."""
        return {path: bytes(file.data) for path, file in self._walk()}

    def changed(self) -> dict[str, bytes]:
        """Return the files that are new or whose content differs from what was put in; deleted ones are not in it."""
        return {path: bytes(file.data) for path, file in self._walk() if self._given.get(path) != file.data}

    def _walk(self) -> list[tuple[str, File]]:
        found: list[tuple[str, File]] = []
        pending: list[tuple[str, Directory]] = [("", self.root)]
        while pending:
            prefix, directory = pending.pop()
            for name, node in directory.entries.items():
                if isinstance(node, File):
                    found.append((prefix + name, node))
                elif isinstance(node, Directory):
                    pending.append((f"{prefix}{name}/", node))
        return sorted(found, key=lambda item: item[0])

    # Finding and making.

    def find(self, base: Directory, path: str) -> Node:
        """Return what *path* stands for, seen from *base*."""
        directory, name = self._locate(base, path)
        if name is None:
            return directory
        node = directory.entries.get(name)
        if node is None:
            raise RefusedError("no-entry")
        if path.endswith("/"):
            _directory(node)
        return node

    def open(
        self, base: Directory, path: str, *, create: bool = False, exclusive: bool = False, truncate: bool = False
    ) -> Node:
        """Return what *path* stands for; with *create* a new file if there is nothing, with *exclusive* only then."""
        directory, name = self._locate(base, path)
        node = directory if name is None else directory.entries.get(name)
        if node is not None and create and exclusive:
            raise RefusedError("exist")
        if node is None or name is None:
            if name is None:
                return directory
            if not create:
                raise RefusedError("no-entry")
            if path.endswith("/"):
                raise RefusedError("is-directory")
            node = File(next(self._numbers), self._now())
            self._add(directory, name, node)
        elif path.endswith("/"):
            _directory(node)
        if truncate:
            self.set_size(_file(node), 0)
        return node

    def make_directory(self, base: Directory, path: str) -> None:
        """Make an empty directory."""
        directory, name = self._locate(base, path)
        if name is None or name in directory.entries:
            raise RefusedError("exist")
        self._add_directory(directory, name)

    def remove_file(self, base: Directory, path: str) -> None:
        """Delete a file; who has it open keeps it."""
        directory, name = self._parent(base, path)
        if not isinstance(self.find(base, path), File):
            raise RefusedError("is-directory")
        self._unlink(directory, name)

    def remove_directory(self, base: Directory, path: str) -> None:
        """Delete an empty directory."""
        directory, name = self._parent(base, path)
        if _directory(self.find(base, path)).entries:
            raise RefusedError("not-empty")
        self._unlink(directory, name)

    def rename(self, base: Directory, path: str, new_base: Directory, new_path: str) -> None:
        """Move a file or directory; a file, or an empty directory, that has the new name is replaced."""
        directory, name = self._parent(base, path)
        new_directory, new_name = self._parent(new_base, new_path)
        node = self.find(base, path)
        target = new_directory.entries.get(new_name)
        if target is node:
            return
        if isinstance(node, Directory):
            if self._is_below(new_directory, node):
                raise RefusedError("invalid")
            if target is not None and _directory(target).entries:
                raise RefusedError("not-empty")
            self._check_depth(node, new_directory.depth + 1)
        elif target is not None:
            _file(target)
        if not new_directory.linked:
            raise RefusedError("no-entry")
        if target is not None:
            self._unlink(new_directory, new_name)
        del directory.entries[name]
        new_directory.entries[new_name] = node
        directory.modified = new_directory.modified = self._now()

    # Content.

    def read(self, file: File, offset: int, length: int) -> bytes:
        """Return up to *length* bytes from *offset*; fewer at the end, none behind it."""
        return bytes(file.data[offset : offset + length])

    def write(self, file: File, offset: int, data: bytes) -> None:
        """Write all of *data* at *offset*; a gap before it reads as zeros."""
        end = offset + len(data)
        content = self._grow(file, end)
        content[offset:end] = data
        file.modified = self._now()

    def set_size(self, file: File, size: int) -> None:
        """Cut the file, or fill it with zeros."""
        content = self._grow(file, size)
        self.bytes_used -= len(content) - size
        del content[size:]
        file.modified = self._now()

    def hold(self, file: File) -> None:
        """Count one more open handle of the file."""
        file.opened += 1

    def release(self, file: File) -> None:
        """Count one open handle less; without any, the space of a deleted file is free again."""
        file.opened -= 1
        self._free(file)

    def _grow(self, file: File, size: int) -> bytearray:
        more = max(0, size - len(file.data))
        self._reserve(more)
        if not isinstance(file.data, bytearray):
            file.data = bytearray(file.data)
        file.data.extend(bytes(more))
        self.bytes_used += more
        return file.data

    def _reserve(self, size: int) -> None:
        if self.bytes_used + size > self._max_bytes:
            raise RefusedError("insufficient-space")

    # Entries.

    def _locate(self, base: Directory, path: str) -> tuple[Directory, str | None]:
        """Return the directory that holds the last name of *path*, and that name; None if the path is that
        directory.
        """
        if path.startswith("/"):
            raise RefusedError("not-permitted")
        if not path or "\0" in path:
            raise RefusedError("invalid" if path else "no-entry")
        trail = [base]
        names = [name for name in path.split("/") if name not in ("", ".")]
        for index, name in enumerate(names):
            if name == "..":
                trail.pop()
                if not trail:
                    raise RefusedError("not-permitted")
                continue
            if index == len(names) - 1:
                _check_name(name)
                return trail[-1], name
            node = trail[-1].entries.get(name)
            if node is None:
                raise RefusedError("no-entry")
            trail.append(_directory(node))
        return trail[-1], None

    def _parent(self, base: Directory, path: str) -> tuple[Directory, str]:
        """Like _locate, for what needs a name: a path that ends in "." or ".." has none."""
        directory, name = self._locate(base, path)
        if name is None:
            raise RefusedError("busy")
        return directory, name

    def _add(self, directory: Directory, name: str, node: Node) -> None:
        _check_name(name)
        if not directory.linked:
            raise RefusedError("no-entry")
        if self.entries_used >= self._max_entries:
            raise RefusedError("insufficient-space")
        directory.entries[name] = node
        directory.modified = self._now()
        self.entries_used += 1

    def _add_directory(self, directory: Directory, name: str) -> Directory:
        if directory.depth >= _DEPTH:
            raise RefusedError("name-too-long")
        node = Directory(next(self._numbers), self._now(), directory.depth + 1)
        self._add(directory, name, node)
        return node

    def _unlink(self, directory: Directory, name: str) -> None:
        node = directory.entries.pop(name)
        directory.modified = self._now()
        node.linked = False
        if isinstance(node, File):
            self._free(node)
        else:
            self.entries_used -= 1

    def _free(self, file: File) -> None:
        if not file.linked and not file.opened:
            self.bytes_used -= len(file.data)
            self.entries_used -= 1
            file.data = b""

    @staticmethod
    def _is_below(directory: Directory, ancestor: Directory) -> bool:
        pending: list[Node] = [ancestor]
        while pending:
            node = pending.pop()
            if node is directory:
                return True
            if isinstance(node, Directory):
                pending.extend(node.entries.values())
        return False

    @staticmethod
    def _check_depth(directory: Directory, depth: int) -> None:
        """Give a moved directory and all below it their new depths, if the deepest is within bounds."""
        below: list[tuple[Directory, int]] = [(directory, depth)]
        for node, at in below:
            if at > _DEPTH:
                raise RefusedError("name-too-long")
            below.extend((child, at + 1) for child in node.entries.values() if isinstance(child, Directory))
        for node, at in below:
            node.depth = at


_WHY = {
    "exist": "the path is given twice, or is also a directory",
    "not-directory": "one of its folders is also a file",
    "insufficient-space": "it does not fit into the disk quota; raise `disk_bytes` or give fewer files",
    "name-too-long": f"a name is longer than 255 bytes, or the folders are nested more than {_DEPTH} deep",
}


def _check_given(path: object, content: object) -> None:
    if not isinstance(path, str) or not path or path.startswith("/") or "\0" in path or "\\" in path:
        raise ConfigurationError(
            f'{path!r} is no path for a file in the sandbox: give a relative one with "/" between names',
            details={"path": str(path)},
        )
    if any(segment in ("", ".", "..") for segment in path.split("/")):
        raise ConfigurationError(
            f'{path!r} is no path for a file in the sandbox: it has an empty, "." or ".." segment',
            details={"path": path},
        )
    if not isinstance(content, bytes | bytearray | memoryview):
        raise ConfigurationError(
            f"the content of file {path!r} is {type(content).__name__}; give bytes", details={"path": path}
        )


def _check_name(name: str) -> None:
    if len(name.encode(errors="replace")) > _NAME_BYTES:
        raise RefusedError("name-too-long")


def _directory(node: Node) -> Directory:
    if not isinstance(node, Directory):
        raise RefusedError("not-directory")
    return node


def _file(node: Node) -> File:
    if not isinstance(node, File):
        raise RefusedError("is-directory")
    return node
