"""Random durable runs: what the program does, what is answered to it, and what happens to it meanwhile."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from toolexec import Step

Kind: TypeAlias = Literal["chain", "workflow", "python", "javascript"]
KINDS: Final[tuple[Kind, ...]] = ("chain", "workflow", "python", "javascript")
HOUR: Final = 3600.0

_CALLS: Final = ("do", "do", "plain", "checked", "read", "fails", "large", "guarded", "guarded")
_WAITS: Final = ("signal", "signal", "input", "sleep")
_TIMERS: Final = ("nap", "boxed")


@dataclass(frozen=True)
class Op:
    """One thing that a program does: a call of a tool, a wait, or a timer of its own; *n* distinguishes it from all others."""

    kind: str
    n: int
    seconds: float = 0.0
    """Of a sleep, a nap or a time limit; 0: none."""


@dataclass(frozen=True)
class Action:
    """Something that happens to a run from outside; see `play`."""

    kind: str
    number: int = 0
    seconds: float = 0.0
    where: str = ""


@dataclass(frozen=True)
class Plan:
    """A program, statement by statement: each has branches that go on side by side, and each of these its ops in a row.

    `answers` are what is sent for each op that waits, or None where its time is to run out; `allowed` says so for each
    call that a person is asked about. `actions` happen one after the other; after them the run is helped to its end.
    """

    seed: int
    kind: Kind
    statements: tuple[tuple[tuple[Op, ...], ...], ...]
    answers: dict[int, Any]
    allowed: dict[int, bool]
    actions: tuple[Action, ...]
    same_machine: bool = True
    """Whether others see at once that a process has died."""
    lingers: bool = False
    """Whether a process waits for long timers of its program."""
    encrypted: bool = False
    size: int = 3000
    """How many characters the large results have."""
    takes: float = 0.0
    """How many real seconds a call takes before it has its effect."""

    def ops(self) -> list[Op]:
        """Return all that the program does."""
        return [op for branches in self.statements for branch in branches for op in branch]

    def text(self) -> str:
        """Return it for a person who has to find out what went wrong."""
        lines = [f"seed {self.seed}, {self.kind}, {self.same_machine=}, {self.lingers=}, {self.encrypted=}"]
        lines += [
            f"  {[[f'{o.kind}{o.n}/{o.seconds:g}' for o in branch] for branch in each]}" for each in self.statements
        ]
        lines += [f"  answers {self.answers}, allowed {self.allowed}"]
        lines += [f"  {action.kind} {action.number} {action.seconds:g} {action.where}" for action in self.actions]
        return "\n".join(lines)


@dataclass
class Book:
    """What came of the waits and the unknown outcomes, so that a plain run can be made with the same."""

    late: set[int] = field(default_factory=set)
    """Ops whose time ran out."""
    failed: set[int] = field(default_factory=set)
    """Calls of which a person decided that they have failed."""


def make_plan(seed: int, kinds: tuple[Kind, ...] = KINDS) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    kind = kinds[seed % len(kinds)]
    numbers = iter(range(1, 100))
    statements: list[tuple[tuple[Op, ...], ...]] = []
    for _ in range(chance.randint(1, 4)):
        width = 1 if kind == "chain" else chance.choice((1, 1, 2, 3))
        length = 1 if kind == "chain" else 2
        statements.append(
            tuple(
                tuple(_op(chance, kind, next(numbers)) for _ in range(chance.randint(1, length))) for _ in range(width)
            )
        )
    made = Plan(
        seed,
        kind,
        tuple(statements),
        {},
        {},
        tuple(_action(chance) for _ in range(chance.randint(2, 9))),
        same_machine=chance.random() < 0.7,
        lingers=chance.random() < 0.25,
        encrypted=chance.random() < 0.5,
        size=chance.choice((3000, 3000, 200_000)),
    )
    for op in made.ops():
        if op.kind == "guarded":
            made.allowed[op.n] = chance.random() < 0.75
        elif op.kind in ("signal", "boxed"):
            never = op.seconds and chance.random() < 0.5
            made.answers[op.n] = None if never else chance.choice((op.n, {"by": op.n}, "text", [None, op.n]))
        elif op.kind == "input":
            never = op.seconds and chance.random() < 0.4
            made.answers[op.n] = None if never else chance.choice((op.n, op.n, "not a number"))
    return made


def _op(chance: random.Random, kind: Kind, n: int) -> Op:
    timers = _TIMERS if kind in ("python", "javascript") else ()
    name = chance.choice((*_CALLS, *_CALLS, *_WAITS, *_WAITS, *timers, *timers))
    limit = chance.choice((0.0, HOUR, 5 * HOUR)) if name in ("signal", "input") else 0.0
    if name in ("sleep", "nap", "boxed"):
        limit = chance.choice((0.2, HOUR, 30 * HOUR))
        limit = max(limit, HOUR) if name == "boxed" else limit
    return Op(name, n, limit)


def _action(chance: random.Random) -> Action:
    kind = chance.choice(
        ("go", "go", "go", "die", "die", "die", "answer", "answer", "early", "twice", "noise", "pass", "jump", "rival")
    )
    if kind == "die":
        where = chance.choice(("before a write", "after a write", "before an effect", "after an effect"))
        return Action(kind, chance.randint(1, 14 if "write" in where else 4), where=where)
    if kind == "pass":
        return Action(kind, seconds=chance.choice((1.0, 40.0, 2 * HOUR, 48 * HOUR)))
    if kind == "jump":
        return Action(kind, seconds=chance.choice((-40.0, -2 * HOUR, -200 * HOUR, 40.0, 2 * HOUR)))
    return Action(kind, chance.randint(0, 9))


# -- the program ----------------------------------------------------------------------------------------------------


def program(plan: Plan, book: Book | None = None) -> Any:
    """Return the program in its language, or as steps; with a *book* that of the plain run, which waits for nothing."""
    if plan.kind == "chain":
        return [Step(*_call(plan, op, book), stop_on_error=False) for op in plan.ops()]
    if plan.kind == "workflow":
        return _workflow(plan, book)
    data = [[[_item(plan, op, book) for op in branch] for branch in branches] for branches in plan.statements]
    return (_PYTHON if plan.kind == "python" else _JAVASCRIPT).replace("PLAN", json.dumps(json.dumps(data)))


def _call(plan: Plan, op: Op, book: Book | None) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments of an op."""
    if op.kind in ("signal", "input", "boxed", "sleep"):
        if book is not None:
            return "plain:wait", {"n": op.n}
        if op.kind == "sleep":
            return "run:sleep", {"seconds": op.seconds}
        limit = {"timeout": op.seconds} if op.seconds and op.kind != "boxed" else {}
        if op.kind == "input":
            asked = {"question": f"number {op.n}?", "schema": {"type": "integer"}}
            return "run:input", {**asked, "name": f"w{op.n}", **limit}
        return "run:signal", {"name": f"w{op.n}", **limit}
    return f"fx:{op.kind}", {"n": op.n}


