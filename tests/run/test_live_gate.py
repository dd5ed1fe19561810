"""Rules that are exchanged while calls are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from toolexec import Exec, Gate, Policy, Rule
from toolexec.errors import PolicyError
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest
from toolexec.run.layers.approval import Approval
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


async def test_an_approved_run_begins_only_if_the_rules_of_that_moment_do_not_forbid_it() -> None:
    """As it is for calls."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def approve(request: ApprovalRequest) -> ApprovalAnswer:
        asked.set()
        await answer.wait()
        return "once"

    asks = Policy([Rule("ask", runs="chain")])
    gate = LiveGate(Gate(policy=asks, approval=Approval(asks.decide, ask=approve)))
    async with Exec(gate=gate) as ex:
        ex.add(lambda: 1, "t:one")
        steps: Sequence[Any] = [{"tool": "t:one"}]
        run = asyncio.create_task(ex.run_chain(steps))
        await asked.wait()
        gate.exchange(Gate(policy=Policy([Rule("deny", runs="chain", reason="no chains")])))
        answer.set()
        with pytest.raises(PolicyError, match="no chains"):
            await run


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
