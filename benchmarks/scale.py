"""How many remote runtimes it takes: a simulation of runs on many servers, and real servers that check it.

`python -m benchmarks.scale simulate --rate 10000 --servers 40` simulates; `... check` measures what a run costs here,
has 1, 2 and 4 servers run programs at some rates, and shows the simulation of the same beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import count
from typing import Final

PUSH: Final = 0.05
"""How often a server says how busy it is, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What comes, and what there is for it. Times are in seconds.

    `rate` runs come per second for `seconds`, at random times and from `callers`, each of which knows what servers say
    of themselves, and what it has sent there since. A run takes `caller` seconds of the event loop of its caller's
    process, of which there are `caller_processes`, `loop` seconds of that of its server, and `cpu` seconds of computing
    in the sandbox (at random around that mean unless *is_steady*), and it waits `wait` seconds for its tools, with its
    slot taken. There are `servers`, each with `slots`, `queue` places for runs that wait, and `cores`; `cores` 0 shares
    `shared_cores` among all servers and callers. A message takes `delay` to get there.
    """

    rate: float
    seconds: float = 10.0
    callers: int = 1
    caller_processes: int = 0
    servers: int = 2
    slots: int = 8
    cores: int = 1
    shared_cores: int = 0
    caller: float = 0.0
    loop: float = 0.0
    cpu: float = 0.003
    wait: float = 0.0
    delay: float = 0.0005
    queue: int = 1000
    is_steady: bool = False
    seed: int = 1

    @property
    def most(self) -> float:
        """How many runs per second are possible at most: whichever of loops, cores and slots runs out first."""
        bounds = [self.servers * self.slots / (self.wait + self.loop + self.cpu)]
        processes = self.caller_processes or self.callers
        bounds += [self.servers / self.loop] if self.loop else []
        bounds += [processes / self.caller] if self.caller else []
        if self.shared_cores:
            bounds.append(self.shared_cores / (self.caller + self.loop + self.cpu))
        else:
            bounds.append(self.servers * self.cores / (self.loop + self.cpu))
        return min(bounds)


@dataclass(slots=True)
class Report:
    """What came of it: runs that ended, that were refused, and of the others how long they took from their arrival.

    `per_second` counts those that ended in the second half of the time in which runs came; `busy` is the share of the
    servers' slots that were taken in all of it.
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


class _Places:
    """So many places, for which who comes too late waits in turn: cores, an event loop (one place), or slots."""

    def __init__(self, many: int) -> None:
        self.free = many
        self.waiting: deque[Callable[[], None]] = deque()

    def take(self, then: Callable[[], None]) -> None:
        """Do *then* once there is a place."""
        if self.free:
            self.free -= 1
            then()
        else:
            self.waiting.append(then)

    def give(self) -> None:
        """Give a place back; the next one in turn has it."""
        if self.waiting:
            self.waiting.popleft()()
        else:
            self.free += 1


class _Server:
    """One server: its loop, its cores, its slots, and what it has said of itself."""

    def __init__(self, load: Load, cores: _Places) -> None:
        self.loop = _Places(1)
        self.cores = cores
        self.slots = _Places(load.slots)
        self.running = 0
        self.told = 0

    @property
    def queued(self) -> int:
        """How many runs wait for a slot."""
        return len(self.slots.waiting)


@dataclass(slots=True, eq=False)
class _Wait:
    """A run that waits for a slot: of a caller, at a server; what it does then, and where it goes instead."""

    caller: _Caller
    at: int
    then: Callable[[], None]
    moves_to: int | None = None

    def __call__(self) -> None:
        self.then()


class _Caller:
    """One caller: the loop of its process, and what it has sent to each server since that has last said something."""

    def __init__(self, load: Load, loop: _Places, cores: _Places | None) -> None:
        self.loop = loop
        self.cores = cores
        self.recent = [0] * load.servers
        self.open = [0] * load.servers


