"""Processes of a container are found by its ID and killed; nothing else ever is."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolexec.process.members import kill_members, now_of_boot, open_member

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux has control groups")

ID = "5ec0de" * 10 + "abcd"
SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this test."""
    with subprocess.Popen(SLEEPS) as process:
        yield process
        process.kill()


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with this process in no container."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/\n")
    return tmp_path


def seen(proc: Path, process: subprocess.Popen[bytes], group: str) -> None:
    """Have *process* be in *group*, its state being the real one."""
    (proc / str(process.pid)).mkdir()
    (proc / str(process.pid) / "cgroup").write_text(f"4:cpu:/docker/{group}\n0::/\n")
    (proc / str(process.pid) / "stat").symlink_to(f"/proc/{process.pid}/stat")


def test_all_of_a_container_are_killed(proc: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """Those whose group has the ID end, and nothing counts as left once they are dead."""
    seen(proc, sleeping, ID)
    assert kill_members(ID, proc=proc)
    assert sleeping.wait() == -9


def test_one_of_another_container_goes_on(proc: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """An ID that no process here has kills nothing: its container may be on another machine."""
    seen(proc, sleeping, secrets.token_hex(32))
    assert kill_members(ID, proc=proc)
    assert sleeping.poll() is None


@pytest.mark.parametrize("name", ["", "/", "docker", ID[:12], ID.upper(), f"{ID}\n", f"../{ID}"])
def test_what_is_no_id_kills_nothing(proc: Path, sleeping: subprocess.Popen[bytes], name: str) -> None:
    """A daemon that calls a container "/" has no process killed, although each group has that in its name."""
    seen(proc, sleeping, f"{ID}{name}")
    assert not kill_members(name, proc=proc)
    assert sleeping.poll() is None


def test_our_own_container_is_never_killed(proc: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """A daemon that gives the ID of the container that this process is in kills nothing with it."""
    (proc / "self/cgroup").write_text(f"0::/system.slice/docker-{ID}.scope\n")
    (proc / "self/stat").symlink_to("/proc/self/stat")
    seen(proc, sleeping, ID)
    assert not kill_members(ID, proc=proc)
    assert sleeping.poll() is None


@pytest.mark.parametrize("name", [ID, "toolexec-0123456789abcdef-12-3456-0123456789ab"])
def test_a_process_is_one_of_a_container_by_its_group(proc: Path, sleeping: subprocess.Popen[bytes], name: str) -> None:
    """A daemon says its number, and may mean a process of another machine: that of a stranger is not given."""
    seen(proc, sleeping, name)
    process = open_member(sleeping.pid, name, proc=proc)
    assert process >= 0
    os.close(process)
    other = name[:-1] + ("0" if name[-1] != "0" else "1")
    for pid, id in ((sleeping.pid, other), (sleeping.pid, ""), (sleeping.pid, "/"), (os.getpid(), name), (0, name)):
        assert open_member(pid, id, proc=proc) == -1
    assert open_member(1 << 40, name, proc=proc) == -1
    assert kill_members(name, proc=proc)
    assert sleeping.wait() == -9


def test_a_process_that_was_there_before_is_none_of_ours(proc: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """A daemon that says that a container has begun just now does not get a process of one that was there before."""
    with subprocess.Popen(SLEEPS) as younger:
        seen(proc, sleeping, ID)
        seen(proc, younger, ID)
        started = [
            int(Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()[19])
            for each in (sleeping, younger)
        ]
        between = now_of_boot()
        assert open_member(sleeping.pid, ID, since=between + 1, proc=proc) == -1
        moment = started[1] / os.sysconf("SC_CLK_TCK")
        assert moment <= between + 0.01
        process = open_member(younger.pid, ID, since=moment, proc=proc)
        assert process >= 0
        os.close(process)
        younger.kill()
