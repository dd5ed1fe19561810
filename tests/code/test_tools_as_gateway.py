"""`Tools` as the gateway in this process; what it shares with every gateway is in the contract suite."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.errors import InvalidLimitsError, ToolCallLimitError
from toolexec.run.chain import ChainStep
from toolexec.testing.gateway_exam import GatewayExam

ADD = ChainStep(tool_id="exam:add", args={"a": 1})


def direct(exam: GatewayExam, **limits: Any) -> Tools:
    return Tools(exam.index, exam.docs, exam.runner, limits=Limits(**limits))


@pytest.mark.parametrize("limit", ["max_tool_calls", "max_chain_steps"])
async def test_caps_are_not_negative(exam: GatewayExam, limit: str) -> None:
    """A negative cap would mean none."""
    with pytest.raises(InvalidLimitsError, match=limit):
        direct(exam, **{limit: -1})


async def test_beginning_anew(exam: GatewayExam) -> None:
    """After a reset the whole cap is there again, and the trace is empty; one taken before stays."""
    gateway = direct(exam, max_tool_calls=1)
    await gateway.run_tool("exam:add", {"a": 1})
    trace = gateway.tool_calls()
    gateway.reset()
    assert (gateway.tool_calls(), gateway.calls_made, len(trace)) == ([], 0, 1)
    await gateway.run_tool("exam:add", {"a": 1})
    with pytest.raises(ToolCallLimitError):
        await gateway.run_tool("exam:add", {"a": 1})


async def test_a_chain_over_a_reset(exam: GatewayExam) -> None:
    """What it gives back belongs to the old count: the new one does not grow by it."""
    gateway = direct(exam, max_tool_calls=3)
    steps = [ChainStep(tool_id="exam:meet", args={"number": 1}), ChainStep(tool_id="exam:fail"), ADD]
    chain = asyncio.ensure_future(gateway.run_chain(steps))
    await exam.until(lambda: exam.calls == ["meet"])
    gateway.reset()
    exam.release.set()
    await chain
    assert gateway.calls_made == 0


async def test_a_cancellation_that_was_taken_back(exam: GatewayExam) -> None:
    """A task that was cancelled and cleans up may still call tools."""
    gateway = direct(exam)

    async def work() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return (await gateway.run_tool("exam:add", {"a": 1})).value

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 2


async def test_a_time_limit_for_one_call(exam: GatewayExam) -> None:
    """It is handed to the runner."""
    from toolexec.errors import ToolTimeoutError
    from toolexec.run import Timeout

    gateway = Tools(exam.index, exam.docs, Timeout(exam.runner, None))
    result = await gateway.run_tool("exam:wait", {}, timeout=0.01)
    assert isinstance(result.error, ToolTimeoutError)


async def test_the_former_name_still_works(exam: GatewayExam) -> None:
    """A DirectGateway is `Tools` with its caps as arguments."""
    from toolexec.runtime.gateway.direct import DirectGateway

    gateway = DirectGateway(exam.index, exam.docs, exam.runner, max_tool_calls=1, max_chain_steps=2)
    assert gateway.limits == Limits(max_tool_calls=1, max_chain_steps=2)
