"""Which processes belong to a guest."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from tests.engines.programs import has_ended
from tests.waiting import until_blocking

from toolexec.process import tree as module
from toolexec.process.tree import MARK, ProcessTree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")
SLEEP = "import time; time.sleep(1000)"
OWN_MARK = f"mark-{token_hex(8)}"  # of this run: a tree has all processes of the machine with its mark
Start = Callable[..., "tuple[subprocess.Popen[str], list[int]]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python program that prints numbers, one a line; all are killed in the end."""
    started: list[subprocess.Popen[str]] = []
    pids: list[int] = []

    def start(code: str, count: int, mark: str = OWN_MARK) -> tuple[subprocess.Popen[str], list[int]]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={"PATH": os.environ["PATH"], MARK: mark},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        printed = [int(process.stdout.readline()) for _ in range(count)]
        pids.extend(pid for pid in printed if pid)
        return process, printed

    yield start
    for pid in pids:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


CHILD = "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {code!r}], **{how}); print(c.pid, flush=True)\n"


def members(family: ProcessTree) -> set[int]:
    return {member.pid for member in family.members()}


def test_the_first_one_and_its_children_belong(start: Start) -> None:
    """With what they use, which the kernel counts as 0 for a moment after a program is loaded."""
    process, pids = start(CHILD.format(code=SLEEP, how="{}") + SLEEP, 1)
    family = ProcessTree(process.pid, OWN_MARK)
    assert members(family) == {process.pid, *pids}
    until_blocking(lambda: all(member.memory > 0 for member in family.members()))


def test_one_that_hides_is_found_by_its_mark(start: Start) -> None:
    """A session of its own, its parent gone."""
    daemon = CHILD.format(code=SLEEP, how="dict(start_new_session=True)")
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {daemon!r}])\nprint(0, flush=True)\n"
    process, printed = start(code + SLEEP, 2)
    pids = printed[:1]
    assert members(ProcessTree(process.pid, OWN_MARK)) == {process.pid, *pids}
    assert members(ProcessTree(process.pid, "another-mark")) == {process.pid}


def test_one_without_a_mark_is_found_by_its_parents(start: Start) -> None:
    """As long as they live; and remembered when they do not."""
    process, pids = start(CHILD.format(code=SLEEP, how="dict(start_new_session=True, env={})") + SLEEP, 1)
    family = ProcessTree(process.pid, OWN_MARK)
    assert members(family) == {process.pid, *pids}
    process.kill()
    process.wait()
    assert members(family) == {*pids}


def test_strangers_do_not_belong(start: Start) -> None:
    """Neither those that were there before nor those that come later."""
    process, _ = start(SLEEP, 0)
    family = ProcessTree(process.pid, OWN_MARK)
    stranger, _ = start(SLEEP, 0, mark="other")
    time.sleep(0.1)
    for _ in range(2):
        assert members(family) == {process.pid}
    assert stranger.poll() is None


def test_killing_leaves_nobody(start: Start) -> None:
    """All at once, however they hide; strangers stay."""
    hidden = CHILD.format(code=SLEEP, how="dict(start_new_session=True, env={})")
    process, pids = start(hidden + CHILD.format(code=SLEEP, how="{}") + SLEEP, 2)
    stranger, _ = start(SLEEP, 0, mark="other")
    family = ProcessTree(process.pid, OWN_MARK)
    assert family.kill()
    assert members(family) == set()
    assert all(has_ended(pid) for pid in pids)
    assert stranger.poll() is None


def test_killing_what_does_not_end_gives_up(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    """After many rounds, and says so."""
    process, _ = start(SLEEP, 0)
    family = ProcessTree(process.pid, OWN_MARK)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_ROUNDS", 3)
        patch.setattr(module.os, "kill", lambda *_: None)
        patch.setattr(module.os, "killpg", lambda *_: None)
        assert not family.kill()


def test_the_cpu_time_of_ended_children_is_known(start: Start) -> None:
    """Beside the own one."""
    burn = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint(0, flush=True)\n" + SLEEP
    process, _ = start(code, 0)
    assert process.stdout is not None
    process.stdout.readline()
    member = ProcessTree(process.pid, OWN_MARK).members()[0]
    assert member.children_cpu >= 0.15
    assert member.own_cpu < member.children_cpu


def test_where_there_is_no_proc_nobody_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then the process group has to be enough."""
    monkeypatch.setattr(module, "_PROC", tmp_path / "none")
    monkeypatch.setattr(module.os, "killpg", lambda *_: None)
    family = ProcessTree(1, "x")
    assert family.members() == []
    assert family.kill()


def test_what_cannot_be_looked_at_is_a_stranger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process of another user, for example, is not taken for one of the tree."""
    process = tmp_path / "77"
    process.mkdir()
    fields: list[Any] = ["S", 1, 50, 50, *([0] * 15), 1, 0, 10, *([0] * 10)]
    (process / "stat").write_text("77 (odd ) name) " + " ".join(map(str, fields)))
    monkeypatch.setattr(module, "_PROC", tmp_path)
    assert ProcessTree(1, "x").members() == []
    (process / "environ").write_bytes(f"A=1\0{MARK}=x\0".encode())
    assert [member.pid for member in ProcessTree(1, "x").members()] == [77]
