"""What processes use, seen from outside."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolexec.process import watch as module
from toolexec.process.tree import ProcessTree
from toolexec.process.watch import Watch

LONG = 60
LARGE = "x = bytearray(64 << 20); print('up', flush=True); __import__('time').sleep(1000)"


@pytest.fixture
def large() -> Iterator[subprocess.Popen[bytes]]:
    """A process that takes 64 MiB."""
    process = subprocess.Popen(["/usr/bin/env", "python3", "-c", LARGE], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(
    ("bounds", "expected"), [({"memory_bytes": 32 << 20}, "memory"), ({"memory_bytes": 1 << 30}, "")]
)
async def test_a_broken_bound_is_seen(large: subprocess.Popen[bytes], bounds: dict[str, int], expected: str) -> None:
    """Reports a broken bound, and none that holds."""
    watching = asyncio.create_task(Watch(ProcessTree(large.pid), shared_once=True, **bounds).broken())
    await asyncio.wait({watching}, timeout=LONG if expected else 0.3)
    assert (watching.result() if watching.done() else "") == expected
    watching.cancel()
    await asyncio.wait({watching})


@pytest.mark.parametrize(("there", "expected"), [(True, "memory"), (False, "")])
async def test_what_cannot_be_read_counts_in_full_unless_it_has_ended(
    large: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, expected: str
) -> None:
    """The share of a living process is unknown; one that ends meanwhile takes nothing."""
    if there:
        (tmp_path / str(large.pid) / "smaps_rollup").mkdir(parents=True)
    monkeypatch.setattr(module, "_PROC", tmp_path)
    watching = asyncio.create_task(Watch(ProcessTree(large.pid), memory_bytes=32 << 20, shared_once=True).broken())
    await asyncio.wait({watching}, timeout=LONG if expected else 0.3)
    assert (watching.result() if watching.done() else "") == expected
    watching.cancel()
    await asyncio.wait({watching})


async def test_cpu_time_that_was_seen_is_not_forgotten(large: subprocess.Popen[bytes]) -> None:
    """Though who used it is gone."""
    watch = Watch(ProcessTree(large.pid))
    used = await watch.cpu_seconds()
    assert used > 0
    large.kill()
    large.wait()
    assert await watch.cpu_seconds() >= used
