"""Children with a stream: pipes, exits, ends, and nothing that stays."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engines.programs import has_ended
from tests.servers import server_environment
from tests.waiting import until

from toolexec.process import tree as module
from toolexec.process.child import Child
from toolexec.process.stream import Pipes
from toolexec.process.tree import descendants

LONG = 60
ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Child]]:
    """Starts shell code; all is closed after the test."""
    started: list[Child] = []

    def start_one(code: str, **settings: Any) -> Child:
        started.append(Child(["sh", "-c", code], env=ENV, **settings))
        return started[-1]

    yield start_one
    for child in started:
        await child.aclose()


def gone(pid: int) -> bool:
    until = time.monotonic() + LONG
    while not has_ended(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return has_ended(pid)


async def read_until(stream: Pipes, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := await stream.read()):
        data += part
    return data


async def ended(child: Child) -> int:
    return await asyncio.wait_for(child.wait(), LONG)


async def test_what_is_written_comes_back(start: Callable[..., Child]) -> None:
    """Over and over, and then the end of the stream, again and again."""
    child = start("cat")
    stream = child.stream
    for number in range(50):
        await stream.write(b"%d" % number)
        assert await stream.read() == b"%d" % number
    child.kill()
    assert await stream.read() == b""
    assert await stream.read() == b""


async def test_large_messages_pass_in_both_directions(start: Callable[..., Child]) -> None:
    """Far more than a pipe holds, without a reader at first."""
    child = start("cat")
    data = os.urandom(1 << 20) * 8
    writing = asyncio.create_task(child.stream.write(data))
    await asyncio.sleep(0.05)
    assert not writing.done()
    assert await read_until(child.stream, len(data)) == data
    await writing


async def test_nothing_is_lost_by_a_cancelled_read(start: Callable[..., Child]) -> None:
    """Data that arrive at the same time are there for the next read."""
    child = start("cat")
    for _ in range(20):
        reading = asyncio.create_task(child.stream.read())
        await asyncio.sleep(0)
        await child.stream.write(b"x")
        await asyncio.sleep(0.001)
        reading.cancel()
        done = await asyncio.gather(reading, return_exceptions=True)
        assert (done[0] if isinstance(done[0], bytes) else await child.stream.read()) == b"x"


async def test_only_so_much_is_read_ahead(start: Callable[..., Child]) -> None:
    """A flood without a reader stays where it is."""
    child = start("yes")
    assert await child.stream.read()
    await until(lambda: not child.stream._watched)
    assert len(child.stream._ready or b"") <= 1 << 18


async def test_a_cancelled_write_can_be_followed_by_another(start: Callable[..., Child]) -> None:
    """Nothing is left behind in the loop."""
    child = start("sleep 1000")
    for _ in range(2):
        writing = asyncio.create_task(child.stream.write(bytes(4 << 20)))
        await asyncio.sleep(0.01)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing


async def test_writing_to_one_that_has_ended_fails(start: Callable[..., Child]) -> None:
    """With an OSError, also while it waits."""
    child = start("sleep 0.1; exit 0")
    with pytest.raises(OSError, match="Broken pipe"):
        await child.stream.write(bytes(8 << 20))


async def test_closing_wakes_who_reads_and_who_writes(start: Callable[..., Child]) -> None:
    """A reader gets the end, a writer an error."""
    child = start("sleep 1000")
    reading = asyncio.create_task(child.stream.read())
    writing = asyncio.create_task(child.stream.write(bytes(8 << 20)))
    await asyncio.sleep(0.01)
    await child.stream.aclose()
    await child.stream.aclose()
    assert await asyncio.wait_for(reading, LONG) == b""
    with pytest.raises(BrokenPipeError):
        await asyncio.wait_for(writing, LONG)
    with pytest.raises(BrokenPipeError):
        await child.stream.write(b"x")


@pytest.mark.parametrize(("code", "expected"), [("exit 3", 3), ("kill -15 $$", -15), ("exit 0", 0)])
async def test_the_exit_code_is_known_to_all_who_wait(start: Callable[..., Child], code: str, expected: int) -> None:
    """A signal is negative, as everywhere in Python."""
    child = start(code)
    assert [await ended(child), await ended(child)] == [expected] * 2


async def test_one_that_waits_can_be_cancelled(start: Callable[..., Child]) -> None:
    """The others go on waiting."""
    child = start("read line; exit 5")
    waiting = asyncio.create_task(child.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await child.stream.write(b"\n")
    assert await ended(child) == 5


async def test_it_is_known_by_its_number_until_it_is_closed(start: Callable[..., Child]) -> None:
    """A process is not reaped before, so that no kill can reach another one."""
    child = start("exit 0")
    await ended(child)
    assert Path(f"/proc/{child.pid}").exists()
    await child.aclose()
    assert not Path(f"/proc/{child.pid}").exists()
    child.kill()
    assert await ended(child) == 0


async def test_a_kill_ends_the_group_at_once(start: Callable[..., Child]) -> None:
    """A kill ends the group at once, and `wait` reports it."""
    child = start("sleep 1000 & echo $!; wait")
    other = int(await child.stream.read())
    child.kill()
    assert await ended(child) == -signal.SIGKILL
    assert gone(other)


async def test_closing_kills_the_whole_family(start: Callable[..., Child]) -> None:
    """Kills processes that ignore signals, and those in a session of their own."""
    child = start("trap '' TERM INT; setsid sh -c 'sleep 1000 & echo $$ $!; wait' & wait")
    pids = [int(pid) for pid in (await child.stream.read()).split()]
    assert {*pids} <= descendants(child.pid)
    await child.aclose()
    await child.aclose()
    assert all(has_ended(pid) for pid in (*pids, child.pid))


async def test_a_cancelled_close_is_completed_first(start: Callable[..., Child]) -> None:
    """No process is left, and the cancellation goes on."""
    child = start("sleep 1000")
    closing = asyncio.create_task(child.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert has_ended(child.pid)


@pytest.mark.full
async def test_the_end_of_what_it_says_is_kept(start: Callable[..., Child]) -> None:
    """A few thousand characters, whatever they are."""
    child = start("head -c 3000000 /dev/zero | tr '\\0' x >&2; printf 'last \\377' >&2; exit 1")
    await ended(child)
    await child.aclose()
    assert child.stderr_tail().decode(errors="replace").endswith("xxxlast \ufffd")
    assert len(child.stderr_tail().decode(errors="replace")) <= 5000


async def test_what_it_has_just_said_is_there(start: Callable[..., Child]) -> None:
    """Without a turn of the loop."""
    child = start("echo oops >&2; echo said; sleep 1000")
    assert await child.stream.read() == b"said\n"
    assert child.stderr_tail().decode(errors="replace") == "oops\n"


async def test_a_flood_on_stderr_does_not_keep_the_loop_busy(start: Callable[..., Child]) -> None:
    """Reads a flood slowly, so that its sender must wait."""
    child = start("yes >&2")
    await until(lambda: child._outputs[0]._later is not None)
    await child.aclose()
    assert child.stderr_tail().decode(errors="replace").startswith("y\n") or child.stderr_tail().decode(
        errors="replace"
    ).startswith("\n")


async def test_stderr_that_is_closed_early_is_no_trouble(start: Callable[..., Child]) -> None:
    """The loop is not notified of it again and again."""
    child = start("echo bye >&2; exec 2>&-; sleep 0.05; echo done; sleep 1000")
    assert await child.stream.read() == b"done\n"
    assert child.stderr_tail().decode(errors="replace") == "bye\n"


async def test_it_has_only_what_it_was_given(start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment and of descriptors."""
    monkeypatch.setenv("SECRET", "x")
    given, other = os.open("/dev/null", os.O_RDONLY), os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(other, True)
    child = start("env; ls -l /proc/self/fd", fds=[given])
    await ended(child)
    os.close(given)
    os.close(other)
    text = (await read_until(child.stream, 1 << 20)).decode()
    assert "SECRET" not in text
    assert "/dev/null" in text
    assert "/dev/zero" not in text
    assert text.count("socket:") == 1


