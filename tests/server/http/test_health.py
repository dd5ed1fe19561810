"""What the server says of how it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolexec import Exec
from toolexec.backend.base import BackendStatus
from toolexec.backend.provider import ProviderBackend
from toolexec.model.origin import Caller, Origin
from toolexec.model.redaction import redactor
from toolexec.run.context import ContextMeter
from toolexec.runtime.base import Availability
from toolexec.runtime.wasm import WasmBackend
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import Health, HttpSettings, Metrics

from .conftest import Serve

KEYS = (ApiKey(id="ann", sha256=hash_key("ann's"), roles=("ops",)), ApiKey(id="bob", sha256=hash_key("bob's")))


class Backend(ProviderBackend):
    """A backend that is as it is told."""

    def __init__(self, name: str, reason: str = "") -> None:
        super().__init__(name, lambda tool, args: None)
        self.reason = reason

    def status(self) -> BackendStatus:
        return BackendStatus(name=self.name, kind=self.kind, available=not self.reason, reason=self.reason or None)


def fixed(**answers: str) -> Any:
    return lambda: {name: lambda answer=answer: answer for name, answer in answers.items()}


@pytest.mark.parametrize(
    ("answers", "required", "status"),
    [
        ({}, (), "ok"),
        ({"a": "", "b": ""}, ("a",), "ok"),
        ({"a": "", "b": "down"}, ("a",), "degraded"),
        ({"a": "down", "b": ""}, ("a",), "failed"),
        ({"a": ""}, ("missing",), "failed"),
    ],
)
async def test_the_worst_that_counts(answers: dict[str, str], required: tuple[str, ...], status: str) -> None:
    """A failing required check makes all fail; one that is not required makes it degraded."""
    assert (await Health(fixed(**answers), required=required).report()).status == status


async def test_checks_that_raise_or_hang() -> None:
    """Such checks have failed, and are reported without secrets."""
    redactor.add("t0psecret")

    async def hang() -> str:
        await asyncio.sleep(60)
        return ""

    def fail() -> str:
        raise ValueError("password t0psecret is wrong")

    report = await Health(lambda: {"hang": hang, "fail": fail}, timeout=0.5).report()
    assert [finding.message for finding in report.findings] == [
        "no answer within 0.5 s",
        "ValueError: password [REDACTED] is wrong",
    ]


async def test_many_who_ask_cost_one_check() -> None:
    """A report serves for a while."""
    asked: list[int] = []

    def check() -> str:
        asked.append(1)
        return ""

    health = Health(lambda: {"a": check}, fresh=60)
    await asyncio.gather(*(health.report() for _ in range(20)))
    assert len(asked) == 1
    eager = Health(lambda: {"a": check}, fresh=0)
    await eager.report()
    await eager.report()
    assert len(asked) == 3


async def test_of_an_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every enabled backend and the sandbox are checked."""
    availability = Availability(ok=True)

    async def check(self: WasmBackend) -> Availability:
        return availability

    monkeypatch.setattr(WasmBackend, "check", check)
    async with Exec(runtime_backends=[WasmBackend()]) as ex:
        ex.backends.register(Backend("up"))
        ex.backends.register(Backend("down", "it has no power"))
        report = await Health.of(ex, fresh=0).report()
        found = {finding.name: finding.message for finding in report.findings}
        assert found == {"sandbox": "", "local": "", "up": "", "down": "it has no power"}
        availability = Availability(ok=False, reason="no engine")
        report = await Health.of(ex, required=["sandbox"], fresh=0).report()
        assert report.status == "failed"
        assert report.to_dict()["checks"][0]["message"] == "wasm: no engine"
    async with Exec(runtime_backends={"standard": []}) as ex:
        assert (await Health.of(ex).report()).findings[0].message == "no sandbox serves the profile standard"
    async with Exec(enable_code_execution=False) as ex:
        assert [finding.name for finding in (await Health.of(ex).report()).findings] == ["local"]
        report = await Health.of(ex, also={"settings": lambda: "line 3 is wrong"}).report()
        assert report.status == "degraded"
        assert (report.findings[1].name, report.findings[1].message) == ("settings", "line 3 is wrong")


@pytest.mark.full
@pytest.mark.parametrize(
    ("answers", "code", "word"),
    [({"a": ""}, 200, "OK"), ({"b": "secret-host:5432 is down"}, 200, "DEGRADED"), ({"a": "x"}, 503, "UNAVAILABLE")],
)
async def test_ready_says_one_word(serve: Serve, answers: dict[str, str], code: int, word: str) -> None:
    """Everybody may ask, so there is nothing in it about how the server is set up."""
    answers = {"a": ""} | answers
    server = await serve(auth=AuthSettings(api_keys=KEYS), health=Health(fixed(**answers), required=["a"]))
    ready = await server.request("GET", "/readyz")
    assert (ready.status_code, ready.text) == (code, word)
    alive = await server.request("GET", "/healthz")
    assert (alive.status_code, alive.text) == (200, "OK")
    assert (await server.request("HEAD", "/healthz")).status_code == 200
    assert (await server.request("POST", "/healthz")).status_code == 405


async def test_without_checks_a_server_is_ready(serve: Serve) -> None:
    """A server without checks has nothing to wait for, and no report to give."""
    server = await serve()
    assert (await server.request("GET", "/readyz")).text == "OK"
    assert (await server.request("GET", "/health")).status_code == 404


async def test_the_report_is_for_operators(serve: Serve) -> None:
    """The report needs a key, and a role where roles are set."""
    http = HttpSettings(port=0, operator_roles=("ops",))
    server = await serve(http, AuthSettings(api_keys=KEYS), health=Health(fixed(a="down"), required=["a"]))
    assert (await server.request("GET", "/health")).status_code == 401
    assert (await server.request("GET", "/health", headers={"x-api-key": "bob's"})).status_code == 403
    answer = await server.request("GET", "/health", headers={"x-api-key": "ann's"})
    assert answer.status_code == 503
    data = answer.json()
    assert data["status"] == "failed"
    (check,) = data["checks"]
    assert (check["name"], check["status"], check["required"], check["message"]) == ("a", "failed", True, "down")
    assert check["latencyMs"] >= 0


async def test_what_conversations_cost_is_for_operators(serve: Serve) -> None:
    """The report of tokens needs a role where roles are set, and names each conversation."""
    http = HttpSettings(port=0, operator_roles=("ops",))
    meter = ContextMeter()
    meter.count(Origin(caller=Caller(id="bob", method="api_key"), session="s"), "results", "word " * 64, {"a": 1})
    server = await serve(http, AuthSettings(api_keys=KEYS), meter=meter)
    assert (await server.request("GET", "/context", headers={"x-api-key": "bob's"})).status_code == 403
    report = (await server.request("GET", "/context", headers={"x-api-key": "ann's"})).json()
    assert report["read"] == {"results": 100}
    [one] = report["conversations"]
    assert (one["caller"], one["session"], one["tokens"], one["read"]) == ("bob", "s", 103, {"results": 100})
    plain = await serve()
    assert (await plain.request("GET", "/context")).status_code == 404


async def test_a_closed_exec_is_not_ready() -> None:
    """The report of a server whose Exec was closed fails and says so, and its metrics are there."""
    ex = Exec()
    health, metrics = Health.of(ex), Metrics(ex.backend_statuses)
    await ex.aclose()
    report = await health.report()
    assert (report.status, "this Exec is closed" in report.findings[0].message) == ("failed", True)
    assert b"toolexec_calls_in_flight 0.0" in metrics.text()
