"""Limits, deadline, allow-list and trace around one engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from toolexec.code.engine import Engines
from toolexec.code.executor import CodeConfig, Executor
from toolexec.code.limits import Limits
from toolexec.code.repair.fences import without_fence
from toolexec.code.tools import Tools
from toolexec.code.types import CodeEvent, CodeResult, ExecuteRequest
from toolexec.errors import (
    CodeError,
    CodeTimeoutError,
    ConfigurationError,
    ConnectionClosedError,
    InvalidLimitsError,
    SandboxUnavailableError,
    ToolCallLimitError,
    ToolNotAllowedError,
)
from toolexec.run.layers.timeout import Timeout
from toolexec.testing.gateway_testbed import GatewayTestbed

Program = Callable[[ExecuteRequest, Tools], Awaitable[Any]]


class ScriptedEngine:
    """Runs one function in place of any code."""

    languages = frozenset({"python", "javascript"})

    def __init__(self, program: Program) -> None:
        self.program = program
        self.seen: list[ExecuteRequest] = []
        self.tools: list[Tools] = []

    async def execute(self, params: ExecuteRequest, tools: Tools) -> CodeResult:
        """Run the function; what it gives is the value, or the whole result."""
        self.seen.append(params)
        self.tools.append(tools)
        value = await self.program(params, tools)
        return value if isinstance(value, CodeResult) else CodeResult(value=value)


def executor(testbed: GatewayTestbed, program: Program, **config: Any) -> Executor:
    """An executor whose code is *program*."""
    parts: dict[str, Any] = {"index": testbed.index, "docs": testbed.docs, "run": testbed.runner}
    return Executor(CodeConfig(engine=ScriptedEngine(program), **{**parts, **config}))


def engine_of(made: Executor) -> ScriptedEngine:
    """The engine of `executor`."""
    engine = made.config.engine
    assert isinstance(engine, ScriptedEngine)
    return engine


async def nothing(params: ExecuteRequest, tools: Tools) -> None:
    """A program that does nothing."""


class TestConfig:
    """What an executor is made of."""

    def test_all_that_is_missing_is_named(self) -> None:
        """Reports every missing part in one error, in a fixed order."""
        with pytest.raises(ConfigurationError, match=r"missing required fields: index, run, engine; .*EmbeddedEngine"):
            CodeConfig()

    async def test_a_missing_runner_is_named(self, testbed: GatewayTestbed) -> None:
        """Nothing stands in for the runner."""
        with pytest.raises(ConfigurationError, match=r"missing required fields: run$"):
            CodeConfig(index=testbed.index, docs=testbed.docs, engine=Engines([]))

    async def test_a_runner_that_knows_no_index_needs_one(self, testbed: GatewayTestbed) -> None:
        """The index is asked of the runner, and named where that has none."""
        layer = Timeout(testbed.runner, 1)
        with pytest.raises(ConfigurationError, match=r"missing required fields: index$"):
            Executor(layer, Engines([]))
        assert Executor(CodeConfig(index=testbed.index, run=layer, engine=Engines([]))).config.index is testbed.index

    async def test_a_runner_alone_lacks_an_engine(self, testbed: GatewayTestbed) -> None:
        """Index and docs come from the runner; the error for the engine says what to give."""
        with pytest.raises(ConfigurationError, match=r"missing required fields: engine; engine=EmbeddedEngine\(\)"):
            Executor(testbed.runner)

    async def test_a_runner_and_an_engine_are_enough(self, testbed: GatewayTestbed) -> None:
        """An engine is given beside the runner, or in place of the one of a configuration."""
        engine, other = ScriptedEngine(nothing), Engines([])
        made = Executor(testbed.runner, engine)
        assert (made.config.index, made.config.engine) == (testbed.index, engine)
        assert Executor(made.config, other).config.engine is other
        assert Executor(made.config).config.engine is engine

    async def test_timeout_and_max_tool_calls_are_settings(self, testbed: GatewayTestbed) -> None:
        """`timeout` and `max_tool_calls` are other names of `default_timeout` and the limit."""

        async def program(params: ExecuteRequest, tools: Tools) -> list[Any]:
            return [params.timeout, params.limits.max_tool_calls]

        made = executor(testbed, program, timeout=4, max_tool_calls=7, limits=Limits(max_chain_steps=3))
        assert (made.config.default_timeout, made.config.limits) == (4, Limits(max_tool_calls=7, max_chain_steps=3))
        assert (await made.execute(ExecuteRequest(code=""))).value == [4, 7]
        assert (await made.execute(ExecuteRequest(code="", timeout=9, limits=Limits(max_tool_calls=3)))).value == [9, 3]
        assert replace(made.config, output_chars=5).limits.max_tool_calls == 7

    @pytest.mark.parametrize(
        "config",
        [
            {"timeout": 4, "default_timeout": 5},
            {"max_tool_calls": 4, "limits": Limits(max_tool_calls=5)},
            {"timeout": 0},
            {"timeout": "3"},
        ],
    )
    async def test_two_values_of_one_setting_are_refused(self, testbed: GatewayTestbed, config: dict[str, Any]) -> None:
        """It is unknown which of them is meant."""
        with pytest.raises(ConfigurationError, match=r"timeout|max_tool_calls"):
            CodeConfig(run=testbed.runner, engine=Engines([]), **config)

    @pytest.mark.parametrize("timeout", [0, -1, "3", True])
    async def test_a_timeout_must_be_above_zero(self, testbed: GatewayTestbed, timeout: Any) -> None:
        """In the configuration and in the parameters."""
        with pytest.raises(ConfigurationError, match=r"above 0 seconds|must be a number"):
            executor(testbed, nothing, default_timeout=timeout)
        with pytest.raises(ConfigurationError, match=r"above 0 seconds|must be a number"):
            await executor(testbed, nothing).execute(ExecuteRequest(code="", timeout=timeout))


class TestParams:
    """What the engine is handed."""

    async def test_defaults_are_filled_in(self, testbed: GatewayTestbed) -> None:
        """Language and timeout; the code goes through unchanged, and may be empty."""
        runs = executor(testbed, nothing, default_timeout=20.0)
        await runs.execute(ExecuteRequest(code=""))
        await runs.execute(ExecuteRequest(code="  x\n", language="JS", timeout=5.0))
        first, second = engine_of(runs).seen
        assert (first.code, first.language, first.timeout) == ("", "python", 20.0)
        assert (second.code, second.language, second.timeout) == ("  x\n", "javascript", 5.0)

    async def test_the_operators_language_is_kept(self, testbed: GatewayTestbed) -> None:
        """Where the parameters name none."""
        runs = executor(testbed, nothing, default_language="javascript")
        result = await runs.execute(ExecuteRequest(code=""))
        assert engine_of(runs).seen[0].language == result.language == "javascript"

    async def test_a_default_timeout_is_no_ceiling(self, testbed: GatewayTestbed) -> None:
        """A run may ask for more than the default, and for no more than the ceiling, which is named."""
        runs = executor(testbed, nothing, default_timeout=10.0, max_timeout=200.0)
        await runs.execute(ExecuteRequest(code="", timeout=100.0))
        assert engine_of(runs).seen[0].timeout == 100.0
        with pytest.raises(InvalidLimitsError, match="timeout 201 s is above the ceiling of 200 s"):
            await runs.execute(ExecuteRequest(code="", timeout=201.0))
        runs = executor(testbed, nothing, default_timeout=10.0, max_timeout=5.0)
        await runs.execute(ExecuteRequest(code=""))
        assert engine_of(runs).seen[0].timeout == 5.0
        runs = executor(testbed, nothing)
        await runs.execute(ExecuteRequest(code=""))
        await runs.execute(ExecuteRequest(code="", timeout=100.0))
        assert [params.timeout for params in engine_of(runs).seen] == [None, 100.0]

    @pytest.mark.parametrize(("ours", "asked", "holds"), [(5, 9, None), (5, 3, 3), (5, 0, 5), (0, 3, 3), (0, 0, 0)])
    async def test_caps_can_only_be_lowered(
        self, testbed: GatewayTestbed, ours: int, asked: int, holds: int | None
    ) -> None:
        """Caps can only be lowered, and the engine receives those that hold, for calls and for steps; more than they
        allow is refused."""
        limits = Limits(max_tool_calls=ours, max_chain_steps=ours)
        runs = executor(testbed, nothing, limits=limits)
        if holds is None:
            with pytest.raises(InvalidLimitsError, match="max_tool_calls 9 is above the ceiling of 5"):
                await runs.execute(ExecuteRequest(code="", limits=Limits(max_tool_calls=asked)))
            assert engine_of(runs).seen == []
            return
        await runs.execute(ExecuteRequest(code="", limits=Limits(max_tool_calls=asked, max_chain_steps=asked)))
        expected = Limits(max_tool_calls=holds, max_chain_steps=holds)
        assert engine_of(runs).seen[0].limits == engine_of(runs).tools[0].limits == expected

    def test_negative_caps_are_refused(self) -> None:
        """Refuses negative caps, which would mean no cap."""
        with pytest.raises(InvalidLimitsError, match="max_tool_calls"):
            ExecuteRequest(code="", limits=Limits(max_tool_calls=-1))


class TestResult:
    """What comes back."""

    async def test_value_trace_and_output(self, testbed: GatewayTestbed) -> None:
        """All that the run did, and how long it took."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            tools.println("two and three", 5)
            return (await tools.run_tool("suite:add", {"a": 2, "b": 3})).value

        result = await executor(testbed, program).execute(ExecuteRequest(code="x"))
        assert (result.value, result.stdout, result.stderr, result.ok) == (5, "two and three 5\n", "", True)
        assert [(record.tool_id, record.args, record.value) for record in result.tool_calls] == [
            ("suite:add", {"a": 2, "b": 3}, 5)
        ]
        assert result.duration > 0
        assert result.language == "python"

    async def test_output_of_the_engine_is_kept(self, testbed: GatewayTestbed) -> None:
        """Output captured by the engine precedes that of the tools; the same string is there once."""

        async def both(params: ExecuteRequest, tools: Tools) -> Any:
            tools.println("tools")
            return CodeResult(stdout="engine\n", stderr="bad\n")

        async def same(params: ExecuteRequest, tools: Tools) -> Any:
            tools.println("tools")
            return CodeResult(stdout=tools.output.text())

        result = await executor(testbed, both).execute(ExecuteRequest(code=""))
        assert (result.stdout, result.stderr) == ("engine\ntools\n", "bad\n")
        assert (await executor(testbed, same).execute(ExecuteRequest(code=""))).stdout == "tools\n"

    async def test_a_failure_keeps_what_there_was(self, testbed: GatewayTestbed) -> None:
        """The engine's error is the result's, as it is."""
        failure = CodeError("boom", line=3)

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            tools.println("before")
            await tools.run_tool("suite:add", {"a": 1})
            return CodeResult(error=failure)

        result = await executor(testbed, program).execute(ExecuteRequest(code=""))
        assert result.error is failure
        assert (result.stdout, len(result.tool_calls)) == ("before\n", 1)
        with pytest.raises(CodeError, match=r"boom \(line 3, col 0\)"):
            result.raise_for_error()

    async def test_a_tool_that_fails_is_no_failure_of_the_code(self, testbed: GatewayTestbed) -> None:
        """Code that goes on after a failed call succeeds; the trace has the failure."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            return (await tools.run_tool("suite:fail")).ok

        result = await executor(testbed, program).execute(ExecuteRequest(code=""))
        assert result.value is False
        (record,) = result.tool_calls
        assert record.error is not None
        assert (record.error.code, record.error_op, record.backend_kind) == ("handler_failed", "run", "local")

    async def test_what_was_not_run_raises(self, testbed: GatewayTestbed) -> None:
        """There is no result to put it into."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            raise SandboxUnavailableError("install something")

        with pytest.raises(SandboxUnavailableError, match="install something"):
            await executor(testbed, program).execute(ExecuteRequest(code=""))

    async def test_a_summary_is_logged(self, testbed: GatewayTestbed, caplog: pytest.LogCaptureFixture) -> None:
        """One line for each run."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            await tools.run_tool("suite:add", {"a": 1})

        with caplog.at_level(logging.INFO, logger="toolexec.code"):
            await executor(testbed, program).execute(ExecuteRequest(code=""))
        assert [record.getMessage().rpartition("with ")[2] for record in caplog.records] == ["1 tool calls"]

    async def test_output_is_bounded(self, testbed: GatewayTestbed) -> None:
        """Output over the bound is dropped and counted."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            tools.println("x" * 1000)

        result = await executor(testbed, program, output_chars=10).execute(ExecuteRequest(code=""))
        assert result.stdout.startswith("x" * 10 + "\n... output limit reached: 991 more")


