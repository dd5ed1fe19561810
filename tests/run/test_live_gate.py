"""Rules that are exchanged while calls are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.waiting import reached

from toolexec import Exec, ExecutionError, Gate, Policy, Rule, tool
from toolexec.errors import PolicyError, ToolExecError
from toolexec.model.declare import FunctionTool
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Caller, Origin, acting
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.fallback import Fallback
from toolexec.run.layers.retry import Retry
from toolexec.run.live_gate import LiveGate

OPEN = Gate(policy=Policy())
CLOSED = Gate(policy=Policy([Rule("deny", tools="t:*", reason="closed")]))


def test_blocking_calls_go_by_the_rules_of_their_moment() -> None:
    """Blocking calls are made in the caller's own thread, without the event loop."""
    gate = LiveGate(OPEN)
    with Exec(gate=gate).sync as ex:
        ex.add(lambda: 1, "t:one")
        assert ex.run_tool("t:one").value == 1
        gate.exchange(CLOSED)
        assert gate.current is CLOSED
        assert gate.policy is CLOSED.policy
        with pytest.raises(PolicyError, match="closed"):
            ex.run_tool("t:one")
        assert ex.search_tools("one") == []
        gate.exchange(OPEN)
        assert ex.run_tool("t:one").value == 1
        assert [found.id for found in ex.search_tools("one")] == ["t:one"]


async def test_a_stream_ends_by_the_rules_that_it_began_with() -> None:
    """The era is over once the stream has ended, however many came after it."""
    gate, go_on = LiveGate(OPEN), asyncio.Event()

    async def pieces() -> AsyncIterator[int]:
        yield 1
        await go_on.wait()
        yield 2

    async with Exec(gate=gate) as ex:
        ex.add(pieces, "t:pieces")
        stream = ex.stream_tool("t:pieces")
        events = [await anext(stream)]
        gate.exchange(CLOSED)
        last = gate.exchange(OPEN)
        ended = asyncio.create_task(last.ended())
        await asyncio.sleep(0)
        assert not ended.done()
        go_on.set()
        events += [event async for event in stream]
        await ended
    assert [event.data for event in events if event.kind == "chunk"] == [1, 2]


async def test_chains_and_code_pass_the_rules_of_the_moment_as_a_whole() -> None:
    """A chain that may not begin any more is refused before its first step."""
    gate = LiveGate(OPEN)
    async with Exec(gate=gate) as ex:
        ex.add(lambda: 1, "t:one")
        steps: Sequence[Any] = [{"tool": "t:one"}]
        assert (await ex.run_chain(steps)).value == 1
        gate.exchange(Gate(policy=Policy([Rule("deny", runs="chain", reason="no chains")])))
        with pytest.raises(PolicyError, match="no chains"):
            await ex.run_chain(steps)


@pytest.mark.parametrize("forbids", [True, False], ids=["forbidden", "allowed"])
async def test_an_approved_call_is_made_only_if_the_rules_of_that_moment_do_not_forbid_it(forbids: bool) -> None:
    """The rules may change while an approver is asked. Ones that forbid more count; ones that ask again do not."""
    made: list[int] = []
    asked, answer = asyncio.Event(), asyncio.Event()

    async def approve(request: ApprovalRequest) -> ApprovalAnswer:
        asked.set()
        await answer.wait()
        return "once"

    asks = Policy([Rule("ask", tools="t:*")])
    gate = LiveGate(Gate(policy=asks, approval=Approval(asks.decide, ask=approve)))
    async with Exec(gate=gate) as ex:
        ex.add(lambda: made.append(1), "t:one")
        call = asyncio.create_task(ex.run_tool("t:one"))
        await asked.wait()
        gate.exchange(CLOSED if forbids else Gate(policy=Policy([Rule("ask", tools="t:*")])))
        answer.set()
        if forbids:
            with pytest.raises(PolicyError, match=r"the policy .* changed since.*closed") as refused:
                await call
            assert refused.value.code == "policy_denied"
        else:
            await call
    assert made == ([] if forbids else [1])


@pytest.mark.parametrize("present", ["denied", "no role", "no caller"])
async def test_an_approved_run_begins_only_if_the_rules_of_that_moment_do_not_forbid_it(present: str) -> None:
    """An approved run does not begin where the rules forbid it by then, or its caller has lost the role or the key."""
    asked, answer = asyncio.Event(), asyncio.Event()
    ann = Caller(id="ann", roles=("staff",))

    async def approve(request: ApprovalRequest) -> ApprovalAnswer:
        asked.set()
        await answer.wait()
        return "once"

    asks = Policy([Rule("ask", runs="chain", roles="staff")], default_runs="deny")
    gate = LiveGate(Gate(policy=asks, approval=Approval(asks.decide, ask=approve)))
    async with Exec(gate=gate) as ex:
        ex.add(lambda: 1, "t:one")
        steps: Sequence[Any] = [{"tool": "t:one"}]
        with acting(Origin(caller=ann)):
            run = asyncio.create_task(ex.run_chain(steps))
        await reached(asked, run)
        if present == "denied":
            gate.exchange(Gate(policy=Policy([Rule("deny", runs="chain", reason="no chains")])))
        else:
            gate.present = lambda _: replace(ann, roles=()) if present == "no role" else None
        answer.set()
        with pytest.raises(
            PolicyError, match={"denied": "no chains", "no role": "forbids", "no caller": "taken out"}[present]
        ):
            await run


