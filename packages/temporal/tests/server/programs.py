"""An Exec whose tools count their effects in files, and what workers and callers of the tests run with it.

`python -m packages.temporal.tests.server.programs worker|queue-worker|caller SETTINGS ...` runs one in a process of its
own, to be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.waiting import until

from toolexec import CodeResult, Exec, Step, tool
from toolexec.journal import Queue
from toolexec.runtime import wasm
from toolexec_temporal import TemporalBackend, TemporalEngine, TemporalSettings

PAUSE = "TOOLEXEC_TEST_PAUSE"
"""The variable that says how many seconds a charge takes."""
CHAIN = [
    Step("shop:charge", {"number": 0, "amount": 0}),
    *(Step("shop:charge", {"number": n, "amount": {"$ref": f"steps.{n - 1}"}}) for n in range(1, 100)),
]
CHAIN_VALUE = sum(range(100))
WORKFLOW = """charges := parallel for n in range(30) limit 6 {
  run("shop:charge", {number: 1000 + n, amount: n})
}
return charges
"""
WORKFLOW_VALUE = [1000 + n + n for n in range(30)]
CODE = """import asyncio, random
total = 0
for n in range(25):
    total = tools.shop.charge(number=2000 + n, amount=total)
more = await asyncio.gather(*[tools.shop.charge(number=3000 + n, amount=n) for n in range(25)])
return [total, more, random.random()]
"""
CODE_VALUE = [sum(range(2000, 2025)), [3000 + n + n for n in range(25)]]


SLOW_CODE = """import asyncio
first = tools.shop.mark(number=1)
await asyncio.sleep(4)
return first + tools.shop.mark(number=2)
"""


def engine_of(ex: Exec) -> TemporalEngine:
    """Return the engine that keeps the runs of an Exec."""
    engine = ex.options.journal
    assert isinstance(engine, TemporalEngine)
    return engine


def make_exec(effects: Path, settings: TemporalSettings) -> Exec:
    """Return an Exec whose tool `shop:charge` writes a line to *effects* for each time that it does its work."""

    def charges() -> list[str]:
        return effects.read_text().split() if effects.exists() else []

    @tool("shop:charged", read_only=True)
    async def charged(number: int, amount: int) -> dict[str, Any]:
        """Say whether a charge was made."""
        return {"done": str(number) in charges(), "value": number + amount}

    @tool("shop:charge", meta={"toolexec/check": "shop:charged"})
    async def charge(number: int, amount: int) -> int:
        """Charge something: it must not happen twice."""
        await asyncio.sleep(float(os.environ.get(PAUSE, "0.01")))
        with effects.open("a") as file:
            file.write(f"{number}\n")
            file.flush()
            os.fsync(file.fileno())
        return number + amount

    ex = Exec(journal=TemporalEngine(settings), max_tool_calls=1000, default_timeout=None)
    ex.add(charged)
    ex.add(charge)
    return ex


def make_office(log: Path, gate: Path, settings: TemporalSettings, limits: Mapping[str, int]) -> Exec:
    """Return an Exec with a queue of these limits: its tool writes to *log* when it begins and ends, and waits for *gate*
    meanwhile."""

    async def stay(number: int) -> int:
        for line in (f"+{number}\n", f"-{number}\n"):
            with log.open("a") as file:
                file.write(line)
            await until(gate.exists, 0.05)
        return number

    ex = Exec(journal=TemporalEngine(settings), queues={"q": Queue(**limits)}, default_timeout=None)
    ex.add(stay, "office:stay")
    return ex


async def work_on_queue(settings: TemporalSettings, log: Path, gate: Path, limits: Mapping[str, int]) -> None:
    """Be a worker of the queue until the process ends."""
    async with make_office(log, gate, settings, limits) as ex, ex.worker(isolations=[]):
        await asyncio.Event().wait()


def read_settings(text: str) -> TemporalSettings:
    """Return the settings of a process from its command line."""
    return TemporalSettings(**json.loads(text))


async def work(settings: TemporalSettings, effects: Path) -> None:
    """Be a worker until the process ends."""
    async with make_exec(effects, settings) as ex, ex.worker():
        await asyncio.Event().wait()


async def call(settings: TemporalSettings, effects: Path, kind: str, run_id: str, results: Path) -> None:
    """Run something as the run *run_id*, and write down what came of it."""
    async with make_exec(effects, settings) as ex:
        result: Any
        if kind == "chain":
            result = await ex.run_chain(CHAIN, durable=run_id)
        elif kind == "workflow":
            result = await ex.run_workflow(WORKFLOW, durable=run_id, timeout=600)
        else:
            result = await ex.execute_code(CODE, durable=run_id, timeout=600, seed=7, now=1e9)
        part = results.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({"value": result.value, "error": str(result.error or "")}))
        part.rename(results)


async def run_slow_code(settings: TemporalSettings, effects: Path) -> CodeResult:
    """Run code with two calls in a sandbox on Temporal, as a request that survives its caller."""

    def mark(number: int) -> int:
        with effects.open("a") as file:
            file.write(f"{number}\n")
        return number

    backend = TemporalBackend(wasm.WasmBackend(), settings)
    async with Exec(runtime_backends=[backend], default_timeout=None) as ex:
        ex.add(mark, "shop:mark")
        return await ex.execute_code(SLOW_CODE, timeout=60, metadata={"run_id": "slow"})


if __name__ == "__main__":
    role, settings_text, effects_path, *rest = sys.argv[1:]
    if role == "worker":
        asyncio.run(work(read_settings(settings_text), Path(effects_path)))
    elif role == "queue-worker":
        asyncio.run(work_on_queue(read_settings(settings_text), Path(effects_path), Path(rest[0]), json.loads(rest[1])))
    elif role == "caller-of-sandbox":
        asyncio.run(run_slow_code(read_settings(settings_text), Path(effects_path)))
    else:
        asyncio.run(call(read_settings(settings_text), Path(effects_path), rest[0], rest[1], Path(rest[2])))
