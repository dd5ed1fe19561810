"""Runs by POST: JSON, events, tools over HTTP, and what must be refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from packages.remote.tests.servers import KEY, OTHER, identity, runtime_server, signed_get, signed_post
from tests.engines.certificates import make_certificates
from tests.waiting import PATIENCE, until

from toolexec.errors import CodeError, ConfigurationError, SandboxUnavailableError
from toolexec.remote import RuntimeServerSettings, SigningKey
from toolexec.sandbox import ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.signature import Target, sign, signed_headers, timestamp
from toolexec_remote.wire import GatewayAddress, encode_request, read_response


class Programs:
    """Some programs, and how often each was begun."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun: list[str] = []
        self.stopped: list[str] = []
        self.sandbox = ScriptedSandbox(
            {
                "one": 1,
                "fail": CodeError("boom"),
                "print": self.print,
                "call": self.call,
                "chain": self.chain,
                "wait": self.wait,
            }
        )

    async def print(self, request: ExecuteRequest) -> str:
        request.output.write("one\r\n  two")
        await asyncio.sleep(0.01)
        request.output.write("oops", "stderr")
        return "printed"

    async def wait(self, request: ExecuteRequest) -> str:
        self.begun.append(request.code)
        request.output.write("waiting")
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.append(request.code)
            raise
        return "waited"

    async def call(self, request: ExecuteRequest) -> Any:
        assert request.gateway is not None
        return (await request.gateway.run_tool("math:add", {"a": 1, "b": 2})).value

    async def chain(self, request: ExecuteRequest) -> Any:
        from toolexec import Step

        assert request.gateway is not None
        result, steps = await request.gateway.run_chain(
            [Step(tool_id="math:add", args={}), Step(tool_id="math:add", args={})]
        )
        return [result.value if result is not None else None, len(steps)]


@pytest.fixture
def programs() -> Programs:
    return Programs()


@pytest.fixture
async def endpoint(tmp_path: Path, programs: Programs) -> AsyncIterator[str]:
    async with runtime_server(
        tmp_path, programs.sandbox, max_body_bytes=100_000, gateway_private=True, max_running=2
    ) as found:
        yield found
        programs.open.set()


def body(code: str, **more: Any) -> bytes:
    return encode_request(ExecuteRequest(code=code), **more)


async def test_a_program_runs_by_post(endpoint: str) -> None:
    """The response has the result, and the ID that the run was given."""
    status, headers, answer = await signed_post(endpoint, b'{"request":{"code":"one","limits":{}}}')
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert headers["X-Toolruntime-Run"]
    data = json.loads(answer)
    assert (data["result"]["value"], data["result"]["limits_enforced"]["Timeout"]) == (1, True)
    assert "error" not in data


async def test_the_failure_of_a_program_is_a_response(endpoint: str) -> None:
    """With the status 200: it was run."""
    status, _, answer = await signed_post(endpoint, body("fail"))
    assert status == 200
    assert read_response(answer).error is not None
    assert json.loads(answer)["error"]["code"] == "code_error"


def events(text: str) -> list[tuple[str, str, str]]:
    """Return type, ID and data of each event, as the WHATWG rules read them."""
    found: list[tuple[str, str, str]] = []
    for block in text.split("\n\n"):
        fields: dict[str, list[str]] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name:
                fields.setdefault(name, []).append(value.removeprefix(" "))
        if fields:
            found.append((fields["event"][0], fields["id"][0], "\n".join(fields["data"])))
    return found


async def test_events_come_while_it_runs(endpoint: str) -> None:
    """Output first, the result at the end; each event has an ID."""
    status, headers, answer = await signed_post(
        endpoint, body("print"), headers={"Accept": "text/event-stream", "Idempotency-Key": "r1"}
    )
    assert (status, headers["Content-Type"]) == (200, "text/event-stream")
    *output, last = events(answer.decode())
    assert output == [("stdout", "r1:1", "one\n  two"), ("stderr", "r1:2", "oops")]
    result = json.loads(last[2])
    assert (last[0], last[1], result["value"], result["stdout"]) == ("result", "r1:3", "printed", "one\r\n  two")


