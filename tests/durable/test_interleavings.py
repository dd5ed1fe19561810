"""Workflows whose calls end in an order that a seed chooses, cut off between any two turns of the event loop."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.durable import host_time

from toolexec import CodeResult, Exec, Tool, ToolAnnotations
from toolexec.durable.journal import CallRecord
from toolexec.durable.replay import Replay
from toolexec.errors import CodeError, RunError

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WORKFLOW = """
done := parallel for n in range(0, 4) limit 2 {
    retry 2 delay 3ms {
        try {
            parallel {
                a: run("t:work", {n: n}),
                b: [run("t:work", {n: n + 100}), run("t:work", {n: n + 200})]
            }
        } catch err {
            run("t:work", {n: n + 300})
        }
    }
}
return done
"""
LEAVING = """
return try { parallel { a: run("t:work", {n: 1}), b: [run("t:work", {n: 2}), run("t:work", {n: 3})] } } catch err { 9 }
"""
MOST_TURNS = 5000
"""Of the event loop, after which a run that has not ended never will."""


class Works:
    """Tools that end when they are let, and count what they did."""

    def __init__(self) -> None:
        self.chance = random.Random()
        self.done: list[int] = []
        self.waiting: list[asyncio.Future[bool]] = []

    async def work(self, args: dict[str, Any]) -> Any:
        """Do it, once it is let; or fail."""
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        works = await turn
        self.done.append(args["n"])
        if not works:
            raise ValueError("bad luck")
        return self.chance.random()

    def has(self, args: dict[str, Any]) -> Any:
        """Return whether it was done."""
        return {"done": args["n"] in self.done, "value": 0.5}

    async def reach(self, begun: int, done: int) -> None:
        """Let the loop turn until so many calls have begun, and so many are done."""
        for _ in range(MOST_TURNS):
            if (len(self.waiting), len(self.done)) == (begun, done):
                return
            await asyncio.sleep(0)
        raise AssertionError(f"{len(self.waiting)} calls have begun, and {len(self.done)} are done")

    async def let(self, turns: int) -> bool:
        """Let the loop turn so often, and then one call end, if there is one; return whether there was."""
        for _ in range(turns):
            await asyncio.sleep(0)
        self.waiting = [each for each in self.waiting if not each.done()]
        if self.waiting:
            self.chance.choice(self.waiting).set_result(self.chance.random() > 0.25)
        return bool(self.waiting)


@pytest.fixture
def works() -> Works:
    """Return the tools."""
    return Works()


@pytest.fixture
async def ex(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Exec, None]:
    """Yield an Exec with them, a journal, and a clock that passes at once."""
    host_time.install(monkeypatch)
    async with Exec(journal=tmp_path / "runs.db", linger=1000, max_tool_calls=500) as ex:
        meta = {"toolexec/check": "t:has"}
        ex.add(Tool(name="work", namespace="t", input_schema=SCHEMA, meta=meta), handler=works.work)
        reads = ToolAnnotations(read_only=True)
        ex.add(Tool(name="has", namespace="t", input_schema=SCHEMA, annotations=reads), handler=works.has)
        yield ex


async def interrupted(ex: Exec, works: Works, seed: int) -> None:
    """Run the workflow, cut it off again and again, and replay it in the end."""
    works.chance, works.done, run_id = random.Random(seed), [], f"run-{seed}"
    result: CodeResult | None = None
    for cut in range(100):
        run = asyncio.ensure_future(ex.run_workflow(WORKFLOW, durable=run_id))
        left = works.chance.randrange(40) if cut < 12 else MOST_TURNS
        while left > 0 and not run.done():
            turns = works.chance.randrange(1, 9)
            left -= turns
            await works.let(turns)
        if run.done():
            result = run.result()
            break
        run.cancel()
        await asyncio.wait([run])
    assert result is not None, f"seed {seed}: it does not end"
    error = result.error
    assert error is None or isinstance(error, CodeError), f"seed {seed}: {error}"
    assert max(Counter(works.done).values()) == 1, f"seed {seed}: {works.done}"
    report = await ex.runs.replay(run_id)
    assert report.same, f"seed {seed}: {report.error}"


async def test_a_failure_that_was_not_delivered_may_leave_a_call_that_is_recorded(ex: Exec, works: Works) -> None:
    """When a run goes on, a failure that is recorded ends a branch before its last call, which is recorded, too, is
    made again: the run ends as any other."""
    run = asyncio.ensure_future(ex.run_workflow(LEAVING, durable="run"))
    await works.reach(2, 0)
    fails, second = works.waiting
    second.set_result(True)
    await works.reach(3, 1)
    works.waiting[2].set_result(True)
    await works.reach(3, 2)
    fails.set_result(False)
    run.cancel()  # with the failure written down, and not delivered
    await asyncio.wait([run])
    result = await ex.run_workflow(LEAVING, durable="run")
    assert (result.value, result.error, works.done) == (9, None, [2, 3, 1])
    assert (await ex.runs.replay("run")).same


async def test_a_workflow_goes_on_wherever_it_was_cut_off(ex: Exec, works: Works) -> None:
    """Each run comes to one end that can be replayed, however its calls and its processes ended."""
    for seed in range(90, 95):
        await interrupted(ex, works, seed)


@pytest.mark.full
async def test_many_more(ex: Exec, works: Works) -> None:
    """Chance finds cases that no author thought of."""
    for seed in range(100, 130):
        await interrupted(ex, works, seed)


def recorded(step: str) -> CallRecord:
    """Return the record of a call that is over."""
    return CallRecord(step=step, tool="t:work", definition="", args="", state="done", outcome={"value": 1})


async def test_a_chain_that_code_left_may_come_less_far() -> None:
    """Of a chain that code did not wait for, a replay may not come to all the steps that were made; of one whose end it
    got, all are missed."""
    replay = Replay("run", "code", [recorded("3.0"), recorded("4")], [["4"]])
    replay.expect("3")
    replay.expect("4")
    replay.deliver(["4"])
    replay.check_end()
    replay.deliver(["3"])
    with pytest.raises(RunError, match=r"at step 3\.0: it ends"):
        replay.check_end()
