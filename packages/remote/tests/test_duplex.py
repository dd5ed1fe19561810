"""The duplex route, message by message: many runs over one connection, and over the next one when it is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from packages.remote.tests.servers import OTHER, Client, runtime_server, signed_get
from tests.waiting import until

from toolexec.errors import (
    CodeError,
    InvalidLimitsError,
    InvalidRequestError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolCallLimitError,
)
from toolexec.sandbox import ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.incarnation import NEVER_STARTED, is_stated
from toolexec_remote.messages import RemoteMessage
from toolexec_remote.wire import encode_request


class Gate:
    """Programs that wait, and one that calls a tool; `begun` counts how often each has started."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun: list[str] = []
        self.stopped: list[str] = []

    def sandbox(self, **more: Any) -> ScriptedSandbox:
        return ScriptedSandbox(
            {"call": self.call, "print": self.print, "big": "x" * 3_000_000}, default=self.wait, **more
        )

    async def wait(self, request: ExecuteRequest) -> str:
        self.begun.append(request.code)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.append(request.code)
            raise
        return f"done {request.code}"

    async def call(self, request: ExecuteRequest) -> Any:
        assert request.gateway is not None
        return (await request.gateway.run_tool("math:add", {"a": 1, "b": 2})).value

    async def print(self, request: ExecuteRequest) -> str:
        request.output.write("one\n")
        request.output.write("two\n", "stderr")
        return "printed"


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def endpoint(tmp_path: Path, gate: Gate) -> AsyncIterator[str]:
    async with runtime_server(tmp_path, gate.sandbox(), max_running=2, reconnect=1.0, go_timeout=1.0) as found:
        yield found
        gate.open.set()


async def test_the_welcome_says_what_there_is(endpoint: str) -> None:
    """Protocol, room, limits and sandboxes."""
    async with Client(endpoint) as client:
        said = client.welcome
    assert (said["protocol"], said["version"], said["keeps"]) == ("toolexec.runtime.v2", 2, 1.0)
    assert said["capacity"] == {
        "free": 2,
        "running": 0,
        "queued": 0,
        "max_running": 2,
        "max_queued": 1000,
        "draining": False,
    }
    [backend] = said["backends"]
    assert (backend["kind"], backend["isolation"], backend["languages"]) == ("wasm", "wasm", ["python"])
    assert backend["profiles"] == ["standard", "hardened"]
    assert backend["enforces"]["python"]["timeout"] is True


async def test_a_program_runs_and_calls_tools_of_its_caller(endpoint: str) -> None:
    """The call comes over the connection, and its answer goes back."""
    async with Client(endpoint) as client:
        await client.execute("r1", "call")
        asked = await client.answer("r1", lambda message: sum(message["payload"]["args"].values()))
        result = await client.result("r1")
    assert (asked["type"], asked["payload"]) == ("run_tool", {"id": "math:add", "args": {"a": 1, "b": 2}})
    assert (result.value, result.error) == (3, None)
    assert [call.tool_id for call in result.tool_calls] == ["math:add"]
    assert result.backend is not None
    assert (result.backend.kind, result.backend.isolation) == ("wasm", "wasm")


async def test_output_comes_while_it_runs_and_with_the_result(endpoint: str) -> None:
    """Each stream by itself."""
    async with Client(endpoint) as client:
        await client.execute("r1", "print")
        frames = json.loads((await client.expect("frame", run="r1")).body)
        result = await client.result("r1")
    assert [(each["payload"]["text"], each["payload"]["stream"]) for each in frames] == [
        ("one\n", "stdout"),
        ("two\n", "stderr"),
    ]
    assert (result.value, result.stdout, result.stderr) == ("printed", "one\n", "two\n")


async def test_a_large_result_arrives(endpoint: str) -> None:
    """In one message."""
    async with Client(endpoint) as client:
        await client.execute("r1", "big")
        assert len((await client.result("r1")).value) == 3_000_000