async def test_a_failure_is_an_event(endpoint: str) -> None:
    """Its data is the whole response."""
    _, _, answer = await signed_post(endpoint, body("fail"), headers={"Accept": "text/event-stream"})
    [(kind, _, data)] = events(answer.decode())
    assert kind == "error"
    assert json.loads(data)["error"]["message"] == "boom"


async def test_a_lost_stream_goes_on(endpoint: str, programs: Programs) -> None:
    """With the last event's ID; the program was begun once."""
    wanted = body("wait")
    target = Target(await identity(endpoint), "POST", "/v1/execute", "r1")
    headers = {**signed_headers(KEY, target, wanted), "Accept": "text/event-stream", "Idempotency-Key": "r1"}
    async with aiohttp.ClientSession() as session:
        async with session.post(endpoint, data=wanted, headers=headers) as response:
            first = await asyncio.wait_for(response.content.readuntil(b"\n\n"), PATIENCE)
        assert events(first.decode()) == [("stdout", "r1:1", "waiting")]
    again = asyncio.create_task(
        signed_post(endpoint, wanted, headers={"Accept": "text/event-stream", "Last-Event-ID": "r1:1"})
    )
    await asyncio.sleep(0)
    programs.open.set()
    _, _, answer = await again
    [(kind, name, data)] = events(answer.decode())
    assert (kind, name, json.loads(data)["value"]) == ("result", "r1:2", "waited")
    assert programs.begun == ["wait"]


async def test_the_same_id_is_the_same_run(endpoint: str, programs: Programs) -> None:
    """While it runs, and after its end; with another body it is refused."""
    key = {"Idempotency-Key": "r1"}
    both = [asyncio.create_task(signed_post(endpoint, body("wait"), headers=key)) for _ in range(2)]
    await until(lambda: programs.begun)
    programs.open.set()
    answers = [await each for each in both] + [await signed_post(endpoint, body("wait"), headers=key)]
    assert {read_response(answer).value for _, _, answer in answers} == {"waited"}
    assert programs.begun == ["wait"]
    status, _, answer = await signed_post(endpoint, body("one"), headers=key)
    assert (status, json.loads(answer)["error"]["code"]) == (409, "run_id_taken")
    status, _, answer = await signed_post(endpoint, body("one"), headers=key, key=OTHER)
    assert (status, read_response(answer).value) == (200, 1)


async def test_who_hangs_up_stops_the_program(tmp_path: Path, programs: Programs) -> None:
    """At once without an ID to come back with, else after the time for that."""
    async with runtime_server(tmp_path, programs.sandbox, reconnect=0.1) as endpoint:
        for headers in ({}, {"Idempotency-Key": "r1"}):
            task = asyncio.create_task(signed_post(endpoint, body("wait"), headers=headers))
            await until(lambda: len(programs.begun) == 1)
            task.cancel()
            await asyncio.wait([task])
            await until(lambda: programs.stopped == ["wait"])
            programs.begun.clear()
            programs.stopped.clear()


async def test_who_hangs_up_before_the_program_starts_gives_it_up(tmp_path: Path, programs: Programs) -> None:
    """At once, whatever time there is to come back: nothing was run, and the same request is a new one."""
    async with runtime_server(tmp_path, programs.sandbox, reconnect=600.0, max_running=1) as endpoint:
        first = asyncio.create_task(signed_post(endpoint, body("wait"), headers={"Idempotency-Key": "r1"}))
        await until(lambda: programs.begun)
        second = asyncio.create_task(signed_post(endpoint, body("wait"), headers={"Idempotency-Key": "r2"}))
        await _state(endpoint, "r2", "queued")
        second.cancel()
        await _state(endpoint, "r2", "unknown")
        again = asyncio.create_task(signed_post(endpoint, body("one"), headers={"Idempotency-Key": "r2"}))
        await _state(endpoint, "r2", "queued")
        programs.open.set()
        assert [read_response((await task)[2]).value for task in (first, again)] == ["waited", 1]
        assert programs.begun == ["wait"]


async def _state(endpoint: str, run: str, wanted: str) -> None:
    """Wait until a run is in this state."""

    async def is_in_it() -> bool:
        _, answer = await signed_get(f"{endpoint}/runs/{run}", endpoint)
        return json.loads(answer)["state"] == wanted

    await until(is_in_it)


