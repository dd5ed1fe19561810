"""The demo, with its real servers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec
from toolexec.cli.demo import steps as demo_steps
from toolexec.cli.demo.repository import some_repository
from toolexec.cli.demo.tools import TOOLS, bar_chart, count_lines, summarise_commits
from toolexec.errors import ConfigurationError

Cli = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("sandbox")
LOG = """Commit history:
Commit: 38b3e57fad0e4091131421a5dc3ca3b3250fbe90
Author: Ada
Date: 2026-11-21 08:50:31+00:00
Message: Draw the charts
Author: not one

Commit: a271e0277d9400c2518bf4ae5481f77f97abf00d
Author: Grace
Date: 2026-11-20 08:45:20+00:00
Message: Test charts
"""


@pytest.mark.full
def test_the_demo_gives_json(cli: Cli) -> None:
    """One document with the outcome of every step; outside of a repository it makes one."""
    done = cli("demo", "--json")
    data = json.loads(done.stdout)
    assert done.exit_code == 0
    assert data["ok"] is True
    assert data["temporary"] is True
    assert not Path(data["repository"]).exists()
    outcomes = {step["title"]: step["outcome"] for step in data["steps"]}
    assert [b["name"] for b in outcomes["Connect"]["backends"]] == ["local", "git", "time"]
    assert "git:git_log" in [found["id"] for found in outcomes["Search"]["tools"]]
    assert outcomes["Describe"]["id"] == "git:git_log"
    assert "Reading of day 43" in outcomes["Run"]["value"]
    assert outcomes["Chain"]["value"].startswith("Most frequent words in 48 commit messages\n    day")
    assert outcomes["Stream"] == {
        "progressEvents": 5,
        "value": [
            {"type": ".csv", "files": 1, "lines": 44},
            {"type": ".py", "files": 3, "lines": 11},
            {"type": ".md", "files": 1, "lines": 3},
        ],
    }
    _check_code(outcomes["Code: many calls, one value"])
    assert "did you mean 'title'?" in outcomes["A wrong call"]["error"]["message"]
    assert outcomes["A thousand calls"]["demo:double"]["calls"] == 1000


def _check_code(outcome: dict[str, Any]) -> None:
    """Fifty calls from the sandbox, one value back, and figures that fit."""
    assert outcome["toolCalls"] == 50
    assert outcome["backend"]["kind"] == "wasm"
    assert outcome["value"].startswith("Most changed files in 48 commits\n")
    assert "readings.csv" in outcome["value"]
    without, within = outcome["withoutCode"], outcome["withCode"]
    assert within["bytesRead"] == len(json.dumps(outcome["value"], ensure_ascii=False).encode())
    assert within["bytesWritten"] < without["bytesWritten"]
    assert within["bytesRead"] < without["bytesRead"]


@pytest.mark.full
def test_the_demo_is_nice_to_read(cli: Cli) -> None:
    """Every step with its Python line; nothing on stderr."""
    done = cli("demo")
    assert done.exit_code == 0
    assert done.stderr == ""
    for title, code, _ in demo_steps.STEPS:
        assert title in done.stdout
        assert code.splitlines()[0] in done.stdout
    assert "a small repository made for this demo" in done.stdout
    assert "Done in" in done.stdout


@pytest.mark.full
def test_a_terminal_gets_time_to_read(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause after each step, unless --fast is given."""
    monkeypatch.setattr("toolexec.cli.demo.stage._PAUSE", 0)
    monkeypatch.setattr("toolexec.cli.demo.STEPS", demo_steps.STEPS[:1])
    slept: list[float] = []
    sleep = demo_steps_sleep(slept)
    monkeypatch.setattr("toolexec.cli.demo.stage.asyncio.sleep", sleep)
    cli("demo", "--fast", FORCE_COLOR="1")
    assert 0 not in slept
    cli("demo", FORCE_COLOR="1")
    assert slept.count(0) == 1


def demo_steps_sleep(slept: list[float]) -> Callable[[float], Any]:
    """A sleep that notes how long it was asked to."""
    import asyncio

    original = asyncio.sleep

    async def sleep(seconds: float, result: Any = None) -> Any:
        slept.append(seconds)
        return await original(seconds, result)

    return sleep


