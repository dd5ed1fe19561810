"""The stdio transport: what a child process may do to us, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import sys

import pytest

from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.errors import ConnectionLostError, RemoteToolError
from toolexec.model.call import ToolCall
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool, Trouble


async def call(backend, name="echo", args=None, **settings):
    return await backend.call(name, ToolCall(f"s:{name}", args, **settings))


async def test_closing_ends_a_polite_server(connect, tmp_path, is_alive):
    """A server that exits when its stdin closes is not sent any signal."""
    server = ScriptedServer(record=str(tmp_path / "events"))
    backend = connect(server)
    await backend.start()
    pid = backend.status().info["pid"]
    await backend.aclose()
    assert not is_alive(pid)
    assert [event["event"] for event in server.events()][-1] == "eof"


async def test_closing_kills_a_stubborn_server_with_its_grandchildren(connect, tmp_path, is_alive, until):
    """Ignoring the end of stdin and SIGTERM does not save a server, nor what it started."""
    server = ScriptedServer(ignore_eof=True, ignore_sigterm=True, grandchild=True, record=str(tmp_path / "events"))
    backend = connect(server, stop_timeout=0.2)
    await backend.start()
    pids = [backend.status().info["pid"], server.events("grandchild")[0]["pid"]]
    assert all(map(is_alive, pids))
    await backend.aclose()
    assert not is_alive(pids[0])
    await until(lambda: not is_alive(pids[1]))  # it is killed by then, but init takes its time to see that
    assert server.events("sigterm")


async def test_a_server_that_is_slow_to_end_is_waited_for():
    """The reason has its exit code, although its output ended long before."""
    program = "import os, sys, time; os.close(1); time.sleep(1); sys.exit(3)"
    backend = MCPBackend(MCPServer(name="s", command=sys.executable, args=["-c", program], stop_timeout=60))
    await backend.start()
    assert "the process exited with 3" in backend.status().reason
    await backend.aclose()


@pytest.mark.full
async def test_a_grandchild_that_holds_the_pipes_does_not_hide_a_crash(connect, tmp_path):
    """A call fails when the server dies, although a process that it started keeps its stdout open."""
    crash = ScriptedTool("crash", trouble=Trouble(exit=7))
    backend = connect(ScriptedServer(tools=[crash], grandchild=True, record=str(tmp_path / "e")), max_restarts=0)
    with pytest.raises(ConnectionLostError):
        await call(backend, "crash")


@pytest.mark.full
async def test_grandchildren_die_with_a_server_that_crashes(connect, tmp_path, is_alive, until):
    """The descendants of a crashed server are killed too."""
    server = ScriptedServer(
        tools=[ScriptedTool("crash", trouble=Trouble(exit=7))], grandchild=True, record=str(tmp_path / "events")
    )
    backend = connect(server, max_restarts=0)
    with pytest.raises(ConnectionLostError):
        await call(backend, "crash")
    await until(lambda: not is_alive(server.events("grandchild")[0]["pid"]))


async def test_lines_that_are_no_messages_are_skipped(connect):
    """A server that prints to stdout can still be used."""
    backend = connect(ScriptedServer(trouble={"initialize": Trouble(garbage=["Listening...", "", "{not json", "[]"])}))
    assert (await call(backend, args={"a": 1})).structured == {"a": 1}


async def test_garbage_is_named_when_nothing_else_comes(connect):
    """If garbage is all that a server prints, the reason shows a bit of it."""
    backend = connect([sys.executable, "-c", "print('Welcome to my server')"], max_restarts=0)
    await backend.start()
    assert "'Welcome to my server'" in backend.status().reason


class GoneAfterAWord:
    """A server, with all that starts it, that has written a line and ended before it is written to."""

    pid, exit_code = 0, 3

    def __init__(self):
        self.stream = self
        self.output = [b"Welcome to my server\n"]
        self.has_refused = asyncio.Event()

    async def check(self, program=None):
        """Start anything."""

    async def start(self, program):
        return self

    def write_now(self, data):
        self.has_refused.set()
        raise BrokenPipeError

    write = write_now

    async def read(self):
        await self.has_refused.wait()
        await asyncio.sleep(0)
        return self.output.pop() if self.output else b""

    def end_reading(self):
        self.output.clear()

    async def wait(self):
        await self.has_refused.wait()
        return self.exit_code

    def close_writing(self):
        """Do nothing: no process is there."""

    terminate = close_writing

    async def aclose(self):
        """Have nothing left."""

    def stderr_tail(self):
        return b""

    def explain(self):
        return ""


async def test_what_a_server_said_before_it_ended_is_read():
    """Writing to a server that has ended fails, often before its last words were read."""
    server = MCPServer(name="s", command="gone", max_restarts=0, sandbox="bubblewrap")
    backend = MCPBackend(server, sandboxes=lambda _: GoneAfterAWord())
    await backend.start()
    assert "'Welcome to my server'" in backend.status().reason
    await backend.aclose()


async def test_half_a_frame_is_a_lost_connection(connect):
    """A reply that breaks off in the middle fails the call."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("half", trouble=Trouble(half=True))]), max_restarts=0)
    with pytest.raises(ConnectionLostError, match="went away"):
        await call(backend, "half")


