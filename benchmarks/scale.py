"""How many remote runtimes it takes: a simulation of runs on many of them, and a real run on two that checks it.

`python -m benchmarks.scale simulate --rate 10000 --workers 40` simulates; `... check` measures what a run costs here,
has two servers run programs at some rates, and shows the simulation of the same beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import os
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter, process_time
from typing import Final, Literal, TypeAlias

import psutil

__all__ = ["Load", "Report", "simulate"]

PUSH: Final = 0.05
"""How often a server says how busy it is, in seconds."""

Kind: TypeAlias = Literal["arrival", "arrived", "computed", "ended", "push"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What comes, and what there is for it. Times are in seconds.

    `rate` runs come per second for `seconds`, at random times. Each has `cpu` seconds of computing on its worker, at
    random around that mean unless *is_steady*, and waits `wait` seconds for its tools meanwhile, with its slot taken.
    There are `workers`, each with `slots` and `cores`; `cores` 0 shares the cores of `shared_cores` among all of them.
    A message takes `delay` to get there. A worker has `queue` places for runs that wait.
    """

    rate: float
    seconds: float = 10.0
    workers: int = 2
    slots: int = 8
    cores: int = 1
    shared_cores: int = 0
    cpu: float = 0.003
    wait: float = 0.0
    delay: float = 0.0005
    queue: int = 1000
    is_steady: bool = False
    seed: int = 1


@dataclass(slots=True)
class Report:
    """What came of it: runs that ended, that were refused, and of the others how long they took from their arrival.

    `per_second` counts those that ended in the second half of the time in which runs came; `busy` is the share of the
    workers' slots that were taken in all of it.
    """

    ended: int = 0
    refused: int = 0
    per_second: float = 0.0
    busy: float = 0.0
    took: list[float] = field(default_factory=list[float])

    def percentile(self, share: float) -> float:
        """Return the time that this share of the runs did not exceed."""
        if not self.took:
            return float("nan")
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def __str__(self) -> str:
        times = " ".join(f"p{round(100 * share)} {1000 * self.percentile(share):.1f} ms" for share in (0.5, 0.95, 0.99))
        return f"{self.per_second:.0f} runs/s, slots {100 * self.busy:.0f} % busy, {times}, {self.refused} refused"


class _Cores:
    """Processors that serve one after the other who asks."""

    def __init__(self, many: int) -> None:
        self.free = many
        self.waiting: deque[tuple[int, int]] = deque()


class _Worker:
    """One server: who has a slot, who waits for one, and what callers know of it."""

    def __init__(self, cores: _Cores) -> None:
        self.cores = cores
        self.running = 0
        self.waiting: deque[int] = deque()
        self.told = 0
        self.sent = 0  # since it was last told


