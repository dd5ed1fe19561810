"""AuditLog: written records stay, whatever else writes and whatever fails."""

from __future__ import annotations

import decimal
import errno
import fcntl
import json
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.servers import server_environment

from toolexec.errors import AuditError, ConfigurationError
from toolexec.run.audit import AuditLog, read_last, verify
from toolexec.run.audit.jsonl import JsonLines

KEY = b"0123456789abcdef"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture(params=["audit.jsonl", "audit.db"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A place for a log of each kind, in a directory that is not there yet."""
    return tmp_path / "logs" / request.param


def test_records_are_numbered_timed_and_sealed(path: Path) -> None:
    """A log begins with its header, and each record has the hash of the one before."""
    log = AuditLog.open(path)
    log.append({"kind": "call", "tool": "a:b", "empty": ""})
    log.append({"note": "é\n" + "x" * 1000})
    log.close()
    log.close()
    header, call, note = read_last(path, 10)
    assert header["kind"] == "log"
    assert header["prev"] == "0" * 64
    assert (call["v"], call["seq"], call["kind"], call["tool"], call["prev"]) == (1, 1, "call", "a:b", header["hash"])
    assert "empty" not in call
    assert note["kind"] == "note"
    assert len(note["note"]) == 256
    assert call["time"].endswith("Z")
    assert len(call["time"]) == len("2026-01-02T03:04:05.678901Z")
    assert verify(path).ok
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_goes_on_where_it_was(path: Path) -> None:
    """Opened again, the chain continues, and the same arguments still have the same digest."""
    parts = []
    for _ in range(3):
        log = AuditLog.open(path, key=KEY)
        log.append({"note": "x"})
        parts.append(log.args_part({"b": 1, "a": 2}, None))
        log.close()
    assert len({*parts}) == 1
    assert [record["seq"] for record in read_last(path, 10)] == [0, 1, 2, 3]
    assert verify(path, KEY).ok


def test_the_digest_of_arguments_tells_nothing_elsewhere(tmp_path: Path) -> None:
    """Digests are the same for equal arguments of one log, however they are ordered, and differ between logs."""
    one, two = AuditLog.open(tmp_path / "a.jsonl"), AuditLog.open(tmp_path / "b.jsonl")
    assert one.args_part({"a": 1, "b": [2]}, None) == one.args_part({"b": [2], "a": 1}, None)
    assert one.args_part({"a": 1}, None) != two.args_part({"a": 1}, None)
    assert one.args_part(None, None) == one.args_part({}, None)
    assert one.args_part({"a": object()}, None)
    one.close()
    two.close()


def test_redacted_arguments_hold_no_secrets(tmp_path: Path) -> None:
    """Arguments are kept without what is secret by its key, its look or the schema; very long ones by their size."""
    log = AuditLog.open(tmp_path / "a.jsonl", args="redacted")
    kept = json.loads(
        f"{{{log.args_part({'password': 'p', 'pin': 'q', 'a': 1}, {'properties': {'pin': {'writeOnly': True}}})[1:]}}}"
    )
    assert kept == {"args": {"password": "[REDACTED]", "pin": "[REDACTED]", "a": 1}}
    assert "left_out" in log.args_part({"a": "x " * 20_000}, None)
    log.close()
    none = AuditLog.open(tmp_path / "b.jsonl", args="none")
    assert none.args_part({"a": 1}, None) == ""
    none.close()


@pytest.mark.parametrize("mode", ["redacted", "digest"])
def test_records_are_strict_json(tmp_path: Path, mode: Any) -> None:
    """Whatever is in a record, no NaN or other thing that is not JSON gets into the file."""
    log = AuditLog.open(tmp_path / "audit.jsonl", args=mode)
    odd = {
        "n": float("nan"),
        "deep": [
            float("inf"),
            decimal.Decimal("1.10"),
            {
                1,
            },
        ],
        "o": object(),
        (1,): "\ud800",
    }
    log.append({"facts": odd, "cost": float("-inf")})
    log.write(f'"kind":"note"{log.args_part(odd, None)}')
    log.close()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is in the log")

    lines = [json.loads(line, parse_constant=refuse) for line in log.path.read_text("utf-8").splitlines()]
    assert lines[-2]["facts"]["n"] == "NaN"
    assert lines[-2]["facts"]["deep"] == ["Infinity", "1.10", [1]]
    assert lines[-2]["cost"] == "-Infinity"
    if mode == "redacted":
        assert lines[-1]["args"]["n"] == "NaN"


def test_the_digest_is_that_of_what_the_arguments_are(tmp_path: Path) -> None:
    """Arguments that become the same JSON have the same digest."""
    log = AuditLog.open(tmp_path / "audit.jsonl")
    given = {"a": (1, 2), "b": decimal.Decimal("1.10")}
    assert log.args_part(given, None) == log.args_part({"a": [1, 2], "b": "1.10"}, None)
    assert log.args_part({"a": object}, None) != log.args_part({"a": print}, None)
    log.close()


def test_a_closed_log_refuses(path: Path) -> None:
    """After close nothing can be written."""
    log = AuditLog.open(path)
    log.close()
    with pytest.raises(AuditError, match="closed"):
        log.append({"note": "x"})


def test_two_logs_share_one_file(path: Path) -> None:
    """Records of two writers of one file alternate in one chain."""
    one, two = AuditLog.open(path), AuditLog.open(path)
    for n in range(10):
        (one, two)[n % 2].append({"note": str(n)})
    one.close()
    two.close()
    assert [record.get("note") for record in read_last(path, 10)] == [str(n) for n in range(10)]
    assert verify(path).ok


def test_threads_share_one_log(path: Path) -> None:
    """Records of several threads are all there, in one chain."""
    log = AuditLog.open(path)
    threads = [threading.Thread(target=lambda: [log.append({"note": "x"}) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    report = verify(path)
    assert report.ok
    assert report.records == 201


WRITER = """
import os, sys
from toolexec.run.audit import AuditLog

log = AuditLog.open(sys.argv[1], max_bytes=int(sys.argv[2]), keep=50)
for n in range(100):
    log.append({"note": f"{os.getpid()} {n}"})
log.close()
"""


@pytest.mark.full
@pytest.mark.parametrize("max_bytes", [0, 8000])
def test_processes_share_one_file(tmp_path: Path, max_bytes: int) -> None:
    """Several processes write into one chain, also while it is rotated under them."""
    path = tmp_path / "audit.jsonl"
    command = [sys.executable, "-c", WRITER, str(path), str(max_bytes)]
    workers = [subprocess.Popen(command, env=server_environment()) for _ in range(3)]
    assert [worker.wait(timeout=60) for worker in workers] == [0, 0, 0]
    report = verify(path)
    assert report.ok, report.problems
    assert len([r for r in read_last(path, 10_000) if r["kind"] == "note"]) == 300
    assert (len(report.files) > 3) is bool(max_bytes)


def test_a_full_file_is_rotated_and_the_chain_goes_on(tmp_path: Path) -> None:
    """Past its size a file is moved aside; only some are kept, and what is there verifies as one log."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path, max_bytes=2000, keep=2)
    digest = log.args_part({"a": 1}, None)
    for n in range(40):
        log.append({"note": f"number {n}"})
    assert log.args_part({"a": 1}, None) == digest
    log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(p.stat().st_size <= 2400 for p in tmp_path.iterdir())
    report = verify(path)
    assert report.ok, report.problems
    assert report.older_gone
    assert report.files == ("audit.jsonl.2", "audit.jsonl.1", "audit.jsonl")
    again = AuditLog.open(path)
    assert again.args_part({"a": 1}, None) == digest
    again.close()
    path.unlink()
    AuditLog.open(path).close()
    assert [found.message[:30] for found in verify(path).problems] == ["the records 45 to 50 are missi"]


def test_who_writes_notices_that_another_has_rotated(tmp_path: Path) -> None:
    """A writer goes on in the new file when another one has moved the old one aside."""
    path = tmp_path / "audit.jsonl"
    one, two = AuditLog.open(path, max_bytes=1500), AuditLog.open(path)
    two.append({"note": "two"})
    for n in range(10):
        one.append({"note": str(n)})
    two.append({"note": "two again"})
    one.close()
    two.close()
    assert lines(path)[-1]["note"] == "two again"
    assert verify(path).ok


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_rotation_that_was_cut_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Wherever in a rotation a writer stops, the next one goes on from there, with nothing lost."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path, max_bytes=1500)
    for n in range(12):
        log.append({"note": str(n)})
    assert len(list(tmp_path.iterdir())) > 2
    moves = 0
    real = Path.rename

    def rename(self: Path, target: str) -> Path:
        nonlocal moves
        moves += 1
        if moves == at:
            raise OSError(errno.EIO, "stopped")
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(AuditError, match="stopped"):
            for _ in range(10):
                log.append({"note": "x" * 100})
    log.close()
    log = AuditLog.open(path, max_bytes=1500)
    log.append({"note": "last"})
    log.close()
    report = verify(path)
    assert report.ok, report.problems
    assert not report.older_gone
    assert len(report.files) == len(list(tmp_path.iterdir()))
    assert lines(path)[-1]["note"] == "last"


def test_no_line_lies_in_two_pages(tmp_path: Path) -> None:
    """A line that would cross a page of the file begins on the next one, after blanks, which a crash may leave alone."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    for n in range(100):
        log.append({"note": "x" * (n * 3 % 250)})
    log.write(f'"kind":"note","note":"{"y" * 5000}"')
    data = path.read_bytes()
    at = 0
    for line in data.splitlines(keepends=True):
        start = at + len(line) - len(line.lstrip(b" "))
        at += len(line)
        assert start // 4096 == (at - 1) // 4096 or len(line) > 4096
    assert b"\n " in data
    with path.open("ab") as file:
        file.write(b" " * 50)
    assert verify(path).ok
    log.append({"note": "z"})
    log.close()
    assert verify(path).ok
    assert [r["note"][:1] for r in read_last(path, 2)] == ["y", "z"]
    assert not Path(f"{path}.torn").exists()


@pytest.mark.parametrize("torn", [b'{"v":1,"seq":2,"ti', b"\0" * 100])
def test_a_torn_end_is_moved_aside(tmp_path: Path, torn: bytes) -> None:
    """Keeps the torn line in a file of its own and notes that; the rest verifies."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    log.append({"note": "x"})
    with path.open("ab") as file:
        file.write(torn)
    log.append({"note": "the writer that is there mends it, too"})
    log.close()
    with path.open("ab") as file:
        file.write(torn)
    assert not verify(path).ok
    AuditLog.open(path).close()
    assert [r.get("note", "").split(" ")[0] for r in lines(path)] == ["", "x", "a", "the", "a"]
    assert Path(f"{path}.torn").read_bytes() == (torn + b"\n") * 2
    assert verify(path).ok


def test_a_torn_first_line_is_no_obstacle(tmp_path: Path) -> None:
    """A log that was torn before it had one whole line begins again."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"v":1')
    AuditLog.open(path).close()
    assert [record["kind"] for record in lines(path)] == ["log", "note"]
    assert verify(path).ok


def test_a_deleted_log_begins_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the file is deleted under its writer, that is logged and a new one begins."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    log.append({"note": "x"})
    path.unlink()
    lines_of_log = log._lines
    assert isinstance(lines_of_log, JsonLines)
    lines_of_log._second = ""  # a second later
    log.append({"note": "y"})
    log.close()
    assert [record.get("note") for record in lines(path)] == [None, "y"]
    assert "was deleted" in caplog.text


@pytest.mark.parametrize(
    "content", [b"no record\n", b'{"a":1}\n', b'{"v":1,"seq":0,"hash":"' + b"0" * 64 + b'"}\n', b"\xff" * 80 + b"\n"]
)
def test_a_file_that_is_no_log_is_refused(tmp_path: Path, content: bytes) -> None:
    """A file with something else in it is not written to."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(content)
    with pytest.raises(AuditError, match="Move the file away"):
        AuditLog.open(path)
    assert path.read_bytes() == content


def test_a_log_with_another_key_is_refused(path: Path) -> None:
    """A log cannot be continued without its key, with another one, or with one that it has not."""
    AuditLog.open(path, key=KEY).close()
    for key in (None, KEY[::-1]):
        with pytest.raises(AuditError, match="cannot be continued"):
            AuditLog.open(path, key=key)
    plain = path.with_name(f"plain{path.suffix}")
    AuditLog.open(plain).close()
    with pytest.raises(AuditError, match="cannot be continued"):
        AuditLog.open(plain, key=KEY)


def test_a_log_without_its_header_is_refused(tmp_path: Path) -> None:
    """A log whose first record is gone is not continued."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    log.append({"note": "x"})
    log.close()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(AuditError, match="not one's header"):
        AuditLog.open(path)


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """Mistakes in the settings are told before anything is written."""
    for settings in (
        {"args": "all"},
        {"format": "xml"},
        {"sync": "never"},
        {"max_bytes": -1},
        {"keep": 0},
        {"format": "sqlite", "max_bytes": 5},
        {"key": b"short"},
    ):
        with pytest.raises(ConfigurationError):
            AuditLog.open(tmp_path / "a", **settings)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A directory in the file's place, or a file in the directory's, is an AuditError."""
    (tmp_path / "file").write_text("x")
    for name in ("", "file/audit.jsonl", "file/audit.db"):
        with pytest.raises(AuditError, match="cannot be written"):
            AuditLog.open(tmp_path / name)
    (tmp_path / "not.db").write_text("x" * 5000)
    with pytest.raises(AuditError, match="cannot be written"):
        AuditLog.open(tmp_path / "not.db")


def test_sqlite_keeps_its_rows(tmp_path: Path) -> None:
    """The database itself refuses to change or delete records, and shows their parts as columns."""
    path = tmp_path / "audit.sqlite"
    log = AuditLog.open(path, sync="always")
    log.append({"kind": "call", "tool": "a:b", "outcome": "ok", "caller": {"id": "ann"}})
    log.close()
    database = sqlite3.connect(path)
    for statement in ("UPDATE records SET line = ''", "DELETE FROM records"):
        with pytest.raises(sqlite3.IntegrityError, match="append only"):
            database.execute(statement)
    assert database.execute("SELECT seq, tool, caller, outcome FROM calls WHERE kind = 'call'").fetchall() == [
        (1, "a:b", "ann", "ok")
    ]
    database.execute("DROP TRIGGER records_remain")
    database.execute("DELETE FROM records WHERE seq = 0")
    database.commit()
    database.close()
    with pytest.raises(AuditError, match="not one's header"):
        AuditLog.open(path)


def test_a_locked_database_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When another process keeps the database to itself, the record is refused and not lost half-way."""
    path = tmp_path / "audit.db"
    log = AuditLog.open(path)
    with log._lines._database as database:  # type: ignore[union-attr]
        database.execute("PRAGMA busy_timeout=10")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(AuditError, match="cannot be written"):
        log.append({"note": "x"})
    other.execute("ROLLBACK")
    other.close()
    log.append({"note": "y"})
    log.close()
    assert verify(path).ok


def test_a_file_that_stays_locked_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is not given back is reported after a while, and no record is written past it."""
    monkeypatch.setattr("toolexec.run.audit.jsonl._PATIENCE", 0.05)
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(AuditError, match="locked"):
            log.append({"note": "x"})
        with pytest.raises(AuditError, match="locked"):
            AuditLog.open(path)
    log.append({"note": "y"})
    log.close()
    assert [record.get("note") for record in lines(path)] == [None, "y"]


class Disk:
    """A disk that is full while `full` says so: it takes the first *fits* bytes of a write."""

    def __init__(self, fits: int) -> None:
        self.fits = fits
        self.full = True
        self.write = os.write

    def __call__(self, fd: int, data: bytes) -> int:
        if not self.full:
            return self.write(fd, data)
        if not self.fits:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.write(fd, data[: self.fits])


@pytest.mark.parametrize("fits", [0, 10])
def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: int) -> None:
    """A record that does not fit is refused, nothing of it stays, and the next one may fit."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path, sync="always")
    log.append({"note": "x"})
    disk = Disk(fits)
    with monkeypatch.context() as patch:
        patch.setattr("toolexec.run.audit.jsonl.os.write", disk)
        with pytest.raises(AuditError, match="cannot be written"):
            log.append({"note": "y"})
    assert [record.get("note") for record in lines(path)] == [None, "x"]
    log.append({"note": "z"})
    log.close()
    assert [record.get("note") for record in lines(path)] == [None, "x", "z"]
    assert verify(path).ok


def test_what_could_not_be_written_late_is_owed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call that could not be logged stops all further records until it is, in its order and with its time."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    disk = Disk(0)
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr("toolexec.run.audit.jsonl.os.write", disk)
        log.write_late('"kind":"call","outcome":"ok"')
        assert log.broken
        assert "could not be logged" in caplog.text
        with pytest.raises(AuditError):
            log.write('"kind":"start"')
        with pytest.raises(AuditError):
            log.settle()
        disk.full = False
        log.write('"kind":"start"')
        assert not log.broken
        disk.full = True
        log.write_late('"kind":"call"')
        log.close()
        assert "lacks 1 records" in caplog.text
    assert [record["kind"] for record in lines(path)] == ["log", "call", "start"]
    assert lines(path)[1]["time"] <= lines(path)[2]["time"]
    assert verify(path).ok


def test_a_rotation_that_fails_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the new file cannot be made, records are refused, and later ones go on with the chain."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path, max_bytes=1000)
    real = os.open

    def fail(*args: Any, **more: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    log.append({"note": "x" * 200})
    with monkeypatch.context() as patch:
        patch.setattr("toolexec.run.audit.jsonl.os.open", fail)
        for _ in range(2):
            with pytest.raises(AuditError, match="Too many"):
                log.append({"note": "y" * 200})
    assert os.open is real
    log.append({"note": "z"})
    log.close()
    assert verify(path).ok, verify(path).problems
    assert [r["note"][0] for r in read_last(path, 10) if "note" in r] == ["x", "z"]
