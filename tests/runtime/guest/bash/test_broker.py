"""The guest for bash, and its command `tool`."""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec.runtime.guest.bash import tool

SERVE = "toolexec.runtime.guest.bash.broker:serve"


async def test_programs_run_and_leave_nothing_in_their_directory(start: Callable[..., Any]) -> None:
    """The command is there while they run, and gone afterwards."""
    child = start(SERVE)
    code = """
x=$(tool run test:echo "{\\"give\\": \\"$1$MINE$(cat)\\"}")
tool return "$x"
"""
    assert await child.value(code, args=["a"], env={"MINE": "b"}, stdin=b"c") == "abc"
    assert list(child.directory.iterdir()) == []
    assert await child.end() == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("tool search echo | grep -c test:echo", 1),
        ("tool describe test:echo summary | grep -c test:echo", 1),
        ("tool examples test:echo", []),
        ("tool namespaces", ["test"]),
        ("""echo '[{"toolId": "test:echo", "args": {"give": 1}}]' | tool chain -""", 1),
        ("""tool run test:echo | tr -d '{}' | wc -c""", 1),
        ("tool | grep -c 'tool run'", 1),
        ("tool run test:nope 2>&1 | grep -c tool_not_found", 1),
        ("tool nope 2>&1 | grep -c 'no command'", 1),
        ("tool describe 2>&1 | grep -c missing", 1),
        ("tool chain { 2>&1 | grep -c 'must be JSON'", 1),
        ("tool run test:echo 5 2>&1 | grep -c 'JSON object'", 1),
        ("tool read h9 2>&1 | grep -c 'no result'", 1),
    ],
)
async def test_every_command(start: Callable[..., Any], command: str, value: Any) -> None:
    """Return a command's output as the value of a program."""
    assert await start(SERVE).value(f'tool return "$({command} | tail -n 1)"') == value


async def test_the_last_return_counts_and_may_be_text(start: Callable[..., Any]) -> None:
    """JSON unless it is said to be text."""
    child = start(SERVE)
    assert await child.value("tool return 1; tool return --text 'a b'") == "a b"
    assert await child.value("true") is None


async def test_failures_are_told(start: Callable[..., Any]) -> None:
    """Exit code, signal, and syntax with its line; the next program runs."""
    child = start(SERVE)
    assert (await child.error("exit 7"))["message"].endswith("with exit code 7")
    assert (await child.error("kill -15 $$"))["message"].endswith("by signal 15")
    error = await child.error("echo 1\n\nfi")
    assert (error["kind"], error["line"], error["source"]) == ("SyntaxError", 3, "fi")
    assert await child.value("tool return 1") == 1


async def test_garbage_on_the_socket_is_dropped(start: Callable[..., Any]) -> None:
    """The broker goes on."""
    code = """
python3 - <<'END'
import os, socket
for data in (b"{\\n", b"[]\\n", b"{}\\n", b""):
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["TOOLEXEC_SOCKET"])
    line.sendall(data)
    line.close()
END
tool return 1
"""
    assert await start(SERVE).value(code) == 1


class Broker:
    """A socket that answers one command."""

    def __init__(self, path: Path, answer: bytes) -> None:
        self.request: Any = None
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(1)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection, connection.makefile("rb") as lines:
            self.request = json.loads(lines.readline())
            connection.sendall(self._answer)

    def close(self) -> None:
        self._thread.join(60)
        self._socket.close()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the command against a broker that gives *answer*; gives the exit code and what was asked."""

    def command(argv: list[str], answer: Any, stdin: str = "") -> tuple[int, Any]:
        path = tmp_path / "socket"
        broker = Broker(path, json.dumps(answer).encode() + b"\n" if answer else b"")
        monkeypatch.setenv("TOOLEXEC_SOCKET", str(path))
        monkeypatch.setattr("sys.argv", ["tool", *argv])
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = tool.main()
        broker.close()
        return code, broker.request

    return command


def test_the_command_shows_what_it_gets(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Both streams and the exit code."""
    code, asked = command(["run", "x"], {"stdout": "o", "stderr": "e", "exit": 1})
    assert (code, asked) == (1, {"argv": ["run", "x"], "stdin": ""})
    assert capsys.readouterr() == ("o", "e")


def test_a_dash_stands_for_stdin(command: Any) -> None:
    """Only a dash reads stdin."""
    _, asked = command(["run", "x", "-"], {"stdout": "", "stderr": "", "exit": 0}, stdin="{}")
    assert asked["stdin"] == "{}"


def test_without_a_host_the_command_says_so(
    command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reports an absent host and one that goes away."""
    assert command(["help"], None)[0] == 2
    monkeypatch.delenv("TOOLEXEC_SOCKET")
    assert tool.main() == 2
    assert "no way to the host" in capsys.readouterr().err


async def test_a_directory_with_a_long_name(start: Callable[..., Any], tmp_path: Path) -> None:
    """The address of a socket holds 107 bytes; a program in a directory with a longer name calls tools all the same."""
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    module, _, name = SERVE.partition(":")
    command = f"import os, sys; os.chdir({str(deep)!r}); from {module} import {name}; {name}(*map(int, sys.argv[1:]))"
    child = start(command=[sys.executable, "-c", command])
    assert await child.value("""tool return "$(tool run test:echo '{"give": 5}')" """) == 5
    assert list(deep.iterdir()) == []
