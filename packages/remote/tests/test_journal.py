"""What a server writes down survives its death."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from packages.remote.tests.servers import Client, runtime_server
from tests.waiting import until

from toolexec.errors import ConfigurationError
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.homes import home_of, new_run
from toolexec_remote.server import serving
from toolexec_remote.server.former import take_over
from toolexec_remote.server.journal import FILE, Journal, Record


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


def test_another_number_of_processes_starts_nothing_again(tmp_path: Path) -> None:
    """A run that a process of before had, killed or not, is lost to the one that has its ID now, and to no other one;
    what that one knows itself stays."""
    whole = Journal(tmp_path, 600, 1000.0)
    runs = [new_run(number, 2) for number in (1, 2, 1, 2)]
    for run in runs:
        whole.start("a", run, b"d", 1000.0, "ab")
    for number in (1, 2):
        directory = tmp_path / f"process-{number}"
        part = Journal(directory, 600, 1010.0)
        part.start("a", runs[number - 1], b"e", 1005.0, "cd")
        take_over(part, directory, lambda run, number=number: home_of(run, 2) == number, is_part=True)
        found = [part.find("a", run) for run in runs]
        own, taken = Record("running", b"e", b"", "cd"), Record("lost", b"d", b"", "ab")
        assert found == ([own, None, taken, None] if number == 1 else [None, own, None, taken])
        part.close()
    whole.close()
    (tmp_path / "process-3").mkdir()
    one = Journal(tmp_path, 600, 1010.0)
    one.start("a", "own", b"d", 1000.0, "ab")
    take_over(one, tmp_path, lambda run: True, is_part=False)
    assert {one.find("a", run) for run in runs} == {Record("lost", b"d", b"", "ab")}
    one.close()


def test_a_damaged_journal_of_other_processes_is_named(tmp_path: Path) -> None:
    """Its runs are not known to be over, so the server does not start, and says which file it is."""
    (tmp_path / "process-1").mkdir()
    (tmp_path / "process-1" / "started.db").write_bytes(b"no database" * 100)
    one = Journal(tmp_path, 600, 1010.0)
    with pytest.raises(ConfigurationError, match=r"process-1/started\.db"):
        take_over(one, tmp_path, lambda run: True, is_part=False)
    one.close()


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


LARGE = b"x" * (1 << 20)


async def test_a_large_response_is_a_file(tmp_path: Path) -> None:
    """The next server finds it, and it goes with its run; what a dead server left over goes at once."""
    first = Journal(tmp_path, 600, 1000.0)
    for run in ("kept", "half"):
        first.start("a", run, b"d", 1000.0, "ab")
        await first.write_body("a", run, LARGE)
    assert not first.has_ended("a", "kept")
    first.end("a", "kept", LARGE, 1001.0, "its word")
    assert first.has_ended("a", "kept")
    first.close()
    assert (tmp_path / "started.db").stat().st_size < len(LARGE)
    second = Journal(tmp_path, 600, 1010.0)
    try:
        assert second.find("a", "kept") == Record("ended", b"d", LARGE, "ab", "its word")
        assert await second.read_body("a", "kept") == LARGE
        assert await second.read_body("a", "half") == b""
        assert len([*(tmp_path / "responses").iterdir()]) == 1
        second.prune(2000.0)
        assert second.find("a", "kept") is None
        assert not [*(tmp_path / "responses").iterdir()]
    finally:
        second.close()


async def test_a_large_response_that_is_gone_is_lost(tmp_path: Path) -> None:
    """The run may have run, and the journal does not say that it ended well."""
    journal = Journal(tmp_path, 600, 1000.0)
    try:
        journal.start("a", "run", b"d", 1000.0, "ab")
        await journal.write_body("a", "run", LARGE)
        journal.end("a", "run", LARGE, 1001.0, "its word")
        [file] = (tmp_path / "responses").iterdir()
        file.unlink()
        assert not journal.has_ended("a", "run")
        assert journal.find("a", "run") == Record("lost", b"d", b"", "ab", "")
        assert await journal.read_body("a", "run") == b""
    finally:
        journal.close()


async def test_runs_of_other_tenants_have_files_of_their_own(tmp_path: Path) -> None:
    """Whatever their IDs are, which are the callers' to choose."""
    journal = Journal(tmp_path, 600, 1000.0)
    names = [("a", "b1"), ("ab", "1"), ("a", "../../b1"), ("", "ab1")]
    try:
        for number, (account, run) in enumerate(names):
            journal.start(account, run, b"d", 1000.0, "ab")
            await journal.write_body(account, run, LARGE + bytes([number]))
            journal.end(account, run, LARGE + bytes([number]), 1001.0, "")
        assert [(await journal.read_body(*name))[-1] for name in names] == [0, 1, 2, 3]
        assert len([*(tmp_path / "responses").iterdir()]) == 4
    finally:
        journal.close()


async def test_a_full_disk_keeps_nothing_of_a_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that could not be written as a whole is not there, and does not fill the disk further."""
    journal = Journal(tmp_path, 600, 1000.0)
    try:
        journal.start("a", "run", b"d", 1000.0, "ab")

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
            patched.setattr(Path, "replace", full)
            await journal.write_body("a", "run", LARGE)
        assert not [*(tmp_path / "responses").iterdir()]
        journal.end("a", "run", LARGE, 1001.0, "its word")
        assert not journal.has_ended("a", "run")
    finally:
        journal.close()


def moved(directory: Path) -> int:
    """Return how many runs are in the database itself, without its log."""
    with closing(sqlite3.connect(f"file:{directory / FILE}?immutable=1", uri=True)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master").fetchone():
            return 0
        return database.execute("SELECT count(*) FROM runs").fetchone()[0]


async def test_no_write_waits_for_the_disk(tmp_path: Path) -> None:
    """Commits stay in the log, which is moved into the database when that is asked for and worth it."""
    journal = Journal(tmp_path, 600, 0.0)
    try:
        await journal.move_log()
        for number in range(2000):
            journal.start("a", f"run-{number}", bytes(1000), 1.0, "ab")
        assert moved(tmp_path) == 0
        await journal.move_log()
        assert moved(tmp_path) == 2000
        journal.start("a", "one more", b"", 1.0, "ab")
        await journal.move_log()
        assert moved(tmp_path) == 2000
    finally:
        journal.close()


async def test_a_server_moves_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server does it by itself, beside its event loop."""
    monkeypatch.setattr(serving, "_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr("toolexec_remote.server.journal._MANY_CHANGES", 5)
    async with runtime_server(tmp_path, ScriptedSandbox(default=1)) as endpoint, Client(endpoint) as client:
        for number in range(5):
            await client.execute(f"r{number}", "1")
            await client.result(f"r{number}")
        await until(lambda: moved(tmp_path / "server") > 0)