class TestLimits:
    """What a run may do."""

    async def test_the_cap_on_calls(self, testbed: GatewayTestbed) -> None:
        """The third of two is not made; catching the error does not help."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            refused = 0
            for _ in range(5):
                try:
                    await tools.run_tool("suite:add", {"a": 1})
                except ToolCallLimitError:
                    refused += 1
            return refused

        result = await executor(testbed, program, limits=Limits(max_tool_calls=2)).execute(ExecuteRequest(code=""))
        assert (result.value, len(result.tool_calls), testbed.calls) == (3, 2, ["add", "add"])

    async def test_no_cap(self, testbed: GatewayTestbed) -> None:
        """0 is none."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            for _ in range(150):
                await tools.run_tool("suite:add", {"a": 1})

        assert len((await executor(testbed, program).execute(ExecuteRequest(code=""))).tool_calls) == 150

    async def test_each_run_has_its_own_cap(self, testbed: GatewayTestbed) -> None:
        """Runs at the same time do not count each other's calls."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            for _ in range(3):
                await tools.run_tool("suite:add", {"a": 1})
            return params.code

        runs = executor(testbed, program, limits=Limits(max_tool_calls=3))
        results = await asyncio.gather(*(runs.execute(ExecuteRequest(code=str(number))) for number in range(10)))
        assert [result.value for result in results] == [str(number) for number in range(10)]
        assert {len(result.tool_calls) for result in results} == {3}

    async def test_the_list_of_allowed_tools(self, testbed: GatewayTestbed) -> None:
        """Others are refused before they are run, and the refusal is in the trace."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            with pytest.raises(ToolNotAllowedError):
                await tools.run_tool("vault:secret")

        result = await executor(testbed, program).execute(ExecuteRequest(code="", allowed_tools=["suite:*"]))
        assert testbed.calls == []
        assert [record.error.code for record in result.tool_calls if record.error] == ["tool_not_allowed"]

    async def test_tools_are_closed_after_the_run(self, testbed: GatewayTestbed) -> None:
        """Code that kept them can call nothing any more."""
        runs = executor(testbed, nothing)
        await runs.execute(ExecuteRequest(code=""))
        with pytest.raises(ConnectionClosedError, match="the run is over"):
            await engine_of(runs).tools[0].run_tool("suite:add", {"a": 1})

    async def test_a_large_result_stays_outside(self, testbed: GatewayTestbed) -> None:
        """`result_bytes` is the budget of the tools' handles."""
        runs = executor(testbed, nothing, result_bytes=10)
        await runs.execute(ExecuteRequest(code=""))
        assert engine_of(runs).tools[0].handles.budget == 10