async def test_the_state_of_a_run_can_be_read(endpoint: str, programs: Programs) -> None:
    """By its tenant."""
    task = asyncio.create_task(signed_post(endpoint, body("wait"), headers={"Idempotency-Key": "r1"}))
    await until(lambda: programs.begun)

    async def show(key: SigningKey = KEY, run: str = "r1") -> tuple[int, Any]:
        status, body = await signed_get(f"{endpoint}/runs/{run}", endpoint, key)
        return status, json.loads(body)

    assert await show() == (200, {"run": "r1", "state": "running"})
    assert (await show(OTHER))[0] == 404
    programs.open.set()
    await task
    status, data = await show()
    assert (status, data["result"]["value"]) == (200, "waited")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"Authorization": ""}, 401, "unauthenticated"),
        ({"Authorization": "Bearer " + "x" * 20}, 401, "unauthenticated"),
        ({"X-Toolruntime-Key": "bob-1"}, 401, "unauthenticated"),
        ({"X-Toolruntime-Signature": "AAAA"}, 401, "signature_invalid"),
        ({"X-Toolruntime-Timestamp": timestamp(0), "X-Toolruntime-Signature": ""}, 401, "signature_invalid"),
        ({"Idempotency-Key": "a b"}, 400, "invalid_request"),
    ],
    ids=["no-token", "token", "key", "signature", "unsigned", "id"],
)
async def test_requests_that_are_not_right_are_refused(
    endpoint: str, programs: Programs, change: dict[str, str], status: int, code: str
) -> None:
    """With a status and a code that say why, in the body and in a header."""
    found, headers, answer = await signed_post(endpoint, body("wait"), headers=change)
    error = json.loads(answer)["error"]
    assert (found, error["code"], error["outcome"]) == (status, code, "not_sent")
    assert json.loads(headers["X-Toolruntime-Error"])["error"]["code"] == code
    assert programs.begun == []


async def test_a_stale_signature_says_by_how_much(endpoint: str) -> None:
    """In seconds."""
    wanted = body("one")
    stamp, target = timestamp(1_000_000_000), Target(await identity(endpoint), "POST", "/v1/execute")
    headers = {
        "X-Toolruntime-Timestamp": stamp,
        "X-Toolruntime-Signature": sign(KEY.signing_secret, stamp, target, wanted),
    }
    status, _, answer = await signed_post(endpoint, wanted, headers=headers)
    error = json.loads(answer)["error"]
    assert (status, error["code"]) == (401, "signature_stale")
    assert error["details"]["skew"] < -1e9


async def test_a_request_that_is_sent_again_as_it_is_is_refused(endpoint: str) -> None:
    """A new attempt needs a new signature."""
    wanted = body("one")
    headers = signed_headers(KEY, Target(await identity(endpoint), "POST", "/v1/execute"), wanted)
    assert (await signed_post(endpoint, wanted, headers=headers))[0] == 200
    status, _, answer = await signed_post(endpoint, wanted, headers=headers)
    assert (status, json.loads(answer)["error"]["code"]) == (401, "signature_replayed")


async def test_a_body_over_the_limit_is_refused(endpoint: str) -> None:
    """The same holds for one that does not say its size before."""
    big = b'{"request":{"code":"' + b"x" * 200_000 + b'"}}'
    status, _, answer = await signed_post(endpoint, big)
    assert (status, json.loads(answer)["error"]["code"]) == (413, "request_too_large")

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(big), 10_000):
            yield big[start : start + 10_000]

    signed = signed_headers(KEY, Target(await identity(endpoint), "POST", "/v1/execute"), big)
    async with (
        aiohttp.ClientSession() as session,
        session.post(endpoint, data=pieces(), headers=signed) as response,
    ):
        assert response.status == 413


@pytest.mark.parametrize("wrong", [b"", b"{", b"{}", b'{"request":{"code":5}}', b'{"request":{"code":""}}'])
async def test_a_body_that_makes_no_sense_is_refused(endpoint: str, wrong: bytes) -> None:
    """With the status 400."""
    status, _, answer = await signed_post(endpoint, wrong)
    assert (status, json.loads(answer)["error"]["outcome"]) == (400, "not_sent")


