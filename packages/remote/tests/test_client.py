"""The remote backend, over one connection that goes out from the caller and may break."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packages.remote.tests.here import Wire, remote_to, serving
from packages.remote.tests.tools import Workshop
from tests.waiting import PATIENCE, until

from toolexec.errors import ConfigurationError, InvalidRequestError, LimitNotEnforceableError, SandboxUnavailableError
from toolexec.remote import RemoteSettings, judged_kind
from toolexec.runtime import Runtime, doctor
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.backend import RemoteBackend

ONE = "return tools.shop.count(item=1)"
WAITS = "return tools.shop.wait(item=7)"
NOWHERE = RemoteSettings(endpoints=("http://127.0.0.1:9/v1/execute",), key_id="k", token="a token of sixteen")


async def test_a_program_runs_there_and_its_tools_here(tmp_path: Path) -> None:
    """The value comes back, the call is in the trace, and what the endpoint enforces is in the result."""
    shop = Workshop()
    async with serving(tmp_path) as endpoint, remote_to(endpoint) as backend:
        state = await backend.check()
        request = shop.request(f"print('x')\n{ONE}", files={"a/b.txt": b"abc"}, env={"A": "b"})
        result = (await backend.execute(request)).raise_for_error()
        assert state.ok, state.reason
        assert (result.value, result.stdout) == (1, "x\n")
        assert result.limits_enforced == backend.enforces(request)
    assert [(call.tool_id, call.value) for call in result.tool_calls] == [("shop:count", 1)]
    assert "1 of 1 endpoints" in state.version


@pytest.mark.parametrize("protocol", ["duplex", "post"])
async def test_an_endpoint_that_does_not_answer_names_its_time_limit(protocol: Any) -> None:
    """A machine may be too busy for the limit, which can be raised."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/execute"
        settings = replace(NOWHERE, endpoints=(endpoint,), protocol=protocol, connect_timeout=0.05)
        async with aclosing(RemoteBackend(settings)) as backend:
            state = await backend.check()
    assert "within 0.05 s" in (state.reason or "")
    assert "connect_timeout of [sandboxes.remote]" in (state.reason or "")


async def test_a_connection_that_breaks_during_a_call_costs_nothing(tmp_path: Path) -> None:
    """The next connection brings the answer there and the result back; the call is made once."""
    shop = Workshop()
    async with serving(tmp_path) as endpoint, Wire(endpoint) as wire, remote_to(wire.endpoint) as backend:
        running = asyncio.ensure_future(backend.execute(shop.request(WAITS)))
        await asyncio.wait_for(shop.begun.wait(), PATIENCE)
        for _ in range(3):
            wire.cut()
            await until(lambda: not backend.connections[0].up)
            await until(lambda: backend.connections[0].up)
        wire.cut()
        shop.gate.set()
        assert (await running).raise_for_error().value == 7
    assert shop.calls == {7: 1}
    assert wire.accepted >= 4


async def test_a_result_that_was_missed_comes_over_the_next_connection(tmp_path: Path) -> None:
    """The run ends while its caller is not connected; its result is kept."""
    shop = Workshop()
    async with serving(tmp_path) as endpoint, Wire(endpoint) as wire, remote_to(wire.endpoint) as backend:
        code = "import time\ntools.shop.count(item=1)\nend = time.monotonic() + 0.5\nwhile time.monotonic() < end:\n    pass\nreturn 5"
        running = asyncio.ensure_future(backend.execute(shop.request(code)))
        await until(lambda: shop.calls[1] or running.done())
        wire.closed = True
        wire.cut()
        await asyncio.sleep(0.8)
        wire.closed = False
        assert (await running).raise_for_error().value == 5
    assert shop.calls == {1: 1}


async def test_a_server_that_refuses_is_not_asked_without_a_pause(tmp_path: Path) -> None:
    """Where the other endpoint is not there: each refusal is followed by a wait, and the last one is the error."""
    refusing = ScriptedSandbox(default=SandboxUnavailableError("not now", retryable=True))
    async with serving(tmp_path, refusing) as endpoint, remote_to(endpoint, *NOWHERE.endpoints) as backend:
        with pytest.raises(SandboxUnavailableError, match="not now"):
            await backend.execute(Workshop().request(ONE, timeout=1.2))
    assert 2 <= len(refusing.requests) <= 20


async def test_many_runs_share_one_connection(tmp_path: Path) -> None:
    """Forty programs with more slots than one, each with its own result, while the connection breaks."""
    shop = Workshop()
    async with (
        serving(tmp_path, max_running=3) as endpoint,
        Wire(endpoint) as wire,
        remote_to(wire.endpoint) as backend,
    ):
        runs = [
            asyncio.ensure_future(backend.execute(shop.request(f"return tools.shop.count(item={n})")))
            for n in range(40)
        ]
        for share in (5, 15, 25):
            await until(lambda share=share: len(shop.calls) >= share)
            wire.cut()
        results = await asyncio.gather(*runs)
    assert [result.raise_for_error().value for result in results] == [*range(40)]
    assert set(shop.calls.values()) == {1}