class TestDeadline:
    """One deadline for the whole run."""

    async def test_a_slow_engine_is_stopped(self, testbed: GatewayTestbed) -> None:
        """The tool that is under way is, too; what there was until then is kept."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            tools.println("before")
            await tools.run_tool("suite:wait")

        result = await executor(testbed, program).execute(ExecuteRequest(code="", timeout=0.1))
        assert isinstance(result.error, CodeTimeoutError)
        assert isinstance(result.error, TimeoutError)
        assert str(result.error) == "limit exceeded: timeout after 0.1 s"
        assert result.error.details == {"timeout": 0.1}
        assert (result.stdout, testbed.stopped, len(result.tool_calls)) == ("before\n", ["wait"], 1)

    async def test_a_deadline_of_the_engine_is_one_of_the_code(self, testbed: GatewayTestbed) -> None:
        """A deadline raised by the engine counts even without a timeout of the run."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            raise TimeoutError("mine")

        result = await executor(testbed, program).execute(ExecuteRequest(code=""))
        assert isinstance(result.error, CodeTimeoutError)
        assert str(result.error.__cause__) == "mine"

    async def test_an_engine_that_keeps_the_deadline_is_left_to_it(self, testbed: GatewayTestbed) -> None:
        """An engine that keeps the deadline is not cancelled: it reports more, and may need time before the code runs."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            await asyncio.sleep(0.1)
            return CodeResult(error=CodeTimeoutError("its own"))

        runs = executor(testbed, program)
        engine_of(runs).keeps_deadline = True  # type: ignore[attr-defined]
        result = await runs.execute(ExecuteRequest(code="", timeout=0.01))
        assert str(result.error) == "its own"

    async def test_cancelling_is_no_timeout(self, testbed: GatewayTestbed) -> None:
        """Cancellation stops the code and stays a cancellation."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            await tools.run_tool("suite:wait")

        task = asyncio.create_task(executor(testbed, program).execute(ExecuteRequest(code="", timeout=60.0)))
        await testbed.until(lambda: testbed.calls == ["wait"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert testbed.stopped == ["wait"]


class TestEvents:
    """What a callback hears while the code runs."""

    async def test_in_order_on_the_event_loop(self, testbed: GatewayTestbed) -> None:
        """Prints and calls, from whatever thread they come."""
        received: list[tuple[str, str]] = []

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            tools.println("one")
            await tools.run_tool("suite:add", {"a": 1})
            await asyncio.to_thread(tools.output.write, "two", "stderr")
            await asyncio.sleep(0)

        def hear(event: CodeEvent) -> None:
            asyncio.get_running_loop()
            received.append((event.kind, event.text or (event.call.tool_id if event.call else "")))

        await executor(testbed, program).execute(ExecuteRequest(code="", on_event=hear))
        await asyncio.sleep(0)
        assert received == [
            ("print", "one\n"),
            ("call_start", "suite:add"),
            ("call_end", "suite:add"),
            ("print", "two"),
        ]

    async def test_a_callback_that_fails_harms_nobody(
        self, testbed: GatewayTestbed, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An exception of a callback is logged."""

        async def program(params: ExecuteRequest, tools: Tools) -> Any:
            tools.println("one")
            await asyncio.sleep(0)
            return 1

        def hear(event: CodeEvent) -> None:
            raise ValueError("deaf")

        result = await executor(testbed, program).execute(ExecuteRequest(code="", on_event=hear))
        assert result.value == 1
        assert "a callback for events of code failed" in caplog.text


@pytest.mark.parametrize(
    ("code", "plain"),
    [
        ("```python\n1 + 1\n```", "\n1 + 1"),
        ("```\n1 + 1\n```\n", "\n1 + 1"),
        ("\n\n```py\n1\n2\n```\n\n", "\n\n\n1\n2"),
        ("~~~ javascript\nreturn 1\n~~~", "\nreturn 1"),
        ("````python\nx = '''\n```\n'''\n````", "\nx = '''\n```\n'''"),
        ("```python\r\n1\r\n```\r\n", "\n1\r"),
        ("  ```python\n  1\n  ```", "\n  1"),
        ("```python\n1", "\n1"),
        ("```", ""),
        ("", ""),
        ("1 + 1", "1 + 1"),
        ("x = '''\n```\n'''", "x = '''\n```\n'''"),
        ("```not a fence```\n1\n```", "```not a fence```\n1\n```"),
        ("Here it is:\n```python\n1\n```", "Here it is:\n```python\n1\n```"),
        ("```python\n1\n```\nDone.", "\n1"),
    ],
)
def test_without_fence(code: str, plain: str) -> None:
    """The fence around the whole goes, everything else stays, and lines keep their numbers."""
    assert without_fence(code) == plain
    assert without_fence(plain) == plain
