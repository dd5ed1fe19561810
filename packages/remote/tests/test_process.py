"""A server in a process of its own, with real sandboxes: killed, restarted, and asked to end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import signal
from pathlib import Path

import pytest
from packages.remote.tests.servers import KEY, Client, identity, server_process, signed_get, signed_post
from tests.waiting import PATIENCE

from toolexec.errors import LimitExceededError, SandboxUnavailableError
from toolexec.remote import SigningKey
from toolexec.sandbox import ExecuteRequest, Limits
from toolexec_remote.incarnation import ENDED, is_stated
from toolexec_remote.signature import Target, signed_headers
from toolexec_remote.wire import encode_request, read_response

BUBBLEWRAP = pytest.param(
    "bubblewrap", marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bwrap here")
)


@pytest.mark.parametrize("kind", ["wasm", BUBBLEWRAP])
async def test_code_runs_in_real_sandboxes(tmp_path: Path, kind: str) -> None:
    """Calls, output, files and limits work over the connection as they do here; the result says where it ran."""
    program = "print('adding')\nopen('out.txt', 'w').write('x')\nreturn tools.math.add(a=1, b=2)"
    with server_process(tmp_path / "server", use=[kind]) as server:
        async with Client(server.endpoint) as client:
            await client.execute("r1", program, language="python", timeout=60, files={"in.txt": b"1"})
            asked = await client.answer("r1", lambda message: sum(message["payload"]["args"].values()))
            result = await client.result("r1")
            await client.execute("r2", "x = 'x'\nwhile True: x += x", timeout=60, limits=Limits(memory_bytes=128 << 20))
            greedy = await client.result("r2")
    assert asked["type"] == "run_tool"
    assert (result.error, result.value, result.stdout, result.files) == (None, 3, "adding\n", {"out.txt": b"x"})
    assert result.backend is not None
    assert result.backend.kind == kind
    assert result.limits_enforced.timeout
    assert isinstance(greedy.error, LimitExceededError)
    assert greedy.error.resource == "memory"


async def test_a_session_keeps_its_state(tmp_path: Path) -> None:
    """Each program of it is a run of its own; after the close there is no session."""
    with server_process(tmp_path / "server") as server:
        async with Client(server.endpoint) as client:
            await client.begin("open", "s1", encode_request(ExecuteRequest(code="0"), run="s1"))
            await client.expect("opened", run="s1")
            for run, code in (("r1", "x = 41"), ("r2", "return x + 1")):
                await client.execute(run, code, session="s1")
                result = await client.result(run)
                assert result.error is None
            assert result.value == 42
            await client.send("s1", "close")
            assert (await client.expect("result", run="s1")).body == b""
            await client.put(client.links["s1"].ack())
            await client.execute("r3", "return x", session="s1")
            with pytest.raises(Exception, match="no session s1"):
                await client.result("r3")


async def test_a_killed_server_knows_what_it_had_started(tmp_path: Path) -> None:
    """A run that had ended has its result, in the words of the process that ran it. Of all others the next process says
    nothing that could be taken for a proof, also of one that waited."""
    with server_process(tmp_path / "server", max_running=1) as server:
        client = Client(server.endpoint)
        await client.connect()
        await client.execute("ended", "return 1")
        assert read_response((await client.expect("result", run="ended")).body).value == 1
        await client.execute("running", "tools.math.add()\nreturn 2")
        await client.expect("frame", run="running")
        await client.execute("waiting", "return 3")
        await client.expect("capacity")
        before = client.incarnation
        server.kill()
        await client.lose()
        server.start()
        await client.connect()
        for run in ("ended", "running", "waiting"):
            await client.resume(run, before)
        found: dict[str, str] = {}
        for _ in range(3):
            message = await client.expect("gone", "result")
            found[message.run] = str(message.fields.get("state", "")) or json.loads(message.body)["result"]["value"]
            digest = hashlib.sha256(message.body).hexdigest()
            ended = is_stated(before, message.fields.get("statement"), ENDED, message.run, digest)
            assert ended == (message.run == "ended")
        await client.lose()
    assert found == {"ended": 1, "running": "was_running", "waiting": "was_running"}


async def test_a_post_is_known_after_a_restart(tmp_path: Path) -> None:
    """Its result comes again, without the program being run; one that was under way is not repeated."""
    ended, running = (
        encode_request(ExecuteRequest(code="return 1")),
        encode_request(ExecuteRequest(code="while True: pass")),
    )
    with server_process(tmp_path / "server") as server:
        assert (await signed_post(server.endpoint, ended, headers={"Idempotency-Key": "ended"}))[0] == 200
        task = asyncio.create_task(signed_post(server.endpoint, running, headers={"Idempotency-Key": "running"}))
        state = ""
        while state != "running":
            _, said = await signed_get(f"{server.endpoint}/runs/running", server.endpoint)
            state = json.loads(said)["state"]
        server.kill()
        await asyncio.wait([task])
        task.exception()
        server.start()
        _, _, answer = await signed_post(server.endpoint, ended, headers={"Idempotency-Key": "ended"})
        assert read_response(answer).value == 1
        _, _, answer = await signed_post(server.endpoint, running, headers={"Idempotency-Key": "running"})
    error = read_response(answer).error
    assert error is not None
    assert (error.code, error.retryable, error.outcome == "not_sent") == ("remote_run_lost", False, False)


async def test_a_captured_request_is_refused_after_a_restart(tmp_path: Path) -> None:
    """The signature is for the process that was killed; the next one is another one, though it has the same state."""
    body = encode_request(ExecuteRequest(code="return 1"))
    with server_process(tmp_path / "server") as server:
        before = await identity(server.endpoint)
        captured = signed_headers(KEY, Target(before, "POST", "/v1/execute"), body)
        server.kill()
        server.start()
        status, _, answer = await signed_post(server.endpoint, body, headers=captured)
        error = json.loads(answer)["error"]
        assert (status, error["code"], error["outcome"]) == (421, "wrong_incarnation", "not_sent")
        assert error["details"]["incarnation"] == await identity(server.endpoint) != before
        assert (await signed_post(server.endpoint, body))[0] == 200


async def test_a_server_that_is_asked_to_end_loses_no_run(tmp_path: Path) -> None:
    """Runs under way end and are delivered, waiting ones are given back; the exit code is 0."""
    with server_process(tmp_path / "server", max_running=1) as server:
        async with Client(server.endpoint) as client:
            await client.execute("r1", "return tools.math.add()")
            frame = await client.expect("frame", run="r1")
            await client.execute("r2", "return 2")
            server.terminate()
            with pytest.raises(SandboxUnavailableError) as caught:
                await client.result("r2")
            assert (caught.value.code, caught.value.outcome == "not_sent") == ("runtime_draining", True)
            [asked] = (
                [message for message in json.loads(frame.body) if message["type"] == "run_tool"]
                if (frame.body.startswith(b"["))
                else [json.loads(frame.body)]
            )
            answer = {"type": "response", "id": asked["id"], "payload": {"structured": 5}}
            await client.send("r1", "frame", json.dumps(answer).encode())
            assert (await client.result("r1")).value == 5
        assert server.ended() == 0


async def test_keys_are_read_again(tmp_path: Path) -> None:
    """On SIGHUP, without a pause: the new key counts, and the old one no longer."""
    newer = SigningKey(id="ann-2", token="the-newer-token-of-ann", tenant="ann")
    body = encode_request(ExecuteRequest(code="return 1"))
    with server_process(tmp_path / "server") as server:
        assert server.process is not None
        assert (await signed_post(server.endpoint, body, key=newer))[0] == 401
        server.configure(newer)
        server.process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(server.stderr_match, r"(reloaded 1 keys)")
        assert (await signed_post(server.endpoint, body, key=newer))[0] == 200
        assert (await signed_post(server.endpoint, body))[0] == 401
        (tmp_path / "server" / "toolexec.toml").write_text("[runtime_server]\nkeys = 5")
        server.process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(server.stderr_match, "(runtime_server.keys)")
        assert (await signed_post(server.endpoint, body, key=newer))[0] == 200


async def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """A program that runs is stopped; after a restart it is known how it ended."""
    with server_process(tmp_path / "server", drain_grace=600.0) as server:
        assert server.process is not None
        async with Client(server.endpoint) as client:
            await client.execute("r1", "print('x')\nwhile True: pass", timeout=600)
            before = client.incarnation
            await client.expect("started", run="r1")
            server.terminate()
            while not (await client.expect("capacity")).fields["draining"]:
                pass
            server.terminate()
            _, said = await asyncio.to_thread(server.process.communicate, timeout=PATIENCE)
        assert server.process.returncode == 143
        assert "Traceback" not in said
        server.start()
        async with Client(server.endpoint) as client:
            await client.resume("r1", before)
            error = read_response((await client.expect("result")).body).error
    assert error is not None
    assert error.code == "sandbox_failed"
