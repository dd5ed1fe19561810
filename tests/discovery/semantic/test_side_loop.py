"""The thread that slow functions run on: limited, replaceable, and gone when it should be."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from toolexec.discovery.semantic.side_loop import LateError, SideLoop

NAME = "test-side-loop"


def threads() -> list[threading.Thread]:
    """Those of side loops."""
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def gone() -> bool:
    """Return whether they all end within a while."""
    deadline = time.monotonic() + 5
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not threads()


async def later(value: int) -> int:
    """A coroutine that lets others run."""
    await asyncio.sleep(0.001)
    return value


def test_functions_and_coroutines() -> None:
    """Both give their value, on one thread that starts with the first call and ends with `close`, many times."""
    side = SideLoop(NAME)
    assert threads() == []
    for _ in range(2):
        assert side.call(lambda: 1, 5) == 1
        assert side.call(lambda: later(2), 5) == 2
        assert len(threads()) == 1
        side.close()
        assert gone()
    side.close()


def test_what_a_function_raises() -> None:
    """An exception passes unchanged; an attempt to exit ends only the call."""
    side = SideLoop(NAME)

    def fail(error: BaseException) -> None:
        raise error

    with pytest.raises(KeyError):
        side.call(lambda: fail(KeyError("x")), 5)
    with pytest.raises(TimeoutError, match="own words"):
        side.call(lambda: fail(TimeoutError("own words")), 5)
    with pytest.raises(RuntimeError, match="tried to exit"):
        side.call(lambda: fail(SystemExit(3)), 5)
    assert side.call(lambda: 1, 5) == 1
    side.close()


def test_a_slow_coroutine_is_cancelled() -> None:
    """The thread stays, and what runs beside goes on."""
    side = SideLoop(NAME)
    ended = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(side.call, lambda: asyncio.sleep(0.3, "done"), 5)
        with pytest.raises(LateError, match=r"within 0\.05 s"):
            side.call(forever, 0.05)
        assert ended.wait(5)
        assert other.result() == "done"
    assert len(threads()) == 1
    side.close()


@pytest.mark.full
def test_functions_that_hang_get_two_threads_and_no_more() -> None:
    """A third call is refused until one of them ends."""
    side = SideLoop(NAME)
    release = threading.Event()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            side.call(release.wait, 0.05)
    with pytest.raises(LateError, match="not ended yet"):
        side.call(lambda: 1, 5)
    release.set()
    assert gone()
    assert side.call(lambda: 1, 5) == 1
    side.close()


def test_close_cancels_what_runs() -> None:
    """A caller that waits is told so."""
    side = SideLoop(NAME)
    started = threading.Event()

    async def forever() -> None:
        started.set()
        await asyncio.sleep(60)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(side.call, forever, 30)
        assert started.wait(5)
        side.close()
        with pytest.raises(CancelledError):
            waiting.result(5)
    assert gone()


def test_close_from_its_own_thread() -> None:
    """A function may close it; it does not wait for itself."""
    side = SideLoop(NAME)
    assert side.call(lambda: side.close() or 1, 5) == 1
    assert gone()


@pytest.mark.full
def test_it_ends_with_its_owner() -> None:
    """One that is forgotten leaves no thread behind."""
    side = SideLoop(NAME)
    side.call(lambda: 1, 5)
    del side
    gc.collect()
    assert gone()


@pytest.mark.full
def test_a_program_ends_without_closing() -> None:
    """Quietly, even while a call hangs."""
    code = """
import time
from toolexec.discovery.semantic.side_loop import LateError, SideLoop
side, other = SideLoop("a"), SideLoop("b")
print(side.call(lambda: 1, 5))
try:
    other.call(lambda: time.sleep(60), 0.05)
except TimeoutError:
    print("late")
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("1\nlate\n", "", 0)


def test_no_thread_that_can_end_is_left_at_the_end() -> None:
    """Python takes away threads that run while it ends, which crashes some of its versions now and then."""
    code = """
import atexit, threading, time
atexit.register(lambda: print(sorted(thread.name for thread in threading.enumerate())))
from toolexec.discovery.semantic.side_loop import LateError, SideLoop
sides = [SideLoop("quick") for _ in range(3)]
for side in sides:
    side.call(lambda: 1, 5)
stuck = SideLoop("stuck")
try:
    stuck.call(lambda: time.sleep(60), 0.05)
except LateError:
    pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("['MainThread', 'stuck']\n", "", 0)


def test_context_variables_travel() -> None:
    """A trace that the caller is in goes on."""
    where = contextvars.ContextVar("where", default="nowhere")
    side = SideLoop(NAME)
    where.set("here")
    assert side.call(where.get, 5) == "here"
    side.close()
