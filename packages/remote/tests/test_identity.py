"""A run belongs to one server process: no other one takes it, repeats it, or says what became of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, TypeAlias

import aiohttp
import pytest
from packages.remote.tests.here import Wire, remote_to, serving
from packages.remote.tests.processes import KEY as ITS_KEY
from packages.remote.tests.servers import KEY, Client, identity, runtime_server, signed_get, signed_post
from packages.remote.tests.tools import Workshop
from tests.waiting import PATIENCE, until

from toolexec.errors import SandboxFailedError, SandboxUnavailableError, ToolExecError
from toolexec.remote import RuntimeServerSettings
from toolexec.runtime import Runtime
from toolexec.sandbox import CodeResult, ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.endpoints import path_of
from toolexec_remote.incarnation import ENDED, Incarnation, is_stated
from toolexec_remote.messages import SUBPROTOCOL, RemoteMessage, decode_remote, encode_remote
from toolexec_remote.signature import Target, sign, signed_headers, timestamp
from toolexec_remote.wire import encode_request, encode_result, read_response

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

Answers: TypeAlias = Callable[[RemoteMessage], RemoteMessage | None]
WAITS = "print('begun')\nreturn tools.shop.wait(item=7)"


class Counting(ScriptedSandbox):
    """Programs that wait for a gate, and count how often they began."""

    def __init__(self) -> None:
        super().__init__({}, default=self._wait)
        self.begun = 0
        self.gate = asyncio.Event()

    async def _wait(self, _: ExecuteRequest) -> str:
        self.begun += 1
        await self.gate.wait()
        return "done"


def lost(error: ToolExecError | None) -> SandboxFailedError:
    """Return the error of a run that may have been run, and is not repeated."""
    assert isinstance(error, SandboxFailedError), error
    assert error.details["began"] is True
    assert not error.retryable
    return error


async def test_a_post_that_broke_is_not_started_by_another_process(tmp_path: Path) -> None:
    """Another process answers at the endpoint when the stream is read on: the call is made once, and the run is lost."""
    shop = Workshop()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving(tmp_path / "a", drain_grace=0.0))
        second = await stack.enter_async_context(serving(tmp_path / "b"))
        wire = await stack.enter_async_context(Wire(first))
        backend = await stack.enter_async_context(remote_to(wire.endpoint, protocol="post", reconnect=1.0))
        request = shop.request(WAITS)
        running = asyncio.ensure_future(backend.execute(request))
        await asyncio.wait_for(shop.begun.wait(), PATIENCE)
        await until(lambda: request.output.text() == "begun\n")
        wire.lead_to(second)
        wire.cut()
        result = await running
        shop.gate.set()
    lost(result.error)
    assert shop.calls == {7: 1}
    assert result.stdout == "begun\n"


async def test_a_run_that_goes_on_is_never_started(tmp_path: Path) -> None:
    """A request for the rest of an unknown run gets the proof that it never started, and never will."""
    sandbox = Counting()
    sandbox.gate.set()
    async with runtime_server(tmp_path, sandbox) as endpoint:
        body = encode_request(ExecuteRequest(code="x"), run="r1")
        headers = {"Idempotency-Key": "r1", "Last-Event-ID": "r1:3", "Accept": "text/event-stream"}
        status, _, answer = await signed_post(endpoint, body, headers=headers)
        said = json.loads(answer)
        assert (status, said["error"]["outcome"]) == (503, "not_sent")
        assert is_stated(await identity(endpoint), said["proof"], "never-started", KEY.id, "r1")
        status, _, answer = await signed_post(endpoint, body, headers={"Idempotency-Key": "r1"})
        assert (status, sandbox.begun) == (503, 0)
        unnamed = encode_request(ExecuteRequest(code="x"))
        status, _, answer = await signed_post(endpoint, unnamed, headers={"Last-Event-ID": "r2:1"})
        error = read_response(answer).error
        assert error is not None
        assert (error.code, sandbox.begun) == ("remote_run_lost", 0)


@pytest.mark.parametrize("protocol", ["duplex", "post"])
async def test_a_server_with_an_old_state_repeats_nothing(tmp_path: Path, protocol: Any) -> None:
    """The word to start has left, and nothing came back; the next process has no record, and is not believed."""
    first, second, shop = Counting(), Counting(), Workshop()
    second.gate.set()
    async with AsyncExitStack() as stack:
        older = await stack.enter_async_context(serving(tmp_path / "a", first, drain_grace=0.0))
        newer = await stack.enter_async_context(serving(tmp_path / "b", second))
        wire = await stack.enter_async_context(Wire(older))
        backend = await stack.enter_async_context(remote_to(wire.endpoint, protocol=protocol, reconnect=2.0))
        assert (await backend.check()).ok
        running = asyncio.ensure_future(backend.execute(shop.request("x")))
        if protocol == "duplex":
            wire.is_mute = True
        await until(lambda: first.begun)
        wire.lead_to(newer)
        wire.cut()
        wire.is_mute = False
        result = await running
    lost(result.error)
    assert (first.begun, second.begun) == (1, 0)


async def test_a_captured_handshake_opens_nothing_elsewhere(tmp_path: Path) -> None:
    """Not at another server, where it would have closed the connection of the client, and not at its own one again."""
    captured: list[bytes] = []

    class Seen(Client):
        async def put(self, message: RemoteMessage) -> None:
            captured.append(encode_remote(message))
            await super().put(message)

    sandbox = Counting()
    sandbox.gate.set()
    async with (
        runtime_server(tmp_path / "a", ScriptedSandbox()) as one,
        runtime_server(tmp_path / "b", sandbox) as other,
        Client(other) as client,
    ):
        async with Seen(one):
            pass
        for endpoint in (other, one):
            headers = {"Authorization": f"Bearer {KEY.token}", "X-Toolruntime-Client": "c" * 32}
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(f"{endpoint}/connect", headers=headers, protocols=(SUBPROTOCOL,)) as socket,
            ):
                assert decode_remote(await socket.receive_bytes()).type == "challenge"
                await socket.send_bytes(captured[0])
                said = decode_remote(await socket.receive_bytes())
                assert said.type == "denied"
                assert json.loads(said.body)["error"]["code"] == "signature_invalid"
        await client.execute("r1", "x")  # its connection is open still
        assert (await client.result("r1")).value == "done"


async def test_a_signature_for_one_path_opens_no_other(tmp_path: Path) -> None:
    """Every path but those of the probes needs one of its own; the token of scrapers reads the metrics alone."""
    scraper = "the-token-of-the-scraper"
    async with (
        runtime_server(tmp_path, ScriptedSandbox(), metrics_token=scraper) as endpoint,
        aiohttp.ClientSession() as session,
    ):
        base, ours = endpoint.removesuffix("/v1/execute"), await identity(endpoint)
        paths = (f"{base}/metrics", f"{endpoint}/capacity", f"{endpoint}/runs/r1")
        for url in paths:
            for wrong in (
                {"Authorization": f"Bearer {KEY.token}"},
                signed_headers(KEY, Target(ours, "GET", path_of(f"{endpoint}/other"))),
                signed_headers(KEY, Target(ours, "POST", path_of(url))),
            ):
                async with session.get(url, headers=wrong) as response:
                    assert response.status == 401, url
            elsewhere = signed_headers(KEY, Target("ab" * 32, "GET", path_of(url)))
            async with session.get(url, headers=elsewhere) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (421, "wrong_incarnation")
            assert (await signed_get(url, endpoint))[0] in (200, 404)
            async with session.get(url, headers={"Authorization": f"Bearer {scraper}"}) as response:
                assert response.status == (200 if url.endswith("/metrics") else 401)
        status, _, _ = await signed_post(endpoint, b"{}", headers={"Authorization": f"Bearer {scraper}"})
        assert status == 401
    with pytest.raises(ToolExecError, match="scrapers alone"):
        RuntimeServerSettings(keys=[KEY], metrics_token=KEY.token)


async def test_an_older_version_is_refused_with_a_clear_sentence(tmp_path: Path) -> None:
    """A server says so to an older client, by POST and over a connection."""
    async with runtime_server(tmp_path, ScriptedSandbox()) as endpoint, aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {KEY.token}"}
        async with session.post(endpoint, data=b"{}", headers=headers) as response:
            assert "update toolexec-remote" in (await response.json())["error"]["message"]
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{endpoint}/connect", headers=headers, protocols=("toolexec.runtime.v1",))
        assert "update toolexec-remote" in (caught.value.headers or {})["X-Toolruntime-Error"]


async def test_clocks_that_differ_are_named(tmp_path: Path) -> None:
    """The error says by how much, and that nothing was run; a retry helps only after they are set."""
    async with runtime_server(tmp_path, ScriptedSandbox()) as endpoint, aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {KEY.token}"}
        async with session.ws_connect(f"{endpoint}/connect", headers=headers, protocols=(SUBPROTOCOL,)) as socket:
            challenge = decode_remote(await socket.receive_bytes()).fields
            stamp, nonce = timestamp(1_000_000_000), "n" * 32
            target = Target(str(challenge["incarnation"]), "GET", "/v1/execute/connect", str(challenge["nonce"]))
            signature = sign(KEY.signing_secret, stamp, target, nonce.encode())
            fields = {"nonce": nonce, "timestamp": stamp, "signature": signature}
            await socket.send_bytes(encode_remote(RemoteMessage("hello", fields=fields)))
            error = json.loads(decode_remote(await socket.receive_bytes()).body)["error"]
    assert (error["code"], error["retryable"], error["outcome"]) == ("signature_stale", False, "not_sent")
    assert error["details"]["skew"] < -1e9


@pytest.mark.parametrize("protocol", ["duplex", "post"])
async def test_a_caller_is_refused_whose_clock_is_an_hour_late(
    tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the router: nothing was run, by how much the clocks differ, and that a retry does not help."""
    for module in ("app", "duplex_connection"):
        monkeypatch.setattr(f"toolexec_remote.server.{module}.time", lambda: time() + 3600)
    sandbox = Counting()
    async with serving(tmp_path, sandbox) as endpoint, remote_to(endpoint, protocol=protocol) as backend:
        with pytest.raises(ToolExecError) as caught:
            await Runtime([backend]).execute(Workshop().request("x", timeout=30.0))
    assert (caught.value.retryable, caught.value.outcome, sandbox.begun) == (False, "not_sent", 0)
    stale = root_of(caught.value)
    assert stale.code == "signature_stale"
    assert abs(stale.details["skew"] + 3600) < 60


