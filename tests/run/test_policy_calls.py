"""Authorize: the layer that refuses what a policy denies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.run.conftest import Workshop

from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.index import Index
from toolexec.errors import InvalidToolIDError, PolicyError, ToolNotFoundError
from toolexec.model import Tool, ToolCall
from toolexec.model.origin import Caller, Origin
from toolexec.run import DefaultRunner, Resolver, Runner, Timeout
from toolexec.run.gate import Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.rate_limit import RateLimit
from toolexec.run.policy import Policy, Rule
from toolexec.run.runner import ThreadRunner
from toolexec.testing.runner_suite import RUNNER_CHECKS, run_runner_check


def guarded(shop: Workshop, policy: Policy) -> Runner:
    """A policy around the pipeline."""
    return policy.wrap(shop.runner(), Resolver(shop.index, shop.backends).resolve)


@pytest.mark.full
@pytest.mark.parametrize("check", RUNNER_CHECKS)
@pytest.mark.parametrize("around", ["policy", "approval", "rate limit", "all"])
async def test_the_contract_of_runners(check: str, around: str) -> None:
    """The layers pass every check that runners take, alone and together."""

    def make(index: Index, backends: BackendRegistry) -> Runner:
        policy = Policy(remote_destructive="allow")
        approval, limit = Approval(policy.decide), RateLimit(overall="1000/s")
        gate = {
            "policy": Gate(policy=policy),
            "approval": Gate(approval=approval),
            "rate limit": Gate(rate_limit=limit),
            "all": Gate(policy=policy, approval=approval, rate_limit=limit),
        }[around]
        return gate.wrap(Timeout(DefaultRunner(index, backends), 30), Resolver(index, backends).resolve)

    await run_runner_check(make, check)


async def test_a_denied_call_does_not_run(workshop: Workshop) -> None:
    """A denied call raises PolicyError with the tool, the rule and its reason; the tool is not called."""
    calls: list[int] = []
    workshop.add(lambda a: calls.append(a), "math:add")
    runner = guarded(workshop, Policy([Rule("deny", tools="math:*", reason="no sums", name="sums")]))
    with pytest.raises(PolicyError) as caught:
        await runner.run(ToolCall("math:add", {"a": 1}))
    error = caught.value
    assert error.to_dict() | {"message": ""} == {
        "code": "policy_denied",
        "message": "",
        "retryable": False,
        "tool_id": "math:add",
        "op": "policy",
        "details": {"rule": "sums", "reason": "no sums"},
    }
    assert "no sums" in str(error)
    assert calls == []


async def test_a_denied_stream_ends_at_its_first_step(workshop: Workshop) -> None:
    """A denied stream raises before anything runs; an allowed one passes, and closing it closes the tool."""
    closed: list[bool] = []

    async def count(to: int) -> AsyncIterator[int]:
        try:
            for number in range(to):
                yield number
        finally:
            closed.append(True)

    workshop.add(count, "math:count")
    runner = guarded(workshop, Policy([Rule("deny", when={"to": {"above": 5}})]))
    with pytest.raises(PolicyError):
        await anext(runner.stream(ToolCall("math:count", {"to": 9})))
    assert closed == []
    async with aclosing(runner.stream(ToolCall("math:count", {"to": 3}))) as events:
        assert (await anext(events)).data == 0
    assert closed == [True]


async def test_versions_are_judged_by_what_they_lead_to(workshop: Workshop) -> None:
    """An ID without a version means its highest one, and that is the one that the rules speak of."""
    for version in ("1.0.0", "2.0.0"):
        tool = Tool(name="add", namespace="math", version=version, input_schema={"type": "object"})
        workshop.add_tool(tool, lambda args, version=version: version)
    runner = guarded(workshop, Policy([Rule("deny", tools="math:add:2.*")]))
    assert (await runner.run(ToolCall("math:add:1.0.0"))).value == "1.0.0"
    with pytest.raises(PolicyError) as caught:
        await runner.run(ToolCall("math:add"))
    assert caught.value.tool_id == "math:add:2.0.0"
    workshop.index.unregister("math:add:2.0.0")
    assert (await runner.run(ToolCall("math:add"))).value == "1.0.0"


async def test_unknown_tools(workshop: Workshop) -> None:
    """Unknown tools fail as they would without a policy, but no hidden tool is suggested."""
    workshop.add(lambda: 1, "math:add")
    workshop.add(lambda: 1, "other:add")
    runner = guarded(workshop, Policy([Rule("deny", tools="math:*", callers="bob")]))
    with pytest.raises(InvalidToolIDError):
        await runner.run(ToolCall("no good:"))
    with pytest.raises(ToolNotFoundError) as caught:
        await runner.run(ToolCall("zzz:qqq"))
    assert caught.value.details["close"] == []
    for caller, close in (("ann", ["math:add", "other:add"]), ("bob", ["other:add"])):
        with pytest.raises(ToolNotFoundError) as caught:
            await runner.run(ToolCall("third:add", origin=Origin(caller=Caller(id=caller))))
        assert caught.value.details["close"] == close
        assert all(one in str(caught.value) for one in close)


def test_calls_in_the_callers_thread(workshop: Workshop) -> None:
    """Such calls are judged, too; a runner without that path gets none."""
    workshop.add(lambda a: a, "math:add")

    def wait(work: Any) -> Any:
        raise AssertionError

    runner = guarded(workshop, Policy([Rule("deny", when={"a": 2})]))
    assert isinstance(runner, ThreadRunner)
    assert runner.runs_in_thread(ToolCall("math:add", {"a": 1}), 1)
    result = runner.run_in_thread(ToolCall("math:add", {"a": 1}), wait, 1)
    assert result is not None
    assert result.value == 1
    with pytest.raises(PolicyError):
        runner.run_in_thread(ToolCall("math:add", {"a": 2}), wait, 1)

    class Plain:
        run = stream = None

    other = Policy().wrap(Plain(), Resolver(workshop.index, workshop.backends).resolve)  # type: ignore[arg-type]
    assert isinstance(other, ThreadRunner)
    assert not other.runs_in_thread(ToolCall("math:add"), 1)
    assert other.run_in_thread(ToolCall("math:add"), wait, 1) is None
