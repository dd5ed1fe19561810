"""`toolexec backend` and `toolexec reload`, with a running server and without."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer
import typer.main
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.live_server import Caller, LiveServer, live_server, write
from tests.waiting import until

from toolexec.cli.app import app
from toolexec.cli.backend import complete_name
from toolexec.config.admin import FileAdmin
from toolexec.config.admin_socket import ask_server, sockets_in
from toolexec.errors import ConfigurationError
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets")
HEAD = """# Ours: ask before you change it
[server]
expose = "meta"  # few tools

[policy]
remote_destructive = "allow"
"""


def command(*tools: str) -> list[str]:
    """Return the command line of a server with these tools."""
    return ScriptedServer(tools=[ScriptedTool(tool, "Echo.") for tool in tools]).command()


def table(name: str, *tools: str) -> str:
    """Return the table of such a server."""
    first, *rest = command(*tools)
    return f"\n[mcpServers.{name}]  # {name}\ncommand = {json.dumps(first)}\nargs = {json.dumps(rest)}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Settings with one server."""
    path = tmp_path / "toolexec.toml"
    path.write_text(HEAD + table("one", "echo"))
    return path


# -- files that nothing serves --------------------------------------------------------------------------


def test_a_server_is_added_to_the_file_and_removed_again(cli: Any, file: Path) -> None:
    """The file is the same again, to the byte; what was written by a person stays in between."""
    before = file.read_text()
    added = cli("backend", "add", "two", "-c", file, "--", *command("echo"))
    assert added.exit_code == 0, added.stderr
    assert "two was added to" in added.stdout
    assert "at the next start" in added.stderr
    assert file.read_text().startswith(before)
    assert cli("run", "two:echo", "-c", file).exit_code == 0
    removed = cli("backend", "remove", "two", "-c", file)
    assert removed.exit_code == 0, removed.stderr
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["add", "one", "--", "true"], 2, "a backend named one is there already"),
        (["add", "two", "--", sys.executable, "-c", "raise SystemExit(3)"], 3, "two does not answer"),
        (["add", "two"], 2, "either the command"),
        (["add", "t:o", "--", "true"], 2, "'t:o' cannot be the name"),
        (["add", "two", "--env", "API_KEY=sk-12345678", "--", "true"], 2, "API_KEY=secretref:env"),
        (["add", "two", "--url", "https://u:hunter22@example.com/mcp"], 2, "has a secret in it"),
        (["add", "two", "--header", "Authorization=Bearer abc", "--url", "https://e.test"], 2, "Authorization="),
        (["add", "two", "--if-version", "old", "--", "true"], 2, "not old"),
        (["remove", "two"], 2, "no backend named two"),
        (["restart", "one"], 3, "no toolexec serve"),
        (["list"], 3, "no toolexec serve"),
    ],
)
def test_what_cannot_be_done_changes_nothing(cli: Any, file: Path, words: list[str], code: int, why: str) -> None:
    """The file stays, the exit code is the documented one, and no secret is repeated."""
    before = file.read_text()
    first, *rest = words
    done = cli("backend", first, "-c", file, *rest)
    assert (done.exit_code, why in " ".join(done.stderr.split())) == (code, True), done.stderr
    assert "hunter22" not in done.stderr
    assert "sk-1234" not in done.stderr
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("toolexec.toml", '[mcpServers]\none = { command = "true" }\n', "without rewriting it"),
        ("toolexec.toml", "[mcpServers\n", "line 1"),
        ("toolexec.yaml", "mcpServers: {one: {command: 'true'}}\n", "only servers and providers of the TOML and JSON"),
    ],
)
def test_a_file_that_cannot_be_changed_is_left_alone(cli: Any, tmp_path: Path, name: str, text: str, why: str) -> None:
    """Its author has to change it, and nothing is rewritten."""
    path = tmp_path / name
    path.write_text(text)
    done = cli("backend", "remove", "one", "-c", path)
    assert (done.exit_code, why in " ".join(done.stderr.split())) == (2, True), done.stderr
    assert path.read_text() == text


