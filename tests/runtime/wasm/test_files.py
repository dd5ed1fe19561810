"""The private files of a guest: a tree in memory, with a quota, that nothing gets out of."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.process.directory import check_names
from toolexec.runtime.wasm.files import Directory, File, MemoryFiles
from toolexec.runtime.wasm.refused import RefusedError


def refused(call: Any, *args: Any, **kwargs: Any) -> str:
    """The code that an operation is refused with."""
    with pytest.raises(RefusedError) as caught:
        call(*args, **kwargs)
    return caught.value.reason


def create(files: MemoryFiles, path: str, content: bytes = b"") -> File:
    """A new file."""
    file = files.open(files.root, path, create=True, exclusive=True)
    assert isinstance(file, File)
    files.write(file, 0, content)
    return file


def directory(files: MemoryFiles, path: str) -> Directory:
    """A new directory."""
    files.make_directory(files.root, path)
    node = files.find(files.root, path)
    assert isinstance(node, Directory)
    return node


def test_files_go_in_and_come_out() -> None:
    """A mapping of paths to content becomes a tree, and the tree a mapping."""
    given = {"data.csv": b"1,2", "deep/er/x.bin": bytes(range(256)), "empty": b""}
    files = MemoryFiles.from_mapping(given)
    assert files.to_mapping() == given
    assert list(files.to_mapping()) == sorted(given)
    assert files.bytes_used == 259
    assert files.entries_used == 5


def test_only_what_changed_is_told() -> None:
    """New files and new content; not what was written back as it was, nor what was deleted."""
    files = MemoryFiles.from_mapping({"same": b"1", "written": b"2", "gone": b"3", "moved": b"4"})
    for path, content in [("same", b"1"), ("written", b"x")]:
        file = files.find(files.root, path)
        assert isinstance(file, File)
        files.write(file, 0, content)
    files.remove_file(files.root, "gone")
    files.rename(files.root, "moved", files.root, "here")
    create(files, "new", b"n")
    assert files.changed() == {"written": b"x", "here": b"4", "new": b"n"}


def test_given_content_is_never_changed() -> None:
    """The caller's bytes are shared until the first write, and copied then; anything that can change is copied."""
    content = bytearray(b"abc")
    given: Any = {"a": b"abc", "b": content}
    files = MemoryFiles.from_mapping(given)
    content[0] = 0
    for path in ("a", "b"):
        file = files.find(files.root, path)
        assert isinstance(file, File)
        assert bytes(file.data) == b"abc"
        files.write(file, 1, b"X")
        assert bytes(file.data) == b"aXc"


@pytest.mark.parametrize("path", ["", "/etc/passwd", "a/../b", "..", "./a", "a//b", "a/", "a\0b", "a\\b", 3])
def test_a_path_that_is_not_plain_is_refused(path: Any) -> None:
    """Nothing absolute, nothing that climbs, nothing that two systems read differently."""
    with pytest.raises(ConfigurationError) as caught:
        MemoryFiles.from_mapping({path: b""})
    assert caught.value.details["path"] == str(path)


def test_content_must_be_bytes() -> None:
    """Text has no one encoding, so it is not guessed."""
    with pytest.raises(ConfigurationError, match=r"'a\.txt' is str; give bytes"):
        MemoryFiles.from_mapping({"a.txt": "text"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a": b"", "a/b": b""}, "not-directory"),
        ({"a/b": b"", "a": b""}, "exist"),
        ({"a": b"x" * 11}, "insufficient-space"),
        ({"x" * 256: b""}, "name-too-long"),
        ({"a/" * 20 + "b": b""}, "name-too-long"),
    ],
)
def test_a_set_of_files_that_cannot_be_is_refused(files: dict[str, bytes], reason: str) -> None:
    """The error names the file and why."""
    with pytest.raises(ConfigurationError, match="cannot put file") as caught:
        MemoryFiles.from_mapping(files, max_bytes=10)
    assert caught.value.details["reason"] == reason


def test_a_negative_quota_is_refused() -> None:
    """There is no less than nothing."""
    with pytest.raises(ConfigurationError, match="cannot be negative"):
        MemoryFiles(max_bytes=-1)


def test_reading_and_writing_at_offsets() -> None:
    """A read ends with the file, a gap reads as zeros."""
    files = MemoryFiles()
    file = create(files, "a", b"0123456789")
    assert files.read(file, 8, 100) == b"89"
    assert files.read(file, 100, 1) == b""
    files.write(file, 12, b"ab")
    assert bytes(file.data) == b"0123456789\0\0ab"
    files.set_size(file, 2)
    files.set_size(file, 3)
    assert bytes(file.data) == b"01\0"
    assert files.bytes_used == 3


def test_the_quota_of_bytes_holds_for_every_way_to_grow() -> None:
    """Writes and sizes over it are refused, and nothing has changed then."""
    files = MemoryFiles(max_bytes=10)
    file = create(files, "a", b"12345")
    assert refused(files.write, file, 5, b"123456") == "insufficient-space"
    assert refused(files.write, file, 10, b"1") == "insufficient-space"
    assert refused(files.set_size, file, 1 << 60) == "insufficient-space"
    assert bytes(file.data) == b"12345"
    files.write(file, 5, b"67890")
    assert files.bytes_used == 10


