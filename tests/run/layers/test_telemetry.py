"""Spans and metrics of calls, as the real OpenTelemetry SDK gets them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import aclosing
from pathlib import Path

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.baggage import set_baggage
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from tests.engines.programs import free_port
from tests.servers import server_environment

from toolexec import Exec, Tool
from toolexec.errors import ExecutionError, MissingExtraError, PolicyError, ToolExecError, ToolNotFoundError
from toolexec.model.origin import Caller, Origin, acting
from toolexec.model.redaction import REDACTED, Redactor
from toolexec.run import Result, ToolCall, telemetry
from toolexec.run.gate import Gate
from toolexec.run.layers.telemetry import Telemetry

SECRET = "s3cr3t-value-of-the-host"
LEAKING = str(Path(__file__).parents[2] / "exec" / "leaking_server.py")


class Lab:
    """An Exec whose telemetry goes to memory."""

    def __init__(self, sampler=None, **settings) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler) if sampler else TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.redact = Redactor()
        self.redact.add(SECRET)
        self.telemetry = Telemetry(
            tracer_provider=self.provider,
            meter_provider=MeterProvider([self.reader]),
            redact=self.redact,
            **settings,
        )
        self.ex = Exec(gate=Gate(telemetry=self.telemetry), default_timeout=60)
        self.seen: list[trace.Span] = []
        for tool in (self.add, self.spot, self.fail, self.hang, self.nest, self.count):
            self.ex.add(tool)

    async def add(self, a: int, b: int = 1) -> int:
        """Add two numbers."""
        self.seen.append(trace.get_current_span())
        return a + b

    def spot(self) -> str:
        """Note the current span, in a worker thread."""
        self.seen.append(trace.get_current_span())
        return "here"

    async def fail(self) -> None:
        """Fail with a secret."""
        raise ExecutionError(f"cannot log in with {SECRET}")

    async def hang(self) -> None:
        """Never end."""
        await asyncio.Event().wait()

    async def nest(self) -> int:
        """Call another tool."""
        return (await self.ex.run_tool("add", {"a": 1})).value

    async def count(self, to: int):
        """Count."""
        for number in range(to):
            self.seen.append(trace.get_current_span())
            yield number

    def spans(self, name: str = ""):
        """The spans that have ended, in that order."""
        return [span for span in self.exporter.get_finished_spans() if name in ("", span.name)]

    def points(self):
        """The measurements, as {attributes: count}."""
        data = self.reader.get_metrics_data()
        metrics = [metric for part in data.resource_metrics for scope in part.scope_metrics for metric in scope.metrics]
        assert [(metric.name, metric.unit) for metric in metrics] == [("gen_ai.execute_tool.duration", "s")]
        return {json.dumps(dict(point.attributes)): point.count for point in metrics[0].data.data_points}


@pytest.fixture
async def lab():
    made = []

    def make(**settings):
        made.append(Lab(**settings))
        return made[-1]

    yield make
    for one in made:
        await one.ex.aclose()


def is_child(span, parent) -> bool:
    return (
        span.parent is not None
        and span.parent.span_id == parent.get_span_context().span_id
        and span.get_span_context().trace_id == parent.get_span_context().trace_id
    )


# -- one call ------------------------------------------------------------------------------------------------------


async def test_a_call_is_a_span(lab):
    """A span has the conventional name and attributes, caller and path; no arguments and no result."""
    lab = lab()
    with acting(Origin(caller=Caller(id="ann", claims={"mail": "ann@x.test"}), session="s1")):
        assert (await lab.ex.run_tool("add", {"a": 41})).value == 42
    (span,) = lab.spans()
    run_id = span.attributes["toolexec.run_id"]
    assert (span.name, span.kind, span.status.status_code) == ("execute_tool add", SpanKind.INTERNAL, StatusCode.UNSET)
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.description": "Add two numbers.",
        "gen_ai.tool.call.id": run_id,
        "toolexec.tool.id": "add",
        "toolexec.backend": "local",
        "toolexec.run_id": run_id,
        "toolexec.path": "direct",
        "toolexec.caller": "ann",
    }
    assert lab.seen[0] is not span
    assert lab.seen[0].get_span_context() == span.get_span_context()


async def test_namespace_version_and_description(lab):
    """A tool's namespace and version are attributes; a long description is cut, and loses its secrets."""
    lab = lab()
    tool = Tool(
        name="x", namespace="n", version="1.2.0", description=f"{SECRET} {'d' * 1000}", input_schema={"type": "object"}
    )
    lab.ex.add(tool, handler=lambda args: 1)
    await lab.ex.run_tool("n:x:1.2.0")
    attributes = lab.spans("execute_tool x")[0].attributes
    assert (attributes["toolexec.tool.namespace"], attributes["toolexec.tool.version"]) == ("n", "1.2.0")
    assert attributes["gen_ai.tool.description"].startswith(f"{REDACTED} ddd")
    assert len(attributes["gen_ai.tool.description"]) == 256