class _Simulation:
    """Events in the order of their times."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.report = Report()
        self._dice = random.Random(load.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._now = 0.0
        shared = _Places(load.shared_cores) if load.shared_cores else None
        self._servers = [_Server(load, shared or _Places(load.cores)) for _ in range(load.servers)]
        loops = [_Places(1) for _ in range(load.caller_processes or load.callers)]
        self._callers = [_Caller(load, loops[number % len(loops)], shared) for number in range(load.callers)]
        self._taken = 0
        self._busy = 0.0
        self._busy_until = 0.0
        self._in_time = 0

    def run(self) -> Report:
        """Return what came of it."""
        load = self.load
        self._after(self._dice.expovariate(load.rate), self._arrive)
        for number in range(load.servers):
            self._after(PUSH * (number + 1) / load.servers, partial(self._push, number))
        while self._events:
            self._now, _, event = heapq.heappop(self._events)
            event()
        self._count(0)
        self.report.per_second = self._in_time / (load.seconds / 2)
        self.report.busy = self._busy / (load.seconds * load.servers * load.slots)
        return self.report

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._order), event))

    def _count(self, more: int) -> None:
        """Count the time of the slots that were taken until now; *more* are from now on."""
        until = min(self._now, self.load.seconds)
        if until > self._busy_until:
            self._busy += self._taken * (until - self._busy_until)
            self._busy_until = until
        self._taken += more

    def _work(self, loop: _Places | None, cores: _Places | None, seconds: float, then: Callable[[], None]) -> None:
        """Take so many seconds of a loop, if any, and of one of the cores meanwhile; *cores* None are never short."""
        if not seconds:
            then()
            return

        def end() -> None:
            if cores is not None:
                cores.give()
            if loop is not None:
                loop.give()
            then()

        def begin() -> None:
            if cores is None:
                self._after(seconds, end)
            else:
                cores.take(partial(self._after, seconds, end))

        if loop is None:
            begin()
        else:
            loop.take(begin)

    # -- a run ------------------------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        caller, came = self._dice.choice(self._callers), self._now
        steps = self._steps(caller, came)

        def go() -> None:
            next(steps, lambda _: None)(go)

        go()
        if self._now + (after := self._dice.expovariate(self.load.rate)) < self.load.seconds:
            self._after(after, self._arrive)

    def _steps(self, caller: _Caller, came: float) -> Iterator[Callable[[Callable[[], None]], None]]:
        """Give what a run does, step by step: each is told what to do when it has ended."""
        load = self.load
        yield partial(self._work, caller.loop, caller.cores, load.caller / 2)
        waits = _Wait(caller, self._choice(caller), _nothing)
        while True:
            server = self._servers[waits.at]
            caller.recent[waits.at] += 1
            caller.open[waits.at] += 1
            yield partial(self._after, load.delay)
            yield partial(self._work, server.loop, server.cores, load.loop / 2)
            refused = not server.slots.free and server.queued >= load.queue
            if refused:
                break
            waits.moves_to = None
            yield partial(self._wait, waits)
            if waits.moves_to is None:
                break
            caller.open[waits.at] -= 1
            waits.at = waits.moves_to
        if not refused:
            server.running += 1
            self._count(1)
            spent = load.cpu if load.is_steady or not load.cpu else self._dice.expovariate(1 / load.cpu)
            yield partial(self._work, None, server.cores, spent)
            yield partial(self._after, load.wait)
            yield partial(self._work, server.loop, server.cores, load.loop / 2)
            server.running -= 1
            self._count(-1)
            server.slots.give()
        yield partial(self._after, load.delay)
        caller.open[waits.at] -= 1
        if refused:
            self.report.refused += 1
            return
        yield partial(self._work, caller.loop, caller.cores, load.caller / 2)
        self.report.ended += 1
        self._in_time += load.seconds / 2 < self._now <= load.seconds
        self.report.took.append(self._now - came)

    def _wait(self, waits: _Wait, then: Callable[[], None]) -> None:
        waits.then = then
        self._servers[waits.at].slots.take(waits)

    def _move(self, number: int) -> None:
        """Have runs that wait elsewhere go to a server that has said that it has room, as their callers see to it."""
        room = self.load.slots - self._servers[number].told
        for each in sorted(self._servers, key=lambda each: -each.queued):
            while room > 0 and each.queued and each is not self._servers[number]:
                waits = each.slots.waiting.popleft()
                assert isinstance(waits, _Wait)
                waits.moves_to = number
                room -= 1
                self._after(self.load.delay, waits)

    def _choice(self, caller: _Caller) -> int:
        """Return the less busy one of two servers, as far as the caller knows."""
        drawn = self._dice.sample(range(self.load.servers), min(2, self.load.servers))
        return min(drawn, key=lambda number: self._busy_of(caller, number))

    def _busy_of(self, caller: _Caller, number: int) -> int:
        return max(self._servers[number].told + caller.recent[number], caller.open[number])

    def _push(self, number: int) -> None:
        server = self._servers[number]
        server.told = server.running + server.queued
        for caller in self._callers:
            caller.recent[number] = 0
        self._move(number)
        if self._now < self.load.seconds:
            self._after(PUSH, partial(self._push, number))


def _nothing() -> None:
    """Do nothing."""


def simulate(load: Load) -> Report:
    """Return what becomes of *load*; the same load gives the same report."""
    return _Simulation(load).run()


def main() -> None:
    """Simulate, or check the simulation."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("simulate", help="simulate a load")
    defaults = Load(rate=10_000)
    for each in fields(Load):
        value = getattr(defaults, each.name)
        if not isinstance(value, bool):
            asked.add_argument(f"--{each.name.replace('_', '-')}", type=type(value), default=value)
    checked = commands.add_parser("check", help="real runs on 1, 2 and 4 servers beside their simulation")
    checked.add_argument("--seconds", type=float, default=10.0)
    given = vars(parser.parse_args())
    if given.pop("command") == "check":
        from benchmarks.scale_check import check

        asyncio.run(check(given["seconds"]))
    else:
        load = Load(**given)
        print(f"at most {load.most:.0f} runs/s; {simulate(load)}")


if __name__ == "__main__":
    main()