def _item(plan: Plan, op: Op, book: Book | None) -> list[Any]:
    """Return an op as code reads it: a tool, its arguments and a time limit; or what it comes to."""
    if op.kind == "nap":
        return ["nap", {}, op.seconds] if book is None else ["is", "slept", 0]
    if op.kind == "boxed" and book is not None and op.n in book.late:
        return ["is", "late", 0]
    return [*_call(plan, op, book), op.seconds if op.kind == "boxed" and book is None else 0]


_PYTHON: Final = """
import asyncio, json, random

async def one(tool, args, limit):
    try:
        if tool == "is":
            return args
        if tool == "nap":
            await asyncio.sleep(limit)
            return "slept"
        if not limit:
            return await tools.run(tool, args)
        async with asyncio.timeout(limit):
            return await tools.run(tool, args)
    except ToolError as error:
        return ["error", error.code]
    except TimeoutError:
        return "late"

async def branch(ops):
    return [[await one(*op), random.randrange(10)] for op in ops]

out = []
for branches in json.loads(PLAN):
    values = await asyncio.gather(*(branch(ops) for ops in branches))
    out.append([[value for value, _ in each] for each in values])
return out
"""
_JAVASCRIPT: Final = """
const after = (seconds, value) => new Promise((done) => setTimeout(() => done(value), seconds * 1000));
const one = async ([tool, args, limit]) => {
  try {
    if (tool === "is") return args;
    if (tool === "nap") return await after(limit, "slept");
    const made = tools.run(tool, args);
    return await (limit ? Promise.race([made, after(limit, "late")]) : made);
  } catch (error) {
    return ["error", error.code];
  }
};
const branch = async (ops) => {
  const found = [];
  for (const op of ops) found.push(await one(op));
  return found;
};
const out = [];
for (const branches of JSON.parse(PLAN)) out.push(await Promise.all(branches.map(branch)));
return out;
"""


def _workflow(plan: Plan, book: Book | None) -> str:
    lines, found = list[str](), list[str]()
    for number, branches in enumerate(plan.statements):
        parts: list[str] = []
        for index, branch in enumerate(branches):
            body: list[str] = []
            for op in branch:
                tool, args = _call(plan, op, book)
                body.append(
                    f'x{op.n} := try {{ run("{tool}", {json.dumps(args)}) }} catch err {{ ["error", err.code] }}'
                )
            body.append(f"[{', '.join(f'x{op.n}' for op in branch)}]")
            parts.append(f"b{index}: do {{\n" + "\n".join(body) + "\n}")
        lines.append(f"s{number} := parallel {{ {', '.join(parts)} }}")
        found.append(f"[{', '.join(f's{number}.b{index}' for index in range(len(branches)))}]")
    return "\n".join([*lines, f"return [{', '.join(found)}]"])


# -- less of it -----------------------------------------------------------------------------------------------------


def smaller(plan: Plan) -> list[Plan]:
    """Return plans that have one thing less than this one, those that lack most first."""
    found = [
        replace(plan, statements=plan.statements[:number] + plan.statements[number + 1 :])
        for number in range(len(plan.statements))
        if len(plan.statements) > 1
    ]
    found += [
        replace(plan, actions=plan.actions[:number] + plan.actions[number + 1 :]) for number in range(len(plan.actions))
    ]
    for number, branches in enumerate(plan.statements):
        less = [branches[:index] + branches[index + 1 :] for index in range(len(branches)) if len(branches) > 1]
        for index, branch in enumerate(branches):
            shorter = [branch[:at] + branch[at + 1 :] for at in range(len(branch)) if len(branch) > 1]
            less += [(*branches[:index], each, *branches[index + 1 :]) for each in shorter]
        found += [
            replace(plan, statements=(*plan.statements[:number], each, *plan.statements[number + 1 :])) for each in less
        ]
    return found
