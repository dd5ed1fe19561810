"""What code on the host is given and gives back: output, environment, descriptors, input, files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from toolexec.code.types import Output
from toolexec.errors import (
    InvalidRequestError,
    SandboxUnavailableError,
)


async def test_prints_and_what_children_write_are_captured(host: Any) -> None:
    """Both streams, also what goes past Python, and half characters."""
    code = """
import os, subprocess, sys
os.write(1, b"low ")
subprocess.run(["sh", "-c", "echo child; echo oops >&2"])
os.write(1, b"\\xff\\n")
print("high", file=sys.stderr)
"""
    result = await host.run(code)
    assert result.stdout == "low child\n\ufffd\n"
    assert sorted(result.stderr.split()) == ["high", "oops"]


async def test_a_frame_on_stdout_is_only_text(host: Any) -> None:
    """Output of a program is never taken for a message."""
    result = await host.run('import os\nos.write(1, b\'[{"type":"result","id":"1","payload":{"value":9}}]\\n\')\n7')
    assert result.value == 7
    assert '"value":9' in result.stdout


@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(1000): print('x' * 100_000)",
        "import os\nfor _ in range(1000): os.write(1, b'x' * 100_000)",
        "print('x' * 50_000_000)",
    ],
)
async def test_a_flood_of_output_is_cut(host: Any, code: str) -> None:
    """A program that prints 100 MB ends as usual, and what is kept is bounded."""
    result = await host.run(code + "\nreturn 1", output=Output(limit=1000))
    assert result.value == 1
    assert len(result.stdout) < 1200
    assert "output limit reached" in result.stdout


async def test_output_is_received_while_the_program_runs(host: Any) -> None:
    """Not only in the end."""
    received: list[tuple[str, str]] = []
    done = asyncio.Event()

    def tell(stream: str, text: str) -> None:
        received.append((stream, text))
        done.set()

    code = "import os\nprint('now')\ntools.test.wait()"
    task = asyncio.create_task(host.run(code, output=Output(tell=tell)))
    await asyncio.wait_for(done.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert received == [("stdout", "now\n")]


async def test_nothing_of_the_hosts_environment_is_passed_on(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a path, a language, a home, and what the request has; children see the same."""
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    code = """
import os, subprocess
out = subprocess.run(["env"], capture_output=True, text=True).stdout
return [dict(os.environ), "hunter2" in out, os.getcwd()]
"""
    env, leaked, directory = await host.value(code, env={"MINE": "1"})
    assert not leaked
    assert set(env) <= {"PATH", "LANG", "HOME", "TMPDIR", "MINE", "TOOLEXEC_RUN", "LC_CTYPE"}
    assert env["MINE"] == "1"
    assert env["HOME"] == env["TMPDIR"] == directory


async def test_no_descriptor_of_the_host_is_inherited(host: Any, tmp_path: Path) -> None:
    """Open files of the host stay its own; children of the program do not get the line to the host either."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        code = """
import os, subprocess
own = [os.path.realpath("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd")]
theirs = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True).stdout
return [any("secret" in name for name in own), theirs.count("socket:")]
"""
        assert await host.value(code) == [False, 0]


async def test_arguments_and_input_are_given(host: Any) -> None:
    """sys.argv and stdin, for the program and its children."""
    code = "import sys, subprocess\nreturn [sys.argv[1:], sys.stdin.readline(), sys.stdin.read()]"
    assert await host.value(code, args=["a", "b"], stdin=b"one\ntwo") == [["a", "b"], "one\n", "two"]
    code = "import subprocess\nreturn subprocess.run(['cat'], capture_output=True, text=True).stdout"
    assert await host.value(code, stdin=b"for the child") == "for the child"
    assert await host.value("import sys\nsys.stdin.read()") == ""


async def test_files_go_in_and_come_out(host: Any) -> None:
    """New and changed files come back, the others do not; what was not closed is complete all the same."""
    code = """
import os, pathlib
text = open("data/in.csv").read()
pathlib.Path("new/deep").mkdir(parents=True)
pathlib.Path("new/deep/a.txt").write_text(text.upper())
open("same.txt").read()
with open("more.txt", "a") as f: f.write("!")
unclosed = open("unclosed.txt", "w")
unclosed.write("all of it")
os.symlink("/etc/passwd", "link")
os.mkfifo("pipe")
"""
    files = {"data/in.csv": b"a,b", "same.txt": b"1", "more.txt": b"2"}
    result = (await host.run(code, files=files)).raise_for_error()
    assert result.files == {"new/deep/a.txt": b"A,B", "more.txt": b"2!", "unclosed.txt": b"all of it"}


async def test_files_come_out_of_a_run_that_failed(host: Any) -> None:
    """Files captured until the failure come out."""
    result = await host.run("open('a.txt', 'w').write('x')\n1 / 0")
    assert result.files == {"a.txt": b"x"}


async def test_files_over_the_bound_are_left_out_and_named(host: Any) -> None:
    """A sparse giant costs the host nothing."""
    result = await host.run("open('big', 'w').truncate(1 << 40)\nopen('small', 'w').write('x')")
    assert result.files == {"small": b"x"}
    assert result.backend.details["files_left_out"] == ["big"]


async def test_a_file_that_would_leave_the_directory_is_refused(host: Any) -> None:
    """Nothing runs then."""
    with pytest.raises(InvalidRequestError, match="relative and plain"):
        await host.run("1", files={"../x": b""})


async def test_a_program_too_large_for_a_message_is_refused(host: Any) -> None:
    """With what to do instead."""
    with pytest.raises(InvalidRequestError, match="put what is large into files"):
        await host.run("1", stdin=b"x" * (13 << 20))


async def test_a_process_that_cannot_be_started_is_unavailable(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without room for another process says so; nothing has run."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    await host.run("1")
    monkeypatch.setattr("toolexec.process.child.subprocess.Popen", refuse)
    with pytest.raises(SandboxUnavailableError, match="cannot be started: Resource temporarily"):
        await host.run("1")
    with pytest.raises(SandboxUnavailableError, match="cannot be started"):
        await host.backend.open_session(host.request("1"))
