"""Limits and lists of allowed tools hold for the tools that code sees."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.errors import (
    ChainStepLimitError,
    ToolCallLimitError,
    ToolNotAllowedError,
    ToolNotFoundError,
)
from toolexec.model import ProviderBinding, Tool
from toolexec.run.steps import Step
from toolexec.testing.gateway_testbed import GatewayTestbed

ANY = {"type": "object"}
ADD = Step(tool_id="suite:add", args={"a": 1})


def tools_of(testbed: GatewayTestbed, *, max_tool_calls: int = 0, max_chain_steps: int = 0, **parts: Any) -> Tools:
    limits = Limits(max_tool_calls=max_tool_calls, max_chain_steps=max_chain_steps)
    return Tools(testbed.index, testbed.docs, testbed.runner, limits=limits, **parts)


class TestLimits:
    """The caps hold for all callers together, however many at once."""

    async def test_the_cap(self, testbed: GatewayTestbed) -> None:
        """The call over it is neither made nor counted nor recorded, and says what the cap was."""
        tools = tools_of(testbed, max_tool_calls=2)
        for number in range(2):
            await tools.run_tool("suite:add", {"a": number})
        with pytest.raises(ToolCallLimitError, match=r"limit exceeded: max tool calls \(2\) exceeded") as caught:
            await tools.run_tool("suite:add", {"a": 1})
        assert caught.value.details == {"limit": 2, "made": 2}
        assert len(testbed.calls) == len(tools.tool_calls()) == tools.calls_made == 2

    async def test_no_cap(self, testbed: GatewayTestbed) -> None:
        """0 means any number."""
        tools = tools_of(testbed)
        for number in range(100):
            await tools.run_tool("suite:add", {"a": number})
        assert tools.calls_made == 100

    async def test_many_tasks(self, testbed: GatewayTestbed) -> None:
        """Tasks cannot get past the cap together."""
        tools = tools_of(testbed, max_tool_calls=10)
        outcomes = await asyncio.gather(
            *(tools.run_tool("suite:add", {"a": 1}) for _ in range(50)), return_exceptions=True
        )
        assert sum(isinstance(each, ToolCallLimitError) for each in outcomes) == 40
        assert len(testbed.calls) == tools.calls_made == 10

    async def test_many_threads(self, testbed: GatewayTestbed) -> None:
        """Nor can threads, however they meet."""
        tools = tools_of(testbed, max_tool_calls=1000)
        start = threading.Barrier(8)

        def admit_many() -> int:
            start.wait()
            admitted = 0
            for _ in range(500):
                try:
                    tools.admit("suite:add", {"a": 1})
                except ToolCallLimitError:
                    continue
                admitted += 1
            return admitted

        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(admit_many) for _ in range(8)]
            admitted = sum(future.result() for future in futures)
        assert admitted == tools.calls_made == len(tools.tool_calls()) == 1000

    async def test_a_chain_counts_its_steps(self, testbed: GatewayTestbed) -> None:
        """A chain that needs more than there is left does not begin."""
        tools = tools_of(testbed, max_tool_calls=4)
        await tools.run_chain([ADD] * 3)
        with pytest.raises(ToolCallLimitError, match=r"need 2, have 1 remaining"):
            await tools.run_chain([ADD] * 2)
        assert tools.calls_made == 3
        await tools.run_tool("suite:add", {"a": 1})
        assert len(testbed.calls) == 4

    async def test_the_step_limit(self, testbed: GatewayTestbed) -> None:
        """A chain that is too long does not reach the runner."""
        tools = tools_of(testbed, max_chain_steps=1)
        with pytest.raises(ChainStepLimitError, match=r"max chain steps \(1\) exceeded \(got 2\)") as caught:
            await tools.run_chain([ADD] * 2)
        assert caught.value.details == {"limit": 1, "steps": 2}
        assert (testbed.calls, tools.calls_made) == ([], 0)
        await tools.run_chain([ADD])

    async def test_a_chain_reserves_all_its_steps(self, testbed: GatewayTestbed) -> None:
        """Later steps cannot be taken by other calls while it is under way; unused ones come back."""
        tools = tools_of(testbed, max_tool_calls=3)
        steps = [Step(tool_id="suite:meet", args={"number": 1}), Step(tool_id="suite:fail"), ADD]
        chain = asyncio.ensure_future(tools.run_chain(steps))
        await testbed.until(lambda: testbed.calls == ["meet"])
        with pytest.raises(ToolCallLimitError):
            await tools.run_tool("suite:add", {"a": 1})
        testbed.release.set()
        await chain
        assert tools.calls_made == 2
        await tools.run_tool("suite:add", {"a": 1})

    async def test_a_cancelled_chain(self, testbed: GatewayTestbed) -> None:
        """The step that had begun counts, those after it are given back: cancelling is no way around the cap."""
        tools = tools_of(testbed, max_tool_calls=3)
        chain = asyncio.ensure_future(tools.run_chain([Step(tool_id="suite:wait"), ADD, ADD]))
        await testbed.until(lambda: testbed.calls == ["wait"])
        chain.cancel()
        await asyncio.wait([chain])
        assert chain.cancelled()
        (record,) = tools.tool_calls()
        assert record.error_op == "chain"
        assert tools.calls_made == 1


class TestAllowedTools:
    """Code sees and calls what it may, and nothing else."""

    async def test_a_tool_that_is_not_on_the_list(self, testbed: GatewayTestbed) -> None:
        """Records such a call without making it; the error names the allowed tools, and the call counts."""
        tools = tools_of(testbed, allowed=["suite:add"])
        with pytest.raises(ToolNotAllowedError, match="it may call suite:add") as caught:
            await tools.run_tool("vault:secret", {})
        assert caught.value.tool_id == "vault:secret"
        (record,) = tools.tool_calls()
        assert (record.tool_id, record.error) == ("vault:secret", caught.value)
        assert (testbed.calls, tools.calls_made) == ([], 1)
        assert (await tools.run_tool("suite:add", {"a": 1})).ok

    async def test_a_pattern(self, testbed: GatewayTestbed) -> None:
        """`*` stands for any text, in a namespace or a name."""
        tools = tools_of(testbed, allowed=["suite:*", "*:sec*"])
        assert tools.allows("suite:add")
        assert tools.allows("vault:secret")
        assert not tools_of(testbed, allowed=["suite:a*"]).allows("suite:echo")
        assert not tools_of(testbed, allowed=["suite:ADD"]).allows("suite:add")

    async def test_versions(self, testbed: GatewayTestbed) -> None:
        """A version may be allowed alone; an ID without one means all, and so does a pattern."""
        for version in ("1.0.0", "2.0.0"):
            testbed.index.register(
                Tool(name="v", namespace="x", version=version, input_schema=ANY), ProviderBinding("p", "v")
            )
        one = tools_of(testbed, allowed=["x:v:1.0.0"])
        assert [one.allows(each) for each in ("x:v:1.0.0", "x:v:2.0.0", "x:v")] == [True, False, False]
        for every in (tools_of(testbed, allowed=["x:v"]), tools_of(testbed, allowed=["x:*"])):
            assert [every.allows(each) for each in ("x:v:1.0.0", "x:v:2.0.0", "x:v")] == [True, True, True]

    async def test_an_unknown_tool(self, testbed: GatewayTestbed) -> None:
        """An unknown tool is not allowed, unless a pattern matches it."""
        assert not tools_of(testbed, allowed=["suite:add"]).allows("suite:nothing")
        assert tools_of(testbed, allowed=["suite:*"]).allows("suite:nothing")

    async def test_a_search(self, testbed: GatewayTestbed) -> None:
        """A search finds as many allowed tools as asked for, however many others fit better."""
        for number in range(300):
            testbed.index.register(
                Tool(name=f"add{number}", namespace="crowd", input_schema=ANY), ProviderBinding("p", "t")
            )
        tools = tools_of(testbed, allowed=["suite:add", "vault:secret"])
        assert [tool.id for tool in await tools.search_tools("", 5)] == ["suite:add", "vault:secret"]
        assert [tool.id for tool in await tools.search_tools("add", 1)] == ["suite:add"]
        assert await tools.search_tools("add", 0) == []
        assert await tools.search_tools("add", -1) == []

    async def test_what_else_can_be_found(self, testbed: GatewayTestbed) -> None:
        """Namespaces, lists, documentation and examples know the list, too."""
        tools = tools_of(testbed, allowed=["suite:add"])
        assert await tools.list_namespaces() == ["suite"]
        assert [tool.id for tool in await tools.list_tools("suite")] == ["suite:add"]
        assert await tools.list_tools("vault") == []
        assert (await tools.describe_tool("suite:add")).id == "suite:add"
        for attempt in (tools.describe_tool("vault:secret"), tools.list_tool_examples("vault:secret")):
            with pytest.raises(ToolNotAllowedError):
                await attempt

    async def test_hints_keep_the_secret(self, testbed: GatewayTestbed) -> None:
        """No suggestion names a tool that the code may not know of."""
        testbed.index.register(Tool(name="adder", namespace="suite", input_schema=ANY), ProviderBinding("p", "t"))
        tools = tools_of(testbed, allowed=["suite:add*x", "suite:add"])
        for attempt in (
            tools.run_tool("suite:add_x"),
            tools.describe_tool("suite:add_x"),
            tools.list_tool_examples("suite:add_x"),
        ):
            with pytest.raises(ToolNotFoundError) as caught:
                await attempt
            assert caught.value.details["close"] == ["suite:add"]
            assert "adder" not in str(caught.value)

    async def test_a_chain_with_a_forbidden_step(self, testbed: GatewayTestbed) -> None:
        """None of its steps is run, and nothing is counted."""
        tools = tools_of(testbed, max_tool_calls=2, allowed=["suite:add"])
        with pytest.raises(ToolNotAllowedError):
            await tools.run_chain([ADD, Step(tool_id="vault:secret")])
        assert testbed.calls == []
        assert [record.tool_id for record in tools.tool_calls()] == ["vault:secret"]
        assert tools.calls_made == 0
