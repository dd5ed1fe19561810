"""A call that is refused because of the tree size of its arguments is on record, without them, on every path."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.server.harness import connect, serving

from toolexec import Exec, Gate, Policy, Rule, tool
from toolexec.errors import InputValidationError
from toolexec.model.call import ToolCall
from toolexec.model.tool import DRY_RUN
from toolexec.run.audit import AuditLog
from toolexec.run.audit.reading import read_last
from toolexec.run.layer import Layer
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.telemetry import Telemetry

MARK = "in-the-arguments"
WORKFLOW = "\n".join([f'a := ["{MARK}"]', *["a = [a, a]"] * 40, 'run("kit:take", {value: a})'])
CODE = "rows = tools.kit.give()\ntools.kit.take(value=[rows] * 20)"  # which stay on the host, and are put in there
CODE_CHAIN = """rows = tools.kit.give()
tools.run_chain([{"tool_id": "kit:take", "args": {"value": [rows] * 20}}])
"""


def doubled(times: int) -> Any:
    value: Any = [MARK]
    for _ in range(times):
        value = [value, value]
    return value


def deep() -> Any:
    value: Any = MARK
    for _ in range(130):
        value = [value]
    return value


@tool("kit:take", meta={DRY_RUN: {"tool": "kit:take", "args": {"dry": True}}})
def take(value: Any) -> None:
    pytest.fail("called")


@tool("kit:first", read_only=True)
def first() -> None:
    pytest.fail("a step before the refused one was run")


@tool("kit:give", read_only=True)
def give() -> list[list[str]]:
    return [[MARK]] * 6000


@asynccontextmanager
async def logging_exec(directory: Path, **rules: Any) -> AsyncGenerator[tuple[Exec, Path], None]:
    path = directory / "audit.jsonl"
    log = AuditLog.open(path, args="redacted", state=directory / "state")
    gate = Gate(audit=Audit(log), **rules)
    with closing(log):
        async with Exec(gate=gate, journal=directory / "runs.db", result_bytes=1000) as ex:
            for each in (take, first, give):
                ex.add(each)
            yield ex, path


def refusals(path: Path) -> list[dict[str, Any]]:
    """The ends of calls of the tool, none of which has anything of the arguments."""
    records = read_last(path, 1000)
    assert MARK not in json.dumps(records)
    ends = [record for record in records if record["kind"] == "call" and record["tool"] != "kit:give"]
    assert all(record["tool"] == "kit:take" and "args" not in record for record in ends), ends
    assert {record["outcome"] for record in ends} == {"validation_input"}, ends
    return ends


async def streamed(ex: Exec) -> None:
    async for _ in ex.stream_tool("kit:take", {"value": doubled(40)}):
        pytest.fail("an event")


async def failure_of(work: Awaitable[Any]) -> object:
    try:
        return (await work).error
    except InputValidationError as error:
        return error


CHAIN = [{"tool_id": "kit:first"}, {"tool_id": "kit:take", "args": {"value": doubled(40)}}]
BY_REFERENCE = [{"tool_id": "kit:take", "args": {"value": doubled(40)}, "retries": 0, "stop_on_error": False}]

PATHS: dict[str, tuple[str, Callable[[Exec], Awaitable[Any]]]] = {
    "direct": ("direct", lambda ex: ex.run_tool("kit:take", {"value": doubled(40)})),
    "direct, many copies": ("direct", lambda ex: ex.run_tool("kit:take", {"value": doubled(17)})),
    "direct, deep": ("direct", lambda ex: ex.run_tool("kit:take", {"value": deep()})),
    "with progress": ("direct", lambda ex: ex.run_tool("kit:take", {"value": deep()}, on_progress=lambda _: None)),
    "runner": ("direct", lambda ex: ex.runner.run(ToolCall("kit:take", {"value": doubled(40)}))),
    "stream": ("direct", streamed),
    "chain": ("chain", lambda ex: ex.run_chain(CHAIN)),
    "chain that goes on": ("chain", lambda ex: ex.run_chain(BY_REFERENCE)),
    "dry run": ("chain", lambda ex: ex.run_chain(CHAIN, dry_run=True)),
    "durable chain": ("chain", lambda ex: ex.run_chain(CHAIN, durable="one")),
    "workflow": ("code", lambda ex: ex.run_workflow(WORKFLOW)),
    "durable workflow": ("code", lambda ex: ex.run_workflow(WORKFLOW, durable="one")),
    "code": ("code", lambda ex: ex.execute_code(CODE)),
    "chain of code": ("code", lambda ex: ex.execute_code(CODE_CHAIN)),
    "durable code": ("code", lambda ex: ex.execute_code(CODE, durable="one")),
}


@pytest.mark.parametrize("name", PATHS)
async def test_every_path_records_the_refused_call(name: str, tmp_path: Path) -> None:
    """Check for a record of the call, with its path; nothing is called, neither the tool nor a step before it."""
    origin, call = PATHS[name]
    async with logging_exec(tmp_path) as (ex, path):
        assert "more than" in str(await failure_of(call(ex)))
        [record] = refusals(path)
        assert record.get("path", "direct") == origin


@pytest.mark.parametrize("expose", ["direct", "meta"])
async def test_served_calls_are_recorded(expose: Any, tmp_path: Path) -> None:
    """Of a tool of the server itself, and of run_tool."""
    name, args = ("kit__take", {"value": deep()})
    if expose == "meta":
        name, args = "run_tool", {"tool_id": "kit:take", "args": args}
    async with logging_exec(tmp_path) as (ex, path):
        async with serving(ex, expose=expose) as server, connect(server, "auto") as client:
            reply = await client.call_tool(name, args)
            assert reply.is_error
        assert len(refusals(path)) == 1


async def test_no_rule_that_decides_sees_the_arguments(tmp_path: Path) -> None:
    """A policy with conditions, an approver and a span with arguments: the call is refused before them."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    policy = Policy([Rule("ask", tools="kit:take", when={"value[*]": {"glob": "*"}})], default="allow")
    telemetry = Telemetry(tracer_provider=provider, record_args=True)
    async with logging_exec(tmp_path, policy=policy, telemetry=telemetry) as (ex, path):
        with pytest.raises(InputValidationError):
            await ex.run_tool("kit:take", {"value": doubled(40)})
        assert len(refusals(path)) == 1
        with pytest.raises(InputValidationError):
            ex.needs_approval("kit:take", {"value": doubled(40)})
    [span] = spans.get_finished_spans()
    assert "gen_ai.tool.call.arguments" not in (span.attributes or {})
    provider.shutdown()


async def test_a_layer_without_a_gate_does_not_see_the_call() -> None:
    """Layers may make another call of what they see."""

    class Copying(Layer):
        def before(self, call: ToolCall) -> ToolCall:
            pytest.fail("the layer was passed")

    async with Exec(gate=None, layers=[Copying]) as ex:
        ex.add(take)
        for call in (ex.run_tool("kit:take", {"value": doubled(40)}), streamed(ex)):
            with pytest.raises(InputValidationError):
                await call