async def test_a_program_starts_only_when_its_caller_says_go(endpoint: str, gate: Gate) -> None:
    """A run without it is given back after some time, and never starts."""
    async with Client(endpoint) as client:
        await client.execute("r1", "a", go=False)
        assert (await client.expect("ready", run="r1")).fields == {"seconds": 1.0}
        assert gate.begun == []
        await client.send("r1", "go", seconds=20)
        await until(lambda: gate.begun)
        await client.execute("r2", "b", go=False)
        with pytest.raises(SandboxUnavailableError, match="did not confirm") as caught:
            await client.result("r2")
        assert (caught.value.outcome == "not_sent", caught.value.retryable) == (True, True)
        gate.open.set()
        assert (await client.result("r1")).value == "done a"
    assert gate.begun == ["a"]


async def test_the_time_that_is_left_narrows_the_limit(endpoint: str, gate: Gate) -> None:
    """The time in the queue is not given to a run again."""
    async with Client(endpoint) as client:
        await client.execute("r1", "a", go=False, timeout=60)
        await client.expect("ready", run="r1")
        await client.send("r1", "go", seconds=0.05)
        result = await client.result("r1")
    assert result.error is not None
    assert result.error.code == "code_timeout"


async def test_no_request_raises_the_time_limit_of_the_server(tmp_path: Path, gate: Gate) -> None:
    """The operator's bound holds for a run that asks for none, and more is refused before it begins."""
    async with runtime_server(tmp_path, gate.sandbox(), max_timeout=0.05) as endpoint, Client(endpoint) as client:
        await client.execute("r1", "a", timeout=3600.0)
        with pytest.raises(InvalidLimitsError, match=r"timeout 3600 s is above the ceiling of 0\.05 s"):
            await client.result("r1")
        assert gate.begun == []
        await client.execute("r2", "a", timeout=None)
        result = await client.result("r2")
        assert result.error is not None
        assert result.error.code == "code_timeout"


