"""Workflows that go on from their saved state: what comes of them is what comes of one that was never stopped."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Tool, ToolAnnotations
from toolexec.code.types import CodeEvent, CodeResult
from toolexec.durable import replay
from toolexec.durable.journal import Snapshot
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import ExecutionError
from toolexec.exec.run_results import RunResult

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LONG = """total := 0
for i in range(1000) {
    total = total + run("t:add", {n: i})
    if i % 100 == 0 { print("at ${i}") }
}
run("run:signal", {name: "go"})
print("woken")
return total + run("t:add", {n: 1000})
"""
MIXED = """print("begun")
parts := parallel for n in range(0, 24) limit 5 {
    first := run("t:add", {n: n})
    print("part ${n}")
    try { retry 2 delay 10ms { run("t:fail", {n: n}) } } catch e { first + run("t:add", {n: first + 100}) }
}
rest := collect n in range(200, 230) { run("t:add", {n: n}) }
print("done")
return [parts, rest]
"""

STOPS = 30


class Counted:
    """Opens an Exec on one journal, whose tools count what they did; each stands for another process."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "runs.db"
        self.done: Counter[int] = Counter()
        self.moment = asyncio.Event()
        self._left = 0

    def stop_in(self, calls: int) -> None:
        """Set `moment` when so many calls have begun from now on; 0 for never."""
        self.moment.clear()
        self._left = calls

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.moment.set()

    def open(self, **options: Any) -> Exec:
        ex = Exec(journal=self.path, linger=0.05, max_tool_calls=3000, default_timeout=60, **options)
        meta = {"toolexec/check": "t:has"}
        ex.add(Tool(name="add", namespace="t", input_schema=NUMBER, meta=meta), handler=self.add)
        read_only = ToolAnnotations(read_only=True)
        ex.add(Tool(name="has", namespace="t", input_schema=NUMBER, annotations=read_only), handler=self.has)
        ex.add(Tool(name="fail", namespace="t", input_schema=NUMBER, annotations=read_only), handler=self.fail)
        return ex

    async def add(self, args: dict[str, Any]) -> int:
        """Do it."""
        self.done[args["n"]] += 1
        self._count()
        await asyncio.sleep(0)
        return args["n"]

    def has(self, args: dict[str, Any]) -> Any:
        """Return whether it was done."""
        return {"done": self.done[args["n"]] > 0, "value": args["n"]}

    def fail(self, args: dict[str, Any]) -> None:
        """Fail."""
        self._count()
        raise ExecutionError(f"no {args['n']}", retryable=True)

    def snapshot(self, run_id: str) -> Snapshot | None:
        with SQLiteJournal(self.path) as journal:
            return journal.snapshot(run_id)


def facts(result: RunResult) -> Any:
    """Return what must not depend on where a run was stopped."""
    assert isinstance(result, CodeResult)
    calls = sorted((call.tool_id, call.at, call.value, call.error and call.error.code) for call in result.tool_calls)
    return result.raise_for_error().value, result.stdout, calls


async def test_a_long_workflow_does_not_begin_again(tmp_path: Path) -> None:
    """After 1,000 calls and a wait only the calls after its last state are repeated; value, output and trace are those
    of the whole."""
    counted = Counted(tmp_path)
    async with counted.open() as ex:
        waiting = await ex.run_workflow(LONG, durable="long", max_tool_calls=2000)
        assert waiting.error is not None
        assert waiting.error.code == "run_waiting"
    made: list[CodeEvent] = []
    async with counted.open() as ex:
        await ex.runs.signal("long", "go")
        result = await ex.runs.follow("long", on_event=made.append)
        report = await ex.runs.replay("long")
    assert isinstance(result, CodeResult)
    assert result.raise_for_error().value == sum(range(1001))
    assert result.stdout == "".join(f"at {number}\n" for number in range(0, 1000, 100)) + "woken\n"
    assert [call.tool_id for call in result.tool_calls] == ["t:add"] * 1000 + ["run:signal", "t:add"]
    assert [call.value for call in result.tool_calls[:1000]] == [*range(1000)]
    assert sum(event.kind == "call_end" for event in made) <= 100
    assert set(counted.done.values()) == {1}
    assert report.same
    assert report.calls == 1002


async def stopped(counted: Counted, turns: int) -> RunResult | None:
    """Go on with the run as another process does, until it ends or so many turns of the loop after its moment."""
    async with counted.open() as ex:
        task = asyncio.create_task(ex.run_workflow(MIXED, durable="mixed", max_tool_calls=500))
        moment = asyncio.create_task(counted.moment.wait())
        await asyncio.wait([task, moment], return_when=asyncio.FIRST_COMPLETED)
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            moment.cancel()
            return task.result()
        task.cancel()
        await asyncio.wait([task])
        return None


@pytest.mark.parametrize("seed", range(6))
async def test_a_workflow_that_is_stopped_anywhere(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped at random calls, with branches, pauses and failures that are caught, it comes to the same, and no call
    is doubled."""
    monkeypatch.setattr(replay, "_EACH", 7)
    plain, counted, chance = Counted(tmp_path / "plain"), Counted(tmp_path), random.Random(seed)
    plain.path.parent.mkdir()
    async with plain.open() as ex:
        expected = facts(await ex.run_workflow(MIXED, max_tool_calls=500))
    result: RunResult | None = None
    saved: set[int] = set()
    stops = 0
    for stops in range(STOPS + 1):
        counted.stop_in(chance.randrange(1, 12) if stops < STOPS else 0)
        result = await stopped(counted, turns=chance.randrange(5))
        if result is not None:
            break
        snapshot = counted.snapshot("mixed")
        saved |= set() if snapshot is None else {snapshot.calls}
    assert result is not None
    assert stops > 5
    assert len(saved) > 2
    value, stdout, calls = facts(result)
    assert value == expected[0]
    assert sorted(stdout.splitlines()) == sorted(expected[1].splitlines())
    assert calls == expected[2]
    assert {n for n, count in counted.done.items() if count > 1} == set()
    async with counted.open() as ex:
        report = await ex.runs.replay("mixed")
    assert report.same, report.error


async def test_what_is_undone_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workflow that is to be undone when it fails is repeated from its beginning: it knows all of its effects."""
    monkeypatch.setattr(replay, "_EACH", 1)
    counted = Counted(tmp_path)
    source = 'run("t:add", {n: 1})\nrun("run:signal", {name: "go"})\nrun("t:add", {n: 2})\nreturn run("t:fail", {n: 3})'
    async with counted.open() as ex:
        await ex.run_workflow(source, durable="undone", on_error="undo")
        await ex.runs.signal("undone", "go")
        result = await ex.runs.resume("undone")
    assert counted.snapshot("undone") is None
    assert isinstance(result, CodeResult)
    assert {each.tool_id for each in result.undone} == {"t:add"}
