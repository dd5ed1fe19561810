"""What is kept of a log outside of its file: a key by default, and its head, by which a tail that was cut off shows."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers import server_environment

from toolexec.errors import AuditError
from toolexec.run.audit import AuditLog, verify
from toolexec.run.audit.anchor import Anchor, Head, default_key, state_directory
from toolexec.run.audit.chain import Header, Position, seal, stamp

KEY = b"0123456789abcdef"
FORMATS = pytest.mark.parametrize("name", ["audit.jsonl", "audit.db"])


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and heads of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def problems(path: Path, key: bytes | None = None, state: Path | None = None) -> str:
    return " ".join(problem.message for problem in verify(path, key, state=state).problems)


def written(path: Path, count: int, **settings: object) -> Path:
    log = AuditLog.open(path, **settings)  # type: ignore[arg-type]
    for number in range(count):
        log.append({"note": f"number {number}"})
    log.close()
    return path


def cut(path: Path, records: int) -> None:
    """Take records off the end, cleanly."""
    if path.suffix == ".db":
        with sqlite3.connect(path) as database:
            database.execute("DROP TRIGGER records_remain")
            database.execute("DELETE FROM records WHERE seq > (SELECT max(seq) FROM records) - ?", (records,))
        database.close()
    else:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-records]))


@FORMATS
@pytest.mark.parametrize("key", [None, KEY, b""])
@pytest.mark.parametrize("records", [1, 2, 7])
def test_a_tail_that_was_cut_off_shows(tmp_path: Path, name: str, key: bytes | None, records: int) -> None:
    """Whatever key the log has, and also after it has gone on: the place where records are missing stays marked."""
    path = written(tmp_path / "log" / name, 8, key=key)
    report = verify(path, key)
    assert report.ok
    assert report.anchored
    cut(path, records)
    assert "its tail was cut off" in problems(path, key)
    written(path, 3, key=key)
    assert "are missing" in problems(path, key)


def test_a_tail_over_a_rotation_shows(tmp_path: Path) -> None:
    """The file that is written to is deleted, and the log goes on from the one before."""
    path = written(tmp_path / "audit.jsonl", 40, max_bytes=2000, keep=50)
    path.unlink()
    with pytest.raises(AuditError):
        verify(path)
    written(path, 1)
    assert "are missing" in problems(path)


@FORMATS
def test_a_key_by_default(tmp_path: Path, name: str) -> None:
    """Makes a key at the first use, for its owner alone, outside of the log's directory, and keeps it."""
    path = written(tmp_path / "log" / name, 2)
    key = default_key(path, state_directory())
    assert key is not None
    written(path, 2)
    assert default_key(path, state_directory()) == key
    assert verify(path).ok
    assert verify(path, key).ok
    assert "or the key is another one" in problems(path, KEY)
    files = [*state_directory().iterdir()]
    assert files
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert stat.S_IMODE(state_directory().stat().st_mode) == 0o700
    assert not any(file.is_relative_to(path.parent) for file in files)


def test_a_log_that_was_sealed_again_shows(tmp_path: Path) -> None:
    """A writer without the key cannot make a log that verifies: neither with another key nor without."""
    path = written(tmp_path / "audit.jsonl", 5)
    log = json.loads(path.read_bytes().splitlines()[0])["log"]
    for key in (None, KEY):
        header = Header(log=log, args_key="00" * 32, keyed=key is not None)
        at, lines = Position(), b""
        for body in (header.body(), *['"kind":"note","note":"nothing happened"'] * 5):
            line, mark = seal(at, stamp(), body, key)
            lines += line
            at = Position(at.seq + 1, mark)
        path.write_bytes(lines)
        assert not verify(path).ok
        with pytest.raises(AuditError):
            AuditLog.open(path)


def test_a_log_without_a_key_that_was_sealed_again_shows(tmp_path: Path) -> None:
    """By its head: the hash of the last record is another one."""
    path = written(tmp_path / "audit.jsonl", 5, key=b"")
    first, *_, last = path.read_bytes().splitlines()
    header = Header.read(json.loads(first))
    assert header is not None
    at, lines = Position(), b""
    for body in (header.body(), *['"kind":"note","note":"nothing happened"'] * json.loads(last)["seq"]):
        line, mark = seal(at, stamp(), body, None)
        lines += line
        at = Position(at.seq + 1, mark)
    path.write_bytes(lines)
    assert "another one than was written" in problems(path)
    written(path, 1, key=b"")
    assert "another one than was written" in problems(path)


