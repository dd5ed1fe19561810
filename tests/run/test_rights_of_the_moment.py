"""A caller loses a right while it has calls under way: no call is made any more that it could not begin now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec, Gate, Policy, Rule, tool
from toolexec.errors import ExecutionError, PolicyError
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Caller, Origin, acting
from toolexec.run.layers.bulkhead import Bulkhead
from toolexec.run.layers.retry import Retry
from toolexec.run.live_gate import LiveGate
from toolexec.testing import InMemoryBackend

ANN = Caller(id="ann", roles=("staff",), method="api_key")
RULES = [Rule("allow", tools="t:*", roles="staff"), Rule("ask", tools="t:last", roles="guest")]
POLICY = Policy([*RULES, Rule("allow", tools=["t:first", "t:wait"])], default="deny")

Run = Callable[..., Awaitable[Any]]
STEPS = [{"tool_id": "t:first"}, {"tool_id": "t:last"}]
RUNS: dict[str, Run] = {
    "chain": lambda ex, **more: ex.run_chain(STEPS, **more),
    "workflow": lambda ex, **more: ex.run_workflow('run("t:first")\nreturn run("t:last")', **more),
    "python": lambda ex, **more: ex.execute_code("tools.t.first()\nreturn tools.t.last()", **more),
    "awaited python": lambda ex, **more: ex.execute_code("await tools.t.first()\nawait tools.t.last()", **more),
    "javascript": lambda ex, **more: ex.execute_code(
        'await tools.run("t:first", {}); return await tools.run("t:last", {})', language="javascript", **more
    ),
}
GATES: dict[str, Callable[[], Gate]] = {
    "a policy": lambda: Gate(policy=POLICY),
    "a policy and more": lambda: Gate(policy=POLICY, retry=Retry()),
}


class Scene:
    """An Exec for one caller, whose first call takes its rights away: all that it has *left* is given."""

    def __init__(self, gate: Gate, left: Caller | None, journal: Path | None = None) -> None:
        self.now: Caller | None = ANN
        self.left = left
        self.gate = LiveGate(gate)
        self.gate.present = lambda caller: self.now if caller.id == "ann" else caller
        self.ex = Exec(gate=self.gate, journal=journal)
        self.made = 0
        self.asked = 0

        @tool("t:first")
        def first() -> None:
            self.now = self.left

        @tool("t:last", read_only=True)
        def last() -> int:
            self.made += 1
            return 3

        @tool("t:wait")
        async def wait() -> None:
            self.now = self.left

        for each in (first, last, wait):
            self.ex.add(each)

    async def ask(self, _: ApprovalRequest) -> ApprovalAnswer:
        """Approve what is asked for."""
        self.asked += 1
        return "once"


def refusal(result: Any) -> Any:
    """Return what a run has failed with: the error of its call."""
    error = result.error
    while error is not None and not isinstance(error, PolicyError):
        error = error.__cause__
    return error


@pytest.mark.parametrize("left", [None, replace(ANN, roles=())], ids=["no key", "no role"])
@pytest.mark.parametrize("more", [{}, {"durable": "r"}], ids=["plain", "durable"])
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
async def test_a_run_makes_no_call_that_its_caller_may_not_make_now(
    run: Run, gate: Callable[[], Gate], more: dict[str, Any], left: Caller | None, tmp_path: Path
) -> None:
    """Each call of a run goes by the rights of its own moment, not by those with which the run began."""
    scene = Scene(gate(), left, tmp_path / "runs.db")
    async with scene.ex as ex:
        with acting(Origin(caller=ANN)):
            result = await run(ex, **more)
    assert isinstance(refusal(result), PolicyError), result
    assert scene.made == 0


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
async def test_a_run_is_asked_for_what_its_caller_has_to_be_asked_for_now(run: Run, gate: Callable[[], Gate]) -> None:
    """A caller whose calls were allowed, and need an approval by now, is asked."""
    scene = Scene(gate(), replace(ANN, roles=("guest",)))
    async with scene.ex as ex:
        with acting(Origin(caller=ANN, ask=scene.ask)):
            result = await run(ex)
    assert result.error is None, result
    assert (scene.made, scene.asked) == (1, 1)


@pytest.mark.parametrize("left", [None, replace(ANN, roles=())], ids=["no key", "no role"])
async def test_a_further_attempt_is_not_made_without_the_right(left: Caller | None) -> None:
    """A retry pauses, and its caller may have lost the right meanwhile."""
    scene = Scene(Gate(policy=POLICY, retry=Retry(pause=0.001, max_pause=0.001)), left)
    made: list[int] = []

    @tool("t:fails", read_only=True)
    def fails() -> None:
        made.append(1)
        scene.now = left
        raise ExecutionError("not now", retryable=True)

    scene.ex.add(fails)
    async with scene.ex as ex:
        with acting(Origin(caller=ANN)), pytest.raises(PolicyError):
            await ex.run_tool("t:fails")
        scene.now = ANN
        with acting(Origin(caller=ANN)), pytest.raises(PolicyError):
            _ = [event async for event in ex.stream_tool("t:fails")]
    assert len(made) == 2


@pytest.mark.parametrize("left", [None, replace(ANN, roles=())], ids=["no key", "no role"])
async def test_a_call_that_waited_for_its_turn_is_not_made_without_the_right(left: Caller | None) -> None:
    """A call waits for a slot of its backend, and its caller may have lost the right meanwhile."""
    bulkhead = Bulkhead(limit=1)
    began, go_on = asyncio.Event(), asyncio.Event()
    made: list[int] = []

    async def slow(_: Any) -> int:
        made.append(1)
        began.set()
        await go_on.wait()
        return 1

    backend = InMemoryBackend("t", {"slow": slow})
    scene = Scene(Gate(policy=POLICY, bulkhead=bulkhead), left)
    scene.ex.add_backends(backend)
    async with scene.ex as ex:
        with acting(Origin(caller=ANN)):
            calls = [asyncio.create_task(ex.run_tool("t:slow"))]
            await began.wait()
            calls.append(asyncio.create_task(ex.run_tool("t:slow")))
            entry = ex.index.find("t:slow")
            slots = bulkhead.slots(entry) if entry is not None else None
            assert slots is not None
            await until(lambda: slots.waiting == 1)
        scene.now = left
        go_on.set()
        first, second = await asyncio.gather(*calls, return_exceptions=True)
    assert getattr(first, "value", None) == 1
    assert isinstance(second, PolicyError), second
    assert made == [1]
