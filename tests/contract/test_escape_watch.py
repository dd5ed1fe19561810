"""The battery's own measuring: what a hostile program takes of the host's memory."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from toolexec.testing.escapes import watch as module
from toolexec.testing.escapes.watch import Watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

FORKS = r"""
import os, sys, time
held = b"x" * (40 << 20)
for _ in range(10):
    if os.fork() == 0:
        if sys.argv[1] == "own":
            held = bytearray(held)
        os.write(1, b"ready\n")
        time.sleep(60)
os.write(1, b"ready\n")
time.sleep(60)
"""


@pytest.mark.parametrize(("kind", "too_much"), [("shared", False), ("own", True)])
async def test_shared_memory_counts_once(kind: str, too_much: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distinguish forks that share 40 MB from forks that have as much each."""
    monkeypatch.setattr(module, "_MAX_GROWTH_BYTES", 200 << 20)
    async with Watch() as watch:
        child = subprocess.Popen([sys.executable, "-c", FORKS, kind], stdout=subprocess.PIPE, start_new_session=True)
        try:
            assert child.stdout is not None
            for _ in range(11):
                assert await asyncio.to_thread(child.stdout.readline) == b"ready\n"
            await asyncio.sleep(0.5)
            assert bool(watch.seen()) == too_much, watch.seen()
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            child.stdout.close()
