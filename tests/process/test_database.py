"""SQLite databases: one place opens them."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import signal
import sqlite3
import stat
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest

import toolexec
from toolexec.process.database import OwnDatabase, open_database, open_for_reading, transaction, use_wal

ROOT = Path(toolexec.__file__).parent
PATIENCE = 60
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


def test_the_file_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    """A file that is not there is made so, whatever the umask; one that others may write to is refused."""
    before = os.umask(0)
    try:
        open_database(tmp_path / "a.db").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.db").stat().st_mode) == 0o600
    (tmp_path / "a.db").chmod(0o666)
    with pytest.raises(PermissionError, match="other users may write"):
        open_database(tmp_path / "a.db")


def in_child(function: Callable[[], str]) -> str:
    """Return what *function* gives in a forked child, or the text of what it raises; fail when the child hangs."""
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads, which is what is tried here
        child = os.fork()
    if child == 0:
        try:
            theirs.send(function())
        except BaseException as error:
            theirs.send(str(error))
        os._exit(0)
    theirs.close()
    try:
        assert ours.poll(PATIENCE), "the child hangs"
        return ours.recv()
    finally:
        ours.close()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def names_in(own: OwnDatabase, *add: str) -> str:
    """Write rows, and return all that are there."""
    with own as database:
        assert database is not None
        for name in add:
            database.execute("INSERT INTO names VALUES (?)", (name,))
        return " ".join(row[0] for row in database.execute("SELECT name FROM names ORDER BY name"))


def test_a_file_system_that_makes_files_by_opening_them_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database is made there, too, for its owner alone."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "mknod", refuse, raising=False)
    path = tmp_path / "a.db"
    open_database(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_to_nothing_leads_to_a_file_of_its_owner(tmp_path: Path) -> None:
    """The file is made where the link leads to."""
    (tmp_path / "link.db").symlink_to(tmp_path / "target.db")
    open_database(tmp_path / "link.db").close()
    assert stat.S_IMODE((tmp_path / "target.db").stat().st_mode) == 0o600


@pytest.fixture
def own(tmp_path: Path) -> Generator[OwnDatabase]:
    """A database with one table, in a log beside its file."""

    def connect() -> sqlite3.Connection:
        database = open_database(tmp_path / "own.db")
        use_wal(database, sync=False)
        database.execute("CREATE TABLE IF NOT EXISTS names (name TEXT)")
        return database

    made = OwnDatabase(connect)
    yield made
    made.close()


def test_a_forked_child_has_a_connection_of_its_own(own: OwnDatabase) -> None:
    """Parent and child write in turns, each sees what the other has written, and closing there takes nothing here."""
    assert names_in(own, "a") == "a"

    def use() -> str:
        seen = names_in(own, "b")
        own.close()
        return seen

    assert in_child(use) == "a b"
    assert names_in(own, "c") == "a b c"
    assert in_child(lambda: names_in(own)) == "a b c"


def test_a_child_that_was_forked_during_its_use_is_refused(own: OwnDatabase) -> None:
    """A thread of the parent is in a transaction: the child does not wait for it, as it never ends there."""
    began, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with own as database:
            assert database is not None
            with transaction(database):
                began.set()
                go_on.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    began.wait(PATIENCE)
    try:
        assert "forked while a thread of its parent used the file" in in_child(lambda: names_in(own))
        assert in_child(lambda: str(own.close())) == "None"
    finally:
        go_on.set()
        thread.join()
    assert names_in(own, "a") == "a"
