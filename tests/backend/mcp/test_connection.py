"""Keeping a connection up: reconnecting within a budget, callers that wait, closing at any moment."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading

import pytest

from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.errors import BackendUnavailableError, ConnectionLostError
from toolexec.model.call import ToolCall
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool, Trouble

CRASH = ScriptedTool("crash", trouble=Trouble(exit=3))
ECHO = ScriptedTool("echo")


async def call(backend, name="echo", args=None, **settings):
    return await backend.call(name, ToolCall(f"s:{name}", args, **settings))


async def test_a_crashed_server_is_started_again(connect, until):
    """A call under way fails, the server comes back by itself, and the next call works."""
    backend = connect(ScriptedServer(tools=[CRASH, ECHO]))
    with pytest.raises(ConnectionLostError) as caught:
        await call(backend, "crash")
    assert caught.value.retryable
    assert "the process exited with 3" in str(caught.value)
    await until(lambda: backend.status().available)
    assert backend.status().info["restarts"] == 1
    assert (await call(backend, args={"a": 1})).structured == {"a": 1}


async def test_the_status_has_the_budget_and_why_it_was_lost(connect, until):
    """After a restart one can still see what had happened, and how often it may happen yet."""
    backend = connect(ScriptedServer(tools=[CRASH, ECHO]), max_restarts=3)
    await backend.start()
    assert "restarts_left" not in backend.status().info
    with pytest.raises(ConnectionLostError):
        await call(backend, "crash")
    await until(lambda: backend.status().available)
    info = backend.status().info
    assert (info["restarts"], info["restarts_left"]) == (1, 2)
    assert "the process exited with 3" in info["last_error"]


async def test_all_calls_under_way_fail_with_the_server(connect):
    """A crash reaches every caller, not only the one that caused it."""
    backend = connect(ScriptedServer(tools=[CRASH, ScriptedTool("slow", delay=60)]))
    await backend.start()
    slow = [asyncio.create_task(call(backend, "slow")) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(ConnectionLostError):
        await call(backend, "crash")
    results = await asyncio.gather(*slow, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionLostError] * 5


async def test_callers_share_one_reconnect(connect, tmp_path):
    """Many calls that find the server gone start it once."""
    server = ScriptedServer(tools=[CRASH, ECHO], record=str(tmp_path / "events"))
    backend = connect(server)
    with pytest.raises(ConnectionLostError):
        await call(backend, "crash")
    replies = await asyncio.gather(*(call(backend, args={"n": n}) for n in range(20)))
    assert [reply.structured["n"] for reply in replies] == list(range(20))
    assert len(server.events("start")) == 2


async def test_callers_share_the_first_connect(connect, tmp_path):
    """Calls before any start connect once, together."""
    server = ScriptedServer(record=str(tmp_path / "events"))
    backend = connect(server)
    await asyncio.gather(*(call(backend, args={"n": n}) for n in range(10)))
    assert len(server.events("start")) == 1


async def test_a_late_report_about_an_old_connection_is_ignored(connect):
    """A call that failed on the connection before does not take down the one after it."""
    backend = connect(ScriptedServer(tools=[CRASH, ECHO]))
    await backend.start()
    old, wire = await backend._connection.client(), backend._connection.wire
    with pytest.raises(ConnectionLostError):
        await call(backend, "crash")
    await call(backend)
    assert "exited with 3" in await backend._connection.report_lost(old, wire)
    await call(backend)
    assert backend.status().info["restarts"] == 1


async def test_a_spent_budget_is_the_end_for_a_while(connect, until):
    """After max_restarts restarts the server stays down, and calls say why at once."""
    backend = connect(ScriptedServer(tools=[CRASH, ECHO]), max_restarts=2)
    for _ in range(3):
        with pytest.raises(ConnectionLostError):
            await call(backend, "crash")
    with pytest.raises(BackendUnavailableError, match="tried again 2 times within 60 s") as caught:
        await call(backend)
    assert "exited with 3" in str(caught.value)
    assert caught.value.retryable
    assert not backend.status().available


async def test_the_budget_refills(connect, monkeypatch):
    """When the window has passed, a call starts the server again."""
    backend = connect(ScriptedServer(tools=[CRASH, ECHO]), max_restarts=1)
    for _ in range(2):
        with pytest.raises(ConnectionLostError):
            await call(backend, "crash")
    with pytest.raises(BackendUnavailableError):
        await call(backend)
    backend._connection._failures[0] -= 61
    assert (await call(backend, args={"a": 1})).structured == {"a": 1}


async def test_no_restarts_at_all(connect):
    """max_restarts=0 means that a server is started once."""
    backend = connect(ScriptedServer(tools=[CRASH, ECHO]), max_restarts=0)
    with pytest.raises(ConnectionLostError):
        await call(backend, "crash")
    with pytest.raises(BackendUnavailableError, match="was lost"):
        await call(backend)


async def test_the_reason_is_kept_while_it_is_tried_again(connect, until, tmp_path):
    """During another attempt, one can still see why the last one failed."""
    tries = tmp_path / "tries"
    program = (  # the first two are one attempt, by the newer protocol and by the older one
        f"import pathlib, sys, time; tries = pathlib.Path({str(tries)!r}); tries.open('a').write('.'); "
        "time.sleep(60) if tries.stat().st_size > 2 else sys.exit(3)"
    )
    backend = MCPBackend(MCPServer(name="s", command=sys.executable, args=("-c", program)))
    try:
        await backend.start()
        await until(lambda: backend.status().reason.startswith("connecting again"))
        assert "exited with 3" in backend.status().reason
    finally:
        await backend.aclose()


@pytest.mark.full
async def test_a_server_that_fails_to_start_at_first_comes_up_by_itself(connect, tmp_path, until):
    """Failed attempts are repeated after a growing pause, without a call asking for it."""
    server = ScriptedServer(trouble={"start": Trouble(exit=1, starts=3)}, record=str(tmp_path / "events"))
    backend = connect(server)
    await backend.start()
    assert "exited with 1" in backend.status().reason
    await until(lambda: backend.status().available)


async def test_a_command_that_is_not_there_is_not_tried_again_and_again(connect):
    """Reports a server that cannot be started at once; only a call tries it again."""
    backend = connect(["/nonexistent/server"])
    await backend.start()
    assert backend.status().reason == "the command '/nonexistent/server' was not found; is it installed and on PATH?"
    connection = backend._connection
    assert connection._task is not None
    await asyncio.sleep(0.3)
    assert connection.restarts == 0
    with pytest.raises(BackendUnavailableError, match="not found"):
        await call(backend)
    assert connection.restarts == 0 or connection.restarts == 1


async def test_a_directory_that_is_not_there_is_named(connect, tmp_path):
    """A wrong cwd is not mistaken for a missing command."""
    backend = connect([sys.executable], cwd=tmp_path / "missing")
    await backend.start()
    assert "there is no such directory" in backend.status().reason


async def test_a_file_that_is_no_program_is_named(connect, tmp_path):
    """A command without the right to run is reported as that."""
    path = tmp_path / "plain.txt"
    path.write_text("hello")
    backend = connect([str(path)])
    await backend.start()
    assert "cannot be run" in backend.status().reason


@pytest.mark.full
@pytest.mark.parametrize(("moment", "step"), [("initialize", "initialize"), ("list", "tools/list")])
async def test_a_server_that_hangs_is_given_up_in_time(connect, moment, step):
    """No answer to the first questions is a failed attempt, and the reason names the question."""
    backend = connect(ScriptedServer(trouble={moment: Trouble(hang=True)}), connect_timeout=0.5, max_restarts=0)
    await backend.start()
    assert backend.status().reason == f"no answer to {step} within 0.5 s"


@pytest.mark.full
async def test_a_server_that_ignores_the_newer_protocol_is_still_reached(connect):
    """The opening question goes unanswered; after a while the older handshake is tried."""
    backend = connect(ScriptedServer(discover="ignore"), connect_timeout=3)
    await backend.start()
    assert backend.status().info["protocol"] == "2025-11-25"


async def test_a_server_that_exits_at_the_newer_protocol_is_started_again_for_the_older(connect, tmp_path):
    """A crash at the opening question is followed at once by an attempt without it."""
    server = ScriptedServer(discover="exit", record=str(tmp_path / "events"))
    backend = connect(server)
    await backend.start()
    assert backend.status().available
    assert len(server.events("start")) == 2
    assert "restarts" not in backend.status().info


async def test_closing_twice_and_without_a_start(connect):
    """aclose is always safe, and a closed backend says so."""
    backend = connect(ScriptedServer())
    await backend.aclose()
    await backend.aclose()
    assert backend.status().reason == "closed"
    with pytest.raises(BackendUnavailableError, match="closed"):
        await call(backend)


@pytest.mark.full
@pytest.mark.parametrize("moment", ["start", "initialize", "list"])
async def test_closing_while_connecting(connect, tmp_path, moment, until):
    """Closing does not wait for an attempt that hangs, wherever it hangs; who waits for it is told."""
    server = ScriptedServer(trouble={moment: Trouble(hang=True)}, record=str(tmp_path / "events"))
    backend = connect(server)
    waiting = asyncio.create_task(call(backend))
    await until(lambda: server.events(moment))
    await backend.aclose()
    with pytest.raises(BackendUnavailableError, match="closed"):
        await waiting


async def test_closing_during_the_pause_before_a_restart(connect):
    """A server that keeps failing can be closed between two attempts."""
    backend = connect(ScriptedServer(trouble={"start": Trouble(exit=1)}))
    await backend.start()
    await backend.aclose()
    assert backend.status().reason == "closed"


async def test_closing_during_a_call(connect, tmp_path, until):
    """A call under way ends as lost when the backend is closed."""
    server = ScriptedServer(tools=[ScriptedTool("slow", delay=60)], record=str(tmp_path / "events"))
    backend = connect(server)
    task = asyncio.create_task(call(backend, "slow"))
    await until(lambda: server.events("call"))
    await backend.aclose()
    with pytest.raises(ConnectionLostError):
        await task


async def test_another_event_loop_is_refused(connect):
    """A backend belongs to the loop that started it, and says so."""
    backend = connect(ScriptedServer())
    await backend.start()
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(call(backend))
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert isinstance(caught[0], BackendUnavailableError)
    assert "another event loop" in str(caught[0])


async def test_closing_from_another_event_loop(connect, is_alive):
    """aclose works from any loop while the backend's own one runs."""
    backend = connect(ScriptedServer())
    await backend.start()
    pid = backend.status().info["pid"]
    await asyncio.to_thread(lambda: asyncio.run(backend.aclose()))
    assert not is_alive(pid)


@pytest.mark.full
def test_a_new_loop_after_the_old_one_has_ended():
    """Several `asyncio.run` in a row work, each with a fresh connection."""
    command, *args = ScriptedServer().command()
    backend = MCPBackend(MCPServer(name="s", command=command, args=args))

    async def main() -> object:
        return (await call(backend, args={"a": 1})).structured

    assert asyncio.run(main()) == {"a": 1}
    assert asyncio.run(main()) == {"a": 1}
    asyncio.run(backend.aclose())
    gc.collect()