async def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    """The check says why, and a run fails in time; another attempt may succeed."""
    shop = Workshop()
    backend = RemoteBackend(NOWHERE)
    state = await backend.check()
    assert not state.ok
    assert "127.0.0.1:9" in state.reason
    with pytest.raises(SandboxUnavailableError) as caught:
        await backend.execute(shop.request(ONE, timeout=0.3))
    assert caught.value.retryable
    assert caught.value.backend == "remote"
    await backend.aclose()


async def test_the_server_refuses_what_its_sandbox_cannot_hold(tmp_path: Path) -> None:
    """Its own judgement comes back as it is, and nothing was run."""
    shop = Workshop()
    async with serving(tmp_path) as endpoint, remote_to(endpoint) as backend:
        from toolexec.sandbox import Limits

        with pytest.raises(LimitNotEnforceableError) as caught:
            await backend.execute(shop.request(ONE, limits=Limits(cpus=1.0)))
        assert caught.value.outcome == "not_sent"
        with pytest.raises(InvalidRequestError, match="cobol"):
            await backend.execute(shop.request(ONE, language="cobol"))
    assert not shop.calls


async def test_the_isolation_underneath_is_what_counts(tmp_path: Path) -> None:
    """A server that has less than the settings name is not used, and profiles go by what they name."""
    shop = Workshop()
    async with serving(tmp_path, ScriptedSandbox(kind="unsafe_host", isolation="none"), profiles=["dev"]) as endpoint:
        async with remote_to(endpoint) as backend:
            state = await backend.check()
            assert not state.ok
            assert "not in wasm (wasm)" in state.reason
            with pytest.raises(SandboxUnavailableError):
                await backend.execute(shop.request(ONE, timeout=0.3))


def test_profiles_are_chosen_by_the_kind_underneath() -> None:
    """One that runs code without isolation serves `dev` alone, whatever else is allowed; gVisor's serves `hardened`."""
    unsafe = RemoteBackend(
        RemoteSettings(endpoints=NOWHERE.endpoints, key_id="k", token=NOWHERE.token, sandbox="unsafe_host")
    )
    hard = RemoteBackend(RemoteSettings(endpoints=NOWHERE.endpoints, key_id="k", token=NOWHERE.token, sandbox="gvisor"))
    assert (judged_kind(unsafe), unsafe.isolation) == ("unsafe_host", "none")
    runtime = Runtime([unsafe], deny_unsafe=())
    assert [runtime.candidates(profile) for profile in ("dev", "standard", "hardened")] == [[unsafe], [], []]
    assert Runtime([hard]).candidates("hardened") == [hard]
    assert Runtime([hard]).candidates("standard") == [hard]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"endpoints": ()}, "needs endpoints"),
        ({"endpoints": ("ftp://x/",)}, "not a URL of HTTP"),
        ({"endpoints": ("http://user:pw@x/",)}, "neither a password"),
        ({"endpoints": ("https://x/", "https://x/")}, "different ones"),
        ({"endpoints": ("http://x/",)}, "plain_http"),
        ({"endpoints": ("http://10.0.0.1/",)}, "plain_http"),
        ({"token": ""}, "key_id and a token"),
        ({"sandbox": "gvsior"}, "did you mean"),
        ({"isolation": "steel"}, "no isolation"),
        ({"client_key": "key.pem"}, "without client_cert"),
        ({"silence": 0.0}, "above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], said: str) -> None:
    """The message names what is wrong."""
    given: dict[str, Any] = {"endpoints": NOWHERE.endpoints, "key_id": "k", "token": NOWHERE.token}
    with pytest.raises(ConfigurationError, match=said):
        RemoteSettings(**{**given, **wrong})


@pytest.mark.full
@pytest.mark.usefixtures("compiled_science")
async def test_the_doctor_tries_it(tmp_path: Path) -> None:
    """Programs run there, and limits are tried, as with any other sandbox; so it can be ready for production."""
    async with serving(tmp_path) as endpoint, remote_to(endpoint) as backend:
        findings = await doctor.examine(Runtime([backend]), measure=True)
    (found,) = [finding for finding in findings if (finding.kind, finding.language) == ("remote", "python")]
    assert (found.state, found.isolation) == ("ready", "wasm")
    assert endpoint in found.version
    assert found.measurement is not None
    assert found.measurement.readiness == "prod", found.measurement.reasons
