"""The audit log after its writers were killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers import server_environment
from tests.waiting import until_blocking

from toolexec.run.audit import AuditLog, verify
from toolexec.run.audit.jsonl import older_files

pytestmark = pytest.mark.full

PROGRAM = Path(__file__).with_name("loaded.py")


def start(log: Path) -> subprocess.Popen[bytes]:
    """The program, which imports while the one before it still works."""
    return subprocess.Popen([sys.executable, str(PROGRAM), str(log)], stdout=subprocess.PIPE, env=server_environment())


def written(log: Path) -> int:
    """Return how many bytes the files of the log have."""
    sizes = 0
    for file in log.parent.glob(f"{log.name}*"):
        with contextlib.suppress(FileNotFoundError):  # it has just been rotated
            sizes += file.stat().st_size
    return sizes


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.soak)])
def test_no_line_is_half_written_after_many_kills(tmp_path: Path, kills: int) -> None:
    """Kills at random moments under load, files being rotated, leave whole lines only, and the chain verifies."""
    log = tmp_path / "audit.jsonl"
    rng = random.Random(5)
    killed = 0
    following = start(log)
    while killed < kills:
        process, following = following, start(log)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            enough = written(log) + rng.randrange(150_000)
            until_blocking(lambda: written(log) >= enough)  # noqa: B023 - called at once
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait(timeout=10) == -signal.SIGKILL
            killed += 1
        finally:
            process.kill()
            process.stdout.close()
            process.wait(timeout=10)
    following.kill()
    following.stdout.close()
    following.wait(timeout=10)
    files = [log, *(older for _, older in older_files(log))]
    assert len(files) > 3
    assert all(file.read_bytes().rstrip(b" ")[-1:] in (b"\n", b"") for file in files)
    records = [json.loads(line) for file in reversed(files) for line in file.read_bytes().rstrip(b" ").splitlines()]
    assert len(records) > 10 * kills
    assert [record["seq"] for record in records] == list(range(len(records)))
    report = verify(log)
    assert report.ok, report.problems
    assert report.unfinished > 0
    AuditLog.open(log).close()
    assert not Path(f"{log}.torn").exists()
