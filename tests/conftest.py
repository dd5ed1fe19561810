"""What every test gets: one event loop kind, a time cap, and a check that nothing is left behind."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mcp.client.stdio  # noqa: F401 - its default for stderr is what that is at the first import, so not in a test
import psutil
import pytest

CAP_SECONDS = 90
# A temp folder of this run's own: two runs on one machine must not take each other's folders for leaks.
OWN_TEMP = tempfile.mkdtemp(prefix="tx")
os.environ["TMPDIR"] = tempfile.tempdir = OWN_TEMP
atexit.register(shutil.rmtree, OWN_TEMP, ignore_errors=True)


@pytest.fixture
def anyio_backend() -> str:
    """All async tests run on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fail a test that leaks a process, a file descriptor, a thread that would keep the process alive, or a temp folder
    of ours; and one that takes over 90 s."""
    before_children = {child.pid for child in psutil.Process().children(recursive=True)}
    before_fds = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    before_threads = set(threading.enumerate())
    before_temp = set(Path(tempfile.gettempdir()).glob("toolexec-*"))
    previous = signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(CAP_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    leaks = _leaks(before_children, len(before_fds), before_threads, before_temp)
    deadline = time.monotonic() + 5
    while leaks and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
        leaks = _leaks(before_children, len(before_fds), before_threads, before_temp)
    for path in set(Path(tempfile.gettempdir()).glob("toolexec-*")) - before_temp:
        shutil.rmtree(path, ignore_errors=True)
    assert not leaks, f"left behind: {'; '.join(leaks)}"


def _leaks(children: set[int], fds: int, threads: set[threading.Thread], temp: set[Path]) -> list[str]:
    found: list[str] = []
    for child in psutil.Process().children(recursive=True):
        if child.pid not in children:
            try:
                found.append(f"process {child.pid} {' '.join(child.cmdline())[:100]}")
            except psutil.Error:
                continue
    if fds and len(os.listdir("/proc/self/fd")) > fds + 3:  # the loop of the next test and caches may hold a few
        found.append(f"{len(os.listdir('/proc/self/fd')) - fds} file descriptors")
    found += [f"thread {t.name}" for t in set(threading.enumerate()) - threads if not t.daemon and t.is_alive()]
    found += [f"folder {path}" for path in set(Path(tempfile.gettempdir()).glob("toolexec-*")) - temp]
    return found


def _too_slow(*_: object) -> None:
    # Raising here could land anywhere in the event loop and hang the run; so the run ends, and says where it was.
    sys.__stderr__.write(f"\na test took more than {CAP_SECONDS} s:\n")
    faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
    os._exit(1)
