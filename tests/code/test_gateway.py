"""Caps of one run around a gateway that does not hold them itself."""

from __future__ import annotations

import asyncio

import pytest

from toolexec import Exec
from toolexec.code import Limits, Tools
from toolexec.code.limits import CountedGateway, counted
from toolexec.errors import ChainStepLimitError, ToolCallLimitError
from toolexec.run.steps import Step

pytestmark = pytest.mark.anyio


def tools(limits: Limits | None = None) -> Tools:
    """A gateway with one tool."""
    ex = Exec()
    ex.add(lambda a=0: a + 1, "math:next")
    return Tools(ex.index, ex.docs, ex.runner, limits=limits)


async def test_a_gateway_that_is_tight_enough_stays_as_it_is() -> None:
    """No second count where the first one does."""
    gateway = tools(Limits(max_tool_calls=2))
    assert counted(gateway, Limits()) is gateway
    assert counted(gateway, Limits(max_tool_calls=2)) is gateway
    assert counted(gateway, Limits(max_tool_calls=3)) is gateway


async def test_a_tighter_cap_holds_over_everything() -> None:
    """Calls and chains share the cap; what a chain did not run is given back."""
    gateway = counted(tools(), Limits(max_tool_calls=3, max_chain_steps=2))
    assert isinstance(gateway, CountedGateway)
    with pytest.raises(ChainStepLimitError):
        await gateway.run_chain([Step(tool_id="math:next")] * 3)
    result, steps = await gateway.run_chain([Step(tool_id="math:none"), Step(tool_id="math:next")])
    assert result is None
    assert len(steps) == 1
    assert (await gateway.run_tool("math:next", {"a": 1})).value == 2
    with pytest.raises(ToolCallLimitError):
        await gateway.run_chain([Step(tool_id="math:next")] * 2)
    assert (await gateway.run_tool("math:next")).value == 1
    with pytest.raises(ToolCallLimitError):
        await gateway.run_tool("math:next")
    assert [call.tool_id for call in gateway.tool_calls()] == ["math:none", "math:next", "math:next"]


async def test_the_cap_holds_for_many_calls_at_once() -> None:
    """Thirty at the same time, ten get through."""
    gateway = counted(tools(), Limits(max_tool_calls=10))
    outcomes = await asyncio.gather(*(gateway.run_tool("math:next") for _ in range(30)), return_exceptions=True)
    assert sum(isinstance(outcome, ToolCallLimitError) for outcome in outcomes) == 20


async def test_the_rest_is_passed_on() -> None:
    """Discovery is not counted."""
    gateway = counted(tools(), Limits(max_tool_calls=1))
    assert [found.id for found in await gateway.search_tools("next")] == ["math:next"]
    assert await gateway.list_namespaces() == ["math"]
    assert (await gateway.describe_tool("math:next")).id == "math:next"
    assert await gateway.list_tool_examples("math:next") == []