class _Simulation:
    """Events in the order of their times."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.report = Report()
        self._dice = random.Random(load.seed)
        self._events: list[tuple[float, int, Kind, int, int]] = []
        self._order = count()
        shared = _Cores(load.shared_cores) if load.shared_cores else None
        self._workers = [_Worker(shared or _Cores(load.cores)) for _ in range(load.workers)]
        self._came: dict[int, float] = {}
        self._busy = 0.0
        self._taken = 0
        self._then = 0.0
        self._in_time = 0

    def run(self) -> Report:
        """Return what came of it."""
        load, runs = self.load, count()
        self._at(self._dice.expovariate(load.rate), "arrival", next(runs))
        for number in range(load.workers):
            self._at(PUSH * (number + 1) / load.workers, "push", worker=number)
        while self._events:
            now, _, kind, run, worker = heapq.heappop(self._events)
            self._count_busy(now)
            match kind:
                case "arrival":
                    self._choose(now, run)
                    if (after := now + self._dice.expovariate(load.rate)) < load.seconds:
                        self._at(after, "arrival", next(runs))
                case "arrived":
                    self._enter(now, run, worker)
                case "computed":
                    self._computed(now, run, worker)
                case "ended":
                    self._leave(now, run, worker)
                case "push":
                    self._push(now, worker)
        self.report.per_second = self._in_time / (load.seconds / 2)
        self.report.busy = self._busy / (load.seconds * load.workers * load.slots)
        return self.report

    def _at(self, when: float, kind: Kind, run: int = -1, worker: int = -1) -> None:
        heapq.heappush(self._events, (when, next(self._order), kind, run, worker))

    def _count_busy(self, now: float) -> None:
        until = min(now, self.load.seconds)
        if until > self._then:
            self._busy += self._taken * (until - self._then)
            self._then = until

    def _choose(self, now: float, run: int) -> None:
        """Send a run to the worker that is least busy, as far as callers know."""
        self._came[run] = now
        number = min(range(len(self._workers)), key=lambda each: self._workers[each].told + self._workers[each].sent)
        self._workers[number].sent += 1
        self._at(now + self.load.delay, "arrived", run, number)

    def _push(self, now: float, number: int) -> None:
        worker = self._workers[number]
        worker.told, worker.sent = worker.running + len(worker.waiting), 0
        if now < self.load.seconds:
            self._at(now + PUSH, "push", worker=number)

    def _enter(self, now: float, run: int, number: int) -> None:
        worker = self._workers[number]
        if worker.running < self.load.slots:
            self._start(now, run, number)
        elif len(worker.waiting) < self.load.queue:
            worker.waiting.append(run)
        else:
            self.report.refused += 1
            del self._came[run]

    def _start(self, now: float, run: int, number: int) -> None:
        self._workers[number].running += 1
        self._taken += 1
        self._compute(now, run, number)

    def _compute(self, now: float, run: int, number: int) -> None:
        cores = self._workers[number].cores
        if not cores.free:
            cores.waiting.append((run, number))
            return
        cores.free -= 1
        cpu = self.load.cpu
        spent = cpu if self.load.is_steady or not cpu else self._dice.expovariate(1 / cpu)
        self._at(now + spent, "computed", run, number)

    def _computed(self, now: float, run: int, number: int) -> None:
        cores = self._workers[number].cores
        cores.free += 1
        if cores.waiting:
            self._compute(now, *cores.waiting.popleft())
        self._at(now + self.load.wait, "ended", run, number)

    def _leave(self, now: float, run: int, number: int) -> None:
        worker = self._workers[number]
        worker.running -= 1
        self._taken -= 1
        self.report.ended += 1
        self._in_time += self.load.seconds / 2 < now <= self.load.seconds
        self.report.took.append(now + self.load.delay - self._came.pop(run))
        if worker.waiting:
            self._start(now, worker.waiting.popleft(), number)


def simulate(load: Load) -> Report:
    """Return what becomes of *load*; the same load gives the same report."""
    return _Simulation(load).run()


# -- the same for real ----------------------------------------------------------------------------------------------


async def real(load: Load, addresses: Sequence[str]) -> tuple[Report, float]:
    """Have real servers run programs that call a tool which waits `load.wait`, at the same times as in the simulation;
    also give how many seconds of processor time a run took, on both sides together."""
    from benchmarks.programs.remote import opened, value

    report, ahead, times = Report(), random.Random(load.seed), list[float]()
    now = ahead.expovariate(load.rate)
    while now < load.seconds:
        times.append(now)
        now += ahead.expovariate(load.rate)
    async with opened(*addresses) as ex:

        async def pause(seconds: float) -> float:
            await asyncio.sleep(seconds)
            return seconds

        ex.add(pause, "math:pause")
        code = f"return tools.math.pause(seconds={load.wait})"
        await asyncio.gather(*(value(ex, code) for _ in range(16)))
        servers = [child for child in psutil.Process().children() if "serve" in child.cmdline()]
        spent = sum(sum(each.cpu_times()[:2]) for each in servers) + process_time()
        began = perf_counter()

        async def one(when: float) -> None:
            await asyncio.sleep(max(0.0, when - (perf_counter() - began)))
            came = perf_counter() - began
            await value(ex, code)
            done = perf_counter() - began
            report.ended += 1
            report.took.append(done - came)
            report.per_second += load.seconds / 2 < done <= load.seconds

        await asyncio.gather(*map(one, times))
        spent = sum(sum(each.cpu_times()[:2]) for each in servers) + process_time() - spent
    report.per_second /= load.seconds / 2
    report.busy = load.wait * report.ended / load.seconds / (load.workers * load.slots)
    return report, spent / max(1, report.ended)


async def top_rate(addresses: Sequence[str], runs: int) -> float:
    """Return how many runs per second real servers do at most, when there are always enough of them."""
    from benchmarks.programs.remote import ONE_CALL, opened, value

    async with opened(*addresses) as ex:
        await asyncio.gather(*(value(ex, ONE_CALL) for _ in range(32)))
        began = perf_counter()
        await asyncio.gather(*(value(ex, ONE_CALL) for _ in range(runs)))
        return runs / (perf_counter() - began)


async def check(seconds: float) -> None:
    """Show real runs on two servers beside the simulation of them.

    The most that they do without waiting shows what a run takes of the processors, and is the one thing that the
    simulation is given; it must then get the other loads right.
    """
    from benchmarks.programs.remote import servers

    cores = os.cpu_count() or 1
    with servers(2) as addresses:
        for wait, share in ((0.5, 0.5), (0.5, 0.9), (0.5, 1.3), (0.1, 0.4), (0.0, 0.4), (0.0, 0.7)):
            top = await top_rate(addresses, 400)
            slots = 2 * Load(rate=1).slots
            most = min(top, slots / (wait + cores / top)) if wait else top
            load = Load(rate=share * most, seconds=seconds, wait=wait, shared_cores=cores, cpu=cores / top)
            measured, cpu = await real(load, addresses)
            expected = simulate(load)
            print(
                f"{load.rate:.0f} runs/s, tools that take {1000 * wait:.0f} ms; at most {top:.0f} runs/s without "
                f"waiting, {1000 * cpu:.2f} ms of processor time each"
            )
            print(f"  measured   {measured}")
            print(f"  simulated  {expected}")
            print(
                f"  throughput {expected.per_second / measured.per_second:.2f}, median time "
                f"{expected.percentile(0.5) / measured.percentile(0.5):.2f} of what was measured"
            )


def main() -> None:
    """Simulate, or check the simulation."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("simulate", help="simulate a load")
    for name in ("rate", "seconds", "cpu", "wait", "delay"):
        asked.add_argument(f"--{name}", type=float, default=getattr(Load(rate=10_000), name))
    for name in ("workers", "slots", "cores", "queue", "seed"):
        asked.add_argument(f"--{name}", type=int, default=getattr(Load(rate=10_000), name))
    checked = commands.add_parser("check", help="real runs on two servers beside their simulation")
    checked.add_argument("--seconds", type=float, default=10.0)
    given = vars(parser.parse_args())
    if given.pop("command") == "check":
        asyncio.run(check(given["seconds"]))
    else:
        print(simulate(Load(**given)))


if __name__ == "__main__":
    main()