def test_a_head_that_was_changed_or_taken_away_shows(tmp_path: Path) -> None:
    """Without the key no one that fits a shorter log can be made."""
    path = written(tmp_path / "audit.jsonl", 5)
    (head,) = state_directory().glob("*.head")
    kept = head.read_bytes()
    for change in (
        b"\x01" + kept[1:128] + b"\x01" + kept[129:],
        kept.replace(b"0000000000000000000", b"0000000000000000009"),
    ):
        head.write_bytes(change)
        assert "its head, which stands outside of the log, was changed" in problems(path)
    head.unlink()
    assert "its head is gone" in problems(path)
    head.write_bytes(kept)
    assert verify(path).ok


def test_a_log_from_elsewhere_is_not_anchored(tmp_path: Path) -> None:
    """With its key a log can be checked on any machine; only that it was cut off does not show there."""
    path = written(tmp_path / "audit.jsonl", 5, key=KEY)
    report = verify(path, KEY, state=tmp_path / "elsewhere")
    assert report.ok
    assert not report.anchored


def test_a_log_that_was_begun_without_a_key_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As logs of earlier versions were: it stays what it is, and says so."""
    path = written(tmp_path / "audit.jsonl", 2, key=b"")
    written(path, 2)
    assert verify(path).ok
    assert "has no key, and goes on without one" in caplog.text


def test_a_log_in_the_place_of_another(tmp_path: Path) -> None:
    """That there was one before is told."""
    path = written(tmp_path / "audit.jsonl", 2)
    path.unlink()
    written(path, 2)
    report = verify(path)
    assert report.ok
    assert report.others == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: key.chmod(0o644),
        lambda key: key.write_bytes(b"short"),
        lambda key: (key.unlink(), key.mkdir()),
    ],
)
def test_a_key_that_cannot_be_trusted(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    """Nothing is written or verified with it, and the error names the file."""
    path = written(tmp_path / "audit.jsonl", 1)
    (key,) = state_directory().glob("*.key")
    spoil(key)
    try:
        for use in (AuditLog.open, verify):
            with pytest.raises(AuditError, match=key.name):
                use(path)
    finally:
        key.rmdir() if key.is_dir() else key.unlink()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """The log is not opened: what is written could be cut off unseen. The error says what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match="XDG_STATE_HOME"):
        AuditLog.open(tmp_path / "audit.jsonl", state=tmp_path / "file")


@pytest.mark.full
def test_processes_that_begin_at_once_have_one_key(tmp_path: Path) -> None:
    """All records verify, and the head is that of the last one."""
    path = tmp_path / "audit.jsonl"
    program = (
        "import sys; from toolexec.run.audit import AuditLog; sys.stdin.readline(); log = AuditLog.open(sys.argv[1])\n"
        "for n in range(50): log.append({'note': str(n)})\nlog.close()"
    )
    command = [sys.executable, "-c", program, str(path)]
    environment = server_environment(XDG_STATE_HOME=os.environ["XDG_STATE_HOME"])
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) for _ in range(4)]
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=60)
        assert process.returncode == 0
    report = verify(path)
    assert report.ok, report.problems
    assert report.anchored
    assert report.records == 4 * 50 + 1


def test_a_head_survives_a_write_that_was_cut_short(tmp_path: Path) -> None:
    """Whatever bytes of the later slot were written, the one before it counts, and the log verifies."""
    anchor = Anchor(tmp_path / "a", tmp_path, KEY)
    marks = [f"{number:064x}" for number in range(4)]
    for seq, mark in enumerate(marks):
        anchor.write("log", seq, mark)
    (head,) = tmp_path.glob("*.head")
    before = head.read_bytes()
    anchor.write("log", 4, "f" * 64)
    after = head.read_bytes()
    rng = random.Random(3)
    for _ in range(300):
        cut_at = rng.randrange(len(after) + 1)
        head.write_bytes(after[:cut_at] + before[cut_at:])
        found = anchor.read("log")
        assert found in (Head(seq=3, hash=marks[3]), Head(seq=4, hash="f" * 64))
    anchor.close()
