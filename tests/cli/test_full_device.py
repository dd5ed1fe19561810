"""What a command does where its output cannot be written: the reader has gone, or the device is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
COMMANDS = ["list -c app.py", "--help", "config keys", ""]


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_device_ends_a_command_with_one_line(words: str, tools_file: Path) -> None:
    """Exit code 3, and the reason on stderr; no traceback, and nothing from the interpreter's end."""
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "toolexec", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 3, done.stderr
    lines = [line for line in done.stderr.splitlines() if "printed while loading" not in line]
    assert lines[-1] == "error: the output cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("words", ["list -c app.py", ""])
def test_a_reader_that_has_gone_ends_a_command_quietly(words: str, tools_file: Path) -> None:
    """Exit code 141, and no word of it."""
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait(timeout=30)
    done = subprocess.run(
        [sys.executable, "-m", "toolexec", *words.split()],
        stdout=reader.stdin,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert reader.stdin is not None
    reader.stdin.close()
    assert done.returncode == 141, done.stderr
    assert "Broken" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/bin/sh").exists(), reason="this system has no shell")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_as_if_it_led_nowhere(closed: str, tools_file: Path) -> None:
    """The command does its work, the other streams have what is theirs, and none has a traceback."""
    command = f'exec "$0" -m toolexec run math:add a=1 b=2 -c app.py --raw {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tools_file.parent,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert ("3" in done.stdout.split()) == (">&-" not in closed.replace("2>&-", ""))