async def test_the_span_is_current_in_a_worker_thread_and_in_nested_calls(lab):
    """A sync handler sees the span of its call, and a call made by a tool is its child."""
    lab = lab()
    await lab.ex.run_tool("spot")
    assert lab.seen[0].get_span_context() == lab.spans("execute_tool spot")[0].get_span_context()
    await lab.ex.run_tool("nest")
    (inner,), (outer,) = lab.spans("execute_tool add"), lab.spans("execute_tool nest")
    assert is_child(inner, outer)
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_call_belongs_to_the_callers_trace(lab):
    """The caller's current span is the parent, also of a blocking call from another thread."""
    lab = lab()
    with lab.provider.get_tracer("app").start_as_current_span("app") as mine:
        await lab.ex.run_tool("add", {"a": 1})
        await asyncio.to_thread(lab.ex.sync.run_tool, "add", {"a": 2})
        assert trace.get_current_span() is mine
    await asyncio.to_thread(lab.ex.sync.close)
    assert [is_child(span, mine) for span in lab.spans("execute_tool add")] == [True, True]


async def test_a_failure(lab):
    """The error's code and message are on the span, without the secret in it, and no exception is recorded."""
    lab = lab()
    result = await lab.ex.run_tool("fail")
    assert SECRET in result.error.message
    (span,) = lab.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == f"cannot log in with {REDACTED}"
    assert span.attributes["error.type"] == "execution_failed"
    assert span.events == ()


async def test_what_could_not_be_called(lab):
    """A call of a tool that is not there has a span without a name of its own, and one label for all of them."""
    lab = lab()
    for name in (f"no:{SECRET}", "x" * 5000, "not an id"):
        with pytest.raises(ToolExecError):
            await lab.ex.run_tool(name)
    assert {span.name for span in lab.spans()} == {"execute_tool"}
    assert lab.spans()[0].attributes["toolexec.tool.id"] == f"no:{REDACTED}"
    assert len(lab.spans()[1].attributes["toolexec.tool.id"]) == 200
    assert lab.spans()[0].attributes["error.type"] == ToolNotFoundError.code
    assert SECRET not in "".join(span.to_json() for span in lab.spans())
    assert all('"toolexec.tool.id": "(unknown)"' in labels for labels in lab.points())


async def test_a_refusal_and_a_foreign_exception(lab):
    """A refusal is traced with its code; of a foreign exception only the type is."""
    lab = lab()

    class Refusing:
        def __init__(self, error):
            self.error = error

        async def run(self, call):
            raise self.error

        async def stream(self, call):
            raise self.error
            yield

    for error, kind, text in (
        (PolicyError("not today"), "policy_denied", "not today"),
        (KeyError(SECRET), "KeyError", "KeyError"),
    ):
        runner = lab.telemetry.wrap(Refusing(error), lab.ex.index.get)
        with pytest.raises(type(error)):
            await runner.run(ToolCall("add", {"a": 1}))
        with pytest.raises(type(error)):
            _ = [event async for event in runner.stream(ToolCall("add", {"a": 1}))]
        for span in lab.spans()[-2:]:
            assert (span.attributes["error.type"], span.status.description) == (kind, text)