async def test_a_full_queue_is_a_503(tmp_path: Path, programs: Programs) -> None:
    """With the time after which to come again."""
    async with runtime_server(tmp_path, programs.sandbox, max_running=1, max_queued=1) as endpoint:
        running = asyncio.create_task(signed_post(endpoint, body("wait")))
        await until(lambda: programs.begun)
        waiting = asyncio.create_task(signed_post(endpoint, body("one")))

        async def is_full() -> bool:
            status, headers, answer = await signed_post(endpoint, body("one"))
            assert (status, json.loads(answer)["error"]["code"]) == (503, "queue_full")
            assert int(headers["Retry-After"]) >= 1
            return True

        async def queued() -> int:
            return json.loads((await signed_get(f"{endpoint}/capacity", endpoint))[1])["capacity"]["queued"]

        await until(queued, 0.01)
        assert await is_full()
        programs.open.set()
        assert (await running)[0] == (await waiting)[0] == 200


@asynccontextmanager
async def gateway(answer: Any, token: str = "per-run") -> AsyncIterator[tuple[GatewayAddress, list[Any]]]:
    """Serve a gateway over HTTP that gives *answer* for each request."""
    asked: list[Any] = []

    async def post(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {token}":
            return web.Response(status=401)
        message = await request.json()
        asked.append((message["type"], message["payload"]))
        return web.json_response({"type": "response", "id": message["id"], "payload": answer})

    app = web.Application()
    app.router.add_post("/gateway", post)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield GatewayAddress(url=f"http://127.0.0.1:{runner.addresses[0][1]}/gateway", token="per-run"), asked
    finally:
        await runner.cleanup()


async def test_tools_are_asked_over_http(endpoint: str) -> None:
    """At the gateway that the request names, with its token; the calls are in the result."""
    async with gateway({"structured": 3, "backendKind": "local"}) as (address, asked):
        _, _, answer = await signed_post(endpoint, body("call", gateway=address))
    result = read_response(answer)
    assert (result.value, result.error) == (3, None)
    assert asked == [("run_tool", {"id": "math:add", "args": {"a": 1, "b": 2}})]
    assert [(call.tool_id, call.backend_kind) for call in result.tool_calls] == [("math:add", "local")]


async def test_chains_are_asked_over_http(endpoint: str) -> None:
    """In one request."""
    steps = [{"toolId": "math:add", "structured": 1}, {"toolId": "math:add", "structured": 2}]
    async with gateway({"structured": 2, "stepResults": steps}) as (address, asked):
        _, _, answer = await signed_post(endpoint, body("chain", gateway=address))
    assert read_response(answer).value == [2, 2]
    assert [kind for kind, _ in asked] == ["run_chain"]


async def test_a_wrong_token_of_the_gateway_fails_the_call(endpoint: str) -> None:
    """The program gets an error that says so."""
    async with gateway({}, token="another") as (address, asked):
        _, _, answer = await signed_post(endpoint, body("call", gateway=address))
    error = read_response(answer).error
    assert error is not None
    assert "refuses the token" in str(error)
    assert asked == []


async def test_without_a_gateway_there_are_no_tools(endpoint: str) -> None:
    """The error says what is missing."""
    _, _, answer = await signed_post(endpoint, body("call"))
    error = read_response(answer).error
    assert error is not None
    assert "no gateway" in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/g",
        "http://[::1]/g",
        "http://169.254.169.254/latest",
        "http://10.0.0.1/g",
        "ftp://example.com/g",
        "http://user:pw@example.com/g",
        "http:///g",
        "http://other.example.com/g",
    ],
)
async def test_gateways_that_must_not_be_reached_are_refused(tmp_path: Path, programs: Programs, url: str) -> None:
    """A client cannot have the server talk to its own network."""
    async with runtime_server(
        tmp_path, programs.sandbox, gateway_hosts=["127.0.0.1:1", "*.169.example", "10.0.0.1"]
    ) as endpoint:
        status, _, answer = await signed_post(endpoint, body("call", gateway=GatewayAddress(url=url)))
    assert (status, json.loads(answer)["error"]["code"]) == (400, "invalid_request")
    assert programs.sandbox.requests == []


async def test_names_of_private_addresses_are_refused(tmp_path: Path, programs: Programs) -> None:
    """The addresses of a name are checked when it is connected to."""
    async with runtime_server(tmp_path, programs.sandbox) as endpoint:
        address = GatewayAddress(url="http://localhost:9/g")
        _, _, answer = await signed_post(endpoint, body("call", gateway=address))
    assert "must not be reached" in str(read_response(answer).error)