@pytest.mark.parametrize(
    "raw",
    [
        '{"jsonrpc": "2.0", "id": $ID, "result": 5}',
        '{"id": $ID, "jsonrpc": "2.0", "result": ' + '{"a":' * 3000 + "1" + "}" * 3000 + "}",
        '{"result": {}, "id": $ID}',
    ],
    ids=["no object", "too deep", "no version"],
)
async def test_a_damaged_reply_fails_its_call(connect, raw):
    """A reply that is not JSON-RPC does not leave its caller waiting for ever; other calls go on."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("bad", raw=raw), ScriptedTool("echo")]))
    with pytest.raises(RemoteToolError, match="does not follow JSON-RPC"):
        await call(backend, "bad")
    assert (await call(backend, args={"a": 1})).structured == {"a": 1}


@pytest.mark.full
async def test_a_line_over_the_limit_ends_the_connection(connect, monkeypatch):
    """A line without end is cut off before it fills the memory."""
    monkeypatch.setattr("toolexec.backend.mcp.stdio._MAX_LINE", 1 << 20)
    backend = connect(ScriptedServer(tools=[ScriptedTool("long", trouble=Trouble(line=5 << 20))]), max_restarts=0)
    with pytest.raises(ConnectionLostError):
        await call(backend, "long")


async def test_a_flood_on_stderr_keeps_only_its_end(connect):
    """Megabytes of stderr neither block the server nor fill the memory; the reason has the last of it."""
    backend = connect(ScriptedServer(trouble={"start": Trouble(stderr=5_000_000, exit=9)}), max_restarts=0)
    await backend.start()
    reason = backend.status().reason
    assert "exited with 9" in reason
    assert reason.endswith("eend")
    assert len(reason) < 2000


async def test_a_flood_on_stderr_during_a_call_does_not_block_it(connect):
    """A server that logs a lot still answers."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("loud", trouble=Trouble(stderr=2_000_000))]))
    assert (await call(backend, "loud", {"a": 1})).structured == {"a": 1}


async def test_ten_megabytes_each_way(connect):
    """Huge arguments and huge replies pass."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("echo"), ScriptedTool("big", text=10_000_000)]))
    text = "x" * 10_000_000
    assert (await call(backend, args={"text": text})).structured == {"text": text}
    assert len((await call(backend, "big")).content[0]["text"]) == 10_000_000


async def test_a_server_gets_its_environment_and_directory(connect, tmp_path):
    """Only a few variables are inherited, `env` comes on top, and `cwd` is where it starts."""
    program = (
        "import os,sys,json;"
        "sys.exit(json.dumps([os.environ.get('TOKEN_X'), 'PYTEST_CURRENT_TEST' in os.environ, os.getcwd()]))"
    )
    backend = connect([sys.executable, "-c", program], env={"TOKEN_X": "on"}, cwd=tmp_path, max_restarts=0)
    await backend.start()
    assert f'["on", false, "{tmp_path}"]' in backend.status().reason


@pytest.mark.full
async def test_fifty_starts_and_stops_leave_nothing(is_alive):
    """Start, list, close, again and again: no process and no descriptor stays (the autouse fixture counts)."""
    pids = []
    for number in range(50):
        command, *args = ScriptedServer().command()
        backend = MCPBackend(MCPServer(name=f"s{number}", command=command, args=args))
        await backend.start()
        pids.append(backend.status().info["pid"])
        await backend.aclose()
    assert not any(map(is_alive, pids))


@pytest.mark.full
def test_a_loop_that_ends_takes_its_servers_along(is_alive):
    """The process goes away with its event loop, even without a close."""
    command, *args = ScriptedServer(grandchild=True).command()
    backend = MCPBackend(MCPServer(name="s", command=command, args=args))

    async def main() -> int:
        await backend.start()
        return backend.status().info["pid"]

    assert not is_alive(asyncio.run(main()))
    assert not backend.status().available
