"""SQLite databases: one place opens them."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import toolexec
from toolexec.process.database import open_database, open_for_reading

ROOT = Path(toolexec.__file__).parent
OWNERS = {r"\bsqlite3\.connect\(": "process/database.py", r"\bfcntl\.flock\(": "process/lock.py"}


def test_a_database_in_memory_is_for_any_thread_and_has_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions are begun and ended by hand, as in a file."""
    monkeypatch.chdir(tmp_path)
    with closing(open_database(None)) as database:
        database.execute("CREATE TABLE a (b)")
        assert not database.in_transaction
    assert [*tmp_path.iterdir()] == []


def test_what_is_opened_for_reading_is_neither_made_nor_changed(tmp_path: Path) -> None:
    """A name with characters that mean something in a URL is fine."""
    path = tmp_path / "a?mode=rwc#b%20.db"
    with pytest.raises(sqlite3.Error, match="unable to open"):
        open_for_reading(path)
    with closing(open_database(path)) as database:
        database.execute("CREATE TABLE a (b)")
    with closing(open_for_reading(path)) as database, pytest.raises(sqlite3.Error, match="readonly"):
        database.execute("DROP TABLE a")


@pytest.mark.parametrize(("call", "owner"), OWNERS.items(), ids=OWNERS.values())
def test_one_module_opens_databases_and_one_locks_files(call: str, owner: str) -> None:
    """One module decides how they are opened, checked and refused."""
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if "testing" not in path.parts and re.search(call, path.read_text(encoding="utf-8"))
    }
    assert found == {owner}
