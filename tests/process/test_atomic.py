"""Files that are replaced as a whole."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from toolexec.process.atomic import replace_files


def mode(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_modes(tmp_path: Path) -> None:
    """A file gets the mode that is given, else keeps its own."""
    path = tmp_path / "a"
    replace_files({path: "é"}, mode=0o600)
    assert (path.read_bytes(), mode(path)) == ("é".encode(), 0o600)
    path.chmod(0o640)
    replace_files({path: b"\xff"})
    assert (path.read_bytes(), mode(path)) == (b"\xff", 0o640)
    replace_files({path: "secret"}, mode=0o600)
    assert mode(path) == 0o600


def test_all_or_none(tmp_path: Path) -> None:
    """When one file cannot be written, none is replaced and nothing is left beside them."""
    first = tmp_path / "a"
    first.write_text("old")
    with pytest.raises(OSError, match="No such file"):
        replace_files({first: "new", tmp_path / "missing" / "b": "new"})
    assert first.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_keeps_leading_to_its_target(tmp_path: Path) -> None:
    """The file that a link names is replaced, not the link."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    replace_files({link: "new"})
    assert (link.is_symlink(), target.read_text()) == (True, "new")
