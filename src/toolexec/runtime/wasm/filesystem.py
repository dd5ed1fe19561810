"""wasi:filesystem on the guest's private files, as host functions: two open directories, `/workspace` and `/tmp`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolexec.runtime.wasm.files import Directory, File, MemoryFiles, Node
from toolexec.runtime.wasm.guest import Guest, Handle, Thing
from toolexec.runtime.wasm.refused import RefusedError
from toolexec.runtime.wasm.streams import (
    CHUNK_BYTES,
    FileReader,
    FileWriter,
    HostFunction,
    StreamError,
    expect,
)

ROOT_PATH = "/workspace"
"""Where the guest finds its files."""
TEMPORARY_PATH = "/tmp"  # noqa: S108 - in the guest
"""Where the guest finds room for files that are not part of its result."""

_LAST_OFFSET = 2**63  # beyond it, a file's offset has no meaning in the guest


class Descriptor(Thing):
    """An open file or directory."""

    kind = "descriptor"

    def __init__(self, files: MemoryFiles, node: Node, *, readable: bool, writable: bool) -> None:
        self.files = files
        self.readable = readable
        self.writable = writable
        self.node = node
        if isinstance(node, File):
            files.hold(node)

    def close(self) -> None:
        """Release the file."""
        if isinstance(self.node, File):
            self.files.release(self.node)

    def directory(self) -> Directory:
        """Return the directory. Raises RefusedError for a file."""
        if not isinstance(self.node, Directory):
            raise RefusedError("not-directory")
        return self.node

    def file(self, *, write: bool = False) -> File:
        """Return the file, to read or write. Raises RefusedError for a directory, or if it was not opened for that."""
        if not isinstance(self.node, File):
            raise RefusedError("is-directory")
        if not (self.writable if write else self.readable):
            raise RefusedError("bad-descriptor")
        return self.node


class RootDescriptor(Descriptor):
    """`/workspace` or `/tmp`, open from the start. The guest's C library asks for them once, so they are always those
    of the run."""

    def __init__(self, guest: Guest, *, temporary: bool = False) -> None:
        self._temporary = temporary
        super().__init__(guest.files, guest.files.root, readable=True, writable=True)
        self.follow(guest)

    def follow(self, guest: Guest) -> None:
        """Stand for the files that the guest has now."""
        self.files: MemoryFiles = guest.files
        self.node: Directory = self.files.temporary if self._temporary else self.files.root


class EntryStream(Thing):
    """A directory's entries, as they were when it was opened."""

    kind = "directory-entry-stream"

    def __init__(self, directory: Directory) -> None:
        self._entries = iter([(_type(node), name) for name, node in directory.entries.items()])

    def next(self) -> tuple[str, str] | None:
        """Return the type and name of the next entry, None at the end."""
        return next(self._entries, None)


def _type(node: Node) -> str:
    return "directory" if isinstance(node, Directory) else "regular-file"


def _of(guest: Guest, number: int) -> Descriptor:
    descriptor = expect(guest, number, Descriptor)
    if isinstance(descriptor, RootDescriptor):
        descriptor.follow(guest)
    return descriptor


def _own(guest: Guest, thing: Thing) -> Handle:
    """Return a handle, or a clean error for a guest that holds too many."""
    if guest.handles.is_full():
        thing.close()
        raise RefusedError("quota")
    return guest.handles.own(thing)


def _directories(guest: Guest) -> list[tuple[Handle, str]]:
    return [
        (guest.handles.own(RootDescriptor(guest)), ROOT_PATH),
        (guest.handles.own(RootDescriptor(guest, temporary=True)), TEMPORARY_PATH),
    ]


def _open_at(
    guest: Guest, number: int, _path_flags: Any, path: str, how: frozenset[str], flags: frozenset[str]
) -> Handle:
    base = _of(guest, number).directory()
    writable = "write" in flags
    if "directory" in how:
        if "create" in how:
            raise RefusedError("invalid")
        node = guest.files.find(base, path)
        if not isinstance(node, Directory):
            raise RefusedError("not-directory")
    else:
        truncate = "truncate" in how
        node = guest.files.open(base, path, create="create" in how, exclusive="exclusive" in how, truncate=truncate)
    if isinstance(node, Directory) and writable:
        raise RefusedError("is-directory")
    return _own(guest, Descriptor(guest.files, node, readable="read" in flags, writable=writable))


def _check_offset(offset: int) -> int:
    if offset >= _LAST_OFFSET:
        raise RefusedError("invalid")
    return offset


def _read(guest: Guest, number: int, length: int, offset: int) -> tuple[bytes, bool]:
    descriptor = _of(guest, number)
    file = descriptor.file()
    data = descriptor.files.read(file, _check_offset(offset), min(length, CHUNK_BYTES))
    return data, offset + len(data) >= len(file.data)


def _write(guest: Guest, number: int, data: bytes, offset: int) -> int:
    descriptor = _of(guest, number)
    descriptor.files.write(descriptor.file(write=True), _check_offset(offset), data)
    return len(data)


def _read_via_stream(guest: Guest, number: int, offset: int) -> Handle:
    descriptor = _of(guest, number)
    return _own(guest, FileReader(descriptor.files, descriptor.file(), _check_offset(offset)))