async def test_without_a_lifeline_there_is_no_socket(start: Callable[..., Child]) -> None:
    """For programs that would pass it on."""
    child = start("ls -l /proc/self/fd", lifeline=False)
    assert "socket:" not in (await read_until(child.stream, 1 << 20)).decode()


async def test_what_cannot_be_started_leaves_nothing() -> None:
    """No descriptor, whatever goes wrong."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="No such file"):
            Child(["/no/such/program"], env={})
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("parts", ["no pidfd", "no children file"])
async def test_older_kernels_do_too(start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch, parts: str) -> None:
    """Without descriptors of processes, and without lists of children."""
    if parts == "no pidfd":
        monkeypatch.delattr(os, "pidfd_open")
    else:
        monkeypatch.setattr(module, "descendants", lambda _: set())
    child = start("sleep 1000 & echo $!; read line; exit 4")
    other = int(await child.stream.read())
    await child.stream.write(b"\n")
    assert await ended(child) == 4
    await child.aclose()
    assert gone(other)
    deaf = start("sleep 1000")
    await deaf.aclose()
    assert has_ended(deaf.pid)


async def test_what_cannot_be_ended_is_said(
    start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Reports such a process, and does not hold up the close for ever."""
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    monkeypatch.setattr(module.signal, "pidfd_send_signal", lambda *_: None)
    child = start("setsid sleep 1000 & echo $!; wait")
    other = int(await child.stream.read())
    await until(lambda: Path(f"/proc/{other}/cmdline").read_bytes().startswith(b"sleep"))
    await child.aclose()
    assert "cannot be ended" in caplog.text
    os.kill(other, signal.SIGKILL)
    assert gone(other)


HOST = """
    import asyncio, sys
    from toolexec.process.child import Child

    async def main():
        child = Child(["sh", "-c", "sleep 1000 & echo $!; wait"], env={"PATH": "/usr/bin:/bin"})
        print(child.pid, (await child.stream.read()).decode().strip(), flush=True)
        await asyncio.sleep(1000)

    asyncio.run(main())
"""


def test_it_dies_with_its_host() -> None:
    """Though that is killed and can do nothing any more."""
    host = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOST)], stdout=subprocess.PIPE, env=server_environment()
    )
    assert host.stdout is not None
    pids = [int(pid) for pid in host.stdout.readline().split()]
    assert len(pids) == 2
    assert not any(has_ended(pid) for pid in pids)
    host.kill()
    host.wait()
    host.stdout.close()
    assert all(gone(pid) for pid in pids)


def test_it_can_be_started_from_any_thread() -> None:
    """A child lives on when that thread has ended other loops; each belongs to one."""
    codes: list[int | None] = []

    async def run() -> None:
        child = Child(["sh", "-c", "exit 9"], env=ENV)
        codes.append(await ended(child))
        await child.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join()
    assert codes == [9]


async def test_many_at_once_leave_nothing() -> None:
    """No process, no descriptor."""
    gc.collect()  # what earlier tests left
    before = len(os.listdir("/proc/self/fd"))

    async def one(number: int) -> int | None:
        child = Child(["sh", "-c", f"cat; exit {number}"], env=ENV)
        await child.stream.write(b"x")
        assert await child.stream.read() == b"x"
        child.stream.close()
        code = await ended(child)
        await child.aclose()
        return code

    assert await asyncio.gather(*(one(number) for number in range(20))) == [*range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
