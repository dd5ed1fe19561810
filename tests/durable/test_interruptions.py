"""Programs with every kind of concurrency, stopped at random moments: each goes on to one consistent end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toolexec import CodeResult, Exec, Tool, ToolAnnotations
from toolexec.errors import CodeError

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PYTHON = """
import asyncio, random
events = []
async def worker(name, queue):
    while True:
        n = await queue.get()
        try:
            events.append([name, await asyncio.wait_for(tools.t.work(n=n), random.choice([0.004, 5]))])
        except asyncio.TimeoutError:
            events.append([name, "late"])
        except ToolError as error:
            events.append([name, error.code])
        queue.task_done()
queue = asyncio.Queue()
for n in range(12):
    queue.put_nowait(n)
workers = [asyncio.create_task(worker(name, queue)) for name in "abc"]
await queue.join()
for each in workers:
    each.cancel()
first = await asyncio.wait([asyncio.create_task(tools.t.work(n=n)) for n in range(20, 24)], return_when="FIRST_COMPLETED")
events.append(len(first[0]))
events.append([tools.t.work(n=n) for n in range(30, 33)])
return events
"""
WORKFLOW = """
done := parallel for n in range(0, 12) limit 4 {
    retry 2 delay 3ms {
        try {
            parallel { a: run("t:work", {n: n}), b: run("t:work", {n: n + 100}) }
        } catch err {
            print(n, err.code)
            run("t:work", {n: n + 200})
        }
    }
}
return done
"""


class Works:
    """Tools whose time and outcome are up to chance, and that count what they did."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.done: list[int] = []

    async def work(self, args: dict[str, Any]) -> Any:
        """Do it, after a while; or fail."""
        await asyncio.sleep(self.chance.random() * 0.008)
        self.done.append(args["n"])
        await asyncio.sleep(self.chance.random() * 0.002)
        if self.chance.random() < 0.15:
            raise ValueError("bad luck")
        return [args["n"], self.chance.random()]

    def has(self, args: dict[str, Any]) -> Any:
        """Return whether it was done."""
        return {"done": args["n"] in self.done, "value": [args["n"], 0.5]}

    def open(self, path: Path) -> Exec:
        """Return an Exec with these tools, as each process has its own."""
        ex = Exec(journal=path, linger=5, max_tool_calls=500, default_timeout=60)
        meta = {"toolexec/check": "t:has"}
        ex.add(Tool(name="work", namespace="t", input_schema=SCHEMA, meta=meta), handler=self.work)
        ex.add(
            Tool(name="has", namespace="t", input_schema=SCHEMA, annotations=ToolAnnotations(read_only=True)),
            handler=self.has,
        )
        return ex


async def interrupted(path: Path, kind: str, seed: int) -> None:
    """Run a program, stop it at random moments, go on each time, and replay it in the end."""
    chance = random.Random(f"{kind} {seed}")
    works = Works(chance)
    result: CodeResult | None = None
    for turn in range(100):
        async with works.open(path) as ex:
            if kind == "python":
                run = asyncio.ensure_future(ex.execute_code(PYTHON, durable="run"))
            else:
                run = asyncio.ensure_future(ex.run_workflow(WORKFLOW, durable="run"))
            await asyncio.wait([run], timeout=chance.random() * 0.15 if turn < 12 else None)
            if run.done():
                result = run.result()
                break
            run.cancel()
            await asyncio.wait([run])
    assert result is not None
    assert result.error is None or isinstance(result.error, CodeError), result.error  # bad luck is an end, too
    assert max(Counter(works.done).values()) == 1
    before = list(works.done)
    async with works.open(path) as ex:
        report = await ex.runs.replay("run")
    assert report.same, report.error
    assert works.done == before


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["python", "workflow"])
async def test_a_program_goes_on_wherever_it_was_stopped(tmp_path: Path, kind: str, seed: int) -> None:
    """No call is made twice, whatever was under way, and the whole can be replayed."""
    await interrupted(tmp_path / "runs.db", kind, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 22))
@pytest.mark.parametrize("kind", ["python", "workflow"])
async def test_twenty_more(tmp_path: Path, kind: str, seed: int) -> None:
    """Chance finds cases that no author thought of."""
    await interrupted(tmp_path / "runs.db", kind, seed)