def root_of(error: ToolExecError) -> ToolExecError:
    """Return the error that was the first one."""
    while isinstance(error.__cause__, ToolExecError):
        error = error.__cause__
    return error


@asynccontextmanager
async def lying(
    challenge: Incarnation, signer: Incarnation, *said: str, answers: Answers | None = None
) -> AsyncGenerator[str]:
    """Serve connections that say that they are one process, and sign with the key of another one; what comes then is
    answered with *answers*."""
    from aiohttp import web

    async def connect(request: web.Request) -> web.WebSocketResponse:
        there = web.WebSocketResponse(protocols=(SUBPROTOCOL,))
        await there.prepare(request)
        spoken = {"protocol": SUBPROTOCOL, "version": 2, "incarnation": challenge.id}
        await there.send_bytes(encode_remote(RemoteMessage("challenge", fields={**spoken, "nonce": "n"})))
        nonce = str(decode_remote(await there.receive_bytes()).fields["nonce"])
        spoken["proof"] = signer.state(*said, nonce)
        await there.send_bytes(encode_remote(RemoteMessage("welcome", fields=spoken)))
        async for message in there:
            if answers is not None and (answer := answers(decode_remote(message.data))) is not None:
                await there.send_bytes(encode_remote(answer))
        return there

    app = web.Application()
    app.router.add_get("/v1/execute/connect", connect)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"{site.name}/v1/execute"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("is_relayed", [False, True])
