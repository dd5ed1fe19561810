"""What is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.waiting import until

from toolexec import Exec, StreamEvent
from toolexec.errors import ToolExecError, ToolNotFoundError
from toolexec.model.call import ToolCall
from toolexec.model.origin import Origin
from toolexec.run.context import ContextMeter
from toolexec.run.layers.trace import TraceEvent
from toolexec.run.types import Result
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings, Metrics

from .conftest import INITIALIZE, Serve


def values(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The samples of this name, by the values of their labels: what comes first, then how it went."""
    families = text_string_to_metric_families(metrics.text().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    order = ["tool", "method", "outcome", "status", "code", "reason", "backend", "cause", "direction"]
    return {tuple(s.labels[key] for key in order if key in s.labels): s.value for s in samples}


async def test_calls_on_every_path() -> None:
    """Direct calls, steps of chains and streams count, however they end; a tool that failed is an error, too."""
    metrics = Metrics()

    def boom() -> None:
        raise ValueError("no")

    async def pieces() -> AsyncIterator[int]:
        yield 1

    async with Exec(trace=metrics, default_timeout=0.2) as ex:
        ex.add(lambda a: a, "t:same")
        ex.add(boom, "t:boom")
        ex.add(pieces, "t:pieces")

        async def forever() -> None:
            await asyncio.sleep(60)

        ex.add(forever, "t:forever")
        await ex.run_tool("t:same", {"a": 1})
        assert not (await ex.run_tool("t:boom")).ok
        assert not (await ex.run_tool("t:forever")).ok
        await ex.run_chain([{"tool_id": "t:same", "args": {"a": 1}}])
        events: list[StreamEvent] = [event async for event in ex.stream_tool("t:pieces")]
        assert events[-1].kind == "done"
        with pytest.raises(ToolNotFoundError):
            await ex.run_tool("t:nothing")
        task = asyncio.create_task(ex.run_tool("t:forever", timeout=60))
        await until(lambda: values(metrics, "toolexec_calls_in_flight") == {(): 1})
        task.cancel()
        await asyncio.wait([task])
    assert values(metrics, "toolexec_calls_total") == {
        ("t:same", "ok"): 2,
        ("t:boom", "handler_failed"): 1,
        ("t:forever", "timeout"): 1,
        ("t:forever", "cancelled"): 1,
        ("t:pieces", "ok"): 1,
        ("(unknown)", "tool_not_found"): 1,
    }
    errors = values(metrics, "toolexec_call_errors_total")
    assert errors == {("handler_failed",): 1, ("timeout",): 1, ("cancelled",): 1, ("tool_not_found",): 1}
    assert values(metrics, "toolexec_call_duration_seconds_count")["t:same",] == 2
    assert values(metrics, "toolexec_calls_in_flight") == {(): 0}


def ended(tool: str, error: BaseException | None = None, result: Result | None = None) -> TraceEvent:
    return TraceEvent(kind="end", call_number=1, call=ToolCall(tool, {}), error=error, result=result)


@pytest.mark.full
def test_names_cannot_make_it_grow() -> None:
    """Made-up names get no line of their own, and neither do more tools than fit in a report."""
    metrics = Metrics()
    for number in range(50):
        metrics(ended(f"made:up{number}", ToolExecError("no")))
        metrics(ended(f"made:up{number}", RuntimeError("no")))
    assert values(metrics, "toolexec_calls_total") == {("(unknown)", "internal"): 100}
    for number in range(2100):
        metrics(ended("x", result=Result(f"t:{number}")))
    calls = values(metrics, "toolexec_calls_total")
    assert calls["(other)", "ok"] == 100
    metrics(ended("x", result=Result("t:" + "x" * 300)))
    assert values(metrics, "toolexec_calls_total")["(unknown)", "ok"] == 1
    assert len(calls) == 2002
    assert calls["t:0", "ok"] == 1


async def test_over_http(serve: Serve) -> None:
    """Requests, refusals, sessions and the states of backends are there for Prometheus to read."""
    async with Exec() as ex:
        metrics = Metrics()
        metrics.watch_backends(ex.backend_statuses)
        server = await serve(metrics=metrics)
        opened = await server.post(INITIALIZE)
        await server.request("GET", "/healthz", headers={"host": "evil.example"})
        await server.request("BREW", "/mcp")
        answer = await server.request("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b"python_info" not in answer.content
        assert values(metrics, "toolexec_sessions") == {(): 1}
        assert values(metrics, "toolexec_backend_up") == {("local",): 1}
        assert values(metrics, "toolexec_http_rejected_total") == {("host",): 1}
        requests = values(metrics, "toolexec_http_requests_total")
        assert requests["POST", "200"] == 1
        assert requests["GET", "421"] == 1
        assert ("BREW",) not in {key[:1] for key in requests}
        assert ("other",) in {key[:1] for key in requests}
        session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        await server.request("DELETE", headers=session)
        assert values(metrics, "toolexec_sessions") == {(): 0}


async def test_a_session_counts_until_its_own_caller_ends_it(serve: Serve) -> None:
    """To another caller it is as if it were not there, which ends nothing."""
    metrics = Metrics()
    auth = AuthSettings(api_keys=tuple(ApiKey(id=name, sha256=hash_key(f"{name}'s")) for name in ("ann", "eve")))
    server = await serve(auth=auth, metrics=metrics)
    ann, eve = ({"authorization": f"Bearer {name}'s"} for name in ("ann", "eve"))
    opened = await server.post(INITIALIZE, ann)
    session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    assert (await server.request("DELETE", headers=session | eve)).status_code == 404
    assert values(metrics, "toolexec_sessions") == {(): 1}
    assert (await server.request("DELETE", headers=session | ann)).status_code == 200
    assert values(metrics, "toolexec_sessions") == {(): 0}


async def test_sessions_are_limited(serve: Serve) -> None:
    """One more than allowed ends the oldest idle one of the caller; the others go on."""
    server = await serve(HttpSettings(port=0, max_sessions=2))
    opened = [await server.post(INITIALIZE) for _ in range(3)]
    assert [answer.status_code for answer in opened] == [200, 200, 200]
    sessions = [
        {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"} for answer in opened
    ]
    listing: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert [(await server.post(listing, session)).status_code for session in sessions] == [404, 200, 200]


async def test_they_are_for_callers_only(serve: Serve) -> None:
    """Where there are keys, the metrics need one: they tell which tools there are."""
    auth = AuthSettings(api_keys=(ApiKey(id="prom", sha256=hash_key("prom's")),))
    server = await serve(auth=auth, metrics=Metrics())
    assert (await server.request("GET", "/metrics")).status_code == 401
    assert (await server.request("GET", "/metrics", headers={"authorization": "Bearer prom's"})).status_code == 200
    plain = await serve()
    assert (await plain.request("GET", "/metrics")).status_code == 404


def test_tokens_of_conversations_are_counted_by_cause() -> None:
    """One counter has what models read and wrote, with all causes from the start."""
    metrics, meter = Metrics(), ContextMeter()
    metrics.watch_context(meter)
    meter.count(Origin(session="s"), "search", "word " * 80, {"q": 1})
    counted = values(metrics, "toolexec_context_tokens_total")
    assert counted["search", "read"] == 100
    assert counted["search", "written"] == 3
    assert counted["code", "read"] == 0
