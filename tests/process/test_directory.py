"""The private directory of a run, with hostile contents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolexec.errors import InvalidRequestError
from toolexec.process import directory as module
from toolexec.process.directory import WorkDirectory


@pytest.fixture
def directory() -> Iterator[WorkDirectory]:
    """A directory that is removed in the end."""
    directory = WorkDirectory()
    yield directory
    if directory.root.exists():
        directory.remove()


def test_only_its_owner_can_look_into_it(directory: WorkDirectory) -> None:
    """Root and work directory are private."""
    assert directory.root.stat().st_mode & 0o077 == 0
    assert directory.work.stat().st_mode & 0o077 == 0


def test_files_are_put_and_only_what_changes_is_taken(directory: WorkDirectory) -> None:
    """New, changed, and replaced by the same content at another time; what is deleted is simply not there."""
    directory.put({"a": b"1", "b/c": b"2", "b/d": b"3", "e": b"4"})
    assert directory.take() == {}
    (directory.work / "a").write_bytes(b"one")
    (directory.work / "b" / "new").write_bytes(b"")
    (directory.work / "e").unlink()
    assert directory.take() == {"a": b"one", "b/new": b""}
    directory.put({})
    assert directory.take() == {}


@pytest.mark.parametrize(
    "name", ["", ".", "/etc/x", "../x", "a/../x", "a//b", "./a", "a/", "a\0b", "x" * 300, "/".join("a" * 30)]
)
def test_a_path_that_is_not_plain_is_refused(directory: WorkDirectory, name: str) -> None:
    """Refuses such a path, and writes nothing."""
    with pytest.raises(InvalidRequestError):
        directory.put({"fine": b"", name: b"x"})
    assert list(directory.work.iterdir()) == []


def test_a_file_cannot_be_a_directory_too(directory: WorkDirectory) -> None:
    """Whichever comes first."""
    with pytest.raises(InvalidRequestError, match="at the same time"):
        directory.put({"a/b": b"", "a": b""})


def test_nothing_is_written_through_a_link(directory: WorkDirectory, tmp_path: Path) -> None:
    """A program of an earlier run may have put one there."""
    (directory.work / "link").symlink_to(tmp_path)
    (directory.work / "file").symlink_to(tmp_path / "target")
    for name in ("link/x", "file"):
        with pytest.raises(InvalidRequestError, match="cannot put"):
            directory.put({name: b"x"})
    assert list(tmp_path.iterdir()) == []


def test_links_and_special_files_are_not_taken(directory: WorkDirectory, tmp_path: Path) -> None:
    """Neither followed nor opened."""
    (tmp_path / "secret").write_text("x")
    (directory.work / "link").symlink_to(tmp_path / "secret")
    (directory.work / "directory").symlink_to(tmp_path)
    os.mkfifo(directory.work / "pipe")
    assert directory.take() == {}
    assert directory.left_out == []


def test_what_is_no_output_is_not_taken(directory: WorkDirectory) -> None:
    """Caches, and what guests put there for themselves."""
    for name in ("__pycache__/a.pyc", ".cache/x", ".toolexec-1/x", "real"):
        path = directory.work / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert directory.take() == {"real": b"x"}


def test_bytes_and_files_are_bounded(directory: WorkDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names what is over the bound and leaves it out."""
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(module, "MAX_FILES", 2)
    for name, size in (("a", 6), ("b", 5), ("c", 4), ("d", 0)):
        (directory.work / name).write_bytes(b"x" * size)
    assert set(directory.take()) == {"a", "c"}
    assert directory.left_out == ["b", "d"]


def test_a_flood_of_files_is_not_walked_to_its_end(directory: WorkDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a deep tree."""
    monkeypatch.setattr(module, "_MAX_ENTRIES", 10)
    for n in range(30):
        (directory.work / f"{n}").write_text("x")
    assert len(directory.take()) <= 10


def test_a_file_that_changes_its_kind_meanwhile_is_left_out(
    directory: WorkDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Looks at a file again once it is open."""
    listing = [("gone", (1,)), ("link", (1,)), ("pipe", (1,)), ("directory", (1,))]
    (directory.work / "link").symlink_to(tmp_path)
    (directory.work / "directory").mkdir()
    os.mkfifo(directory.work / "pipe")
    monkeypatch.setattr(directory, "_marks", lambda: iter(listing))
    assert directory.take() == {}
    assert sorted(directory.left_out) == ["directory", "gone", "link", "pipe"]


def test_a_directory_that_is_gone_gives_nothing(directory: WorkDirectory) -> None:
    """A program may have deleted it."""
    directory.work.rmdir()
    assert directory.take() == {}


def test_removing_leaves_nothing(directory: WorkDirectory, tmp_path: Path) -> None:
    """Locked directories, links (not what they lead to), pipes."""
    (tmp_path / "kept").write_text("x")
    directory.put({"a/b/c": b"1"})
    (directory.work / "link").symlink_to(tmp_path)
    os.mkfifo(directory.work / "pipe")
    (directory.work / "a" / "b").chmod(0)
    (directory.work / "a").chmod(0)
    directory.remove()
    assert not directory.root.exists()
    assert (tmp_path / "kept").exists()


@pytest.mark.full
def test_a_tree_deeper_than_any_path_is_removed(directory: WorkDirectory) -> None:
    """Three thousand directories deep, each with a long name."""
    here = os.getcwd()
    os.chdir(directory.work)
    try:
        for _ in range(3000):
            os.mkdir("x" * 50)
            os.chdir("x" * 50)
        Path("file").write_text("x")
    finally:
        os.chdir(here)
    assert directory.take() == {}
    directory.remove()
    assert not directory.root.exists()
