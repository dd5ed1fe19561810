"""Processes of guests: their output, their bounds, and their end with all that they have started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engines.programs import has_ended

from toolexec.process import child as module
from toolexec.process.child import Child
from toolexec.process.settling import to_the_end, uncut
from toolexec.process.tree import MARK

LONG = 60
ENV = {"PATH": os.environ["PATH"]}


class Recorder:
    """What a process has written."""

    def __init__(self) -> None:
        self.stdout = ""
        self.stderr = ""

    def __call__(self, text: str, stream: str) -> None:
        setattr(self, stream, getattr(self, stream) + text)

    async def until(self, text: str) -> None:
        """Wait until stdout holds *text*."""
        for _ in range(LONG * 100):
            if text in self.stdout:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{text!r} was never written; only {self.stdout!r}, {self.stderr!r}")


@pytest.fixture
def recorder() -> Recorder:
    """Hears a process."""
    return Recorder()


def shell(code: str, recorder: Any, directory: Path, **settings: Any) -> Child:
    return Child(["sh", "-c", code], cwd=directory, env=ENV, on_output=recorder, **settings)


async def test_a_process_gives_its_output_and_exit_code(recorder: Recorder, tmp_path: Path) -> None:
    """Both streams, in a directory and environment of its own, without input."""
    process = shell("cat; pwd; echo err >&2; env; exit 3", recorder, tmp_path)
    assert await asyncio.wait_for(process.wait(), LONG) == 3
    await process.aclose()
    assert str(tmp_path) in recorder.stdout
    assert recorder.stderr == "err\n"
    assert {line.partition("=")[0] for line in recorder.stdout.splitlines()[1:]} <= {
        "PATH",
        "PWD",
        "_",
        MARK,
        "OLDPWD",
        "SHLVL",
    }


async def test_a_signal_is_a_negative_exit_code(recorder: Recorder, tmp_path: Path) -> None:
    """As everywhere in Python."""
    process = shell("kill -15 $$", recorder, tmp_path)
    assert await asyncio.wait_for(process.wait(), LONG) == -signal.SIGTERM
    await process.aclose()


async def test_a_program_that_is_not_there_cannot_be_started(recorder: Recorder, tmp_path: Path) -> None:
    """A failed start leaves nothing open."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No such file"):
        Child(["/no/such/program"], cwd=tmp_path, env=ENV, on_output=recorder)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_closing_kills_the_group(recorder: Recorder, tmp_path: Path) -> None:
    """Kills processes that ignore signals, too; closing twice is fine."""
    process = shell("trap '' TERM INT; sleep 1000 & echo $! go; wait", recorder, tmp_path)
    await recorder.until("go")
    await process.aclose()
    await process.aclose()
    assert has_ended(process.pid)
    assert has_ended(int(recorder.stdout.split()[0]))
    assert await process.wait() == -signal.SIGKILL


async def test_what_a_process_wrote_last_arrives(recorder: Recorder, tmp_path: Path) -> None:
    """Closing takes in what is in the pipes."""
    process = shell("echo first; echo second >&2; sleep 1000", recorder, tmp_path)
    await recorder.until("first")
    process.drain()
    await process.aclose()
    assert recorder.stderr == "second\n"


async def test_an_ended_process_keeps_its_number_until_it_is_closed(recorder: Recorder, tmp_path: Path) -> None:
    """Keeping the number prevents a kill from ever reaching another process."""
    process = shell("exit 0", recorder, tmp_path)
    assert await asyncio.wait_for(process.wait(), LONG) == 0
    assert Path(f"/proc/{process.pid}").exists()
    await process.aclose()
    assert not Path(f"/proc/{process.pid}").exists()


async def test_a_flood_blocks_neither_side(recorder: Recorder, tmp_path: Path) -> None:
    """Output beyond the kept tail is dropped."""
    count = 0

    def counting(text: str, _: str) -> None:
        nonlocal count
        count += len(text)

    process = shell("head -c 50000000 /dev/zero | tr '\\0' x", counting, tmp_path)
    await asyncio.wait_for(process.wait(), LONG)
    await process.aclose()
    assert count == 50_000_000


async def test_half_characters_are_put_together(recorder: Recorder, tmp_path: Path) -> None:
    """However the bytes arrive; invalid UTF-8 is shown as such."""
    process = shell("printf '\\303'; sleep 0.2; printf '\\244\\377'; printf '\\303'", recorder, tmp_path)
    await asyncio.wait_for(process.wait(), LONG)
    await process.aclose()
    assert recorder.stdout == "ä\ufffd\ufffd"