def _write_via_stream(guest: Guest, number: int, offset: int) -> Handle:
    descriptor = _of(guest, number)
    return _own(guest, FileWriter(descriptor.files, descriptor.file(write=True), _check_offset(offset)))


def _append_via_stream(guest: Guest, number: int) -> Handle:
    descriptor = _of(guest, number)
    return _own(guest, FileWriter(descriptor.files, descriptor.file(write=True), None))


def _set_size(guest: Guest, number: int, size: int) -> None:
    descriptor = _of(guest, number)
    descriptor.files.set_size(descriptor.file(write=True), size)


def _stat(node: Node) -> tuple[Any, ...]:
    size = len(node.data) if isinstance(node, File) else 0
    time = divmod(node.modified, 1_000_000_000)
    return _type(node), 1, size, time, time, time


def _hash(node: Node) -> tuple[int, int]:
    return node.number, 0


def _set_times(guest: Guest, node: Node, modified: tuple[str, Any]) -> None:
    choice, time = modified
    if choice == "now":
        node.modified = guest.clock.stamp()
    elif choice == "timestamp":
        seconds, nanoseconds = time
        node.modified = seconds * 1_000_000_000 + nanoseconds


def _find(guest: Guest, number: int, path: str) -> Node:
    return guest.files.find(_of(guest, number).directory(), path)


def _set_times_at(guest: Guest, number: int, _flags: Any, path: str, _accessed: Any, modified: tuple[str, Any]) -> None:
    _set_times(guest, _find(guest, number, path), modified)


def _get_flags(guest: Guest, number: int) -> set[str]:
    descriptor = _of(guest, number)
    flags = {"read"} if descriptor.readable else set[str]()
    if descriptor.writable:
        flags.add("mutate-directory" if isinstance(descriptor.node, Directory) else "write")
    return flags


def _rename_at(guest: Guest, number: int, path: str, new_number: int, new_path: str) -> None:
    guest.files.rename(_of(guest, number).directory(), path, _of(guest, new_number).directory(), new_path)


def _sync(_guest: Guest, *_arguments: Any) -> None:
    return None


def _unsupported(_guest: Guest, *_arguments: Any) -> None:
    raise RefusedError("not-permitted")


def _readlink(guest: Guest, number: int, path: str) -> None:
    _find(guest, number, path)
    raise RefusedError("invalid")  # it exists, and is not a link


FUNCTIONS: Mapping[str, Mapping[str, HostFunction]] = {
    "wasi:filesystem/preopens": {"get-directories": _directories},
    "wasi:filesystem/types": {
        "[method]descriptor.read-via-stream": _read_via_stream,
        "[method]descriptor.write-via-stream": _write_via_stream,
        "[method]descriptor.append-via-stream": _append_via_stream,
        "[method]descriptor.advise": _sync,
        "[method]descriptor.sync-data": _sync,
        "[method]descriptor.sync": _sync,
        "[method]descriptor.get-flags": _get_flags,
        "[method]descriptor.get-type": lambda guest, number: _type(_of(guest, number).node),
        "[method]descriptor.set-size": _set_size,
        "[method]descriptor.set-times": lambda guest, number, _accessed, modified: _set_times(
            guest, _of(guest, number).node, modified
        ),
        "[method]descriptor.set-times-at": _set_times_at,
        "[method]descriptor.read": _read,
        "[method]descriptor.write": _write,
        "[method]descriptor.read-directory": lambda guest, number: _own(
            guest, EntryStream(_of(guest, number).directory())
        ),
        "[method]descriptor.create-directory-at": lambda guest, number, path: guest.files.make_directory(
            _of(guest, number).directory(), path
        ),
        "[method]descriptor.stat": lambda guest, number: _stat(_of(guest, number).node),
        "[method]descriptor.stat-at": lambda guest, number, _flags, path: _stat(_find(guest, number, path)),
        "[method]descriptor.link-at": _unsupported,
        "[method]descriptor.symlink-at": _unsupported,
        "[method]descriptor.open-at": _open_at,
        "[method]descriptor.readlink-at": _readlink,
        "[method]descriptor.remove-directory-at": lambda guest, number, path: guest.files.remove_directory(
            _of(guest, number).directory(), path
        ),
        "[method]descriptor.unlink-file-at": lambda guest, number, path: guest.files.remove_file(
            _of(guest, number).directory(), path
        ),
        "[method]descriptor.rename-at": _rename_at,
        "[method]descriptor.is-same-object": lambda guest, a, b: _of(guest, a).node is _of(guest, b).node,
        "[method]descriptor.metadata-hash": lambda guest, number: _hash(_of(guest, number).node),
        "[method]descriptor.metadata-hash-at": lambda guest, number, _flags, path: _hash(_find(guest, number, path)),
        "[method]directory-entry-stream.read-directory-entry": lambda guest, number: expect(
            guest, number, EntryStream
        ).next(),
        "filesystem-error-code": lambda guest, number: expect(guest, number, StreamError).code,
    },
}
"""The functions by interface, without its version, and name."""
