"""What a server writes down survives its death."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError
from toolexec_remote.server.journal import Journal, Record


def test_a_run_that_was_under_way_is_lost(tmp_path: Path) -> None:
    """One that has ended has its response, and the word of its process; one that was not started is unknown."""
    first = Journal(tmp_path, 600, 1000.0)
    first.start("a", "running", b"d1", 1000.0, "ab")
    first.start("a", "ended", b"d2", 1000.0, "ab")
    first.end("a", "ended", b"{}", 1001.0, "its word")
    first.start("a", "taken back", b"d3", 1000.0, "ab")
    first.forget("a", "taken back")
    first.close()
    second = Journal(tmp_path, 600, 1010.0)
    try:
        assert second.find("a", "running") == Record("lost", b"d1", b"", "ab", "")
        assert second.find("a", "ended") == Record("ended", b"d2", b"{}", "ab", "its word")
        assert second.find("a", "taken back") is None
        assert second.find("b", "ended") is None
        second.prune(2000.0)
        assert second.find("a", "running") is None
    finally:
        second.close()


def test_a_directory_belongs_to_one_server(tmp_path: Path) -> None:
    """Two would not know what the other has started."""
    first = Journal(tmp_path, 600, 0.0)
    with pytest.raises(ConfigurationError, match="another server"):
        Journal(tmp_path, 600, 0.0)
    first.close()
    Journal(tmp_path, 600, 0.0).close()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """The message names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file"):
        Journal(tmp_path / "file" / "inside", 600, 0.0)
