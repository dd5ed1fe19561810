"""The private folder of a run, with hostile contents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolexec.errors import InvalidRequestError
from toolexec.process import directory as module
from toolexec.process.directory import WorkDirectory


@pytest.fixture
def folder() -> Iterator[WorkDirectory]:
    """A folder that is removed in the end."""
    folder = WorkDirectory()
    yield folder
    if folder.root.exists():
        folder.remove()


def test_only_its_owner_can_look_into_it(folder: WorkDirectory) -> None:
    """Root and work folder are private."""
    assert folder.root.stat().st_mode & 0o077 == 0
    assert folder.work.stat().st_mode & 0o077 == 0


def test_files_are_put_and_only_what_changes_is_taken(folder: WorkDirectory) -> None:
    """New, changed, and replaced by the same content at another time; what is deleted is simply not there."""
    folder.put({"a": b"1", "b/c": b"2", "b/d": b"3", "e": b"4"})
    assert folder.take() == {}
    (folder.work / "a").write_bytes(b"one")
    (folder.work / "b" / "new").write_bytes(b"")
    (folder.work / "e").unlink()
    assert folder.take() == {"a": b"one", "b/new": b""}
    folder.put({})
    assert folder.take() == {}


@pytest.mark.parametrize(
    "name", ["", ".", "/etc/x", "../x", "a/../x", "a//b", "./a", "a/", "a\0b", "x" * 300, "/".join("a" * 30)]
)
def test_a_path_that_is_not_plain_is_refused(folder: WorkDirectory, name: str) -> None:
    """Refuses such a path, and writes nothing."""
    with pytest.raises(InvalidRequestError):
        folder.put({"fine": b"", name: b"x"})
    assert list(folder.work.iterdir()) == []


def test_a_file_cannot_be_a_folder_too(folder: WorkDirectory) -> None:
    """Whichever comes first."""
    with pytest.raises(InvalidRequestError, match="at the same time"):
        folder.put({"a/b": b"", "a": b""})


def test_nothing_is_written_through_a_link(folder: WorkDirectory, tmp_path: Path) -> None:
    """A program of an earlier run may have put one there."""
    (folder.work / "link").symlink_to(tmp_path)
    (folder.work / "file").symlink_to(tmp_path / "target")
    for name in ("link/x", "file"):
        with pytest.raises(InvalidRequestError, match="cannot put"):
            folder.put({name: b"x"})
    assert list(tmp_path.iterdir()) == []


def test_links_and_special_files_are_not_taken(folder: WorkDirectory, tmp_path: Path) -> None:
    """Neither followed nor opened."""
    (tmp_path / "secret").write_text("x")
    (folder.work / "link").symlink_to(tmp_path / "secret")
    (folder.work / "folder").symlink_to(tmp_path)
    os.mkfifo(folder.work / "pipe")
    assert folder.take() == {}
    assert folder.left_out == []


def test_what_is_no_output_is_not_taken(folder: WorkDirectory) -> None:
    """Caches, and what guests put there for themselves."""
    for name in ("__pycache__/a.pyc", ".cache/x", ".toolexec-1/x", "real"):
        path = folder.work / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert folder.take() == {"real": b"x"}


def test_bytes_and_files_are_bounded(folder: WorkDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names what is over the bound and leaves it out."""
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(module, "MAX_FILES", 2)
    for name, size in (("a", 6), ("b", 5), ("c", 4), ("d", 0)):
        (folder.work / name).write_bytes(b"x" * size)
    assert set(folder.take()) == {"a", "c"}
    assert folder.left_out == ["b", "d"]


def test_a_flood_of_files_is_not_walked_to_its_end(folder: WorkDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a deep tree."""
    monkeypatch.setattr(module, "_MAX_ENTRIES", 10)
    for n in range(30):
        (folder.work / f"{n}").write_text("x")
    assert len(folder.take()) <= 10


def test_a_file_that_changes_its_kind_meanwhile_is_left_out(
    folder: WorkDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Looks at a file again once it is open."""
    listing = [("gone", (1,)), ("link", (1,)), ("pipe", (1,)), ("folder", (1,))]
    (folder.work / "link").symlink_to(tmp_path)
    (folder.work / "folder").mkdir()
    os.mkfifo(folder.work / "pipe")
    monkeypatch.setattr(folder, "_marks", lambda: iter(listing))
    assert folder.take() == {}
    assert sorted(folder.left_out) == ["folder", "gone", "link", "pipe"]


def test_a_folder_that_is_gone_gives_nothing(folder: WorkDirectory) -> None:
    """A program may have deleted it."""
    folder.work.rmdir()
    assert folder.take() == {}


def test_removing_leaves_nothing(folder: WorkDirectory, tmp_path: Path) -> None:
    """Locked folders, links (not what they lead to), pipes."""
    (tmp_path / "kept").write_text("x")
    folder.put({"a/b/c": b"1"})
    (folder.work / "link").symlink_to(tmp_path)
    os.mkfifo(folder.work / "pipe")
    (folder.work / "a" / "b").chmod(0)
    (folder.work / "a").chmod(0)
    folder.remove()
    assert not folder.root.exists()
    assert (tmp_path / "kept").exists()


@pytest.mark.full
def test_a_tree_deeper_than_any_path_is_removed(folder: WorkDirectory) -> None:
    """Three thousand folders deep, each with a long name."""
    here = os.getcwd()
    os.chdir(folder.work)
    try:
        for _ in range(3000):
            os.mkdir("x" * 50)
            os.chdir("x" * 50)
        Path("file").write_text("x")
    finally:
        os.chdir(here)
    assert folder.take() == {}
    folder.remove()
    assert not folder.root.exists()
