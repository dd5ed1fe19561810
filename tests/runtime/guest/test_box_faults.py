"""What code can do to the guest that it runs in: nothing that the host could not tell."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec.runtime.guest.bundle import GuestSettings, boot_bytes, boot_command

WHERE = ["loose", "bwrap"]
everywhere = pytest.mark.parametrize("where", WHERE)
GOES_ON = "print('on')\nimport os\nos.system('echo child')\ntools.test.echo(give=1)"


async def goes_on(guest: Any) -> None:
    assert await guest.value(GOES_ON) == 1
    assert guest.output.text() == "on\nchild\n"


@pytest.mark.full
@everywhere
@pytest.mark.parametrize(
    "code",
    [
        "import os\nfor n in range(3): os.close(n)",
        "import os\nos.closerange(0, 200)",
        "import sys\nsys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
        "import sys\nsys.stdout = sys.stderr = sys.__stdout__ = None",
        "import sys\nsys.__stdout__.close()",
        "import os\nos.chdir('/')",
        "import os, time\nos.kill(os.getpid(), 18)\nos.system('(sleep 0.2; kill -CONT $PPID) & kill -STOP $PPID; sleep 0.1')",
        "import os\nif os.fork() == 0: raise SystemExit(3)\nos.wait()",
        "import os\nif os.fork() == 0: os.abort()\nos.wait()",
        "import os\nif os.fork() == 0: os.execv('/bin/true', ['true'])\nos.wait()",
        "import signal\ndef late(*_): raise KeyError\nsignal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.1)",
        "import gc\ngc.disable()\nopen('kept', 'w').write('x')",
        "import builtins, linecache, traceback\nlinecache.cache = None",
    ],
)
async def test_it_goes_on(box: Callable[..., Any], where: str, code: str) -> None:
    """The next program of a session finds all as it has to be."""
    guest = await box(where)
    ending = await guest.run(code)
    assert ending.result is not None
    await asyncio.sleep(0.15)
    await goes_on(guest)


@everywhere
async def test_errors_that_are_hard_to_tell(box: Callable[..., Any], where: str) -> None:
    """Reports such errors where that is possible."""
    guest = await box(where)
    code = "import sys\nsys.setrecursionlimit(len(__import__('traceback').extract_stack()) + 12)\ndef f(): f()\nf()"
    assert (await guest.error(code))["kind"] in ("RecursionError", "Exception")
    code = "class Odd(Exception):\n    def __str__(self): raise MemoryError\n    __repr__ = __str__\nraise Odd"
    assert (await guest.error(code))["kind"] == "Odd"
    assert "exit code 3" in (await guest.error("raise SystemExit(3)"))["message"]
    assert (await guest.error("import os, signal\nos.kill(os.getpid(), signal.SIGINT)"))["kind"] == "KeyboardInterrupt"
    await goes_on(guest)


@everywhere
@pytest.mark.parametrize(
    ("code", "exit_code", "output"),
    [
        ("print('said')\nimport os\nos._exit(7)", 7, "said\n"),
        ("print('said')\nimport os\nos.execv('/bin/sh', ['sh', '-c', 'exit 5'])", 5, "said\n"),
        ("print('said')\nimport os\nos.kill(os.getpid(), 9)", 137, "said\n"),
        (
            "print('said')\nimport sys\nsys.setrecursionlimit(1 << 30)\ndef f(x): return [f(x)]\nimport ctypes\nctypes.string_at(0)",
            139,
            "said\n",
        ),
    ],
)
async def test_its_end_is_seen(box: Callable[..., Any], where: str, code: str, exit_code: int, output: str) -> None:
    """With the exit code of the program, and what it had printed."""
    guest = await box(where, init=True)
    ending = await guest.run(code)
    assert (ending.result, ending.stopped, ending.stderr) == (None, "", "")
    assert guest.output.text() == output
    assert await asyncio.wait_for(guest.process.wait(), 60) == exit_code
    assert guest.said.read_text() == ""


async def test_closing_everything_hangs_up(box: Callable[..., Any]) -> None:
    """The host hears that, although the program goes on."""
    guest = await box("shipped", init=True)
    ending = await guest.run("import os, time\nos.closerange(0, 100_000)\ntime.sleep(1000)")
    assert (ending.result, ending.stopped) == (None, "")


@everywhere
async def test_it_ends_when_the_host_is_gone(box: Callable[..., Any], where: str) -> None:
    """In the middle of a program that does not listen."""
    guest = await box(where, init=True)
    task = asyncio.create_task(guest.run("import os\nos.system('sleep 1000 &')\nprint('x')\nwhile True: pass"))
    await until(lambda: guest.order)
    guest.process.stdin.close()
    assert await asyncio.wait_for(guest.process.wait(), 60) == 0
    await task


@pytest.mark.parametrize(("where", "init"), [("loose", True), ("loose", False), ("bwrap", True)])
async def test_sigterm_ends_all_at_once(box: Callable[..., Any], where: str, init: bool) -> None:
    """Though the program would rather not."""
    guest = await box(where, init=init)
    code = (
        "import os, signal, subprocess\nsignal.signal(2, signal.SIG_IGN)\nchild = subprocess.Popen(['sleep', '1000'])\n"
        "print(os.getpid(), child.pid, flush=True)\nchild.wait()"
    )
    task = asyncio.create_task(guest.run(code))
    await until(lambda: guest.output.text().endswith("\n"))
    first = guest.process.pid
    if where == "bwrap":  # its child is the first process of the container
        first = int(subprocess.check_output(["pgrep", "-P", str(first)]).split()[0])
    os.kill(first, signal.SIGTERM)
    assert await asyncio.wait_for(guest.process.wait(), 60) in (143, -15)
    assert (await task).result is None
    if init or where == "bwrap":
        assert not subprocess.run(["pgrep", "-g", str(first)], capture_output=True, check=False).stdout.split()
    else:  # nothing but the guest is ended: what it started is left to the host
        os.kill(int(guest.output.text().split()[1]), signal.SIGKILL)


async def test_init_waits_for_orphans(box: Callable[..., Any]) -> None:
    """No zombie stays, whosever child it was."""
    guest = await box("bwrap")
    code = """
