"""Gate: one call is resolved once and decided once, however many rules there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from tests.run.conftest import Workshop

from toolexec import Exec
from toolexec.config.asking import CallerIsNotAsked
from toolexec.discovery.index import Registered
from toolexec.discovery.memory import InMemoryIndex
from toolexec.errors import RateLimitedError
from toolexec.model import LocalBinding, Tool
from toolexec.model.call import ToolCall
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Origin
from toolexec.run.audit import AuditLog
from toolexec.run.gate import PARTS, Gate
from toolexec.run.layer import Layer
from toolexec.run.layers import Breaker, Bulkhead, Cache, Fallback, Retry
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.budget import Budget
from toolexec.run.layers.rate_limit import RateLimit
from toolexec.run.layers.scan import Scan
from toolexec.run.layers.telemetry import Telemetry
from toolexec.run.pinning import Pins
from toolexec.run.policy import Policy, Rule, Verdict
from toolexec.run.resolve import Find, Resolver
from toolexec.run.results import ResultStore
from toolexec.run.runner import Runner, ThreadRunner


class CountingIndex(InMemoryIndex):
    """Counts its lookups."""

    lookups = 0

    def find(self, tool_id: str) -> Registered | None:
        self.lookups += 1
        return super().find(tool_id)


class CountingPolicy(Policy):
    """Counts its decisions."""

    decisions = 0

    def decide(self, entry: Registered, call: ToolCall) -> Verdict:
        self.decisions += 1
        return super().decide(entry, call)


class Counted:
    """An Exec with every rule that there is."""

    def __init__(self, directory: Path, ask: str = "", *, audit: bool = True) -> None:
        self.index = CountingIndex()
        rules = [Rule("ask", tools=ask)] if ask else [Rule("allow", when={"a": {"below": 100}})]
        self.policy = CountingPolicy(rules)
        approval = Approval(self.policy.decide, ask=self.answer)
        gate = Gate(
            telemetry=Telemetry(tracer_provider=TracerProvider(), meter_provider=MeterProvider()),
            audit=Audit(AuditLog.open(directory / "audit.jsonl")) if audit else None,
            budget=Budget(ResultStore(2000)),
            policy=self.policy,
            pinning=Pins(directory / "pins.json"),
            approval=CallerIsNotAsked(approval),
            rate_limit=RateLimit(overall="1000/s"),
            cache=Cache(),
            fallback=Fallback(),
            bulkhead=Bulkhead(),
            breaker=Breaker(),
            retry=Retry(),
        )
        self.ex = Exec(index=self.index, gate=gate)
        self.ex.add(echo, "t:echo")
        self.ex.add(count, "t:count")
        self.index.lookups = 0

    def answer(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Approve everything, once."""
        return "once"

    @property
    def counts(self) -> tuple[int, int]:
        """Return how often the index was asked, and how often the policy."""
        return self.index.lookups, self.policy.decisions


def echo(a: int = 0) -> int:
    """Return it."""
    return a


async def count(to: int) -> AsyncIterator[int]:
    """Count."""
    for number in range(to):
        yield number


async def test_a_call_is_resolved_and_decided_once(tmp_path: Path) -> None:
    """Under the full gate there is one lookup and one decision."""
    counted = Counted(tmp_path)
    assert (await counted.ex.run_tool("t:echo", {"a": 5})).value == 5
    assert counted.counts == (1, 1)
    await counted.ex.aclose()


@pytest.mark.parametrize("tool", ["t:echo", "t:count"])
async def test_a_stream_is_resolved_and_decided_once(tmp_path: Path, tool: str) -> None:
    """A stream is resolved once, even if it falls back to a call."""
    counted = Counted(tmp_path)
    args = {"to": 2} if tool == "t:count" else {}
    assert [event async for event in counted.ex.stream_tool(tool, args)][-1].kind == "done"
    assert counted.counts == (1, 1)
    await counted.ex.aclose()


async def test_an_approved_call_is_looked_up_again(tmp_path: Path) -> None:
    """While an approver is asked the tool may change, so there is one more lookup afterwards, and no more decisions."""
    counted = Counted(tmp_path, ask="t:*")
    assert (await counted.ex.run_tool("t:echo", {"a": 5})).value == 5
    assert counted.counts == (2, 1)
    await counted.ex.aclose()


