"""Random programs are recorded, and made again in a new process: equal to the bit, and so is each prefix."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Step
from toolexec.errors import ExecutionError

_NAMES = ("a", "b", "c")


class Tools:
    """Tools whose answers depend on the order of all calls, and that fail now and then."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.calls: list[tuple[int, Any]] = []

    async def work(self, n: int) -> Any:
        """Take a moment, and give anything at all."""
        await asyncio.sleep(self.chance.random() * 0.004)
        if self.chance.random() < 0.15:
            self.calls.append((n, "failed"))
            raise ExecutionError(f"no {n} today", code="none_left")
        value = self.chance.choice([n, n / 3, str(n), [n, None], {"n": n, "é": "\x1b"}])
        self.calls.append((n, value))
        return value


def a_chain(chance: random.Random) -> list[Step]:
    """Return steps of which some refer to others, and some may fail."""
    steps = [Step("t:work", {"n": 0}, stop_on_error=False)]
    for number in range(chance.randint(1, 6)):
        steps.append(
            Step("t:work", {"n": chance.randint(0, 99)}, name=f"s{number}", stop_on_error=chance.random() < 0.2)
        )
    return steps


def a_workflow(chance: random.Random) -> str:
    """Return a workflow with loops, branches and handled failures."""
    lines = ["seen := []"]
    for number in range(chance.randint(1, 4)):
        n, kind = chance.randint(0, 99), chance.choice(["call", "loop", "parallel", "each"])
        call = f'try {{ run("t:work", {{n: {n}}}) }} catch err {{ err.code }}'
        if kind == "call":
            lines.append(f"x{number} := {call}\nseen = seen + [x{number}]")
        elif kind == "loop":
            lines.append(f"for i in range(0, {chance.randint(1, 4)}) {{\n    y := {call}\n    seen = seen + [y, i]\n}}")
        elif kind == "parallel":
            lines.append(f"p{number} := parallel {{ a: {call}, b: {call} }}\nseen = seen + [p{number}.b, p{number}.a]")
        else:
            lines.append(f"q{number} := parallel for i in range(0, {chance.randint(1, 5)}) limit 3 {{ {call} }}")
            lines.append(f"seen = seen + q{number}")
    return "\n".join([*lines, "return seen"])


def a_program(chance: random.Random) -> str:
    """Return Python that calls tools one by one and together, and depends on which answer came first."""
    lines = ["import asyncio, random, time", "seen = [round(time.time(), 3)]", "async def one(n):", "    try:"]
    lines += ["        seen.append(await tools.t.work(n=n))", "    except ToolError as error:"]
    lines += [
        "        seen.append(error.code)",
        "        await one(n + 1000)" if chance.random() < 0.5 else "        pass",
    ]
    for _ in range(chance.randint(1, 4)):
        n, kind = chance.randint(0, 99), chance.choice(["call", "gather", "loop", "random"])
        if kind == "call":
            lines.append(f"await one({n})")
        elif kind == "gather":
            lines.append(f"await asyncio.gather(*(one({n} + i) for i in range({chance.randint(1, 6)})))")
        elif kind == "loop":
            lines.append(f"for i in range({chance.randint(1, 3)}):\n    await one(i)")
        else:
            lines.append("await one(random.randrange(1000))")
    return "\n".join([*lines, "return [seen, round(time.time() - seen[0], 6)]"])


async def recorded(journal: Path, seed: int) -> dict[str, tuple[Any, list[tuple[int, Any]]]]:
    """Run one program of each kind, and return what each came to, and what it has called."""
    chance, found = random.Random(seed), {}
    for kind in ("chain", "workflow", "code"):
        tools = Tools(seed)
        async with Exec(journal=journal, max_tool_calls=200, default_timeout=120) as ex:
            ex.add(tools.work, "t:work")
            run_id = f"{kind}-{seed}"
            if kind == "chain":
                result: Any = await ex.run_chain(a_chain(chance), durable=run_id)
            elif kind == "workflow":
                result = await ex.run_workflow(a_workflow(chance), durable=run_id)
            else:
                result = await ex.execute_code(a_program(chance), durable=run_id)
        assert result.error is None or isinstance(result.error, ExecutionError), result.error
        found[run_id] = result, tools.calls
    return found


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def check(recording: dict[str, tuple[Any, list[tuple[int, Any]]]], seen: dict[str, Any]) -> None:
    """Compare what a new process has seen of runs with what they did."""
    assert seen.keys() == recording.keys()
    for run_id, (result, made) in recording.items():
        again = seen[run_id]
        assert again["end"]["reason"] == ("end" if result.error is None else "error"), again["end"]
        if result.error is None:
            assert _text(again["end"]["value"]) == _text(result.value)
        calls = again["calls"]
        done = sorted(_text([call["args"]["n"], call.get("value", "failed")]) for call in calls)
        assert done == sorted(_text([*call]) for call in made)
        for number, stop in enumerate(again["stops"], 1):
            about = next(call for call in stop["calls"] if call["number"] == number)
            assert about.get("open"), (run_id, number)
            for call in stop["calls"]:  # what is known there is what is known at the end
                whole = calls[call["number"] - 1]
                assert call in (
                    whole,
                    {k: call[k] for k in ("number", "step", "tool", "args")} | {"open": True, "seconds": 0},
                )
                assert call["args"] == whole["args"]


def made_again(journal: Path) -> Any:
    """Return what a new process sees of all runs of a journal."""
    command = [sys.executable, "-m", "tests.durable.replaying", str(journal)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return json.loads(done.stdout)


@pytest.mark.full
async def test_runs_are_made_again_in_a_new_process(tmp_path: Path) -> None:
    """A process that has no tool sees the same values, arguments and variables, twice."""
    recording = await recorded(tmp_path / "runs.db", 1)
    seen = await asyncio.to_thread(made_again, tmp_path / "runs.db")
    check(recording, seen)
    assert await asyncio.to_thread(made_again, tmp_path / "runs.db") == seen


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 32))
async def test_any_run_is_made_again_in_a_new_process(tmp_path: Path, seed: int) -> None:
    """Every program does the same again."""
    recording = await recorded(tmp_path / "runs.db", seed)
    check(recording, await asyncio.to_thread(made_again, tmp_path / "runs.db"))