import os, subprocess, time
assert os.getppid() == 1
subprocess.run(["sh", "-c", "for n in 1 2 3; do sh -c 'true &' & done; wait"])
for _ in range(500):
    states = subprocess.run(["ps", "ax", "-o", "stat="], stdout=-1).stdout.decode().split()
    if not any(state.startswith("Z") for state in states):
        return "none"
    time.sleep(0.01)
return states
"""
    assert await guest.value(code) == "none"


async def test_a_first_process_without_init_can_be_ended(box: Callable[..., Any]) -> None:
    """The first process is process 1, which the system protects from signals that it does not handle."""
    guest = await box("bwrap", init=False)
    assert await guest.value("import os\n[os.getpid(), os.getppid()]") == [1, 0]
    assert await guest.end() == 0


async def test_a_full_disk_is_an_error_that_says_so(box: Callable[..., Any]) -> None:
    """Of the program, or of what the guest itself has to write."""
    guest = await box("bwrap", bwrap=("--size", "65536", "--tmpfs", "/tmp"))
    error = await guest.error("file = open('/tmp/a', 'wb', 0)\nwhile True: file.write(bytes(4096))")
    assert (error["kind"], error["message"]) == ("OSError", "OSError: [Errno 28] No space left on device")
    error = await guest.error("echo " + "x" * 5000, "bash")
    assert error["kind"] == "OSError"
    assert "No space left on device" in error["message"]
    assert await guest.value("import sys\nlen(sys.stdin.read())", stdin=b"x" * 100_000) == 100_000
    assert "No space left on device" in (await guest.error("1", "javascript"))["message"]
    await guest.value("import os\nos.truncate('/tmp/a', 0)")
    assert await guest.value("tool return 1", "bash") == 1
    await goes_on(guest)


async def test_too_many_processes_are_an_error_that_says_so(
    box: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads, forks, and the processes of the other languages."""
    root = os.geteuid() == 0
    if root:  # nothing bounds the number of its processes
        command = asyncio.create_subprocess_exec

        async def start(*words: str, **settings: Any) -> asyncio.subprocess.Process:
            return await command(*words, user=65534, group=65534, extra_groups=[], **settings)

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    guest = await box("bwrap", root=Path("/"))  # not in somebody's home
    await guest.value("import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (1, 1))")
    assert "Resource temporarily unavailable" in (await guest.error("import os\nos.fork()"))["message"]
    assert "new thread" in (await guest.error("import threading\nthreading.Thread(target=print).start()"))["message"]
    for language in ("bash", "javascript"):
        error = await guest.error("1", language)
        assert error["kind"] == "BlockingIOError"
        assert "Resource temporarily unavailable" in error["message"]
    assert await guest.value("tools.test.echo(give=1)") == 1


async def test_too_many_open_files_are_an_error_that_says_so(box: Callable[..., Any]) -> None:
    """Reports too many open files even when the guest itself cannot open what it needs."""
    guest = await box("bwrap", open_files=64)
    code = "kept = []\nwhile True: kept.append(open('/dev/null'))"
    assert "Too many open files" in (await guest.error(code))["message"]
    assert "Too many open files" in (await guest.error("1", "bash"))["message"]
    assert await guest.value("kept.clear()\n1") in (1, None)


def test_a_guest_in_the_hands_of_a_plain_parent(tmp_path: Path) -> None:
    """Its parent dies of nothing but its end, and takes its group along."""
    command = boot_command(GuestSettings(work=str(tmp_path)), "python3")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(boot_bytes())
    process.stdin.flush()
    size = int.from_bytes(process.stdout.read(4), "big")
    assert b'"hello"' in process.stdout.read(size)
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