async def test_a_server_that_claims_the_identity_of_another_is_not_used(is_relayed: bool) -> None:
    """The error says that it lacks the key, and that a retry does not help."""
    its = Incarnation()  # what `/identity` of that one states for anyone is of no use
    signer, said = (its, ["here"]) if is_relayed else (Incarnation(), ["welcome", "n"])
    async with lying(its, signer, *said) as endpoint, remote_to(endpoint) as backend:
        state = await backend.check()
        assert not state.ok
        assert state.error is not None
        assert not state.error.retryable
        problem = backend.connections[0].problem
        assert problem is not None
        assert (problem.code, problem.outcome) == ("identity_unproven", "not_sent")
        with pytest.raises(ToolExecError) as caught:
            await Runtime([backend]).execute(Workshop().request("x", timeout=30.0))
    assert (root_of(caught.value).code, caught.value.outcome) == ("identity_unproven", "not_sent")
    assert not caught.value.retryable


async def test_a_process_that_claims_the_run_of_another_is_not_believed(tmp_path: Path) -> None:
    """A run whose end another incarnation states is lost, and is not started again."""
    shop, its = Workshop(), Incarnation()

    def claim(message: RemoteMessage) -> RemoteMessage | None:
        if message.type != "resume":
            return None
        body = encode_result(CodeResult(value="made up"))
        statement = its.state(ENDED, message.run, hashlib.sha256(body).hexdigest())
        return RemoteMessage("result", message.run, {"statement": statement}, body)

    async with (
        serving(tmp_path, reconnect=0.1) as endpoint,
        lying(its, its, "welcome", "n", answers=claim) as other,
        Wire(endpoint) as wire,
        remote_to(wire.endpoint) as backend,
    ):
        running = asyncio.create_task(Runtime([backend]).execute(shop.request(WAITS)))
        await asyncio.wait_for(shop.begun.wait(), PATIENCE)
        wire.lead_to(other)
        wire.cut()
        result = await asyncio.wait_for(running, PATIENCE)
    assert result.value is None
    assert "has not signed" in lost(result.error).message
    assert shop.calls.total() == 1


