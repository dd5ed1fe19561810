"""A reference for queues, and random sequences that a journal must do as it does."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from toolexec.durable.journal import RunRecord, Signal, Wait
from toolexec.durable.queues import Queue
from toolexec.errors import RunError

LEASE = 30.0
QUEUES = {
    "a": Queue(concurrency=2, worker_concurrency=1),
    "b": Queue(worker_concurrency=3, rate=(2, 5.0)),
    "c": Queue(concurrency=1, rate=(1, 1.0)),
}
WORKERS = ("m-1-1", "m-2-2", "m-3-3")


class Clock:
    """A clock that is put forward and back."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Run:
    """What the reference knows of a run."""

    queue: str
    priority: int
    number: int
    state: str = "queued"
    wake: float | None = None
    owner: str = ""


@dataclass
class Model:
    """The reference: what may be taken next."""

    clock: Clock
    runs: dict[str, Run] = field(default_factory=dict)
    starts: dict[str, list[float]] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)

    def live(self, queue: str) -> list[Run]:
        """Return the runs that hold a place."""
        return [
            run
            for run in self.runs.values()
            if run.queue == queue and run.state == "running" and (run.wake or 0) > self.clock.now
        ]

    def next(self, queue: str, worker: str) -> str | None:
        """Return what a worker is to get."""
        limits, now = QUEUES[queue], self.clock.now
        mine = [(run.priority, run.number, run_id) for run_id, run in self.runs.items() if run.queue == queue]
        for _, _, run_id in mine:
            run = self.runs[run_id]
            if run.state == "queued" and run.wake is not None and run.wake <= now:
                run.wake = None  # it stays so when the clock is put back
        live = self.live(queue)
        if limits.concurrency and len(live) >= limits.concurrency:
            return None
        if sum(run.owner.startswith(worker + "/") for run in live) >= limits.worker_concurrency:
            return None
        begun = [each for each in mine if self._can_go_on(self.runs[each[2]])]
        if begun:
            return min(begun)[2]
        ready = [each for each in mine if (run := self.runs[each[2]]).state == "queued" and run.wake is None]
        if ready and limits.rate is not None:
            number, seconds = limits.rate
            kept = [min(at, now) for at in self.starts.get(queue, []) if min(at, now) > now - seconds]
            self.starts[queue] = kept
            if len(kept) >= number:
                return None
        return min(ready)[2] if ready else None

    def _can_go_on(self, run: Run) -> bool:
        return run.state in ("running", "waiting") and run.wake is not None and run.wake <= self.clock.now

    def take(self, run_id: str, owner: str) -> None:
        """Note that a worker has it."""
        run = self.runs[run_id]
        if run.state == "queued":
            self.starts.setdefault(run.queue, []).append(self.clock.now)
            self.begun[run_id] = self.begun.get(run_id, 0) + 1
        run.state, run.owner, run.wake = "running", owner, self.clock.now + LEASE


def play(store: Any, clock: Clock, seed: int, steps: int = 60) -> None:
    """Do one random sequence with a journal and the reference; raises AssertionError where they differ."""
    chance, model, owners = random.Random(seed), Model(clock), iter(range(10_000))
    for _ in range(steps):
        kind = chance.choices(("enqueue", "take", "end", "wait", "signal", "clock"), (4, 6, 3, 2, 1, 2))[0]
        if kind == "enqueue":
            _enqueue(store, model, chance)
        elif kind == "take":
            _take(store, model, chance.choice([*QUEUES]), chance.choice(WORKERS), f"{next(owners)}")
        elif kind == "clock":
            clock.now += chance.choice((0.3, 1.0, 5.0, 40.0, -2.0, -50.0))
        elif kind == "signal":
            waiting = [run_id for run_id, run in model.runs.items() if run.state == "waiting"]
            if waiting:
                run_id = chance.choice(waiting)
                store.signal(run_id, Signal(id=str(next(owners)), name="go"))
                model.runs[run_id].wake = 0.0
        else:
            _leave(store, model, chance, kind)
    _drain(store, model, owners)


def _enqueue(store: Any, model: Model, chance: random.Random) -> None:
    run_id, queue = f"r{chance.randrange(25)}", chance.choice([*QUEUES])
    priority, delay = chance.randint(-1, 1), chance.choice((0.0, 0.0, 3.0))
    wanted = RunRecord(id=run_id, kind="chain", source="[]", digest="d", settings={}, queue=queue, priority=priority)
    found = store.enqueue(wanted, ready=model.clock.now + delay if delay else 0.0)
    known = model.runs.get(run_id)
    if known is None:
        known = model.runs[run_id] = Run(queue, priority, len(model.runs))
        known.wake = model.clock.now + delay if delay else None
        assert found.state == "queued"
    assert (found.queue, found.priority) == (known.queue, known.priority)


def _take(store: Any, model: Model, queue: str, worker: str, number: str) -> None:
    owner = f"{worker}/{number}"
    expected = model.next(queue, worker)
    found = store.take_next(queue, QUEUES[queue], owner, LEASE)
    assert (None if found is None else found.id) == expected, (queue, worker)
    if expected is not None:
        model.take(expected, owner)
        limits = QUEUES[queue]
        assert not limits.concurrency or len(model.live(queue)) <= limits.concurrency
        if limits.rate is not None:
            within = [at for at in model.starts[queue] if at > model.clock.now - limits.rate[1]]
            assert len(within) <= limits.rate[0]


def _leave(store: Any, model: Model, chance: random.Random, kind: str) -> None:
    """End a run, or have it wait: also one whose lease is over, as long as no other worker has it."""
    running = [run_id for run_id, run in model.runs.items() if run.state == "running"]
    if not running:
        return
    run_id = chance.choice(running)
    run = model.runs[run_id]
    if kind == "end":
        store.finish(run_id, run.owner, "done", {})
        run.state, run.wake = "done", None
        return
    due = chance.choice((None, model.clock.now + 2.0))
    if store.suspend(run_id, run.owner, [Wait(step="1", kind="signal", name="go", due=due)]):
        run.state, run.wake = "waiting", due
    else:  # a signal of before is there
        assert store.signals(run_id)


def _drain(store: Any, model: Model, owners: Any) -> None:
    """Have all runs end: none is lost, and each began once."""
    for run_id, run in model.runs.items():
        if run.state == "waiting":
            store.signal(run_id, Signal(id=f"last-{run_id}", name="go"))
            run.wake = 0.0
    for _ in range(500):
        if all(run.state == "done" for run in model.runs.values()):
            break
        model.clock.now += 40.0
        for queue in QUEUES:
            _take(store, model, queue, WORKERS[0], f"{next(owners)}")
        for run_id, run in model.runs.items():
            if run.state == "running" and run.owner.startswith(WORKERS[0]):
                store.finish(run_id, run.owner, "done", {})
                run.state, run.wake = "done", None
    assert all(run.state == "done" for run in model.runs.values())
    assert set(model.begun.values()) <= {1}
    for run_id in model.runs:
        try:
            store.delete(run_id)
        except RunError as error:
            raise AssertionError(run_id) from error
    model.clock.now += 10_000.0  # so that what began here does not count for the next sequence