async def test_one_may_listen_later(recorder: Recorder, tmp_path: Path) -> None:
    """From then on, output goes there; what came before stays where it was."""
    later = Recorder()
    process = shell("echo one; sleep 0.3; echo two; sleep 1000", recorder, tmp_path)
    await recorder.until("one")
    process.listen(later)
    await later.until("two")
    await process.aclose()
    assert (recorder.stdout, later.stdout) == ("one\n", "two\n")


async def test_draining_a_flood_comes_to_an_end(recorder: Recorder, tmp_path: Path) -> None:
    """Draining takes in what is there, not what is still to come."""
    process = shell("yes", lambda *_: None, tmp_path)
    await asyncio.sleep(0.05)
    process.drain()
    await process.aclose()


async def test_a_cancelled_close_is_completed_first(recorder: Recorder, tmp_path: Path) -> None:
    """No process is left, and the cancellation goes on."""
    process = shell("echo up; sleep 1000", recorder, tmp_path)
    await recorder.until("up")
    closing = asyncio.create_task(process.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert has_ended(process.pid)


async def test_what_fails_at_the_end_is_raised() -> None:
    """A failure is not hidden by the waiting."""

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await to_the_end(asyncio.create_task(fail()))


async def test_uncut_work_ends_before_its_cancellation_takes_effect() -> None:
    """Hurry the work, take back its outcome, and cancel its caller all the same."""
    steps: list[str] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        began.set()
        await go_on.wait()
        return "made"

    async def undo(outcome: str) -> None:
        steps.append(f"{outcome}, undone")

    def stop() -> None:
        steps.append("hurried")
        go_on.set()

    waiting = asyncio.create_task(uncut(work(), stop=stop, undo=undo))
    await began.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert steps == ["hurried", "made, undone"]


async def test_uncut_work_is_given_up_after_its_time() -> None:
    """A step that never ends holds its cancelled caller for so long only."""
    waiting = asyncio.create_task(uncut(asyncio.Event().wait(), seconds=0.01))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_descriptors_are_given_by_choice(recorder: Recorder, tmp_path: Path) -> None:
    """One that is passed is there, another one of the host is not."""
    given, other = os.open("/dev/null", os.O_RDONLY), os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(other, True)
    process = shell("ls -l /proc/self/fd", recorder, tmp_path, fds=[given])
    await asyncio.wait_for(process.wait(), LONG)
    await process.aclose()
    os.close(given)
    os.close(other)
    assert "/dev/null" in recorder.stdout
    assert "/dev/zero" not in recorder.stdout


async def test_without_pidfds_the_exit_is_polled_for(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On systems that lack them all is the same."""
    monkeypatch.delattr(module.os, "pidfd_open")
    process = shell("exit 4", recorder, tmp_path)
    assert await asyncio.wait_for(process.wait(), LONG) == 4
    await process.aclose()
    process = shell("echo up; sleep 1000", recorder, tmp_path)
    await recorder.until("up")
    await process.aclose()
    assert has_ended(process.pid)


async def test_what_cannot_be_killed_is_told(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has it; closing ends all the same."""
    process = shell("exit 0", recorder, tmp_path)
    monkeypatch.setattr(process.tree, "kill", lambda: False)
    await process.aclose()
    assert "cannot be ended" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="only there the system reports a dead parent")
def test_when_the_host_is_killed_its_guests_die(tmp_path: Path) -> None:
    """Guests and their children die even by signal 9 to the host, in the middle of a tight loop."""
    code = f"""
import asyncio, sys
from pathlib import Path
from toolexec.process.child import Child
async def main():
    Child(["sh", "-c", "sleep 1000 & echo $$ $!; while :; do :; done"], cwd={str(tmp_path)!r},
        env={ENV!r}, on_output=lambda text, _: print(text, end="", flush=True))
    await asyncio.sleep(1000)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pids = [int(word) for word in host.stdout.readline().split()]
        assert len(pids) == 2
        host.kill()
    for _ in range(LONG * 100):
        if all(has_ended(pid) for pid in pids):
            return
        import time

        time.sleep(0.01)
    raise AssertionError("a guest has outlived its host")
