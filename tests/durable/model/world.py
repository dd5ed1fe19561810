"""The world of a durable run: tools whose effects can be counted, in processes that may die at any moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from tests.durable.model.plans import Book, Plan

from toolexec import Exec, Gate, Policy, Rule, Tool, ToolAnnotations
from toolexec.errors import ExecutionError, JournalError, ToolTimeoutError
from toolexec.run.layers.approval import Approval

_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_SHORT = 1.0


class Time:
    """The time of the host: it passes when a test says so, but for pauses of less than a second."""

    def __init__(self, start: float) -> None:
        self.now = start
        self.passed = 0.0
        self._pauses: list[tuple[float, asyncio.Future[None]]] = []

    def time(self) -> float:
        """Return the time of day."""
        return self.now

    async def pause(self, seconds: float) -> None:
        """Return once so much time has passed, whatever the time of day is then."""
        if seconds < _SHORT:
            self.pass_(max(seconds, 0.0))
            await asyncio.sleep(0)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pause = (self.passed + seconds, done)
        self._pauses.append(pause)
        try:
            await done
        finally:
            self._pauses.remove(pause)

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.passed += seconds
        for due, done in self._pauses:
            if due <= self.passed and not done.done():
                done.set_result(None)

    def first(self) -> float | None:
        """Return in how many seconds the first pause ends."""
        return min((due - self.passed for due, done in self._pauses if not done.done()), default=None)


@dataclass
class Life:
    """The life of one process: it dies before or after the so-and-so-manyth write or effect, and does nothing then."""

    where: str = ""
    number: int = 0
    same_machine: bool = True
    is_dead: bool = False
    moves: int = 0
    """How many writes and effects there were."""
    in_flight: int = 0
    """How many calls it is making."""
    has_run: bool = False
    """Whether it has got the run, and has not given it up."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counts: dict[str, int] = field(default_factory=dict[str, int])

    def check(self) -> None:
        """Raise JournalError in a process that is dead."""
        if self.is_dead:
            raise JournalError("this process is dead")

    def reach(self, where: str) -> None:
        """Come to a place; die if this is the one."""
        with self._lock:
            self.check()
            self.moves += 1
            self._counts[where] = count = self._counts.get(where, 0) + 1
            if (where, count) == (self.where, self.number):
                self.is_dead = True
            self.check()

    def __call__(self, where: str, effect: Callable[[], None]) -> None:
        """Have an effect in this process, if it lives."""
        self.reach(f"before {where}")
        with self._lock:
            self.check()
            effect()
        self.reach(f"after {where}")


class Silence(Exception):
    """Raised by what has an effect in a process that is dead, and whose tools are to say nothing until it is *over*."""

    def __init__(self, over: threading.Event) -> None:
        super().__init__("this process is dead")
        self.over = over


class Effects:
    """What was done in the world, and cannot be undone."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def has(self, n: int) -> bool:
        """Return whether it was done."""
        return n in self.done


def value_of(kind: str, n: int, size: int) -> Any:
    """Return what a tool gives."""
    if kind == "large":
        return "".join(chr(0x4E00 + (n + i * 7919) % 20_000) for i in range(size))
    return {"n": n, "of": kind} if n % 2 else n * 10


def add_tools(
    ex: Exec,
    plan: Plan,
    effects: Effects,
    have: Callable[[str, Callable[[], None]], None],
    failed: Collection[int] = (),
    takes: float = 0.0,
) -> None:
    """Give an Exec the tools: *have* has an effect, *failed* are calls that fail for what a person decided.
    A call *takes* so many seconds before it has its effect."""

    def make(kind: str, *, once: bool) -> Callable[[dict[str, Any]], Any]:
        def work(args: dict[str, Any]) -> Any:
            n = args["n"]
            if n in failed:
                raise ExecutionError("as was decided")
            if once:
                have("an effect", lambda: effects.done.append(n))
            if kind == "fails":
                raise ExecutionError(f"no {n} today", code="none_left")
            return value_of(kind, n, plan.size)

        async def slowly(args: dict[str, Any]) -> Any:
            await asyncio.sleep(takes)
            try:
                return work(args)
            except Silence:
                await asyncio.Event().wait()

        def plainly(args: dict[str, Any]) -> Any:
            try:
                return work(args)
            except Silence as error:
                error.over.wait()
                raise

        return plainly if kind == "plain" else slowly

    for kind in ("do", "plain", "checked", "read", "fails", "large", "guarded"):
        meta = {"toolexec/check": "fx:has"} if kind == "checked" else {}
        hints = ToolAnnotations(idempotent=True) if kind == "read" else ToolAnnotations()
        tool = Tool(name=kind, namespace="fx", input_schema=_SCHEMA, meta=meta, annotations=hints)
        ex.add(tool, handler=make(kind, once=kind != "read"))

    def has(args: dict[str, Any]) -> Any:
        return {"done": effects.has(args["n"]), "value": value_of("checked", args["n"], plan.size)}

    reads = ToolAnnotations(read_only=True)
    ex.add(Tool(name="has", namespace="fx", input_schema=_SCHEMA, annotations=reads), handler=has)


def gate(answer: Callable[[int], bool] | None = None) -> Gate:
    """Return rules that have a person asked about some calls, who answers by *answer*, where there is one."""
    policy = Policy([Rule("ask", tools="fx:guarded")])

    def ask(request: Any) -> Any:
        assert answer is not None
        return "once" if answer(request.args["n"]) else "no"

    return Gate(policy=policy, approval=Approval(policy.decide, ask=ask if answer is not None else None))


def open_plain(plan: Plan, book: Book, effects: Effects, **settings: Any) -> Exec:
    """Return an Exec for the plain run: what it would wait for is there at once."""
    ex = Exec(
        gate=gate(lambda n: plan.allowed[n] or n in book.failed), max_tool_calls=500, default_timeout=120, **settings
    )
    add_tools(ex, plan, effects, lambda _, effect: effect(), book.failed)

    def wait(args: dict[str, Any]) -> Any:
        n = args["n"]
        op = next(op for op in plan.ops() if op.n == n)
        if op.kind == "sleep":
            return None
        if n in book.late:
            raise ToolTimeoutError("nothing came")
        if op.kind == "input" and not isinstance(plan.answers[n], int):
            raise ExecutionError("no number", code="validation_input")
        return plan.answers[n]

    ex.add(Tool(name="wait", namespace="plain", input_schema=_SCHEMA), handler=wait)
    return ex