async def test_one_process_has_one_connection(tmp_path: Path) -> None:
    """Two endpoints that lead to it count once, and neither connection closes the other."""
    async with serving(tmp_path, Counting()) as endpoint, Wire(endpoint) as wire:
        async with remote_to(endpoint, wire.endpoint) as backend:
            await until(lambda: backend.check())
            await until(lambda: any("too; one connection" in str(each.problem) for each in backend.connections), 0.01)
            assert [each.up for each in backend.connections].count(True) == 1
            assert (await backend.check()).ok


async def test_only_the_own_words_of_a_process_say_how_its_run_ended(tmp_path: Path) -> None:
    """A process with the state of an older one passes them on; what it makes up has no signature that fits."""
    sandbox = Counting()
    sandbox.gate.set()
    async with runtime_server(tmp_path, sandbox) as endpoint, Client(endpoint) as client:
        await client.execute("r1", "x")
        assert (await client.expect("result", run="r1")).body
        before = client.incarnation
    async with runtime_server(tmp_path, sandbox) as endpoint, Client(endpoint) as client:
        await client.resume("r1", before)
        said = await client.expect("result")
        digest = hashlib.sha256(said.body).hexdigest()
        assert client.incarnation != before
        assert is_stated(before, said.fields["statement"], ENDED, "r1", digest)
        assert not is_stated(client.incarnation, said.fields["statement"], ENDED, "r1", digest)
        await client.resume("r1", client.incarnation)
        assert (await client.expect("gone")).fields["state"] == "never_started"  # it never had it
        await client.resume("r2", before)
        assert (await client.expect("gone")).fields == {"state": "was_running"}
    assert sandbox.begun == 1


async def test_a_key_that_is_taken_away_refuses_with_a_proof(tmp_path: Path) -> None:
    """Over a connection that is open, in the middle of a roll: nothing was run, and the error says which key."""
    from toolexec_remote.server import serve_runtime
    from toolexec_remote.signature import KeyRing

    ring, stop, address = KeyRing([ITS_KEY]), asyncio.Event(), asyncio.get_running_loop().create_future()
    sandbox = Counting()
    async with Runtime([sandbox]) as runtime:
        settings = RuntimeServerSettings(port=0, keys=[ITS_KEY])
        served = serve_runtime(runtime, settings, tmp_path, ring=ring, ready=address.set_result, stop=stop)
        serving_it = asyncio.create_task(served)
        async with remote_to(await address) as backend:
            assert (await backend.check()).ok
            ring.replace([KEY])
            with pytest.raises(ToolExecError) as caught:
                await backend.execute(Workshop().request("x"))
        stop.set()
        await serving_it
    error = caught.value
    assert (error.code, error.outcome, error.retryable, sandbox.begun) == ("unauthenticated", "not_sent", False, 0)


async def test_what_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """Through the router, too: within the time limit of the run; then the error is worth a retry, and has details."""

    async with serving(tmp_path, Counting()) as endpoint, Wire(endpoint) as wire:
        wire.closed = True
        async with remote_to(wire.endpoint, connect_timeout=0.2) as backend:
            runtime = Runtime([backend])
            with pytest.raises(SandboxUnavailableError) as caught:
                await runtime.execute(Workshop().request("x", timeout=0.3))
            assert caught.value.retryable
            assert [*caught.value.details["endpoints"]] == [wire.endpoint]
            waiting = asyncio.ensure_future(runtime.execute(Workshop().request("x", timeout=PATIENCE)))
            await until(lambda: not backend.connections[0].up)
            wire.closed = False
            await until(lambda: backend.connections[0].open_runs or waiting.done())
            waiting.cancel()
            await asyncio.wait({waiting})
