"""The tools as one run of code sees them: counted, limited to those that it may use, and traced."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, NoReturn

import pytest

from toolexec import Exec
from toolexec.backend import ProviderBackend
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import CodeEvent, Output, ToolCallRecord
from toolexec.errors import (
    ConfigurationError,
    ConnectionClosedError,
    HandlerError,
    InputValidationError,
    InvalidRequestError,
    InvalidResultError,
    ToolNotAllowedError,
    ToolNotFoundError,
)
from toolexec.model import MCPBinding, ProviderBinding, Tool
from toolexec.run import DefaultRunner, Result, StreamEvent, ToolCall
from toolexec.run.steps import Step
from toolexec.testing.gateway_testbed import GatewayTestbed

ANY = {"type": "object"}
ADD = Step(tool_id="suite:add", args={"a": 1})


def tools_of(testbed: GatewayTestbed, *, max_tool_calls: int = 0, max_chain_steps: int = 0, **parts: Any) -> Tools:
    limits = Limits(max_tool_calls=max_tool_calls, max_chain_steps=max_chain_steps)
    return Tools(testbed.index, testbed.docs, testbed.runner, limits=limits, **parts)


def add_remote(testbed: GatewayTestbed, binding: ProviderBinding | MCPBinding, answer: Any) -> None:
    """A tool of another kind, `far:<kind>`, that answers or raises *answer*."""

    def call(name: str, args: dict[str, Any]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    testbed.index.register(Tool(name=binding.kind, namespace="far", input_schema=ANY), binding)
    testbed.backends.register(ProviderBackend(binding.backend, call, kind=binding.kind))


class Recorder:
    """A runner that keeps the calls and answers, or raises, what it was told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[ToolCall] = []

    async def run(self, call: ToolCall) -> Result:
        self.calls.append(call)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return Result(call.tool_id, self.answer)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        raise NotImplementedError


class TestFinding:
    """Discovery is passed on, not counted and not recorded."""

    async def test_it_is_passed_on(self, testbed: GatewayTestbed) -> None:
        """Searches, namespaces, documentation and examples are those of index and store."""
        tools = tools_of(testbed, max_tool_calls=1)
        assert await tools.search_tools("add", 2) == testbed.index.search("add", 2)
        assert await tools.list_namespaces() == ["suite", "vault"]
        assert await tools.describe_tool("suite:add", "schema") == testbed.docs.describe("suite:add", "schema")
        assert await tools.list_tool_examples("suite:add", 1) == testbed.docs.list_examples("suite:add", 1)
        assert [tool.id for tool in await tools.list_tools("vault")] == ["vault:secret"]
        assert tools.calls_made == 0
        assert tools.tool_calls() == []

    async def test_errors_are_passed_on(self, testbed: GatewayTestbed) -> None:
        """Errors of the store pass unchanged."""
        tools = tools_of(testbed)
        with pytest.raises(ToolNotFoundError) as caught:
            await tools.describe_tool("suite:ad")
        assert "suite:add" in caught.value.details["close"]
        with pytest.raises(ConfigurationError):
            await tools.describe_tool("suite:add", "everything")  # type: ignore[arg-type]


