"""What is shown of a run of code, and where its files go."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from toolexec.cli.code_output import Printed, call_line, failure_text, write_files
from toolexec.cli.terminal import Screen
from toolexec.code.types import CodeEvent, CodeResult, ToolCallRecord
from toolexec.errors import CodeError, ConfigurationError, SandboxViolationError


def test_the_caret_is_under_the_column() -> None:
    """The caret is right even after wide characters and tabs, which take more than one cell."""
    text = failure_text(CodeError("no", line=12, column=4, source="\tä漢 x")).plain
    assert "  12 │     ä漢 x\n     │        ^" in text


def test_a_mistake_without_a_place() -> None:
    """Just the message."""
    assert failure_text(CodeError("no")).plain == "no"
    assert failure_text(CodeError("no", line=2, source="x")).plain == "no (line 2, col 0)\n\n  2 │ x"


def test_hostile_source_is_harmless() -> None:
    """Control characters of the program do not reach the terminal."""
    text = failure_text(CodeError("a\x1b[2J", line=1, column=1, source="\x1b]0;x\x07y", traceback="\x1b[31mz")).plain
    assert "\x1b" not in text


def test_a_long_line_is_cut() -> None:
    """A long line is cut, and a mark beyond its end is left out."""
    text = failure_text(CodeError("no", line=1, column=5000, source="x" * 9000)).plain
    assert len(text) < 300
    assert "^" not in text


def test_a_call_without_arguments() -> None:
    """Its name and its time."""
    assert call_line(ToolCallRecord("a:b", duration=0.5)).plain == "✓ a:b · 500.0 ms"


def test_what_came_otherwise_is_shown_at_the_end() -> None:
    """Shows once, at the end, what the result has beyond the events."""
    out = StringIO()
    printed = Printed(Screen(out))
    printed.event(CodeEvent(kind="print", text="a\nb"))
    printed.finish(CodeResult(stdout="a\nbc"))
    assert out.getvalue() == "a\nbc\n"


def test_files_are_written(tmp_path: Path) -> None:
    """Into directories that are made for them; what is there is replaced."""
    out = tmp_path / "new" / "out"
    assert write_files(out, {"a/b.txt": b"1", "c": b""}) == [out / "a/b.txt", out / "c"]
    write_files(out, {"c": b"2"})
    assert (out / "c").read_bytes() == b"2"
    assert (out / "a" / "b.txt").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "..", "", ".", "a\0b", "..\\x"])
def test_no_name_leads_out(tmp_path: Path, name: str) -> None:
    """Nothing is written then, also not what would be fine."""
    out = tmp_path / "out"
    with pytest.raises(SandboxViolationError):
        write_files(out, {"fine": b"", name: b"x"})
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]


def test_no_link_leads_out(tmp_path: Path) -> None:
    """Neither a directory's nor a file's."""
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    other.mkdir()
    (out / "directory").symlink_to(other)
    (out / "file").symlink_to(other / "file")
    for name in ("directory/x", "file"):
        with pytest.raises(SandboxViolationError, match="leads out"):
            write_files(out, {name: b"x"})
    assert [*other.iterdir()] == []


def test_a_directory_that_cannot_be_written_to(tmp_path: Path) -> None:
    """Refuses an output path that is a file, for example."""
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write to"):
        write_files(tmp_path / "out", {"x": b""})