async def test_a_call_in_the_callers_thread(tmp_path: Path) -> None:
    """A call that needs no event loop is resolved once, and so is the question whether it needs one."""
    counted = Counted(tmp_path, audit=False)
    runner = counted.ex.runner
    assert isinstance(runner, ThreadRunner)
    call = ToolCall("t:echo", {"a": 5})
    assert runner.runs_in_thread(call, 1.0)
    assert counted.counts == (1, 1)
    result = runner.run_in_thread(call, lambda work: None, 1.0)
    assert result is not None
    assert result.value == 5
    assert counted.counts == (2, 2)
    await counted.ex.aclose()


def behind_a_gate(shop: Workshop, **parts: Any) -> Runner:
    """The pipeline behind a gate with these parts."""
    return Gate(**parts).wrap(shop.runner(), Resolver(shop.index, shop.backends).resolve)


async def test_the_same_call_again(workshop: Workshop) -> None:
    """A ToolCall that is made twice is looked up twice, also after a rule has refused it."""
    tool = Tool(name="x", namespace="t", input_schema={"type": "object"})
    workshop.add_tool(tool, lambda args: "old")
    now = [0.0]
    limit = RateLimit(rate=1, burst=1, clock=lambda: now[0])
    runner = behind_a_gate(workshop, policy=Policy(), rate_limit=limit)
    call = ToolCall("t:x")
    assert (await runner.run(call)).value == "old"
    with pytest.raises(RateLimitedError):
        await runner.run(call)
    workshop.local.register("new", lambda args: "new")
    workshop.index.replace(tool, LocalBinding("new"))
    workshop.index.unregister("t:x", LocalBinding("t:x"))
    now[0] = 5.0
    assert (await runner.run(call)).value == "new"


async def test_a_replaced_call_is_looked_up_and_decided_for_itself(workshop: Workshop) -> None:
    """A part that makes another call in place of one gets that call's tool and verdict, not those of the first."""
    for name in ("a", "b"):
        workshop.add(lambda name=name: name, f"t:{name}")

    class Redirect:
        def wrap(self, inner: Runner, find: Any) -> Runner:
            from toolexec.run.layer import Layer

            class Layered(Layer):
                def before(self, call: ToolCall) -> ToolCall:
                    return ToolCall("t:b", {}, origin=Origin())

            find("t:a")
            return Layered(inner)

    runner = behind_a_gate(workshop, policy=Policy(), pinning=Redirect(), rate_limit=RateLimit(overall=100))
    assert (await runner.run(ToolCall("t:a"))).value == "b"


async def test_another_runner_inside(workshop: Workshop) -> None:
    """A runner over other tools looks the call up among its own."""
    workshop.add(lambda: "outer", "t:x")
    other = Workshop()
    other.add(lambda: "inner", "t:x")
    runner = Gate(policy=Policy()).wrap(other.runner(), Resolver(workshop.index, workshop.backends).resolve)
    assert (await runner.run(ToolCall("t:x"))).value == "inner"


class Passing:
    """A part that only writes down that a call passes."""

    def __init__(self, name: str, passed: list[str]) -> None:
        self.name = name
        self.passed = passed

    def wrap(self, inner: Runner, find: Find) -> Runner:
        part = self

        class Noted(Layer):
            """Writes the part's name down."""

            def before(self, call: ToolCall) -> None:
                part.passed.append(part.name)

        return Noted(inner)


async def test_the_order_of_the_parts() -> None:
    """Whatever order they are given in, a call passes them in the one right order."""
    order = ["telemetry", "audit", "budget", "policy", "pinning", "approval", "rate_limit"]
    order += ["cache", "fallback", "ledger", "bulkhead", "breaker", "retry"]
    passed: list[str] = []
    gate = Gate(**{name: Passing(name, passed) for name in sorted(order)})  # type: ignore[arg-type]
    async with Exec(gate=gate) as ex:
        ex.add(echo, "t:echo")
        await ex.run_tool("t:echo", {"a": 1})
    assert passed == order


def test_a_gate_is_replaced_with_all_its_parts() -> None:
    """A part that is new has a name here, or a reload would lose it."""
    from inspect import signature

    assert {*PARTS, "code_shares", "self"} == set(signature(Gate.__init__).parameters)
    scan, telemetry = Scan(), Telemetry()
    gate = Gate(scan=scan).replaced({"telemetry": telemetry}, code_shares=None)
    assert (gate.scan, gate.telemetry) == (scan, telemetry)
