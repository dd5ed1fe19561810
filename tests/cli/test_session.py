"""A command as a process: clean output, signals, and nothing left behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.full

Process = Callable[..., subprocess.CompletedProcess[str]]


def test_stdout_has_one_json_document(process: Process, tools_file: Path) -> None:
    """Whatever tools and their children print."""
    with tools_file.open("a") as file:
        file.write("\n@tool\ndef noisy() -> int:\n    import os\n    os.system('echo child')\n    return 7\n")
    done = process("run", "noisy", "--json", "-c", tools_file)
    assert done.returncode == 0
    assert json.loads(done.stdout)["value"] == 7
    assert "child" in done.stderr
    assert "printed while loading" in done.stderr


def test_stdin_reaches_the_command(process: Process, tools_file: Path) -> None:
    """Through a real pipe."""
    assert process("run", "math:add", "-", "-c", tools_file, stdin='{"a": 1}').stdout == "2\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["run", "math:add", "a=1"], 0),
        (["run", "odd:fail"], 1),
        (["run", "math:add", "nonsense"], 2),
        (["run", "math:add", "a=x"], 3),
    ],
)
def test_exit_codes_of_the_process(process: Process, tools_file: Path, words: list[str], code: int) -> None:
    """As --help tells them."""
    assert process(*words, "-c", tools_file).returncode == code


def start(*words: object) -> subprocess.Popen[str]:
    """A command whose tool says "started" on stderr; gives it once that has come."""
    command = [sys.executable, "-m", "toolexec", *map(str, words)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert any("started" in line for line in child.stderr)
    return child


CHAIN = '[{"tool": "time:get_current_time", "args": {"timezone": "UTC"}}, {"tool": "slow:forever", "timeout": 60}]'


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_everything(
    tools_file: Path, servers_file: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The tool, the event loop and the servers."""
    (tmp_path / "chain.json").write_text(CHAIN)
    child = start("chain", "chain.json", "-c", tools_file, "-c", servers_file)
    servers = psutil.Process(child.pid).children(recursive=True)
    assert servers
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (code, "")
    assert "Traceback" not in err
    assert psutil.wait_procs(servers, timeout=10)[1] == []


def test_an_interrupted_command_gives_json(tools_file: Path) -> None:
    """On one line where the command streams."""
    for option in ([], ["--stream"]):
        child = start("run", "slow:forever", "--json", *option, "-c", tools_file)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=30)
        assert child.returncode == 130
        assert json.loads(out)["error"]["code"] == "interrupted"
        assert len(out.splitlines()) == 1 or not option


def test_ctrl_c_while_a_file_is_loaded(process: Process, tmp_path: Path) -> None:
    """Is an interruption, not an error of the file."""
    (tmp_path / "app.py").write_text("raise KeyboardInterrupt\n")
    done = process("list", "-c", "app.py")
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--all", "-c", "app.py"],
        ["run", "text:echo", "words=x", "--raw", "-c", "app.py"],
        ["list", "--json", "-c", "app.py"],
        ["--help"],
        ["run", "--help"],
        ["--version"],
        ["config", "keys"],
        ["config", "show", "--json"],
        ["keys", "new", "ann"],
        ["client-config", "claude", "-c", "app.py"],
        ["init", "-o", "made.toml"],
    ],
    ids=" ".join,
)
def test_a_reader_that_goes_away_ends_the_command(words: list[str], tools_file: Path) -> None:
    """Every command ends quietly with 141, as other commands in a pipe do, whichever part prints."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "toolexec", *words]
    directory = tools_file.parent
    assert tools_file.name == "app.py"
    done = subprocess.run(
        command, cwd=directory, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(write)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_backend_that_does_not_stop_cleanly_is_mentioned(cli: Callable[..., Any], tmp_path: Path) -> None:
    """The answer is there all the same."""
    (tmp_path / "app.py").write_text(
        "from toolexec import Exec\nfrom toolexec.backend import LocalBackend\n"
        "class Stuck(LocalBackend):\n    async def aclose(self):\n        raise OSError('stuck')\n"
        "ex = Exec()\nex.add(lambda: 1, 'one')\nex.add_backends(Stuck('stuck'))\n"
    )
    done = cli("run", "one", "-c", "app.py")
    assert (done.exit_code, done.stdout) == (0, "1\n")
    assert "warning: a backend did not stop cleanly: stuck" in done.stderr


def test_a_person_at_a_real_terminal(tools_file: Path) -> None:
    """Sees a progress bar while the tool runs, and the value in the end."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "toolexec", "run", "slow:count", "n=20", "-c", str(tools_file)]
    env = {**os.environ, "TERM": "xterm-256color"}
    running = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=env)
    os.close(child)
    seen = b""
    try:
        while piece := os.read(parent, 65536):
            seen += piece
    except OSError:  # the other end is closed
        pass
    os.close(parent)
    assert running.wait(timeout=30) == 0
    assert b"20/20" in seen
    assert "✓ slow:count".encode() in seen
