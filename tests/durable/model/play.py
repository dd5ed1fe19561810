"""Plays a plan on an engine, and holds the run to the plain run of the same program."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.durable.model.plans import Action, Book, Op, Plan, program
from tests.durable.model.world import Effects, open_plain, value_of
from tests.waiting import until

from toolexec import Exec
from toolexec.journal import Wait

_LIMIT = 300.0
"""How many seconds a program may take between two waits."""
_ROUNDS = 60
"""A run that has not ended by then, though all is answered, is stuck."""


class Driver(Protocol):
    """One engine with one run, as the model drives it."""

    effects: Effects
    deaths: int
    """How many processes have died."""

    @property
    def moved(self) -> float:
        """By how many seconds the clock was put forward at most, passing or set."""
        ...

    async def go(self, action: Action | None = None) -> None:
        """Have a process go on with the run, one that may die as *action* says, and return when nothing moves."""
        ...

    async def rival(self) -> None:
        """Have another process try to go on with the run, whatever the first one does."""
        ...

    async def state(self) -> str:
        """Return the state of the run; empty before it was begun."""
        ...

    async def waits(self) -> Sequence[Wait]:
        """Return what the run waits for."""
        ...

    async def signal(self, name: str, payload: Any) -> None:
        """Send something to the run."""
        ...

    async def pass_(self, seconds: float) -> None:
        """Let time pass."""
        ...

    async def jump(self, seconds: float) -> None:
        """Set the clock."""
        ...

    def now(self) -> float:
        """Return the time by which waits are due."""
        ...

    async def sleeps(self) -> float:
        """Return for how many seconds nothing happens to a run that waits for no person."""
        ...

    async def result(self) -> Any:
        """Return what the run that has ended came to."""
        ...

    async def replays(self) -> str:
        """Make the run that has ended again without any call; return what differs."""
        ...


def begin(ex: Exec, plan: Plan, run_id: str | None, book: Book | None = None) -> Any:
    """Begin the run, or go on with it; without an ID it is a plain one."""
    source = program(plan, book)
    given: dict[str, Any] = {} if run_id is None else {"durable": run_id}
    if plan.kind == "chain":
        return ex.run_chain(source, **given)
    if plan.kind == "workflow":
        return ex.run_workflow(source, max_tool_calls=200, timeout=_LIMIT, **given)
    if run_id is None:
        given["now"] = 1e9  # a sleep moves it, and takes no time
    return ex.execute_code(source, language=plan.kind, seed=7, max_tool_calls=200, timeout=_LIMIT, **given)


def observed(plan: Plan, result: Any) -> dict[int, Any]:
    """Return what each op came to."""
    if plan.kind == "chain":
        found = [["error", step.error.code] if step.error is not None else step.value for step in result.steps]
        return {op.n: value for op, value in zip(plan.ops(), found, strict=True)}
    assert result.error is None, f"{result.error!r}"
    seen: dict[int, Any] = {}
    for branches, values in zip(plan.statements, result.value, strict=True):
        for branch, each in zip(branches, values, strict=True):
            seen |= {op.n: value for op, value in zip(branch, each, strict=True)}
    return seen


@dataclass
class _Play:
    plan: Plan
    driver: Driver
    chance: random.Random
    book: Book = field(default_factory=Book)
    sent: dict[int, bool] = field(default_factory=dict[int, bool])
    """The answers to ops that were sent, and whether they were in time for certain."""
    answered: dict[str, int] = field(default_factory=dict[str, int])
    """The names that were answered, and how many processes had died by then."""
    expected_effects: Counter[int] = field(default_factory=Counter[int])

    async def do(self, action: Action) -> None:
        """Do one thing."""
        driver = self.driver
        if action.kind in ("go", "die"):
            await driver.go(action if action.kind == "die" else None)
        elif action.kind == "pass":
            await driver.pass_(action.seconds)
        elif action.kind == "jump":
            await driver.jump(action.seconds)
        elif not await driver.state() or (await driver.state()) in ("done", "failed"):
            return
        elif action.kind == "rival":
            await driver.rival()
        elif action.kind == "answer":
            waits = await self.open()
            if waits:
                await self.answer(waits[action.number % len(waits)])
        elif action.kind == "early":
            ops = [op for op in self.plan.ops() if self.plan.answers.get(op.n) is not None and op.n not in self.sent]
            if ops:
                await self.send(ops[action.number % len(ops)].n)
        elif action.kind == "twice":
            if self.answered:
                await driver.signal([*self.answered][action.number % len(self.answered)], "once more")
        else:
            await driver.signal("nothing waits for this", action.number)

    def _op(self, n: int) -> Op:
        return next(op for op in self.plan.ops() if op.n == n)

    async def open(self) -> list[Wait]:
        """Return what the run waits for, if that is not answered yet."""
        found = await self.driver.waits()
        return [wait for wait in found if wait.name and (wait.kind == "settle" or wait.name not in self.answered)]

    async def send(self, n: int, *, in_time: bool = False) -> None:
        """Send the answer to an op."""
        op = self._op(n)
        never_late = op.kind != "boxed" and (in_time or not op.seconds or self.driver.moved < op.seconds)
        self.sent[n] = never_late
        self.answered[f"w{n}"] = self.driver.deaths
        await self.driver.signal(f"w{n}", self.plan.answers[n])

    async def answer(self, wait: Wait) -> None:
        """Answer what a run waits for, if a person ever does."""
        plan, details = self.plan, dict(wait.details or {})
        if wait.kind in ("signal", "input"):
            n = int(wait.name[1:])
            if plan.answers[n] is not None:
                await self.send(n, in_time=wait.due is None or wait.due > self.driver.now())
            return
        n = details["args"]["n"]
        self.answered[wait.name] = self.driver.deaths
        if wait.kind == "approval":
            await self.driver.signal(wait.name, "once" if plan.allowed[n] else "no")
            return
        assert wait.kind == "settle", wait
        asked = wait.name.replace("settle:", "approve:", 1)
        refused = asked in self.answered and not plan.allowed[n]
        assert not refused, f"what became of a call is asked that was refused: {n}"
        await self.driver.signal(wait.name, self.decide(n))

    def decide(self, n: int) -> Any:
        """Return what a person finds out about a call that may have done its work."""
        op = self._op(n)
        if not self.driver.effects.has(n) and self.chance.random() < 0.7:
            return False
        if op.kind == "fails" or not self.driver.effects.has(n):
            self.book.failed.add(n)
            self.expected_effects[n] = int(self.driver.effects.has(n))
            return {"failed": "as was found out"}
        return {"done": True, "value": value_of(op.kind, n, self.plan.size)}

    async def help(self) -> None:
        """Answer all, and let time pass, until the run has ended."""
        driver = self.driver
        for _ in range(_ROUNDS):
            await driver.go()
            if await driver.state() in ("done", "failed"):
                return
            found = await self._undropped()
            todo = [wait for wait in await self.open() if not self._is_to_be_late(wait)]
            for wait in todo:
                await self.answer(wait)
            if not todo:
                dues = [wait.due - driver.now() for wait in found if wait.due is not None]
                await driver.pass_(max(min(dues, default=await driver.sleeps()), 0.0) + 40.0)
        raise AssertionError(f"the run is stuck: {await driver.state()}, {await driver.waits()}")

    async def _undropped(self) -> list[Wait]:
        """Return what the run waits for, once each answer was taken: a busy machine may take some time for that."""
        found: list[Wait] = []

        async def taken() -> bool:
            found[:] = await self.driver.waits()
            return not any(self._is_answered(wait) for wait in found)

        try:
            await until(taken, 0.05)
        except AssertionError:
            dropped = [wait.name for wait in found if self._is_answered(wait)]
            raise AssertionError(f"answers were dropped: {dropped}") from None
        return found

    def _is_answered(self, wait: Wait) -> bool:
        """Return whether an answer was sent: to an unknown outcome, since a process has died last."""
        if wait.name not in self.answered:
            return False
        return wait.kind != "settle" or self.answered[wait.name] == self.driver.deaths

    def _is_to_be_late(self, wait: Wait) -> bool:
        return wait.kind in ("signal", "input") and self.plan.answers[int(wait.name[1:])] is None

    async def check(self) -> None:
        """Hold the run to the plain run with the same answers."""
        result = await self.driver.result()
        seen = observed(self.plan, result)
        for op in self.plan.ops():
            if op.kind not in ("signal", "input", "boxed") or not (op.seconds or op.kind == "boxed"):
                continue
            in_time = self.sent.get(op.n)
            if in_time is None or (not in_time and _is_late(seen[op.n])):
                self.book.late.add(op.n)
        plain = Effects()
        async with open_plain(self.plan, self.book, plain) as ex:
            wanted = observed(self.plan, await begin(ex, self.plan, None, self.book))
        different = {n: (_short(seen[n]), _short(wanted[n])) for n in wanted if seen[n] != wanted[n]}
        assert not different, f"values differ from those of the plain run (durable, plain): {different}"
        expected = Counter(plain.done) | +self.expected_effects
        assert Counter(self.driver.effects.done) == expected, (
            f"effects: {sorted(self.driver.effects.done)}, and {sorted(expected.elements())} were expected"
        )
        differs = await self.driver.replays()
        assert not differs, f"the replay differs: {differs}"


async def play(plan: Plan, driver: Driver) -> None:
    """Play the plan; raise AssertionError for a run that is stuck, has another value than the plain run, had an effect
    twice, or drops an answer."""
    game = _Play(plan, driver, random.Random(plan.seed))
    for action in plan.actions:
        await game.do(action)
    await game.help()
    await game.check()


def _is_late(value: Any) -> bool:
    return value in ("late", ["error", "timeout"])  # an answer that is refused has come in time


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:40]}... ({len(text)})"