async def test_health_readiness_and_metrics(endpoint: str) -> None:
    """The first two are open; the others are for those with a key."""
    base = endpoint.removesuffix("/v1/execute")
    await signed_post(endpoint, body("one"))
    async with aiohttp.ClientSession() as session:
        for path in ("/health", "/ready"):
            async with session.get(base + path) as response:
                assert (response.status, await response.json()) == (200, {"status": "ok"})
        for path in ("/metrics", "/v1/execute/capacity"):
            async with session.get(base + path) as response:
                assert response.status == 401
        _, said = await signed_get(f"{base}/metrics", endpoint)
        text = said.decode()
        assert 'toolexec_remote_runs_total{outcome="ok"} 1.0' in text
        assert "toolexec_remote_running 0.0" in text


async def test_a_server_is_ready_when_its_sandboxes_are_built(tmp_path: Path) -> None:
    """Until then it takes runs, but no probe sends it any; a sandbox that cannot be built keeps it no longer."""
    let, fails = asyncio.Event(), SandboxUnavailableError("there is no compiler")

    class Built(ScriptedSandbox):
        async def start(self) -> None:
            await let.wait()
            raise fails

    async with runtime_server(tmp_path, Built({"one": 1})) as endpoint, aiohttp.ClientSession() as session:
        url = endpoint.replace("/v1/execute", "/ready")

        async def status() -> int:
            async with session.get(url) as response:
                said = await response.json()
                assert said["status"] in ("ok", "a sandbox is being built")
                return response.status

        assert await status() == 503
        assert (await signed_post(endpoint, body("one")))[0] == 200
        let.set()

        async def is_ready() -> bool:
            return await status() == 200

        await until(is_ready)


async def test_tls_and_certificates_of_clients(tmp_path: Path, programs: Programs) -> None:
    """A client without a certificate of `client_ca` is not let in, whatever its key."""
    import ssl

    certificates = tmp_path / "certificates"
    make_certificates(certificates)
    async with runtime_server(
        tmp_path,
        programs.sandbox,
        tls_cert=str(certificates / "server-cert.pem"),
        tls_key=str(certificates / "server-key.pem"),
        client_ca=str(certificates / "ca.pem"),
    ) as endpoint:
        assert endpoint.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        with pytest.raises(aiohttp.ClientError):
            await signed_post(endpoint, body("one"), tls=context)
        context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
        status, _, answer = await signed_post(endpoint, body("one"), tls=context)
        assert (status, read_response(answer).value) == (200, 1)


async def test_connections_that_bring_no_request_are_closed(tmp_path: Path, programs: Programs) -> None:
    """Silent ones, and those with half of a head; a request that takes long is left alone."""
    async with runtime_server(tmp_path, programs.sandbox, header_timeout=0.2) as endpoint:
        port = int(endpoint.rsplit(":", 1)[1].split("/")[0])
        running = asyncio.create_task(signed_post(endpoint, body("wait")))
        await until(lambda: programs.begun)
        for sent in (b"", b"POST /v1/execute HTTP/1.1\r\nHost: x\r\nX-Slow: "):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            writer.close()
        programs.open.set()
        status, _, answer = await running
    assert (status, read_response(answer).value) == (200, "waited")


@pytest.mark.parametrize(
    "settings",
    [
        {"keys": []},
        {"host": "0.0.0.0"},
        {"path": "execute"},
        {"path": "/"},
        {"tls_key": "key.pem"},
        {"client_ca": "ca.pem"},
        {"profiles": []},
        {"profiles": ["safe"]},
        {"max_running": 0},
        {"keeps": 0},
        {"drain_grace": -1},
        {"port": 70_000},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    """Above all those that would let others run code here."""
    with pytest.raises(ConfigurationError):
        RuntimeServerSettings(**{"keys": [KEY], **settings})


async def test_an_address_that_is_taken_is_an_error(endpoint: str, tmp_path: Path, programs: Programs) -> None:
    """The error says what to do."""
    port = int(endpoint.rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(ConfigurationError, match="cannot listen"):
        async with runtime_server(tmp_path / "other", ScriptedSandbox(), port=port):
            raise AssertionError("it listens")