async def test_a_client_that_acknowledges_nothing_is_stopped(
    endpoint: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of the server stays bounded."""
    monkeypatch.setattr("toolexec_remote.server.duplex_run._MAX_UNACKNOWLEDGED", 3)
    async with Client(endpoint) as client:
        for number in range(4):
            await client.execute(f"r{number}", "print", signature="AAAA")
        with pytest.raises(AssertionError, match="1002"):
            await client.expect("result")


async def test_runs_over_the_bound_wait(endpoint: str, gate: Gate) -> None:
    """The capacity says so, and they start as others end."""
    async with Client(endpoint) as client:
        for number in range(4):
            await client.execute(f"r{number}", str(number))
        await until(lambda: len(gate.begun) == 2)
        said = await client.expect("capacity")
        while said.fields["queued"] != 2:
            said = await client.expect("capacity")
        assert (said.fields["free"], said.fields["running"]) == (0, 2)
        gate.open.set()
        assert [(await client.result(f"r{number}")).value for number in range(4)] == [f"done {n}" for n in range(4)]


async def test_a_run_goes_on_over_a_new_connection(endpoint: str, gate: Gate) -> None:
    """The end that the client has not seen comes again; it was run once."""
    async with Client(endpoint) as client:
        await client.execute("r1", "a")
        await until(lambda: gate.begun)
        await client.lose()
        gate.open.set()
        await client.connect()
        await client.resume("r1")
        assert (await client.result("r1")).value == "done a"
    assert gate.begun == ["a"]


async def test_what_was_sent_twice_is_done_once(endpoint: str, gate: Gate) -> None:
    """A client that does not know whether its request has arrived sends it again over the next connection."""
    async with Client(endpoint) as client:
        await client.execute("r1", "a")
        await until(lambda: gate.begun)
        await client.lose()
        await client.connect()
        link = client.links["r1"]
        await client.resume("r1")
        for message in link.again():
            await client.put(message)
        gate.open.set()
        assert (await client.result("r1")).value == "done a"
    assert gate.begun == ["a"]


async def test_a_call_goes_on_over_a_new_connection(endpoint: str) -> None:
    """A request that was on its way when the connection was lost is asked again, once."""
    async with Client(endpoint) as client:
        await client.execute("r1", "call")
        await client.expect("started", run="r1")
        await client.lose()
        await client.connect()
        await client.resume("r1")
        await client.answer("r1", lambda _: 7)
        assert (await client.result("r1")).value == 7


async def test_a_run_whose_client_stays_away_is_stopped(endpoint: str, gate: Gate) -> None:
    """After the time for coming back; who comes later gets to know how it ended."""
    async with Client(endpoint) as client:
        await client.execute("r1", "a")
        await until(lambda: gate.begun)
        await client.lose()
        await until(lambda: gate.stopped == ["a"])
        await client.connect()
        await client.resume("r1")
        result = await client.result("r1")
    assert isinstance(result.error, SandboxFailedError)
    assert "did not come back in time" in result.error.message


async def test_what_waits_does_not_start_while_its_client_is_away(tmp_path: Path, gate: Gate) -> None:
    """A queued program starts when its client is back; others have their turns meanwhile."""
    async with (
        runtime_server(tmp_path, gate.sandbox(), max_running=2, reconnect=60.0) as endpoint,
        Client(endpoint) as client,
        Client(endpoint, OTHER) as other,
    ):
        for run in ("r1", "r2"):
            await client.execute(run, run)
        await until(lambda: len(gate.begun) == 2)
        await client.execute("r3", "r3")
        await client.lose()
        gate.open.set()
        await other.execute("r1", "other")
        assert (await other.result("r1")).value == "done other"
        assert gate.begun == ["r1", "r2", "other"]
        await client.connect()
        await client.resume("r3")
        assert (await client.result("r3")).value == "done r3"


async def test_a_run_that_is_unknown_never_starts(endpoint: str, gate: Gate) -> None:
    """Not even when the request arrives after the question: the answer can be relied on."""
    async with Client(endpoint) as client:
        await client.resume("r1")
        gone = (await client.expect("gone")).fields
        assert gone["state"] == "never_started"
        assert is_stated(client.incarnation, gone["proof"], NEVER_STARTED, "ann-1", "r1")
        await client.execute("r1", "a")
        with pytest.raises(SandboxUnavailableError, match="given up before it started"):
            await client.result("r1")
    assert gate.begun == []


async def test_a_new_connection_of_a_client_ends_the_older_one(endpoint: str) -> None:
    """The older one may be half-open: nothing that it still brings counts."""
    first, second = Client(endpoint), Client(endpoint)
    async with first, second:
        await second.execute("r1", "print")
        assert (await second.result("r1")).value == "printed"
        with pytest.raises(AssertionError, match="the connection ended"):
            await first.expect("result")


async def test_runs_of_other_tenants_are_out_of_reach(endpoint: str, gate: Gate) -> None:
    """The same ID is another run for another tenant."""
    async with Client(endpoint) as ann, Client(endpoint, OTHER) as bob:
        await ann.execute("r1", "a")
        await until(lambda: gate.begun)
        await bob.resume("r1")
        assert (await bob.expect("gone")).fields["state"] == "never_started"
        gate.open.set()
        assert (await ann.result("r1")).value == "done a"


async def test_a_cancelled_run_is_stopped(endpoint: str, gate: Gate) -> None:
    """One that waits never starts, one that runs ends; both are answered."""
    async with Client(endpoint) as client:
        for number in range(3):
            await client.execute(f"r{number}", str(number))
        await until(lambda: len(gate.begun) == 2)
        await client.send("r2", "cancel")
        with pytest.raises(SandboxFailedError) as caught:
            await client.result("r2")
        assert caught.value.outcome == "not_sent"
        await client.send("r0", "cancel")
        result = await client.result("r0")
        assert isinstance(result.error, SandboxFailedError)
        assert result.error.outcome != "not_sent"
    assert gate.stopped == ["0"]


@pytest.mark.parametrize("kind", ["execute", "open"])
async def test_what_is_cancelled_before_its_first_step_keeps_no_place(endpoint: str, kind: str) -> None:
    """Each is answered, and all room is there again, though none of them had begun."""
    async with Client(endpoint) as client:
        for number in range(10):
            body = encode_request(ExecuteRequest(code="1"), run=f"r{number}")
            await client.begin(kind, f"r{number}", body, False)
            await client.send(f"r{number}", "cancel")
        for number in range(10):
            assert (await client.expect("refused", run=f"r{number}")).body
        await client.execute("last", "call")
        await client.answer("last", lambda message: 3)
        assert (await client.result("last")).value == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"signature": "AAAA"}, "signature_invalid"),
        ({"profile": "dev"}, "sandbox_denied"),
        ({"profile": "safe"}, "invalid_request"),
    ],
    ids=["signature", "profile", "unknown-profile"],
)
async def test_a_request_that_is_wrong_is_refused_by_itself(endpoint: str, change: dict[str, Any], code: str) -> None:
    """The connection stays, and so do the other runs."""
    async with Client(endpoint) as client:
        await client.execute("r1", "a", **change)
        with pytest.raises((SandboxDeniedError, InvalidRequestError)) as caught:
            await client.result("r1")
        assert (caught.value.code, caught.value.outcome == "not_sent") == (code, True)
        await client.execute("r2", "print")
        assert (await client.result("r2")).value == "printed"


async def test_a_body_is_for_its_run_only(endpoint: str, gate: Gate) -> None:
    """A signed request that was seen on the way cannot be sent under another name, or again."""
    async with Client(endpoint) as client:
        body = encode_request(ExecuteRequest(code="a"), run="r1")
        await client.begin("execute", "r2", body)
        with pytest.raises(InvalidRequestError, match="for the run r1"):
            await client.result("r2")
        await client.execute("r3", "print")
        sent = client.links["r3"].again()[0]
        assert (await client.result("r3")).value == "printed"
        await client.put(RemoteMessage("execute", "r3", sent.fields, sent.body, 1))
        with pytest.raises(SandboxDeniedError) as caught:
            client.links["r3"] = type(client.links["r3"])("r3")
            client.links["r3"].send("execute")
            await client.result("r3")
        assert caught.value.code == "signature_replayed"
    assert gate.begun == []


async def test_a_sandbox_that_is_not_there_is_never_replaced(endpoint: str) -> None:
    """A request may name the kind that must run it."""
    async with Client(endpoint) as client:
        for kind, run in (("bubblewrap", "r1"), ("wasm", "r2")):
            await client.begin("execute", run, encode_request(ExecuteRequest(code="print"), run=run, sandbox=kind))
        with pytest.raises(SandboxUnavailableError, match="no sandbox bubblewrap") as caught:
            await client.result("r1")
        assert caught.value.outcome == "not_sent"
        assert (await client.result("r2")).value == "printed"


async def test_a_failure_of_the_program_is_in_its_result(tmp_path: Path) -> None:
    """The program was run, and is not refused."""
    failing = ScriptedSandbox({"fail": CodeError("boom", line=2)})
    async with runtime_server(tmp_path, failing) as endpoint, Client(endpoint) as client:
        await client.execute("r1", "fail")
        result = await client.result("r1")
    assert isinstance(result.error, CodeError)
    assert (result.error.message, result.error.line) == ("boom", 2)


async def test_the_limits_of_a_request_hold(tmp_path: Path) -> None:
    """The server counts calls, whatever its client does."""
    from toolexec.sandbox import Limits

    async def call_twice(request: ExecuteRequest) -> Any:
        assert request.gateway is not None
        await request.gateway.run_tool("math:add", {})
        return (await request.gateway.run_tool("math:add", {})).value

    async with (
        runtime_server(tmp_path, ScriptedSandbox({"twice": call_twice})) as endpoint,
        Client(endpoint) as client,
    ):
        await client.execute("r1", "twice", limits=Limits(max_tool_calls=1))
        await client.answer("r1", lambda _: 1)
        result = await client.result("r1")
    assert isinstance(result.error, ToolCallLimitError)


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b'{"type":"execute"}\n',
        b'{"type":"frame","run":"r1","seq":9}\n',
        b'{"type":"odd","run":"r1"}\n',
    ],
    ids=["nonsense", "no-run", "gap", "type"],
)
async def test_a_client_that_breaks_the_protocol_loses_its_connection(endpoint: str, gate: Gate, data: bytes) -> None:
    """Its runs wait for it, and other clients notice nothing."""
    async with Client(endpoint) as client, Client(endpoint, OTHER) as other:
        await client.execute("r1", "a")
        await until(lambda: gate.begun)
        await client._socket.send_bytes(data)
        with pytest.raises(AssertionError, match="1002"):
            await client.expect("result")
        gate.open.set()
        await client.lose()
        await client.connect()
        await client.resume("r1")
        assert (await client.result("r1")).value == "done a"
        await other.execute("r1", "print")
        assert (await other.result("r1")).value == "printed"


async def test_a_connection_that_does_not_answer_is_closed(tmp_path: Path, gate: Gate) -> None:
    """A half-open one is found out by its silence, and its run waits for the next connection."""
    async with runtime_server(tmp_path, gate.sandbox(), ping=0.2, reconnect=30.0) as endpoint:
        client = Client(endpoint)
        async with client:
            await client.execute("r1", "a")
            await until(lambda: gate.begun)
            other = Client(endpoint)  # the first one reads nothing from now on, so it answers no ping

            async def connections() -> bool:
                _, said = await signed_get(endpoint.replace("/v1/execute", "/metrics"), endpoint)
                return b"toolexec_remote_connections 0.0" in said

            await until(connections, 0.05)
            gate.open.set()
            other.links = client.links
            async with other:
                await other.resume("r1")
                assert (await other.result("r1")).value == "done a"


async def test_a_server_that_ends_gives_back_what_has_not_started(tmp_path: Path, gate: Gate) -> None:
    """Runs under way may end, and their results are delivered; nothing new is taken."""
    stop = asyncio.Event()
    async with (
        runtime_server(tmp_path, gate.sandbox(), max_running=1, stop=stop) as endpoint,
        Client(endpoint) as client,
    ):
        await client.execute("r1", "a")
        await until(lambda: gate.begun)
        await client.execute("r2", "b")
        stop.set()
        with pytest.raises(SandboxUnavailableError) as caught:
            await client.result("r2")
        assert (caught.value.code, caught.value.outcome == "not_sent", caught.value.retryable) == (
            "runtime_draining",
            True,
            True,
        )
        await client.execute("r3", "c")
        with pytest.raises(SandboxUnavailableError, match="takes no more runs"):
            await client.result("r3")
        gate.open.set()
        assert (await client.result("r1")).value == "done a"
    assert gate.begun == ["a"]


async def test_a_draining_server_stops_what_takes_too_long(tmp_path: Path, gate: Gate) -> None:
    """After the grace, with an error that says so."""
    stop = asyncio.Event()
    async with (
        runtime_server(tmp_path, gate.sandbox(), stop=stop, drain_grace=0.05) as endpoint,
        Client(endpoint) as client,
    ):
        await client.execute("r1", "a")
        await until(lambda: gate.begun)
        stop.set()
        result = await client.result("r1")
    assert isinstance(result.error, SandboxFailedError)
    assert "had to end" in result.error.message


async def test_quotas_hold_for_each_tenant(tmp_path: Path, gate: Gate) -> None:
    """One tenant over its quota is refused, the other one is not."""
    from toolexec.remote import TenantQuota

    quota = TenantQuota(tenant="ann", running=1, queued=1)
    async with (
        runtime_server(tmp_path, gate.sandbox(), max_running=5, quotas=[quota]) as endpoint,
        Client(endpoint) as ann,
        Client(endpoint, OTHER) as bob,
    ):
        for run in ("r1", "r2", "r3"):
            await ann.execute(run, run)
        with pytest.raises(SandboxUnavailableError) as caught:
            await ann.result("r3")
        assert (caught.value.code, caught.value.retryable) == ("quota_exceeded", True)
        for run in ("r1", "r2"):
            await bob.execute(run, f"bob {run}")
        await until(lambda: sorted(gate.begun) == ["bob r1", "bob r2", "r1"])
        gate.open.set()
        assert (await ann.result("r2")).value == "done r2"
