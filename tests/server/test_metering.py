"""What a server counts of its conversations, and how it holds them to a budget of tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum
from opentelemetry.sdk.trace import TracerProvider
from tests.server.harness import ERAS, connect, serving

from toolexec import Exec
from toolexec.run.context_settings import ContextSettings
from toolexec.run.gate import Gate
from toolexec.run.layers.budget import Budget
from toolexec.run.layers.telemetry import Telemetry
from toolexec.run.results import ResultStore
from toolexec.server.app import ToolServer

both = pytest.mark.parametrize("era", ERAS)


def shop(**options: Any) -> Exec:
    ex = Exec(**options)
    ex.add(lambda item: {"item": item, "price": 4.5}, "shop:price")
    ex.add(lambda n: 1 // n, "shop:fail")
    ex.add(lambda: [{"id": number, "name": f"order {number}"} for number in range(300)], "shop:orders")
    return ex


def said(reply: CallToolResult) -> str:
    """The text of a reply."""
    [part] = reply.content
    assert isinstance(part, TextContent)
    return part.text


@both
async def test_each_reply_counts_for_its_cause(era: str) -> None:
    """The instructions, the list, what is found, described and run, programs, and failures are distinguished."""
    ex = shop()
    async with serving(ex) as server, connect(server, era) as client:
        await client.list_tools()
        await client.call_tool("search_tools", {"query": "price"})
        await client.call_tool("describe_tool", {"tool_id": "shop:price"})
        reply = await client.call_tool("run_tool", {"tool_id": "shop:price", "args": {"item": "tea"}})
        await client.call_tool("run_tool", {"tool_id": "shop:fail", "args": {"n": 0}})
        [cost] = ex.meter.costs()
    assert set(cost.read) == {"instructions", "tools", "search", "describe", "results", "errors"}
    assert cost.read["results"] == ex.meter.tokens(said(reply))
    assert cost.written["search"] > 0
    assert cost.total == sum(cost.read.values()) + sum(cost.written.values())


async def test_code_counts_with_its_program() -> None:
    """A program is what the model wrote for code, its output what it read."""
    ex = shop()
    async with serving(ex, expose="code") as server, connect(server, "legacy") as client:
        await client.call_tool("execute", {"code": "return tools.shop.price(item='tea')"})
        [cost] = ex.meter.costs()
    assert cost.read["code"] > 0
    assert cost.written["code"] >= 9


async def test_tools_that_are_listed_themselves_count_as_results() -> None:
    """With `direct` each page of the list is counted, and a list that is read again counts once."""
    ex = shop()
    async with serving(ex, expose="direct", page_size=2) as server, connect(server, "legacy") as client:
        first = await client.list_tools()
        await client.list_tools(cursor=first.next_cursor)
        whole = ex.meter.costs()[0].read["tools"]
        await client.list_tools()
        again = ex.meter.costs()[0].read["tools"]
        await client.list_tools(cursor=first.next_cursor)
        assert ex.meter.costs()[0].read["tools"] == whole > again
        await client.call_tool("shop__price", {"item": "tea"})
        [cost] = ex.meter.costs()
    assert cost.read["results"] > 0


@both
async def test_a_conversation_over_its_budget_gets_an_error(era: str) -> None:
    """The model reads what to do next, and nothing is run."""
    ex = shop(context=ContextSettings(max_session_tokens=5000))
    runs: list[int] = []
    ex.add(lambda: runs.append(1) or "x " * 10_000, "shop:long")
    async with serving(ex) as server, connect(server, era) as client:
        await client.call_tool("run_tool", {"tool_id": "shop:long"})
        reply = await client.call_tool("run_tool", {"tool_id": "shop:long"})
    assert reply.is_error
    error = json.loads(said(reply))["error"]
    assert error["code"] == "context_budget"
    assert "answer with what you know" in error["message"]
    assert runs == [1]


@both
async def test_a_result_over_its_budget_is_an_outline_with_a_handle(era: str) -> None:
    """Its tokens are known before it is sent; the outline fits, and the handle reads on in pages that fit."""
    store = ResultStore(max_tokens=600)
    ex = shop(gate=Gate(budget=Budget(store)))
    async with ToolServer(ex, results=store) as server, connect(server, era) as client:
        reply = await client.call_tool("run_tool", {"tool_id": "shop:orders"})
        text = said(reply)
        assert ex.meter.tokens(text) <= 800
        handle = json.loads(text)["handle"]
        page = await client.call_tool("read_result", {"handle": handle})
        assert ex.meter.tokens(said(page)) <= 800
        small = await client.call_tool("run_tool", {"tool_id": "shop:price", "args": {"item": "tea"}})
        assert json.loads(said(small)) == {"item": "tea", "price": 4.5}


async def test_spans_and_metrics_have_the_tokens() -> None:
    """The counter has them by cause and direction."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    telemetry = Telemetry(tracer_provider=TracerProvider(), meter_provider=meters)
    ex = shop(gate=Gate(telemetry=telemetry))
    try:
        async with serving(ex) as server, connect(server, "legacy") as client:
            await client.call_tool("search_tools", {"query": "price"})
            [cost] = ex.meter.costs()
        data = reader.get_metrics_data()
        assert data is not None
        points: dict[tuple[Any, Any], Any] = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            if metric.name == "toolexec.context.tokens":
                assert isinstance(metric.data, Sum)
                for point in metric.data.data_points:
                    assert point.attributes is not None
                    words = [point.attributes[f"toolexec.context.{name}"] for name in ("cause", "direction")]
                    points[words[0], words[1]] = point.value
    finally:
        meters.shutdown()
    assert points["search", "read"] == cost.read["search"]
    assert points["search", "written"] == cost.written["search"]


def test_the_current_span_says_what_its_reply_costs() -> None:
    """A request's span has the cause and the tokens."""
    provider = TracerProvider()
    telemetry = Telemetry(tracer_provider=provider)
    with provider.get_tracer("test").start_as_current_span("request") as span:
        telemetry.counted("results", 12, 3)
        attributes = dict(span.attributes or {})  # type: ignore[attr-defined]
    assert attributes == {
        "toolexec.context.cause": "results",
        "toolexec.context.tokens_read": 12,
        "toolexec.context.tokens_written": 3,
    }