def test_missing_servers_are_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs them."""
    from importlib.util import find_spec

    monkeypatch.setattr("toolexec.cli.demo.find_spec", lambda name: None if name != "mcp" else find_spec(name))
    done = cli("demo")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "pip install mcp-server-git mcp-server-time" in done.stderr
    monkeypatch.setattr("toolexec.cli.demo.find_spec", lambda name: None)
    data = json.loads(cli("demo", "--json").stdout)
    assert data["error"]["details"]["missing"] == ["mcp", "mcp_server_git", "mcp_server_time"]
    assert "pip install mcp mcp-server-git" in data["error"]["message"]


def test_a_server_that_does_not_start_ends_the_demo(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its reason."""
    monkeypatch.setattr("toolexec.cli.demo.steps.sys.executable", "no-python-here")
    done = cli("demo", "--json")
    assert done.exit_code == 3
    assert "the demo's server git is unavailable" in json.loads(done.stdout)["error"]["message"]


def test_git_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo works on a repository."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match="needs git"), some_repository():
        pass


def test_the_repository_around_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any of its directories, if it has a commit; else a temporary one serves."""
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with some_repository() as empty:
        assert empty.made
    person = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *person, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    with some_repository() as found:
        assert (found.root, found.made) == (tmp_path.resolve(), False)


def test_commits_are_counted() -> None:
    """By word, author and day; only a commit's own lines count."""
    assert summarise_commits(LOG).counts == {"charts": 2, "draw": 1, "test": 1}
    assert summarise_commits(LOG, "author").counts == {"Ada": 1, "Grace": 1}
    assert summarise_commits(LOG, by="day").counts == {"2026-11-21": 1, "2026-11-20": 1}
    assert summarise_commits("nothing").title == "Most frequent words in 0 commit messages"


def test_bars_are_drawn_to_scale() -> None:
    """The longest has the width asked for, the shortest at least one block."""
    assert bar_chart("T", {"a": 10, "bb": 5, "c": 0}, width=4) == "T\n a  ████ 10\nbb  ██ 5\n c  █ 0"
    assert bar_chart("T", {}) == "T"


async def test_lines_are_counted_with_progress(tmp_path: Path) -> None:
    """Binary files and dangling links have none; names need not be UTF-8."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.py").write_text("1\n2\n")
    (tmp_path / "Makefile").write_text("all:\n")
    (tmp_path / "b.bin").write_bytes(b"\0\n\n")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "ignored").write_text("x\n")
    with open(os.path.join(os.fsencode(tmp_path), b"\xff.py"), "w") as file:
        file.write("3\n")
    received: list[float] = []
    async with Exec() as ex:
        ex.add(count_lines)
        result = await ex.run_tool(
            "demo:count_lines", {"directory": str(tmp_path)}, on_progress=lambda p: received.append(p.done)
        )
    rows = {row["type"]: (row["files"], row["lines"]) for row in result.raise_for_error().value}
    assert rows == {".py": (2, 3), "Makefile": (1, 1), ".bin": (1, 0), ".txt": (1, 0), ".gitignore": (1, 1)}
    assert received == [0, 1, 2, 3, 4, 5, 6, 1]


async def test_the_demo_tools_are_ordinary_tools() -> None:
    """Any Exec takes them."""
    async with Exec() as ex:
        for function in TOOLS:
            ex.add(function)
        assert (await ex.run_tool("demo:double", {"n": 21})).value == 42


async def test_a_failing_stream_ends_the_demo(tmp_path: Path) -> None:
    """With the tool's error."""
    from io import StringIO

    from toolexec.cli.demo.repository import Repository
    from toolexec.cli.demo.stage import Stage
    from toolexec.cli.session import Session
    from toolexec.cli.terminal import Screen
    from toolexec.errors import HandlerError

    async with Exec() as ex:
        ex.add(count_lines)
        stage = Stage(Session(ex=ex, screen=Screen(StringIO(), as_json=True)), Repository(tmp_path), pause=False)
        with pytest.raises(HandlerError):
            await demo_steps.stream(stage)
