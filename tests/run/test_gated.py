"""A gate of a policy and an approval makes allowed calls at once, and decides as one that asks every part."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.run.conftest import Workshop

from toolexec.errors import InputValidationError, ToolExecError
from toolexec.model import ProviderBinding, Tool, ToolAnnotations, ToolCall
from toolexec.model.arguments import RefusedArgs
from toolexec.model.origin import Caller, Origin
from toolexec.run import Resolver, Runner
from toolexec.run.gate import Find, Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.policy import Policy, Rule
from toolexec.run.policy_rules import Verdict
from toolexec.run.settings import Effect

_TOOLS = ("files:read", "files:drop", "shop:pay", "shop:wipe", "no:tool", "not an ID")
_EFFECTS: st.SearchStrategy[Effect] = st.sampled_from(get_args(Effect))


class PassingPart:
    """A part without a rule, with which a gate asks all of its parts about every call."""

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return *inner*."""
        return inner


@st.composite
def _rules(draw: st.DrawFn) -> Rule:
    matchers: dict[str, Any] = {
        "tools": draw(st.sampled_from(["files:*", "shop:pay", "*"])),
        "callers": draw(st.sampled_from(["", "ann", "a*"])),
        "when": draw(st.sampled_from([{}, {"n": 1}, {"n": {"above": 1}}])),
        "destructive": draw(st.sampled_from([None, True, False])),
    }
    return Rule(draw(_EFFECTS), **{name: value for name, value in matchers.items() if value not in ("", {}, None)})


def _shop() -> Workshop:
    shop = Workshop()
    for tool_id in _TOOLS[:4]:
        namespace, name = tool_id.split(":")
        marks = ToolAnnotations(destructive=name in ("drop", "wipe"), read_only=name == "read")
        tool = Tool(name=name, namespace=namespace, input_schema={"type": "object"}, annotations=marks)
        if namespace == "files":
            shop.add_tool(tool, lambda args, tool_id=tool_id: tool_id)
        else:
            shop.add_tool(tool, lambda _, args, tool_id=tool_id: tool_id, ProviderBinding(name, name))
    return shop


async def _answers(runner: Runner, call: tuple[str, Mapping[str, Any] | None, str]) -> list[str]:
    """Return what becomes of a call that is run, and of one that is streamed."""
    tool_id, args, caller = call
    origin = Origin(caller=Caller(id=caller))
    found: list[str] = []
    try:
        result = await runner.run(ToolCall(tool_id, args, origin=origin))
        found.append(str(result.value) if result.error is None else result.error.code)
    except ToolExecError as error:
        found.append(error.code)
    try:
        events = [event async for event in runner.stream(ToolCall(tool_id, args, origin=origin))]
        found.append(str(events[-1].data))
    except ToolExecError as error:
        found.append(error.code)
    return found


@given(
    st.lists(_rules(), max_size=3),
    _EFFECTS,
    st.lists(
        st.tuples(
            st.sampled_from(_TOOLS), st.sampled_from([None, {}, {"n": 1}, {"n": 2}]), st.sampled_from(["ann", "bob"])
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_calls_end_as_with_all_parts(rules: list[Rule], default: Any, calls: list[Any]) -> None:
    """For random policies and calls, what becomes of a call does not depend on whether the gate has other parts."""

    async def compare() -> None:
        shop = _shop()
        find = Resolver(shop.index, shop.backends).resolve
        async with shop.backends:
            quick = Gate(policy=Policy(rules, default=default)).wrap(shop.runner(), find)
            whole = Gate(policy=Policy(rules, default=default), retry=PassingPart()).wrap(shop.runner(), find)
            for call in calls:
                assert await _answers(quick, call) == await _answers(whole, call)

    asyncio.run(compare())


@pytest.mark.parametrize(("tool_id", "is_quick"), [("files:read", True), ("shop:pay", True), ("shop:wipe", False)])
async def test_only_calls_that_are_always_allowed_ask_no_part(tool_id: str, is_quick: bool) -> None:
    """A call that the policy allows whatever its arguments are has no use for what the parts share."""
    shop = _shop()
    runner = Gate().wrap(shop.runner(), Resolver(shop.index, shop.backends).resolve)
    call = ToolCall(tool_id)
    async with shop.backends:
        if is_quick:
            assert (await runner.run(call)).value == tool_id
        else:
            with pytest.raises(ToolExecError):
                await runner.run(call)
    assert (call.resolution is None) is is_quick


class StrictPolicy(Policy):
    """A policy that refuses all calls, whatever its rules say."""

    def decide(self, entry: Any, call: Any) -> Verdict:
        """Deny the call."""
        return Verdict(effect="deny", rule="strict")


@pytest.mark.parametrize("kind", ["policy", "approval", "layer"])
async def test_parts_of_other_classes_are_always_asked(kind: str) -> None:
    """A policy or an approval that is made in another way, and a layer of the user, see every call."""
    shop = _shop()
    policy = StrictPolicy() if kind == "policy" else Policy()
    approval = Approval(StrictPolicy().decide if kind == "approval" else policy.decide)
    seen: list[str] = []

    def layer(inner: Runner) -> Runner:
        seen.append("layer")
        return inner

    gate = Gate(policy=policy, approval=approval)
    runner = gate.wrap(shop.runner(), Resolver(shop.index, shop.backends).resolve, [layer] if kind == "layer" else ())
    call = ToolCall("files:read")
    async with shop.backends:
        if kind == "layer":
            assert (await runner.run(call)).value == "files:read"
            assert seen == ["layer"]
            assert call.resolution is not None
        else:
            with pytest.raises(ToolExecError, match="strict"):
                await runner.run(call)


async def test_arguments_that_are_too_much_are_refused() -> None:
    """Arguments that no rule walks are refused also where the tool is allowed."""
    shop = _shop()
    runner = Gate().wrap(shop.runner(), Resolver(shop.index, shop.backends).resolve)
    refused = RefusedArgs.because(InputValidationError([], tool_id="files:read", op="run"))
    with pytest.raises(InputValidationError):
        await runner.run(ToolCall("files:read", refused))