def test_deleting_frees_space_when_the_last_one_closes() -> None:
    """A file that is open keeps its content, and counts."""
    files = MemoryFiles(max_bytes=10, max_entries=1)
    file = create(files, "a", b"1234567890")
    files.hold(file)
    files.hold(file)
    files.remove_file(files.root, "a")
    assert files.read(file, 0, 10) == b"1234567890"
    files.release(file)
    assert (files.bytes_used, files.entries_used) == (10, 1)
    assert refused(files.open, files.root, "b", create=True) == "insufficient-space"
    files.release(file)
    assert (files.bytes_used, files.entries_used) == (0, 0)
    create(files, "b", b"1234567890")


def test_the_number_of_entries_is_bounded() -> None:
    """Files and directories alike."""
    files = MemoryFiles(max_entries=2)
    create(files, "a")
    directory(files, "b")
    assert refused(files.open, files.root, "c", create=True) == "insufficient-space"
    assert refused(files.make_directory, files.root, "c") == "insufficient-space"
    files.remove_directory(files.root, "b")
    create(files, "c")


def test_opening() -> None:
    """An existing file, a new one, a truncated one, and what does not fit."""
    files = MemoryFiles.from_mapping({"a": b"content", "d/b": b""})
    assert files.open(files.root, "a") is files.find(files.root, "./d/../a")
    assert files.open(files.root, ".") is files.root
    assert refused(files.open, files.root, "none") == "no-entry"
    assert refused(files.open, files.root, "none/x", create=True) == "no-entry"
    assert refused(files.open, files.root, "a", create=True, exclusive=True) == "exist"
    assert refused(files.open, files.root, "new/", create=True) == "is-directory"
    assert refused(files.open, files.root, "a/") == "not-directory"
    assert refused(files.open, files.root, "d", truncate=True) == "is-directory"
    assert refused(files.open, files.root, "x" * 256, create=True) == "name-too-long"
    files.open(files.root, "a", truncate=True)
    assert files.to_mapping()["a"] == b""


def test_a_path_stays_below_the_directory_it_starts_from() -> None:
    """Neither absolute nor climbing out, not even of a directory inside."""
    files = MemoryFiles.from_mapping({"d/b": b"", "a": b""})
    inside = files.find(files.root, "d")
    assert isinstance(inside, Directory)
    assert refused(files.find, files.root, "..") == "not-permitted"
    assert refused(files.find, files.root, "d/../../a") == "not-permitted"
    assert refused(files.find, inside, "../a") == "not-permitted"
    assert refused(files.find, files.root, "/a") == "not-permitted"
    assert refused(files.find, files.root, "") == "no-entry"
    assert refused(files.find, files.root, "a\0") == "invalid"
    assert refused(files.find, files.root, "a/b") == "not-directory"
    assert refused(files.find, files.root, "a/") == "not-directory"
    assert files.find(files.root, "d/..") is files.root


def test_directories() -> None:
    """Made once, removed when empty; what is removed takes no new entries."""
    files = MemoryFiles()
    held = directory(files, "d")
    assert refused(files.make_directory, files.root, "d") == "exist"
    assert refused(files.make_directory, files.root, ".") == "exist"
    create(files, "d/f")
    assert refused(files.remove_directory, files.root, "d") == "not-empty"
    assert refused(files.remove_directory, files.root, "d/f") == "not-directory"
    assert refused(files.remove_file, files.root, "d") == "is-directory"
    assert refused(files.remove_directory, files.root, ".") == "busy"
    files.remove_file(files.root, "d/f")
    files.remove_directory(files.root, "d")
    assert refused(files.open, held, "x", create=True) == "no-entry"
    create(files, "other")
    assert refused(files.rename, files.root, "other", held, "x") == "no-entry"


def test_renaming() -> None:
    """Files replace files, directories replace empty ones, and nothing moves into itself."""
    files = MemoryFiles.from_mapping({"a": b"1", "b": b"2", "d/x": b"3", "full/y": b""})
    directory(files, "empty")
    files.rename(files.root, "a", files.root, "a")
    files.rename(files.root, "a", files.root, "b")
    assert refused(files.rename, files.root, "b", files.root, "d") == "is-directory"
    assert refused(files.rename, files.root, "d", files.root, "b") == "not-directory"
    assert refused(files.rename, files.root, "d", files.root, "full") == "not-empty"
    assert refused(files.rename, files.root, "d", files.root, "d/e") == "invalid"
    assert refused(files.rename, files.root, "none", files.root, "c") == "no-entry"
    files.rename(files.root, "d", files.root, "empty")
    assert files.to_mapping() == {"b": b"1", "empty/x": b"3", "full/y": b""}
    assert (files.bytes_used, files.entries_used) == (2, 5)


def test_a_tree_never_gets_deep() -> None:
    """Not by making directories, nor by moving trees into each other; each file in it can be given back."""
    files = MemoryFiles.from_mapping({"a/" * 15 + "f": b"", "b/" * 15 + "f": b""})
    bottom = "b/" * 15
    assert refused(files.rename, files.root, "a", files.root, f"{bottom}a") == "name-too-long"
    files.rename(files.root, "a", files.root, "b/a")
    files.make_directory(files.root, "b/" + "a/" * 15 + "c")
    files = MemoryFiles.from_mapping({"c/" * 19 + "f": b""})
    assert refused(files.make_directory, files.root, "c/" * 20) == "name-too-long"
    check_names(files.changed() | files.to_mapping())


def test_changes_are_dated() -> None:
    """Files and directories have the time of their last change."""
    times = iter(range(100))
    files = MemoryFiles(now=lambda: next(times))
    file = create(files, "a", b"x")
    before = file.modified, files.root.modified
    files.write(file, 0, b"y")
    create(files, "b")
    assert file.modified > before[0]
    assert files.root.modified > before[1]
