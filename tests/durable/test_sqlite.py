"""The journal in an SQLite file: the file itself, other processes, what is kept."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.waiting import until_blocking

from toolexec.durable.flush import Flusher
from toolexec.durable.journal import CallRecord, RunRecord
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import ConfigurationError, JournalError, RunBusyError
from toolexec.process.owner import this_owner


def _run(run_id: str = "r", **parts: object) -> RunRecord:
    return RunRecord(id=run_id, kind="code", source="1", digest="d", settings={}, **parts)  # type: ignore[arg-type]


def _call(step: str) -> CallRecord:
    return CallRecord(step=step, tool="t", definition="", args="")


def _made(path: Path) -> bytes:
    """Write a run with a few calls, and return the closed file."""
    with SQLiteJournal(path) as journal:
        journal.create(_run())
        journal.claim("r", "me", 60)
        for number in range(50):
            journal.begin("r", "me", _call(str(number)))
            journal.end("r", "me", str(number), "done", {"value": "x" * 500})
    return path.read_bytes()


def test_the_file_is_private(tmp_path: Path) -> None:
    """The file, its log and its directory are for their owner alone."""
    path = tmp_path / "new" / "runs.db"
    with SQLiteJournal(path) as journal:
        journal.create(_run())
        for name in ("runs.db", "runs.db-wal", "runs.db-shm"):
            assert stat.S_IMODE((path.parent / name).stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """A file whose content could be from others is not opened: it would be trusted."""
    path = tmp_path / "runs.db"
    _made(path)
    path.chmod(0o666)
    with pytest.raises(JournalError, match="other users may write to it"):
        SQLiteJournal(path)


@pytest.mark.parametrize("what", ["directory", "text", "other"])
def test_what_is_not_a_journal_is_refused(what: str, tmp_path: Path) -> None:
    """Another kind of file stays as it is."""
    path = tmp_path / "runs.db"
    if what == "directory":
        path.mkdir()
    elif what == "text":
        path.write_text("hello " * 1000)
        path.chmod(0o600)
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE mine (x)")
        path.chmod(0o600)
    before = None if what == "directory" else path.read_bytes()
    with pytest.raises(JournalError):
        SQLiteJournal(path)
    assert (None if what == "directory" else path.read_bytes()) == before


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    """A file of a newer toolexec is not touched, and the error says so."""
    path = tmp_path / "runs.db"
    _made(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"version 99, and this toolexec knows 2; use a newer"):
        SQLiteJournal(path)
    assert path.read_bytes() == before


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    """Each page that is garbled gives an error or what was written, never something else; the file stays as it is."""
    path = tmp_path / "runs.db"
    whole = _made(path)
    with SQLiteJournal(path) as journal:
        right = (journal.get("r"), journal.calls("r"))
    failed = 0
    for page in range(1, len(whole) // 4096):
        garbled = bytearray(whole)
        for place in range(page * 4096 + 100, (page + 1) * 4096, 64):
            garbled[place] ^= 0x01
        path.write_bytes(garbled)
        try:
            with SQLiteJournal(path) as journal:
                assert (journal.get("r"), journal.calls("r")) == right
        except JournalError:
            failed += 1
        assert path.read_bytes() == bytes(garbled)
    assert failed >= 4


def test_a_changed_letter_of_an_outcome_is_an_error(tmp_path: Path) -> None:
    """SQLite does not notice a byte that is another one; the marks do."""
    path = tmp_path / "runs.db"
    whole = _made(path)
    path.write_bytes(whole.replace(b"x" * 100 + b'"', b"x" * 99 + b'y"'))
    with SQLiteJournal(path) as journal, pytest.raises(JournalError, match="damaged") as caught:
        journal.calls("r")
    assert caught.value.details["damaged"] is True


def test_old_runs_go(tmp_path: Path) -> None:
    """Runs that ended long ago make room for new ones; those that have not ended stay."""
    now = [1000.0]
    with SQLiteJournal(tmp_path / "runs.db", keep=100, clock=lambda: now[0]) as journal:
        for name in "abc":
            journal.create(_run(name))
            journal.claim(name, "me", 60)
        journal.finish("a", "me", "done", {})
        journal.finish("b", "me", "failed", {})
        now[0] = 1099.0
        journal.create(_run("d"))
        assert [run.id for run in journal.runs()] == ["d", "c", "b", "a"]
        now[0] = 1101.0
        journal.create(_run("e"))
        assert [run.id for run in journal.runs()] == ["e", "d", "c"]


def test_a_failed_sync_stops_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken for recorded once the disk has refused to keep it."""

    def refuse(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", refuse)
    with SQLiteJournal(tmp_path / "runs.db") as journal:
        journal.create(_run())
        until_blocking(lambda: journal._flusher.error)
        with pytest.raises(JournalError, match="Input/output error"):
            journal.claim("r", "me", 60)
        assert journal.get("r").owner == ""


def test_a_link_leads_to_a_journal(tmp_path: Path) -> None:
    """A journal named by a link is synced as any other, and its log may not be written by others either."""
    real, link = tmp_path / "disk" / "real.db", tmp_path / "runs.db"
    real.parent.mkdir()
    link.symlink_to(real)
    with SQLiteJournal(link) as journal:
        journal.create(_run("a"))
        until_blocking(lambda: journal._flusher._log >= 0 or journal._flusher.error)
        journal.create(_run("b"))
    assert journal._flusher.error is None
    log = Path(f"{real}-wal")
    log.touch()
    log.chmod(0o666)
    with pytest.raises(JournalError, match="other users may write to it"):
        SQLiteJournal(link)


def test_records_are_synced_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many records share a sync of the log, and the last ones are synced at the end."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with SQLiteJournal(tmp_path / "runs.db") as journal:
        for number in range(200):
            journal.create(_run(str(number)))
        size = Path(f"{journal.path}-wal").stat().st_size
    assert 1 <= len(synced) < 100
    assert synced[-1] == size


def test_each_record_is_synced_before_it_counts(tmp_path: Path) -> None:
    """With `each` SQLite syncs every commit, and the journal says that this takes time."""
    with SQLiteJournal(tmp_path / "runs.db", sync="each") as journal:
        assert journal.is_remote
        with journal._database as database:
            assert database is not None
            assert database.execute("PRAGMA synchronous").fetchone() == (2,)
    with pytest.raises(ConfigurationError):
        SQLiteJournal(tmp_path / "runs.db", sync="never")  # type: ignore[arg-type]


def test_the_log_is_moved_into_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that has become long is used from its beginning again."""
    monkeypatch.setattr("toolexec.durable.flush._BETWEEN_CHECKPOINTS", 50)
    monkeypatch.setattr("toolexec.process.database._LONG_LOG", 10)
    path = tmp_path / "runs.db"
    before = 0
    with SQLiteJournal(path) as journal:

        def grew() -> bool:
            for number in range(50):
                journal.create(_run(f"{time.monotonic()}.{number}"))
            return path.stat().st_size > before

        for _ in range(3):
            until_blocking(grew)
            before = path.stat().st_size
        assert Path(f"{path}-wal").stat().st_size < 64 << 20


def test_closing_ends_the_thread(tmp_path: Path) -> None:
    """A flusher can be closed twice, and has no thread then."""
    flusher = Flusher(tmp_path / "none", sync=False)
    flusher.note()
    flusher.close()
    flusher.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "toolexec-journal"]


_OWNER = """
import sys, time
from toolexec.durable.journal import CallRecord
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.process.owner import this_owner
journal = SQLiteJournal(sys.argv[1])
journal.claim("r", this_owner() + "/1", 600)
journal.begin("r", this_owner() + "/1", CallRecord(step="1", tool="t", definition="", args=""))
print("began", flush=True)
time.sleep(600)
"""


def test_a_killed_owner_is_recognised_at_once(tmp_path: Path) -> None:
    """Records of a process are there after `kill -9`, and its run is free, whatever its lease was."""
    path = tmp_path / "runs.db"
    with SQLiteJournal(path) as journal:
        journal.create(_run())
        with subprocess.Popen([sys.executable, "-c", _OWNER, path], stdout=subprocess.PIPE, text=True) as owner:
            try:
                assert owner.stdout is not None
                assert owner.stdout.readline() == "began\n"
                with pytest.raises(RunBusyError):
                    journal.claim("r", this_owner(), 60)
                assert journal.due(time.time()) == []
            finally:
                owner.send_signal(signal.SIGKILL)
        assert journal.due(time.time()) == ["r"]
        assert journal.claim("r", this_owner(), 60).calls == 1
        assert [(call.step, call.state) for call in journal.calls("r")] == [("1", "begun")]


_CLAIMER = """
import sys
from toolexec.durable.journal import CallRecord
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import RunBusyError
from toolexec.process.owner import this_owner
journal = SQLiteJournal(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(50):
    try:
        journal.claim(f"r{number}", this_owner(), 600)
        journal.begin(f"r{number}", this_owner(), CallRecord(step=sys.argv[2], tool="t", definition="", args=""))
    except RunBusyError:
        pass
print("done", flush=True)
sys.stdin.readline()
"""


def _said(processes: list[subprocess.Popen[str]], line: str) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{line}\n"


def _go(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def test_two_processes_claim_the_same_runs(tmp_path: Path) -> None:
    """Of two processes that claim each run at once, one has it, and only that one writes to it."""
    path = tmp_path / "runs.db"
    with SQLiteJournal(path) as journal:
        for number in range(50):
            journal.create(_run(f"r{number}"))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        start: Callable[..., subprocess.Popen[str]] = subprocess.Popen
        claimers = [start([sys.executable, "-c", _CLAIMER, path, name], **pipes) for name in ("a", "b")]
        try:
            for line in ("ready", "done"):
                _said(claimers, line)
                if line == "ready":
                    _go(claimers)
            pids = {str(claimer.pid) for claimer in claimers}
            for run in journal.runs():
                assert run.owner.split("-")[1] in pids
                assert len(journal.calls(run.id)) == 1
        finally:
            for claimer in claimers:
                claimer.kill()
                claimer.communicate()


_OTHER = """
import sys
from toolexec.durable.sqlite import SQLiteJournal
with SQLiteJournal(sys.argv[1]) as journal:
    print(*sorted(run.id for run in journal.runs()))
"""


def _seen_by_another_process(path: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", _OTHER, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_another_opening_in_this_process_takes_nothing_from_the_first(tmp_path: Path) -> None:
    """Records of a journal are seen by other processes, and outlive this one, after the same file was opened and closed
    beside it, and another process was the last to close it."""
    path = tmp_path / "runs.db"
    with SQLiteJournal(path) as journal:
        journal.create(_run("a"))
        SQLiteJournal(path).close()
        assert _seen_by_another_process(path) == ["a"]
        assert (tmp_path / "runs.db-wal").exists()
        journal.create(_run("b"))
        assert _seen_by_another_process(path) == ["a", "b"]
