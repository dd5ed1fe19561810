"""verify: whatever is done to a log afterwards shows."""

from __future__ import annotations

import hmac
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from toolexec.errors import AuditError
from toolexec.run.audit import AuditLog, AuditReader, read_last, verify
from toolexec.run.audit.chain import Position, seal, stamp

KEY = b"0123456789abcdef"
Lines = list[bytes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with a header and nine records."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path, key=KEY)
    for n in range(9):
        log.append({"kind": "call", "run_id": f"r{n}", "caller": {"id": "ann"}, "outcome": "policy_denied"})
    log.close()
    return path


def swap(lines: Lines) -> Lines:
    return [*lines[:3], lines[4], lines[3], *lines[5:]]


def forge(lines: Lines) -> Lines:
    last = json.loads(lines[-1])
    line, _ = seal(Position(last["seq"] + 1, last["hash"]), last["time"], '"kind":"call"', None)
    return [*lines, line]


TAMPERINGS: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "a changed byte": (lambda ls: [*ls[:5], ls[5].replace(b"policy_denied", b"policy_waived"), *ls[6:]], ":6 its hash"),
    "a changed hash": (lambda ls: [*ls[:5], ls[5][:-10] + b'0000000"}\n', *ls[6:]], ":6 its hash"),
    "a deleted line": (lambda ls: [*ls[:4], *ls[5:]], ":5 record 5 follows 3"),
    "the first line deleted": (lambda ls: ls[1:], ":1 the log does not begin with its header"),
    "swapped lines": (swap, ":4 record 4 follows 2"),
    "a doubled line": (lambda ls: [*ls[:5], ls[4], *ls[5:]], ":6 record 4 follows 4"),
    "a torn end": (lambda ls: [*ls[:-1], ls[-1][:40]], ":10 the line is torn"),
    "a forged end": (forge, ":11 its hash"),
    "garbage in between": (lambda ls: [*ls[:5], b"garbage\n", *ls[5:]], ":6 the line is not a record"),
    "an empty file": (lambda ls: [], " there is no record in it"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_shows(path: Path, name: str) -> None:
    """Each way to change a log is told, with the line where it shows."""
    change, told = TAMPERINGS[name]
    assert verify(path, KEY).ok
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    report = verify(path, KEY)
    assert not report.ok
    assert told in f"{report.problems[0].place} {report.problems[0].message}"
    assert report.to_dict()["problems"]


def test_a_log_that_was_made_again_shows(path: Path) -> None:
    """Without the key a chain can be made again, but not so that it verifies with it; nor can it be verified without."""
    path.unlink()
    AuditLog.open(path, key=b"").close()
    assert "the log has no key" in " ".join(p.message for p in verify(path, KEY).problems)
    keyed = path.with_name("keyed.jsonl")
    AuditLog.open(keyed, key=KEY).close()
    assert "without it nothing can be verified" in " ".join(p.message for p in verify(keyed).problems)


def test_a_chain_that_is_sealed_again_within_shows(path: Path, tmp_path: Path) -> None:
    """A record that is numbered right but sealed to another one, a second log behind the first, and a first record that
    is none are told."""
    lines = path.read_bytes().splitlines(keepends=True)
    odd, _ = seal(Position(5, "1" * 64), "2026", '"kind":"call"', KEY)
    path.write_bytes(b"".join([*lines[:5], odd, *lines[6:]]))
    assert [p.message.split(":")[0] for p in verify(path, KEY).problems] == [
        "it is not sealed to the record before it",
        "it is not sealed to the record before it",
    ]
    other = tmp_path / "other.jsonl"
    AuditLog.open(other, key=KEY).close()
    path.write_bytes(b"".join(lines) + other.read_bytes())
    assert "another log begins here" in [p.message for p in verify(path, KEY).problems]
    first, _ = seal(Position(0, "1" * 64), "2026", '"kind":"log","log":"x","args_key":"","keyed":true', KEY)
    path.write_bytes(first)
    assert "claims that there is one before it" in verify(path, KEY).problems[0].message


def test_a_log_that_was_cut_off_shows_by_an_earlier_hash(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that were cleanly taken off the end are missed by who knows the last hash of before, without its head."""
    before = verify(path, KEY)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    assert "its tail was cut off" in verify(path, KEY).problems[0].message
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent / "another"))
    assert verify(path, KEY).ok
    report = verify(path, KEY, expect=before.last_hash)
    assert "no record has the hash" in report.problems[0].message
    assert verify(path, KEY, expect=verify(path, KEY).last_hash.upper()).ok


def test_calls_without_an_end_are_counted(tmp_path: Path) -> None:
    """A call that began and did not end is no problem, but is told."""
    path = tmp_path / "audit.db"
    log = AuditLog.open(path)
    for run in ("a", "b"):
        log.append({"kind": "start", "run_id": run})
    log.append({"kind": "call", "run_id": "a"})
    log.close()
    report = verify(path)
    assert report.ok
    assert report.unfinished == 1
    assert report.records == 4


def test_a_changed_database_shows(tmp_path: Path) -> None:
    """The rows of a database are checked like lines."""
    path = tmp_path / "audit.db"
    log = AuditLog.open(path)
    log.append({"note": "x"})
    log.close()
    database = sqlite3.connect(path)
    database.execute("DROP TRIGGER records_stay")
    database.execute("UPDATE records SET line = replace(line, '\"x\"', '\"y\"')")
    database.commit()
    database.close()
    assert verify(path).problems[0].place == "audit.db:2"


def test_a_log_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """An unreadable log is an AuditError, for the check and for a reader."""
    for name in ("audit.jsonl", "audit.db"):
        with pytest.raises(AuditError, match="cannot be read"):
            verify(tmp_path / name)
        with pytest.raises(AuditError, match="cannot be read"):
            read_last(tmp_path / name, 1)


def test_many_problems_are_cut(path: Path) -> None:
    """A file of garbage gives a list that can be read."""
    path.write_bytes(b"garbage\n" * 500)
    assert len(verify(path, KEY).problems) == 100


@pytest.mark.parametrize("name", ["audit.jsonl", "audit.db"])
def test_the_last_records_and_those_that_come(tmp_path: Path, name: str) -> None:
    """A reader gets what was written since, once, also over a rotation and past lines longer than its blocks."""
    path = tmp_path / name
    log = AuditLog.open(path, max_bytes=0 if name.endswith("db") else 5000)
    log.append({"note": "a"})
    reader = AuditReader(path, read_last(path, 1)[0]["seq"])
    assert reader.more() == []
    for n in range(60):
        log.append({"note": str(n)})
    assert [r["note"] for r in reader.more() if r["kind"] == "note"] == [str(n) for n in range(60)]
    assert reader.more() == []
    assert [r["note"] for r in read_last(path, 2, lambda r: r.get("note", "").endswith("7"))] == ["47", "57"]
    log.close()
    long = path.with_name(f"long{path.suffix}")
    log = AuditLog.open(long)
    for n in range(3):
        log.write(f'"kind":"note","note":"{n}{"x" * 400_000}"')
    log.close()
    assert [r["note"][0] for r in read_last(long, 3)] == ["0", "1", "2"]


@pytest.mark.parametrize("length", [16, 32, 63, 64, 65, 200])
def test_the_hash_is_that_of_the_standard(length: int) -> None:
    """An owner of the key can check a record without this package: its hash is HMAC-SHA-256 of the bytes before it."""
    key = bytes(range(length))
    for body in ('"kind":"note"', f'"kind":"note","note":"{"x" * 300}"'):
        line, mark = seal(Position(3, "a" * 64), stamp(), body, key)
        text, _, _ = line.partition(b',"hash":')
        assert mark == hmac.digest(key, text, "sha256").hex()
