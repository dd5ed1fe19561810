"""Sessions of agents that are recorded from outside, and served again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.servers import server_environment

from toolexec.cassette import Cassette
from toolexec.cli.record import _ended, _run_agent
from toolexec.model.redaction import redactor
from toolexec.server.auth.credentials import new_key

Cli = Callable[..., Any]
APP = (
    "from toolexec import tool\n@tool('math:add')\ndef add(a: int, b: int) -> int:\n    '''Adds.'''\n    return a + b\n"
)
MORE = "@tool('math:double')\ndef double(a: int) -> int:\n    '''Doubles.'''\n    return a * 2\n"
AGENT = """
import json, os, sys, urllib.request
[entry] = json.load(open(os.environ["TOOLEXEC_MCP_CONFIG"]))["mcpServers"].values()
assert entry["url"] == os.environ["TOOLEXEC_MCP_URL"]
assert entry["headers"]["Authorization"] == "Bearer " + os.environ["TOOLEXEC_MCP_TOKEN"]
def ask(method, **params):
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream",
               "mcp-protocol-version": "2025-11-25", **entry["headers"], **session}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    with urllib.request.urlopen(urllib.request.Request(entry["url"], body, headers)) as reply:
        if "mcp-session-id" in reply.headers:
            session["mcp-session-id"] = reply.headers["mcp-session-id"]
        return reply.read().decode()
session = {}
ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "a", "version": "1"})
print(ask("tools/call", name="run_tool", arguments={"tool_id": "math:add", "args": {"a": 2, "b": 3}}))
sys.exit(7)
"""
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.mark.full
def test_an_agent_is_recorded_and_run_again_without_its_tools(tmp_path: Path) -> None:
    """Its exit code is that of the command; the cassette has the tools that it did not call, too."""
    (tmp_path / "app.py").write_text(APP + MORE)
    (tmp_path / "agent.py").write_text(AGENT)
    agent = ["--", sys.executable, "agent.py"]
    for words in (["-c", "app.py"], ["--mode", "replay"]):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "toolexec",
                "record",
                "--to",
                "session.yaml",
                "--set",
                "server.expose=meta",
                *words,
                *agent,
            ],
            cwd=tmp_path,
            env=server_environment(XDG_STATE_HOME=str(tmp_path / "state")),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 7, done.stderr
        assert '"structured":5' in done.stdout
        (tmp_path / "app.py").unlink(missing_ok=True)
    cassette = Cassette(tmp_path / "session.yaml")
    assert sorted(cassette.tools) == ["math:add", "math:double"]
    assert [(call.args, call.value) for call in cassette.calls] == [({"a": 2, "b": 3}, 5)]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM"])
async def test_a_signal_ends_the_agent_and_not_the_recording(name: str) -> None:
    """The command goes on to write what was recorded; SIGHUP comes when its terminal is closed."""
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    ended = asyncio.ensure_future(_ended(process))
    await asyncio.sleep(0)  # from here on its handlers are there
    os.kill(os.getpid(), getattr(signal, name))
    assert await ended == 128 + signal.SIGTERM


@pytest.mark.full
def test_a_recorded_session_is_served(tmp_path: Path) -> None:
    """With its tools and answers, and none of the settings' own tools; equal calls are answered again and again."""
    made = tmp_path / "session.yaml"
    (tmp_path / "app.py").write_text(APP)
    from toolexec import Exec

    with Exec(cassette=made, cassette_mode="record").sync as ex:
        ex.add(lambda a: a, "t:same")
        ex.run_tool("t:same", {"a": "kept"})
    call_it = {"name": "run_tool", "arguments": {"tool_id": "t:same", "args": {"a": "kept"}}}
    lines: list[dict[str, Any]] = [
        HELLO,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call_it},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call_it},
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "toolexec", "serve", "--replay", made, "--expose", "meta", "-c", tmp_path / "app.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=server_environment(XDG_STATE_HOME=str(tmp_path / "state")),
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers: dict[int, Any] = {}
        for line in lines:
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            while "id" in line and line["id"] not in answers:
                answer = json.loads(process.stdout.readline())
                answers[answer.get("id", 0)] = answer
        process.stdin.close()
        error = process.stderr.read() if process.stderr is not None else ""
    assert "serving 1 tool over stdio" in error
    assert all('"kept"' in json.dumps(answers[number]["result"]).replace("\\", "") for number in (2, 3))


async def test_the_key_of_a_recorded_agent_is_a_secret() -> None:
    """An agent may pass on its environment to a tool; the key is in no cassette then."""
    key = new_key()
    assert await _run_agent(["true"], "http://127.0.0.1:1/mcp", key) == 0
    assert redactor.value({"said": [f"it is {key}"]}) == {"said": ["it is [REDACTED]"]}


def test_what_cannot_be_recorded_is_refused(cli: Cli, tmp_path: Path) -> None:
    """A program that there is not, and a cassette that there is not."""
    (tmp_path / "app.py").write_text(APP)
    done = cli("record", "--to", tmp_path / "x.yaml", "-c", tmp_path / "app.py", "--", "no-such-program")
    assert (done.exit_code, "no-such-program cannot be started" in done.stderr) == (2, True), done.stderr
    done = cli("record", "--to", tmp_path / "none.yaml", "--mode", "replay", "--", "true")
    assert (done.exit_code, "there is no cassette" in done.stderr) == (3, True)
