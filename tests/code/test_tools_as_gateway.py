"""`Tools` as the gateway in this process; what it shares with every gateway is in the contract suite."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.errors import InvalidLimitsError, ToolCallLimitError
from toolexec.run.steps import Step
from toolexec.testing.gateway_testbed import GatewayTestbed

ADD = Step(tool_id="suite:add", args={"a": 1})


def direct(testbed: GatewayTestbed, **limits: Any) -> Tools:
    return Tools(testbed.index, testbed.docs, testbed.runner, limits=Limits(**limits))


@pytest.mark.parametrize("limit", ["max_tool_calls", "max_chain_steps"])
async def test_caps_are_not_negative(testbed: GatewayTestbed, limit: str) -> None:
    """A negative cap would mean none."""
    with pytest.raises(InvalidLimitsError, match=limit):
        direct(testbed, **{limit: -1})


async def test_beginning_again(testbed: GatewayTestbed) -> None:
    """After a reset the whole cap is there again, and the trace is empty; one taken before stays."""
    gateway = direct(testbed, max_tool_calls=1)
    await gateway.run_tool("suite:add", {"a": 1})
    trace = gateway.tool_calls()
    gateway.reset()
    assert (gateway.tool_calls(), gateway.calls_made, len(trace)) == ([], 0, 1)
    await gateway.run_tool("suite:add", {"a": 1})
    with pytest.raises(ToolCallLimitError):
        await gateway.run_tool("suite:add", {"a": 1})


async def test_a_chain_over_a_reset(testbed: GatewayTestbed) -> None:
    """Calls that such a chain returns belong to the old count: the new one does not grow by them."""
    gateway = direct(testbed, max_tool_calls=3)
    steps = [Step(tool_id="suite:meet", args={"number": 1}), Step(tool_id="suite:fail"), ADD]
    chain = asyncio.ensure_future(gateway.run_chain(steps))
    await testbed.until(lambda: testbed.calls == ["meet"])
    gateway.reset()
    testbed.release.set()
    await chain
    assert gateway.calls_made == 0


async def test_a_cancellation_that_was_taken_back(testbed: GatewayTestbed) -> None:
    """A task that was cancelled and cleans up may still call tools."""
    gateway = direct(testbed)

    async def work() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return (await gateway.run_tool("suite:add", {"a": 1})).value

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 2


async def test_a_time_limit_for_one_call(testbed: GatewayTestbed) -> None:
    """A time limit is passed to the runner."""
    from toolexec.errors import ToolTimeoutError
    from toolexec.run import Timeout

    gateway = Tools(testbed.index, testbed.docs, Timeout(testbed.runner, None))
    result = await gateway.run_tool("suite:wait", {}, timeout=0.01)
    assert isinstance(result.error, ToolTimeoutError)
