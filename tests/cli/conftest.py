"""What the tests of the command line share: a file with tools, and two ways to call the command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import CliRunner, Result

from toolexec.cli.app import app
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

# A server that starts in the time that Python does, with the names of the real one, which takes 0.7 s of CPU to start.
CLOCK = ScriptedServer(
    tools=[
        ScriptedTool(
            "get_current_time",
            "Get current time in a specific timezone",
            {"type": "object", "properties": {"timezone": {"type": "string"}}, "required": ["timezone"]},
        ),
        ScriptedTool("convert_time", "Convert time between timezones"),
    ]
)

TOOLS = '''
"""Tools for the tests."""
import asyncio
import sys
import time
from typing import Any, Literal

from toolexec import Tool, ToolContext, ToolReply, tool
from toolexec.model.content import image, text

print("printed while loading")


@tool(namespace="math", read_only=True, tags=["sums"])
def add(a: int, b: int = 1) -> int:
    """Adds two whole numbers.

    Args:
        a: the first number
        b: the second number
    """
    print("printed while running")
    return a + b


@tool(namespace="text")
def echo(words: str, times: int = 1, tags: list[str] | None = None, numbers: list[int] | None = None,
         style: Literal["up", "low"] = "up", anything: Any = None, loud: bool = False) -> dict[str, Any]:
    """Gives back what it got."""
    return {k: v for k, v in locals().items() if v is not None}


@tool(namespace="text")
def plain(words: str) -> str:
    """Gives back the text itself."""
    return words


@tool(namespace="slow")
def count(n: int, ctx: ToolContext) -> int:
    """Counts and says how far it is."""
    for i in range(n):
        ctx.report(i + 1, n, f"item {i}")
        time.sleep(0.01)
    return n


@tool(namespace="slow")
async def pieces(n: int = 3):
    """Gives pieces one by one."""
    for i in range(n):
        yield {"piece": i}


@tool(namespace="slow")
async def forever() -> None:
    """Never ends."""
    print("started", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


@tool(namespace="odd", destructive=True)
def fail(why: str = "because") -> None:
    """Always fails."""
    raise ValueError(f"no, {why}")


@tool(namespace="odd")
def picture() -> ToolReply:
    """Answers with a picture."""
    return ToolReply(content=[text("look"), image(b"x" * 3000)])


@tool(namespace="odd")
def hostile() -> str:
    """Shows \\x1b[31mred\\x1b[0m and [bold]markup[/bold]\\x1b]0;owned\\x07."""
    return "a\\x1b[2Jb [bold]c[/bold] \\x9b31md \\u202ee"


declared = Tool(name="declared", namespace="odd", description="Only a definition.", input_schema={"type": "object"})
'''


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test works in an empty directory, and what loading files adds to the interpreter is taken out again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("TOOLEXEC_CONFIG", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def tools_file(tmp_path: Path) -> Path:
    """A Python file with tools of many kinds."""
    path = tmp_path / "app.py"
    path.write_text(TOOLS, encoding="utf-8")
    return path


@pytest.fixture
def servers_file(tmp_path: Path) -> Path:
    """A JSON file with one server that works and one that cannot start."""
    path = tmp_path / "servers.json"
    command, *args = CLOCK.command()
    servers = {"time": {"command": command, "args": args}, "dead": {"command": "no-such-command-anywhere"}}
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@pytest.fixture
def cli() -> Callable[..., Result]:
    """Calls the command in this process: `cli("list", "-c", file)`."""

    def call(*words: object, stdin: str | bytes | None = None, **env: str) -> Result:
        return CliRunner(env=env).invoke(app, [str(word) for word in words], input=stdin, prog_name="toolexec")

    return call


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `python -m toolexec` with these words and waits for it."""

    def call(*words: object, stdin: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "toolexec", *map(str, words)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False, **options)

    return call


@pytest.fixture(scope="session")
def sandbox() -> None:
    """The embedded sandbox, built before the clock of a single test runs."""
    from toolexec.runtime.wasm.programs import load_program

    load_program()
