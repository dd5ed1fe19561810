"""Locks among processes, on real files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fcntl", reason="file locks are of Unix")

from toolexec.process.lock import lock, try_lock, unlock

HOLD = """
import os, sys
from toolexec.process.lock import try_lock
assert try_lock(os.open(sys.argv[1], os.O_RDWR))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """One file, opened twice."""
    found = tuple(os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    yield found[0], found[1]
    for each in found:
        os.close(each)


def test_one_holder_alone_or_many_together(files: tuple[int, int]) -> None:
    """A lock is held by one opening of the file, or shared by several; another one is refused at once."""
    one, other = files
    assert try_lock(one)
    assert not try_lock(other)
    assert not try_lock(other, shared=True)
    unlock(one)
    assert try_lock(other, shared=True)
    assert try_lock(one, shared=True)
    assert not try_lock(one)


def test_waiting_ends_when_its_time_is_over(files: tuple[int, int]) -> None:
    """A wait without success gives False, and reports that it waits."""
    one, other = files
    waits: list[int] = []
    assert lock(one)
    assert not lock(other, within=0.01, pause=0.001, on_wait=lambda: waits.append(1))
    assert waits
    assert lock(other, within=5, pause=0.001, on_wait=lambda: unlock(one))


def test_the_end_of_a_process_frees_its_lock(files: tuple[int, int], tmp_path: Path) -> None:
    """A killed process holds nothing any more."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert not try_lock(files[0])
        holder.kill()
    assert lock(files[0], within=20, pause=0.01)


def test_a_closed_file_is_an_error() -> None:
    """A file that cannot be locked is not waited for."""
    with pytest.raises(OSError, match="descriptor"):
        lock(1 << 20, within=0)