class TestCalls:
    """Each call is made by the runner and recorded."""

    async def test_a_call(self, testbed: GatewayTestbed) -> None:
        """The runner gets just what was asked for, and its result is given back."""
        runner = Recorder(7)
        tools = Tools(testbed.index, testbed.docs, runner)
        args = {"a": 1}
        result = await tools.run_tool("suite:add", args, timeout=3)
        assert result.value == 7
        assert [(call.tool_id, call.args, call.timeout) for call in runner.calls] == [("suite:add", {"a": 1}, 3)]

    async def test_absent_arguments_stay_absent(self, testbed: GatewayTestbed) -> None:
        """For the runner and in the record."""
        runner = Recorder(None)
        tools = Tools(testbed.index, testbed.docs, runner)
        await tools.run_tool("suite:echo")
        assert runner.calls[0].args is None
        assert tools.tool_calls()[0].args is None

    async def test_the_record_of_a_call(self, testbed: GatewayTestbed) -> None:
        """ID, arguments, value, kind, duration."""
        tools = tools_of(testbed)
        await tools.run_tool("suite:add", {"a": 2})
        (record,) = tools.tool_calls()
        assert (record.tool_id, record.args, record.value, record.ok) == ("suite:add", {"a": 2}, 3, True)
        assert (record.backend_kind, record.error, record.error_op) == ("local", None, "")
        assert record.duration > 0
        assert record.started >= 0

    async def test_the_record_of_a_failed_call(self, testbed: GatewayTestbed) -> None:
        """The error in place of a value, and that it was a run."""
        tools = tools_of(testbed)
        result = await tools.run_tool("suite:fail", {})
        (record,) = tools.tool_calls()
        assert record.error is result.error
        assert isinstance(record.error, HandlerError)
        assert (record.value, record.error_op, record.backend_kind) == (None, "run", "local")

    async def test_the_record_of_a_call_that_could_not_be_made(self, testbed: GatewayTestbed) -> None:
        """Records the exception, with the kind of the tool where it is known."""
        tools = tools_of(testbed)
        with pytest.raises(InputValidationError):
            await tools.run_tool("suite:add", {"a": "x"})
        with pytest.raises(ToolNotFoundError):
            await tools.run_tool("suite:nothing")
        one, other = tools.tool_calls()
        assert (type(one.error), one.backend_kind) == (InputValidationError, "local")
        assert (type(other.error), other.backend_kind) == (ToolNotFoundError, "")

    @pytest.mark.parametrize("binding", [ProviderBinding("p", "t"), MCPBinding("m", "t")], ids=lambda b: b.kind)
    @pytest.mark.parametrize("answer", [5, ValueError("no")], ids=["ok", "failed"])
    async def test_the_kind_of_backend(self, testbed: GatewayTestbed, binding: Any, answer: Any) -> None:
        """The record names the tool's kind of backend, whether the call worked or not."""
        add_remote(testbed, binding, answer)
        tools = tools_of(testbed)
        result = await tools.run_tool(f"far:{binding.kind}", {})
        (record,) = tools.tool_calls()
        assert result.ok is (answer == 5)
        assert record.backend_kind == binding.kind

    async def test_records_keep_what_was(self, testbed: GatewayTestbed) -> None:
        """Changing arguments or result later does not reach the record."""
        tools = tools_of(testbed)
        args: dict[str, Any] = {"value": {"deep": [1]}}
        result = await tools.run_tool("suite:echo", args)
        args["value"]["deep"].append(2)
        result.value["deep"].append(3)
        (record,) = tools.tool_calls()
        assert record.args == {"value": {"deep": [1]}}
        assert record.value == {"deep": [1]}

    async def test_the_trace_is_a_copy(self, testbed: GatewayTestbed) -> None:
        """Clearing the returned list leaves the trace unchanged."""
        tools = tools_of(testbed)
        await tools.run_tool("suite:add", {"a": 1})
        tools.tool_calls().clear()
        assert len(tools.tool_calls()) == 1

    async def test_records_are_bounded(self, testbed: GatewayTestbed, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only the first 10,000 are kept (3 here), all are counted."""
        monkeypatch.setattr("toolexec.code.tools._MAX_RECORDS", 3)
        tools = tools_of(testbed)
        for number in range(5):
            await tools.run_tool("suite:add", {"a": number})
        assert [record.value for record in tools.tool_calls()] == [1, 2, 3]
        assert tools.calls_made == 5

    @pytest.mark.full
    async def test_a_result_that_is_not_json(self, testbed: GatewayTestbed) -> None:
        """With the runner's checks off it is the call's error here: nothing but JSON gets to the code."""
        loop: list[Any] = []
        loop.append(loop)
        for answer in (object(), float("nan"), loop):
            tools = Tools(testbed.index, testbed.docs, Recorder(answer))
            result = await tools.run_tool("suite:echo", {})
            assert isinstance(result.error, InvalidResultError)
            assert result.value is None
            assert tools.tool_calls()[0].error is result.error

    async def test_an_exception_of_the_host(self, testbed: GatewayTestbed) -> None:
        """An exception of the host passes as it is; the record has only its class."""
        tools = Tools(testbed.index, testbed.docs, Recorder(RuntimeError("/etc/host-secret")))
        with pytest.raises(RuntimeError):
            await tools.run_tool("suite:add", {})
        (record,) = tools.tool_calls()
        assert "RuntimeError" in str(record.error)
        assert "secret" not in json.dumps(record.to_dict())

    async def test_a_cancelled_call(self, testbed: GatewayTestbed) -> None:
        """A cancelled call is counted, and recorded as stopped."""
        tools = tools_of(testbed)
        task = asyncio.ensure_future(tools.run_tool("suite:wait", {}))
        await testbed.until(lambda: testbed.calls == ["wait"])
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        (record,) = tools.tool_calls()
        assert "CancelledError" in str(record.error)
        assert tools.calls_made == 1

    async def test_arguments_without_an_end(self, testbed: GatewayTestbed) -> None:
        """A value that contains itself is refused as wrong arguments, and the record goes without."""
        tools = tools_of(testbed)
        args: dict[str, Any] = {}
        args["value"] = args
        with pytest.raises(InputValidationError):
            await tools.run_tool("suite:echo", args)
        assert tools.tool_calls()[0].args is None

    async def test_after_the_run(self, testbed: GatewayTestbed) -> None:
        """A closed object makes no call and counts none."""
        tools = tools_of(testbed)
        tools.close()
        with pytest.raises(ConnectionClosedError, match="over"):
            await tools.run_tool("suite:add", {"a": 1})
        with pytest.raises(ConnectionClosedError):
            await tools.run_chain([ADD])
        assert (testbed.calls, tools.calls_made, tools.tool_calls()) == ([], 0, [])


class TestCallsHere:
    """Calls in the caller's own thread."""

    def _tools(self, testbed: GatewayTestbed, **parts: Any) -> Tools:
        def double(n: int) -> int:
            """Double a number."""
            testbed.calls.append(threading.current_thread().name)
            if n < 0:
                raise ValueError("too small")
            return 2 * n

        testbed.register(double, "suite")
        return tools_of(testbed, **parts)

    async def test_a_sync_tool(self, testbed: GatewayTestbed) -> None:
        """A sync tool runs in this thread, counted and recorded like any other."""
        tools = self._tools(testbed)
        result = tools.run_here(tools.admit("suite:double", {"n": 4}), _cannot_wait, 1.0)
        assert result is not None
        assert result.value == 8
        assert testbed.calls == [threading.current_thread().name]
        assert [(record.args, record.value) for record in tools.tool_calls()] == [({"n": 4}, 8)]

    async def test_an_async_tool_needs_the_loop(self, testbed: GatewayTestbed) -> None:
        """Nothing is done until `finish`, and there is one record."""
        tools = self._tools(testbed)
        admitted = tools.admit("suite:add", {"a": 1})
        assert tools.run_here(admitted, _cannot_wait, 1.0) is None
        assert testbed.calls == []
        assert (await tools.finish(admitted)).value == 2
        assert len(tools.tool_calls()) == tools.calls_made == 1

    async def test_a_runner_that_needs_the_loop(self, testbed: GatewayTestbed) -> None:
        """One without `run_here` has all its calls there."""
        tools = Tools(testbed.index, testbed.docs, Recorder(1))
        assert tools.run_here(tools.admit("suite:add"), _cannot_wait, 1.0) is None

    async def test_failures(self, testbed: GatewayTestbed) -> None:
        """The tool's own is in the result, wrong arguments raise; both are recorded."""
        tools = self._tools(testbed)
        result = tools.run_here(tools.admit("suite:double", {"n": -1}), _cannot_wait, 1.0)
        assert result is not None
        assert isinstance(result.error, HandlerError)
        with pytest.raises(InputValidationError):
            tools.run_here(tools.admit("suite:double", {}), _cannot_wait, 1.0)
        assert [type(record.error) for record in tools.tool_calls()] == [HandlerError, InputValidationError]


def _cannot_wait(awaitable: Awaitable[Any]) -> NoReturn:
    raise AssertionError("nothing here waits")


class TestChains:
    """Each step that was run has its record."""

    async def test_an_empty_chain(self, testbed: GatewayTestbed) -> None:
        """An empty chain counts as no call, whatever the caps."""
        tools = tools_of(testbed, max_tool_calls=1, max_chain_steps=1)
        assert await tools.run_chain([]) == (None, [])

    async def test_the_records_of_a_chain(self, testbed: GatewayTestbed) -> None:
        """With the arguments that really went in: the value before goes in as `previous`, unless that is there."""
        tools = tools_of(testbed)
        steps = [
            ADD,
            Step(tool_id="suite:echo", args={}, use_previous=True),
            Step(tool_id="suite:echo", args={"previous": "mine"}, use_previous=True),
        ]
        result, outcomes = await tools.run_chain(steps)
        assert result is not None
        assert result.value == "mine"
        assert len(outcomes) == 3
        one, two, three = tools.tool_calls()
        assert (one.tool_id, one.args, one.value, one.backend_kind) == ("suite:add", {"a": 1}, 2, "local")
        assert (two.tool_id, two.args, two.value) == ("suite:echo", {"previous": 2}, 2)
        assert two.duration > 0
        assert (three.args, three.value) == ({"previous": "mine"}, "mine")

    async def test_the_record_of_a_failed_step(self, testbed: GatewayTestbed) -> None:
        """The record names the step of the chain; steps after it have none."""
        tools = tools_of(testbed)
        result, outcomes = await tools.run_chain([ADD, Step(tool_id="suite:fail"), ADD])
        assert result is None
        assert [outcome.ok for outcome in outcomes] == [True, False]
        assert [(record.tool_id, record.error_op) for record in tools.tool_calls()] == [
            ("suite:add", ""),
            ("suite:fail", "chain"),
        ]


class TestHandles:
    """A handle stands for its value as an argument."""

    async def test_it_is_replaced(self, testbed: GatewayTestbed) -> None:
        """Wherever it is in the arguments; the record keeps the handle, not a copy of the value."""
        tools = tools_of(testbed, result_bytes=10)
        big = list(range(100))
        handle = tools.handles.keep(big, json.dumps(big))
        assert handle is not None
        result = await tools.run_tool("suite:echo", {"value": [{"$handle": handle.id}, 1]})
        assert result.value == [big, 1]
        assert tools.tool_calls()[0].args == {"value": [{"$handle": handle.id}, 1]}

    async def test_an_unknown_one(self, testbed: GatewayTestbed) -> None:
        """Refuses an unknown handle, counted and recorded, with nothing run."""
        tools = tools_of(testbed, result_bytes=1)
        tools.handles.keep([1, 2], "[1, 2]")
        unknown = "h-AAAAAAAAAAAAAAAA"
        with pytest.raises(InvalidRequestError, match=unknown):
            await tools.run_tool("suite:echo", {"value": {"$handle": unknown}})
        assert testbed.calls == []
        assert isinstance(tools.tool_calls()[0].error, InvalidRequestError)

    async def test_without_handles_it_is_data(self, testbed: GatewayTestbed) -> None:
        """As long as there is none, nothing is looked for."""
        result = await tools_of(testbed).run_tool("suite:echo", {"value": {"$handle": "h1"}})
        assert result.value == {"$handle": "h1"}


class TestTelling:
    """Who follows a run is notified of each call's start and end."""

    async def test_the_events(self, testbed: GatewayTestbed) -> None:
        """In order, with the record."""
        received: list[tuple[str, str, bool]] = []

        def hear(event: CodeEvent) -> None:
            assert isinstance(event.call, ToolCallRecord)
            received.append((event.kind, event.call.tool_id, event.call.ok))

        tools = tools_of(testbed, tell=hear, allowed=["suite:*"])
        await tools.run_tool("suite:add", {"a": 1})
        await tools.run_tool("suite:fail", {})
        with pytest.raises(ToolNotAllowedError):
            await tools.run_tool("vault:secret")
        assert received == [
            ("call_start", "suite:add", True),
            ("call_end", "suite:add", True),
            ("call_start", "suite:fail", True),
            ("call_end", "suite:fail", False),
            ("call_start", "vault:secret", True),
            ("call_end", "vault:secret", False),
        ]

    async def test_a_broken_callback(self, testbed: GatewayTestbed, caplog: pytest.LogCaptureFixture) -> None:
        """An exception of the callback is logged and harms nothing."""

        def break_down(event: CodeEvent) -> None:
            raise RuntimeError("no")

        tools = tools_of(testbed, tell=break_down)
        with caplog.at_level(logging.ERROR):
            assert (await tools.run_tool("suite:add", {"a": 1})).value == 2
        assert "a callback for events of code failed" in caplog.text


class TestPrintln:
    """Printing as `print` does."""

    async def test_values(self, testbed: GatewayTestbed) -> None:
        """One space between them, a line break at the end; several calls follow each other."""
        tools = tools_of(testbed, output=Output())
        tools.println("hello", "world", 42)
        tools.println()
        tools.println(None, True, 1.5, [1])
        assert tools.output.text() == "hello world 42\n\nNone True 1.5 [1]\n"


async def test_a_chain_does_not_stream(testbed: GatewayTestbed) -> None:
    """The runner of a chain only runs."""
    from toolexec.code.tools import _StepRunner

    with pytest.raises(NotImplementedError):
        _StepRunner(DefaultRunner(testbed.index, testbed.backends).run).stream(ToolCall("suite:add"))


@pytest.mark.anyio
async def test_a_call_that_is_under_way_when_the_run_ends() -> None:
    """Such a call counts as stopped, and its later outcome changes nothing."""
    ex, go = Exec(), asyncio.Event()

    async def wait() -> int:
        await go.wait()
        return 1

    ex.add(wait, "slow:wait")
    tools = Tools(ex.index, ex.docs, ex.runner)
    task = asyncio.create_task(tools.run_tool("slow:wait"))
    await asyncio.sleep(0)
    tools.close()
    go.set()
    await task
    (record,) = tools.tool_calls()
    assert record.error is not None
    assert "the run ended before" in str(record.error)
    assert record.value is None