ASKED: dict[str, Callable[[Exec], Awaitable[Any]]] = {
    "call": lambda ex: ex.run_tool("t:one"),
    "stream": lambda ex: anext(ex.stream_tool("t:one")),
    "step": lambda ex: ex.run_chain([{"tool": "t:one"}]),
    "fallback": lambda ex: ex.run_tool("t:down"),
    "chain": lambda ex: ex.run_chain([{"tool": "t:free"}]),
    "code": lambda ex: ex.execute_code("return 1"),
    "workflow": lambda ex: ex.run_workflow("return 1"),
}


RUNS = ["chain", "code", "workflow"]


@pytest.mark.parametrize("present", ["there", "no caller", "no role"])
@pytest.mark.parametrize("way", ASKED)
async def test_no_approver_is_asked_for_a_caller_that_is_refused(way: str, present: str) -> None:
    """A caller whose key is gone, or whose role the rules want, is refused before an approver is asked."""
    asked, made = list[str](), list[int]()

    def approve(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request.tool_id)
        return "once"

    ann = Caller(id="ann", roles=("staff",))
    runs = Rule("ask" if way in RUNS else "allow", runs=RUNS, roles="staff")
    rules = [Rule("allow", tools=["t:down", "t:free"]), Rule("ask", tools="t:one", roles="staff"), runs]
    policy = Policy(rules, default="deny", default_runs="deny")
    fallback = Fallback({"t:down": ["t:one"]})
    gate = LiveGate(Gate(policy=policy, approval=Approval(policy.decide, ask=approve), fallback=fallback))

    @tool("t:down", read_only=True)
    def down() -> None:
        gate.present = gone
        raise ExecutionError("not there", retryable=True)

    def one() -> None:
        made.append(1)

    def gone(_: Caller) -> Caller | None:
        return {"there": ann, "no role": replace(ann, roles=()), "no caller": None}[present]

    async with Exec(gate=gate) as ex:
        ex.add(tool("t:one", read_only=True)(one))
        ex.add(lambda: 1, "t:free")
        ex.add(down)
        if way != "fallback":
            gate.present = gone
        with acting(Origin(caller=ann)):
            with suppress(ToolExecError):
                await ASKED[way](ex)
    assert (len(asked), len(made)) == ((1, way not in RUNS) if present == "there" else (0, 0))


async def test_rules_that_cannot_be_put_around_the_calls_change_nothing() -> None:
    """The rules of before stay."""
    gate = LiveGate(OPEN)

    class Broken(Policy):
        def wrap(self, inner: Any, find: Any) -> Any:
            raise ValueError("it does not fit")

    async with Exec(gate=gate) as ex:
        ex.add(lambda: 1, "t:one")
        with pytest.raises(ValueError, match="fit"):
            gate.exchange(Gate(policy=Broken()))
        assert gate.current is OPEN
        assert (await ex.run_tool("t:one")).value == 1


def failing(gate: LiveGate, made: list[int]) -> FunctionTool[Any, Any]:
    """Return a tool that fails, and with whose first call the rules forbid it."""

    @tool("t:one", read_only=True, inline=True)
    def one() -> None:
        made.append(1)
        gate.exchange(CLOSED)
        raise ExecutionError("not yet", retryable=True)

    return one


@pytest.mark.parametrize("streams", [False, True], ids=["run", "stream"])
async def test_each_attempt_goes_by_the_rules_of_its_moment(streams: bool) -> None:
    """A call that failed is not made again where the rules forbid it by then."""
    gate, made = LiveGate(Gate(policy=Policy(), retry=Retry(attempts=3, pause=0))), list[int]()
    async with Exec(gate=gate) as ex:
        ex.add(failing(gate, made))
        with pytest.raises(PolicyError, match=r"changed since.*closed"):
            if streams:
                _ = [event async for event in ex.stream_tool("t:one", fallback=True)]
            else:
                await ex.run_tool("t:one")
    assert made == [1]


def test_each_blocking_attempt_goes_by_the_rules_of_its_moment() -> None:
    """Calls in the caller's own thread are not made again, either, where the rules forbid it by then."""
    gate, made = LiveGate(Gate(policy=Policy(), retry=Retry(attempts=3, pause=0))), list[int]()
    with Exec(gate=gate).sync as ex:
        ex.add(failing(gate, made))
        with pytest.raises(PolicyError, match=r"changed since.*closed"):
            ex.run_tool("t:one")
    assert made == [1]


@pytest.mark.parametrize("present", [None, Caller(id="ann")], ids=["no caller", "no role"])
async def test_a_run_calls_what_its_caller_may_call_by_then(present: Caller | None) -> None:
    """A caller without a key by then, or without its role, has its chain call nothing more, though the rules are those of
    before and have nothing to ask."""
    policy = Policy([Rule("allow", tools="t:*", roles="staff")], default="deny")
    gate, made = LiveGate(Gate(policy=policy)), list[int]()

    def one() -> None:
        made.append(1)
        gate.present = lambda _: present

    async with Exec(gate=gate) as ex:
        ex.add(one, "t:one")
        with acting(Origin(caller=Caller(id="ann", roles=("staff",)))):
            chain = await ex.run_chain([{"tool": "t:one"}, {"tool": "t:one"}])
    assert (made, getattr(chain.error, "code", "")) == ([1], "policy_denied")
