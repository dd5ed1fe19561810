"""A durable run is decided on by the policy of whatever goes on with it, as well as by the one it began under."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Gate, Policy, Rule
from toolexec.errors import ApprovalRequiredError, PolicyError, RunWaitingError
from toolexec.model.origin import ApprovalRequest, Caller, Origin, acting
from toolexec.run.layers.approval import Approval

CODE = "tools.run('run:signal', {'name': 'go'})\nreturn tools.t.pay()"
FLOW = 'run("run:signal", {name: "go"})\nreturn run("t:pay")'
STEPS: list[Any] = [{"tool": "run:signal", "args": {"name": "go"}}, {"tool": "t:pay"}]
RUNS: dict[str, Callable[[Exec], Awaitable[Any]]] = {
    "chain": lambda ex: ex.run_chain(STEPS, durable="run"),
    "workflow": lambda ex: ex.run_workflow(FLOW, durable="run"),
    "code": lambda ex: ex.execute_code(CODE, durable="run"),
}


class Till:
    """Opens an Exec for each process, under rules of its own, and counts what was paid."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.paid = 0
        self.asked: list[ApprovalRequest] = []

    def open(self, *rules: Rule, answer: Any = None) -> Exec:
        """Return an Exec; *answer* is what its approver says, None for no approver."""

        def ask(request: ApprovalRequest) -> Any:
            self.asked.append(request)
            return answer

        policy = Policy(rules)
        approval = Approval(policy.decide, ask=ask if answer is not None else None)
        ex = Exec(gate=Gate(policy=policy, approval=approval), journal=self.directory / "runs.db", linger=0.05)
        ex.add(self.pay, "t:pay")
        return ex

    def pay(self) -> int:
        """Count."""
        self.paid += 1
        return self.paid


@pytest.fixture
def till(tmp_path: Path) -> Till:
    """A till, nothing is paid."""
    return Till(tmp_path)


async def wait(till: Till, kind: str, *rules: Rule, answer: Any = None) -> None:
    """Begin a run, which waits before it pays."""
    async with till.open(*rules, answer=answer) as ex:
        assert isinstance((await RUNS[kind](ex)).error, RunWaitingError)
        await ex.runs.signal("run", "go", 1)


@pytest.mark.parametrize("kind", RUNS)
async def test_a_rule_of_today_stops_a_run_of_yesterday(till: Till, kind: str) -> None:
    """Nothing more is done, and the run is kept: it goes on where it may."""
    await wait(till, kind)
    async with till.open(Rule("deny", runs=kind)) as ex:
        with pytest.raises(PolicyError):
            await ex.runs.resume("run")
        with pytest.raises(PolicyError):
            await RUNS[kind](ex)
    assert till.paid == 0
    async with till.open() as ex:
        assert (await ex.runs.resume("run")).raise_for_error().value == 1


async def test_a_language_that_is_denied_by_then_stops_code(till: Till) -> None:
    """Rules about languages hold for a run that goes on, too."""
    await wait(till, "code")
    async with till.open(Rule("deny", languages="python")) as ex:
        with pytest.raises(PolicyError, match="python code in the profile standard"):
            await ex.runs.resume("run")
    assert till.paid == 0


async def test_a_caller_who_lost_the_right_goes_on_with_nothing(till: Till) -> None:
    """The rules see the caller whose run it is, not the one who resumes it."""
    with acting(Origin(caller=Caller(id="ann", roles=("clerk",)))):
        await wait(till, "chain")
    async with till.open(Rule("deny", runs="chain", callers="ann")) as ex:
        with pytest.raises(PolicyError):
            await ex.runs.resume("run")
    assert till.paid == 0


@pytest.mark.parametrize("kind", RUNS)
async def test_a_run_without_an_approval_is_asked_about(till: Till, kind: str) -> None:
    """Where a rule asks by now, the run goes on after a yes only."""
    await wait(till, kind)
    async with till.open(Rule("ask", runs=kind)) as ex:
        with pytest.raises(ApprovalRequiredError):
            await ex.runs.resume("run")
    assert till.paid == 0
    async with till.open(Rule("ask", runs=kind), answer="once") as ex:
        assert (await ex.runs.resume("run")).raise_for_error().value == 1
    assert [request.tool_id for request in till.asked] == [
        {"chain": "run_chain", "workflow": "run_workflow", "code": "execute_code"}[kind]
    ]


@pytest.mark.parametrize("kind", RUNS)
async def test_an_approval_lasts_as_long_as_its_run(till: Till, kind: str) -> None:
    """A run that was approved when it began goes on without another question."""
    await wait(till, kind, Rule("ask", runs=kind), answer="once")
    async with till.open(Rule("ask", runs=kind)) as ex:
        assert (await ex.runs.resume("run")).raise_for_error().value == 1
    assert len(till.asked) == 1


async def test_an_approval_of_today_lets_a_run_of_yesterday_go_on(till: Till) -> None:
    """Beginning the same run again asks once, and goes on with it."""
    await wait(till, "chain")
    async with till.open(Rule("ask", runs="chain"), answer="once") as ex:
        assert (await RUNS["chain"](ex)).raise_for_error().value == 1
    assert (till.paid, len(till.asked)) == (1, 1)