async def test_a_cancelled_call(lab):
    """The span ends as cancelled, and nothing of it is left in the context."""
    lab = lab()
    task = asyncio.create_task(lab.ex.run_tool("hang"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (span,) = lab.spans()
    assert (span.attributes["error.type"], span.status.status_code) == ("cancelled", StatusCode.ERROR)


async def test_a_timeout(lab):
    """A call that was stopped for taking too long ends with that code."""
    lab = lab()
    assert (await lab.ex.run_tool("hang", timeout=0.05)).error is not None
    assert lab.spans()[0].attributes["error.type"] == "timeout"


async def test_arguments_on_request(lab):
    """With record_args they are JSON, without secrets by value, by key and by the schema's marks, and cut."""
    lab = lab(record_args=True)
    schema = {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}}
    lab.ex.add(Tool(name="login", input_schema=schema), handler=lambda args: 1)
    lab.ex.add(Tool(name="any", input_schema=True), handler=lambda args: 1)
    await lab.ex.run_tool("login", {"pin": "1234", "text": SECRET, "ok": "yes", "n": [1]})
    await lab.ex.run_tool("any", {"long": "x " * 5000})
    shown = [span.attributes["gen_ai.tool.call.arguments"] for span in lab.spans()]
    assert json.loads(shown[0]) == {"pin": REDACTED, "text": REDACTED, "ok": "yes", "n": [1]}
    assert len(shown[1]) == 4096


async def test_arguments_that_are_no_json(lab):
    """Such arguments are shown as strings, and the call's own error stays what it is."""
    lab = lab(record_args=True)
    with pytest.raises(ToolExecError):
        await lab.ex.run_tool("add", {"a": {(1, 2): object}})
    with pytest.raises(ToolExecError):
        await lab.ex.run_tool("nobody:knows", {"a": 1})
    assert lab.spans()[0].attributes["error.type"] == "validation_input"
    assert json.loads(lab.spans()[0].attributes["gen_ai.tool.call.arguments"]) == {"a": {"(1, 2)": str(object)}}
    assert lab.spans()[1].attributes["gen_ai.tool.call.arguments"] == '{"a": 1}'


# -- streams -------------------------------------------------------------------------------------------------------


async def test_a_stream_is_one_span(lab):
    """The span lasts for all of the stream, is current in the tool's steps, and not in the consumer's."""
    lab = lab()
    async for event in lab.ex.stream_tool("count", {"to": 3}):
        assert trace.get_current_span() is trace.INVALID_SPAN
        assert event.kind == "done" or not lab.spans()
    (span,) = lab.spans()
    assert [seen.get_span_context() for seen in lab.seen] == [span.get_span_context()] * 3
    assert span.status.status_code is StatusCode.UNSET


async def test_streams_that_end_otherwise(lab):
    """An error event, and a consumer that leaves early, are how the span ends; who leaves after the last event has
    received it all."""
    lab = lab()
    _ = [event async for event in lab.ex.stream_tool("fail")]
    async with aclosing(lab.ex.stream_tool("count", {"to": 100})) as events:
        await anext(events)
    async with aclosing(lab.ex.stream_tool("add", {"a": 1})) as events:
        assert (await anext(events)).kind == "done"
    assert [span.attributes.get("error.type") for span in lab.spans()] == ["execution_failed", "cancelled", None]


async def test_a_stream_closed_from_another_task(lab, caplog):
    """The context of neither task is disturbed."""
    lab = lab()
    events = lab.ex.stream_tool("count", {"to": 100})
    await anext(events)
    await asyncio.create_task(events.aclose())
    assert lab.spans()[0].attributes["error.type"] == "cancelled"
    assert not caplog.records


# -- chains and code -----------------------------------------------------------------------------------------------


async def test_a_chain_is_a_span_with_its_steps_as_children(lab):
    """The chain has its own span with the number of steps, in the caller's trace."""
    lab = lab()
    with lab.provider.get_tracer("app").start_as_current_span("app") as mine:
        with acting(Origin(caller=Caller(id="ann"))):
            result = await lab.ex.run_chain([{"tool": "add", "args": {"a": n}} for n in range(3)])
    assert result.ok
    (chain,) = lab.spans("toolexec.chain")
    assert is_child(chain, mine)
    assert chain.attributes["toolexec.chain.steps"] == 3
    assert chain.attributes["toolexec.caller"] == "ann"
    steps = lab.spans("execute_tool add")
    assert [is_child(step, chain) for step in steps] == [True] * 3
    assert {step.attributes["toolexec.path"] for step in steps} == {"chain"}
    assert {step.attributes["toolexec.parent_run_id"] for step in steps} == {chain.attributes["toolexec.run_id"]}
    assert len({step.attributes["toolexec.run_id"] for step in steps}) == 3


async def test_a_chain_that_fails(lab):
    """The chain's span has the error that stopped it, and the next chain is not its child."""
    lab = lab()
    await lab.ex.run_chain([{"tool": "fail"}, {"tool": "add", "args": {"a": 1}}])
    await lab.ex.run_chain([{"tool": "add", "args": {"a": 1}}])
    failed, good = lab.spans("toolexec.chain")
    assert failed.attributes["error.type"] == "execution_failed"
    assert SECRET not in failed.to_json()
    assert good.parent is None
    assert good.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("tool", ["add", "spot"])
async def test_calls_of_code_are_children_of_its_span(lab, tool):
    """Calls are children on the event loop and in the sandbox's thread."""
    lab = lab()
    args = "a=1" if tool == "add" else ""
    code = f"[tools.{tool}({args}) for _ in range(3)]\nreturn 'ok'"
    result = await lab.ex.execute_code(code)
    assert result.value == "ok", result.error
    (run,) = lab.spans("toolexec.code")
    assert run.attributes["toolexec.code.language"] == "python"
    assert run.attributes["toolexec.code.bytes"] == len(code)
    calls = lab.spans(f"execute_tool {tool}")
    assert [is_child(call, run) for call in calls] == [True] * 3
    assert {call.attributes["toolexec.path"] for call in calls} == {"code"}
    assert [seen.get_span_context().span_id for seen in lab.seen] == [call.context.span_id for call in calls]


async def test_concurrent_runs_are_told_apart(lab):
    """Two programs and a chain at the same time: every call is the child of its own run."""
    lab = lab()
    code = "for n in range(5): tools.add(a=n)"
    steps = [{"tool": "add", "args": {"a": n}} for n in range(5)]
    await asyncio.gather(lab.ex.execute_code(code), lab.ex.execute_code(code), lab.ex.run_chain(steps))
    parents = Counter(span.parent.span_id for span in lab.spans("execute_tool add"))
    runs = [*lab.spans("toolexec.code"), *lab.spans("toolexec.chain")]
    assert parents == {run.context.span_id: 5 for run in runs}
    assert len(runs) == 3


async def test_code_that_fails(lab):
    """The span of the run has the code of its failure."""
    lab = lab()
    await lab.ex.execute_code("raise ValueError('no')")
    assert lab.spans("toolexec.code")[0].status.status_code is StatusCode.ERROR


# -- without an SDK, without sampling ------------------------------------------------------------------------------


async def test_with_the_api_alone(lab):
    """Without an SDK calls, streams, chains and code go on as ever, and no context is made."""
    ex = Exec(gate=Gate(telemetry=Telemetry()))
    seen = []

    async def look() -> int:
        seen.append(trace.get_current_span())
        return 1

    ex.add(look)
    async with ex:
        assert (await ex.run_tool("look")).value == 1
        assert (await ex.run_chain([{"tool": "look"}])).value == 1
        assert [event.data async for event in ex.stream_tool("look")] == [1]
        assert (await ex.execute_code("return tools.look()")).value == 1
    assert seen == [trace.INVALID_SPAN] * 4


async def test_the_api_alone_leaves_a_foreign_trace_alone(lab):
    """The caller's own span stays the one that the tool sees."""
    lab = lab()
    ex = Exec(gate=Gate(telemetry=Telemetry()))
    ex.add(lab.add)
    with lab.provider.get_tracer("app").start_as_current_span("app") as mine:
        await ex.run_tool("add", {"a": 1})
        await ex.run_chain([{"tool": "add", "args": {"a": 1}}])
    await ex.aclose()
    assert [seen.get_span_context() for seen in lab.seen] == [mine.get_span_context()] * 2


async def test_a_trace_that_is_not_sampled(lab):
    """Nothing is recorded, and what is below does not begin a trace of its own."""
    lab = lab(sampler=ALWAYS_OFF)
    await lab.ex.run_chain([{"tool": "add", "args": {"a": 1}}, {"tool": "fail"}])
    assert not lab.spans()
    assert lab.seen[0].get_span_context().is_valid
    assert not lab.seen[0].get_span_context().trace_flags.sampled


def test_without_opentelemetry(monkeypatch):
    """The error names the extra; another missing module is not blamed on it."""
    for name in [name for name in sys.modules if name.startswith("toolexec.run.telemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    with pytest.raises(MissingExtraError, match="otel"):
        Telemetry()
    monkeypatch.setitem(sys.modules, "toolexec.run.layer", None)
    monkeypatch.delitem(sys.modules, "opentelemetry.context")
    with pytest.raises(ModuleNotFoundError):
        Telemetry()


def test_nothing_is_imported_when_off():
    """An Exec without telemetry does not load OpenTelemetry."""
    code = (
        "import asyncio, sys\nfrom toolexec import Exec\nfrom toolexec.run.gate import Gate\n"
        "import toolexec.run.layers.telemetry\nex = Exec(gate=Gate())\nasyncio.run(ex.aclose())\n"
        "print(sum(name.startswith('opentelemetry') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=server_environment())
    assert (done.stdout.strip(), done.returncode) == ("0", 0), done.stderr


async def test_a_runner_without_threads(workshop, lab):
    """Where the inner runner needs the event loop, so does the traced one; where it gives up, no span is made."""
    lab = lab()
    tool = workshop.add(_same, "same")

    class Loops:
        async def run(self, call):
            return Result(call.tool_id, 1)

        def stream(self, call):
            raise NotImplementedError

    class Wavers(Loops):
        def runs_in_thread(self, call, within):
            return True

        def run_in_thread(self, call, wait, within):
            if call.args:
                raise ValueError(SECRET)

    call = ToolCall(tool.id, {})
    for inner in (Loops(), Wavers()):
        traced = lab.telemetry.wrap(inner, workshop.index.get)
        assert traced.run_in_thread(call, None, 1.0) is None
        assert traced.runs_in_thread(call, 1.0) is isinstance(inner, Wavers)
    assert not lab.spans()
    with pytest.raises(ValueError):
        traced.run_in_thread(ToolCall(tool.id, {"x": 1}), None, 1.0)
    assert lab.spans()[0].status.description == "ValueError"


def _same(x: int) -> int:
    """The same."""
    return x


# -- metrics -------------------------------------------------------------------------------------------------------


async def test_durations_are_measured(lab):
    """One histogram by tool and kind of error; callers and run IDs are no labels."""
    lab = lab()
    for _ in range(3):
        with acting(Origin(caller=Caller(id="ann"))):
            await lab.ex.run_tool("add", {"a": 1})
    await lab.ex.run_tool("fail")
    known = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}
    assert lab.points() == {
        json.dumps(known | {"gen_ai.tool.name": "add", "toolexec.tool.id": "add"}): 3,
        json.dumps(
            known | {"gen_ai.tool.name": "fail", "toolexec.tool.id": "fail", "error.type": "execution_failed"}
        ): 1,
    }


async def test_the_number_of_labels_has_a_bound(lab, monkeypatch):
    """Tools beyond the bound share a label, however often they are renamed, and what is kept of them is bounded too."""
    monkeypatch.setattr(telemetry, "MOST_TOOLS", 2)
    monkeypatch.setattr(telemetry, "_MOST_KEPT", 3)
    lab = lab()
    for number in range(5):
        lab.ex.add(Tool(name=f"t{number}", input_schema=True), handler=lambda args: 1)
        await lab.ex.run_tool(f"t{number}")
    await lab.ex.run_tool("t0")
    labels = {json.loads(point)["toolexec.tool.id"]: count for point, count in lab.points().items()}
    assert labels == {"t0": 2, "t1": 1, "(other)": 3}
    assert lab.spans()[4].attributes["toolexec.tool.id"] == "t4"


async def test_a_tool_that_changes_is_described_again(lab):
    """The attributes are those of the tool as it is now."""
    lab = lab()
    lab.ex.add(Tool(name="t", description="old", input_schema=True), handler=lambda args: 1)
    await lab.ex.run_tool("t")
    entry = lab.ex.index.get("t")
    lab.ex.index.replace(Tool(name="t", description="new", input_schema=True), entry.binding)
    await lab.ex.run_tool("t")
    assert [span.attributes["gen_ai.tool.description"] for span in lab.spans()] == ["old", "new"]


# -- on to servers -------------------------------------------------------------------------------------------------


@pytest.fixture
def http_url():
    """The URL of a server in a process of its own."""
    port = free_port()
    command = [sys.executable, LEAKING, "http", str(port)]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env=server_environment())
    deadline = time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def _add_remote(lab, transport, request) -> None:
    if transport == "stdio":
        lab.ex.add_mcp("far", command=[sys.executable, LEAKING, "stdio"], env=server_environment(), stop_timeout=0.5)
    else:
        lab.ex.add_mcp("far", url=request.getfixturevalue("http_url"), headers={"X-Token": "own"})


@pytest.mark.full
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_one_trace_from_the_caller_to_the_server(lab, transport, request):
    """A chain of three steps on an MCP server: the server is told the trace, and the span of the very step that calls
    it; over HTTP also in a header."""
    lab = lab()
    _add_remote(lab, transport, request)
    await lab.ex.start()
    lab.exporter.clear()
    with lab.provider.get_tracer("app").start_as_current_span("app") as mine:
        result = await lab.ex.run_chain([{"tool": "far:trace"}] * 3)
    assert result.ok, result.error
    (chain,) = lab.spans("toolexec.chain")
    steps = lab.spans("execute_tool trace")
    assert is_child(chain, mine)
    assert [is_child(step, chain) for step in steps] == [True] * 3
    for step, outcome in zip(steps, result.steps, strict=True):
        expected = f"00-{step.context.trace_id:032x}-{step.context.span_id:016x}-{step.context.trace_flags:02x}"
        own = {"header": expected, "own": "own"} if transport == "http" else {"header": "", "own": ""}
        assert outcome.value == {"meta": expected, **own}


@pytest.mark.full
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_code_and_streams_take_the_trace_along(lab, transport, request):
    """The server sees the trace of the code that calls it, and of a stream."""
    lab = lab()
    _add_remote(lab, transport, request)
    result = await lab.ex.execute_code("return tools.far.trace()['meta']")
    assert result.ok, result.error
    events = [event async for event in lab.ex.stream_tool("far:trace")]
    first, second = lab.spans("execute_tool trace")
    assert result.value.split("-")[1:3] == [f"{first.context.trace_id:032x}", f"{first.context.span_id:016x}"]
    assert events[-1].data["meta"].split("-")[2] == f"{second.context.span_id:016x}"
    assert first.context.trace_id == lab.spans("toolexec.code")[0].context.trace_id != second.context.trace_id


@pytest.mark.full
async def test_without_a_trace_no_header_is_sent(http_url):
    """Where there is no trace nothing is added."""
    async with Exec() as ex:
        ex.add_mcp("far", url=http_url)
        assert (await ex.run_tool("far:trace")).value == {"meta": "", "header": "", "own": ""}


@pytest.mark.full
async def test_the_connection_does_not_belong_to_the_first_call(lab, http_url):
    """The baggage of the first call's trace is sent with that call, and with no other."""
    lab = lab()
    lab.ex.add_mcp("far", url=http_url)
    token = otel_context.attach(set_baggage("of", "the-first-call"))
    try:
        first = (await lab.ex.run_tool("far:trace")).value
    finally:
        otel_context.detach(token)
    second = (await lab.ex.run_tool("far:trace")).value
    assert first["meta"].split("-")[1] != second["meta"].split("-")[1]
    spans = lab.spans("execute_tool trace")
    assert [value["header"].split("-")[2] for value in (first, second)] == [
        f"{span.context.span_id:016x}" for span in spans
    ]


async def test_no_log_of_the_layer(lab, caplog):
    """The layer logs nothing, at any level."""
    caplog.set_level(logging.DEBUG, "toolexec")
    lab = lab()
    await lab.ex.run_tool("fail")
    assert SECRET not in caplog.text