def test_json_keeps_its_comments_and_its_form(cli: Any, tmp_path: Path) -> None:
    """A server of another program's file is added and removed, too."""
    path = tmp_path / "mcp.json"
    text = '{\n    // mine\n    "mcpServers": {\n        "one": {"command": "true"}\n    }\n}\n'
    path.write_text(text)
    assert cli("backend", "add", "two", "--unchecked", "-c", path, "--url", "https://example.com/mcp").exit_code == 0
    assert "// mine" in path.read_text()
    assert cli("backend", "remove", "two", "-c", path).exit_code == 0
    assert json.loads(path.read_text().replace("// mine", "")) == json.loads(text.replace("// mine", ""))


def test_names_of_the_settings_complete(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell is given the servers of the file, and none is started."""
    monkeypatch.setenv("TOOLEXEC_CONFIG", str(file))
    context = typer.Context(typer.main.get_command(app))
    assert complete_name(context, "") == ["one"]
    assert complete_name(context, "t") == []
    file.write_text("[")
    assert complete_name(context, "") == []


# -- a running server -----------------------------------------------------------------------------------


@asynccontextmanager
async def called(file: Path) -> AsyncGenerator[tuple[LiveServer, Caller]]:
    """Serve the file to a caller with a session."""
    async with live_server(file) as served, httpx2.AsyncClient(timeout=60, verify=False) as client:
        caller = Caller(served.url, client)
        await caller.open()
        yield served, caller


@pytest.mark.full
async def test_servers_come_go_and_start_again_while_a_session_goes_on(cli: Any, file: Path) -> None:
    """The file has what was done; the process is another one after a restart; a mistake changes nothing."""
    before = file.read_text()

    async def perform(*words: str, ok: bool = True, after: Sequence[str] = ()) -> dict[str, Any]:
        done = await asyncio.to_thread(cli, *words, "--json", "-c", file, *after)
        assert (done.exit_code == 0) is ok, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    async with called(file) as (served, caller):
        added = await perform("backend", "add", "two", after=["--", *command("echo")])
        assert (added["added"], added["backend"]["available"], added["backend"]["tools"]) == ("two", True, 1)
        await caller.call("two:echo", n=1)
        assert "[mcpServers.two]" in file.read_text()

        async def pid() -> int:
            listed = await perform("backend", "list")
            assert listed["version"] == added["version"]
            return next(each["info"]["pid"] for each in listed["backends"] if each["name"] == "two")

        old = await pid()
        await perform("backend", "restart", "two")
        assert await pid() != old
        await caller.call("two:echo", n=2)
        stale = await perform("backend", "remove", "two", "--if-version", "0123456789abcdef", ok=False)
        assert stale["error"]["code"] == "version_conflict"
        unknown = await perform("backend", "restart", "tow", ok=False)
        assert "did you mean two" in unknown["error"]["message"]
        await perform("backend", "remove", "two", "--if-version", added["version"])
        assert file.read_text() == before
        write(file, f"{before}[policy\n")
        wrong = await perform("reload", ok=False)
        assert "toolexec.toml" in wrong["error"]["message"]
        refused = await perform("backend", "add", "new", ok=False, after=["--", *command("echo")])
        assert "cannot be read" in refused["error"]["message"]
        write(file, before)
        assert (await perform("reload"))["text"] == "nothing has changed"
        await caller.call("one:echo", n=3)
        assert served.process.returncode is None


WAITS = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    result = {"resultType": "complete"}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "w", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "wait", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        open(sys.argv[1], "w").close()
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.01)
        result = {"content": [{"type": "text", "text": "it is done"}]}
    elif asked["method"] == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.full
async def test_a_call_of_a_removed_server_is_finished(file: Path, tmp_path: Path) -> None:
    """Its process works on while no other call finds it, and ends after the answer."""
    begun, answer = tmp_path / "begun", tmp_path / "answer"
    start = {"command": sys.executable, "args": ["-c", WAITS, str(begun), str(answer)]}
    async with called(file) as (_, caller):
        [path] = sockets_in(Path(os.environ["XDG_STATE_HOME"]) / "toolexec")
        added = await ask_server(path, {"do": "add", "name": "slow", "entry": start})
        running = asyncio.create_task(caller.call("slow:wait"))
        await until(lambda: running.done() or begun.exists())
        await ask_server(path, {"do": "remove", "name": "slow"})
        with pytest.raises(AssertionError, match="tool_not_found"):
            await caller.call("slow:wait")
        assert not running.done()
        answer.touch()
        assert "it is done" in str(await running)
        await until(lambda: not Path(f"/proc/{added['backend']['info']['pid']}").exists())


@pytest.mark.full
async def test_a_server_over_stdio_takes_over_its_file_too(file: Path) -> None:
    """Its client is notified of other tools, and calls the new one in the same session."""
    state = Path(os.environ["XDG_STATE_HOME"]) / "toolexec"
    received: list[str] = []

    async def receive(message: Any) -> None:
        received.append(type(message).__name__)

    args = ["-m", "toolexec", "serve", "-c", str(file), "--expose", "direct"]
    transport = stdio_client(StdioServerParameters(command=sys.executable, args=args, env={**os.environ}))
    async with Client(transport, mode="legacy", message_handler=receive) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["one__echo", "read_result"]
        [path] = await until(lambda: sockets_in(state))
        first, *rest = command("echo")
        received.clear()
        await ask_server(path, {"do": "add", "name": "two", "entry": {"command": first, "args": rest}})
        await until(lambda: "ToolListChangedNotification" in received)
        assert "two__echo" in [tool.name for tool in (await client.list_tools()).tools]
        assert not (await client.call_tool("two__echo", {"n": 1})).is_error


async def test_an_admin_does_not_wait_for_ever(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another admin changes the settings, one waits for a time, and learns then what to do; the file stays."""
    from toolexec.process.lock import lock

    def load() -> Any:
        raise AssertionError

    monkeypatch.setattr("toolexec.config.admin._PATIENCE", 0.0)
    admin, before = FileAdmin((file,), load, tmp_path), file.read_text()
    with (tmp_path / "settings.lock").open("w") as held:
        lock(held.fileno())
        with pytest.raises(ConfigurationError, match=r"another admin .* nothing was changed, .* try again"):
            await admin.add("two", {"command": "x"})
    assert file.read_text() == before


@pytest.mark.full
async def test_of_two_admins_at_once_both_succeed_or_the_second_sees_the_first(file: Path) -> None:
    """Two names are both there afterwards; of one name, one admin is refused; the socket is closed to other users."""
    state = Path(os.environ["XDG_STATE_HOME"]) / "toolexec"
    async with called(file) as (_, caller):
        [path] = sockets_in(state)
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        first, *rest = command("echo")
        entry = {"command": first, "args": rest}
        requests = [{"do": "add", "name": name, "entry": entry} for name in ("a", "b", "c", "c")]
        answers = await asyncio.gather(*(ask_server(path, each) for each in requests), return_exceptions=True)
        refused = [each for each in answers if isinstance(each, Exception)]
        assert ["a backend named c is there already" in str(each) for each in refused] == [True]
        for name in ("a", "b", "c"):
            await caller.call(f"{name}:echo", n=1)
        for request in ({"do": "nothing"}, {"do": "remove"}, {"do": "remove", "name": 3}, {}):
            with pytest.raises(Exception, match=r"request|backend"):
                await ask_server(path, request)
        listed = await ask_server(path, {"do": "list"})
        assert {each["name"] for each in listed["backends"]} >= {"a", "b", "c", "one"}
    assert sockets_in(state) == []
