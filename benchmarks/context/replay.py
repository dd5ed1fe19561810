"""Does the tasks as an agent would that makes no mistakes, and counts its tokens.

One call a turn. It searches by the task's text (or, with good queries, by what each step is about), searches again for
the tools that it misses, by what their step is about and then by their name, describes those that it knows too little
of, and makes the calls one by one, or all of them in one program. The last turn is its answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal, TypeAlias

from benchmarks.context.catalogue import INTENTS
from benchmarks.context.task import Task, program
from benchmarks.context.tokens import compact, tokens
from benchmarks.context.world import World, right_calls

First: TypeAlias = Literal["task", "queries"]
"""What the first search is by: the text of the task, or a short query for each tool that it needs."""
_CUT: Final = "…"
_ENDS: Final = re.compile(r"\)(?: ->|: |  #)")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a task took: *context* has each token once, *billed* the input of each turn."""

    context: int
    billed: int
    turns: int
    structured: int = 0
    """The context of a client whose model reads the structured content."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What all tasks took."""

    fixed: int
    context: int
    billed: int
    turns: float
    structured: int

    def per(self, count: int) -> dict[str, float]:
        """Return the means for *count* tasks."""
        means = {"context": self.context / count, "billed": self.billed / count, "structured": self.structured / count}
        return {"fixed": self.fixed, **means, "turns": self.turns}


class _Conversation:
    def __init__(self, world: World, task: Task) -> None:
        self._world = world
        self.context = self.structured = world.fixed + tokens(task.text)
        self.billed = 0
        self.turns = 0

    async def call(self, name: str, /, **args: Any) -> str:
        """Call a tool; return what the model reads, in either form."""
        self._turn()
        asked = tokens(compact({"name": name, "arguments": args}))
        reply = await self._world.call(name, args)
        if reply.failed:
            raise AssertionError(f"{name} {args} failed: {reply.content}")
        self.context += asked + tokens(reply.content)
        self.structured += asked + tokens(reply.structured or reply.content)
        return reply.content

    def answer(self) -> Cost:
        """End it: the words of the answer are not counted."""
        self._turn()
        return Cost(self.context, self.billed, self.turns, self.structured)

    def _turn(self) -> None:
        self.turns += 1
        self.billed += self.context


async def replay(world: World, task: Task, *, first: First = "task") -> Cost:
    """Do a task; return what it took. Raises AssertionError when a call fails or a tool cannot be found."""
    world.reset()
    talk = _Conversation(world, task)
    calls = right_calls(task)
    if "run_tool" not in world.takes and not any(name.startswith("exec") for name in world.takes):
        for tool_id, args in calls:
            await talk.call(tool_id.replace(":", "__"), **args)
        return talk.answer()
    known = await _find(world, talk, task, first)
    await _describe(world, talk, [one for one in task.tool_ids if not known[one]])
    if "run_tool" in world.takes:
        for tool_id, args in calls:
            await talk.call("run_tool", tool_id=tool_id, args=args)
    else:
        await talk.call(next(name for name in world.takes if name.startswith("exec")), code=program(task))
    return talk.answer()


async def _find(world: World, talk: _Conversation, task: Task, first: First) -> dict[str, bool]:
    """Find all tools of a task; return whether what was found of each is enough to call it."""
    known: dict[str, bool] = {}
    rounds: list[Callable[[str], str]] = [lambda _: task.text] if first == "task" else []
    for query_for in (*rounds, INTENTS.__getitem__, _name_of):
        missing = [one for one in task.tool_ids if one not in known]
        if not missing:
            break
        await _ask(world, talk, task.tool_ids, list(dict.fromkeys(map(query_for, missing))), known)
    if missing := [one for one in task.tool_ids if one not in known]:
        raise AssertionError(f"no search finds {missing}")
    return known


async def _ask(
    world: World, talk: _Conversation, wanted: Sequence[str], queries: Sequence[str], known: dict[str, bool]
) -> None:
    name = "find" if "find" in world.takes else "search_tools"
    several = "queries" in world.takes[name]
    for asked in [queries] if several else [[query] for query in queries]:
        text = await talk.call(name, **({"queries": list(asked)} if several else {"query": asked[0]}))
        for tool_id in wanted:
            if tool_id not in known and (stub := _stub(text, tool_id)) is not None:
                known[tool_id] = stub


def _name_of(tool_id: str) -> str:
    return re.sub(r"\W|_", " ", tool_id)


def _stub(text: str, tool_id: str) -> bool | None:
    """Return whether *text* has a typed signature of a tool, whole; None when it does not have the tool at all."""
    found = re.search(rf"\b{re.sub(r'[:.]', '[:.]', tool_id)}\b(\(.*)?", text)
    if found is None:
        return None
    return bool(found[1]) and "(" in found[1] and _CUT not in _ENDS.split(found[1], maxsplit=1)[0]


async def _describe(world: World, talk: _Conversation, unknown: Sequence[str]) -> None:
    if not unknown:
        return
    name = "describe_tool" if "describe_tool" in world.takes else "find"
    plural = next((word for word in ("tool_ids", "names") if word in world.takes[name]), None)
    if plural is not None:
        await talk.call(name, **{plural: list(unknown)})
        return
    for tool_id in unknown:
        await talk.call(name, tool_id=tool_id)


def totals(fixed: int, costs: Sequence[Cost]) -> Totals:
    """Return the sums of what tasks took, and the median of their turns."""
    return Totals(
        fixed,
        sum(one.context for one in costs),
        sum(one.billed for one in costs),
        median(one.turns for one in costs),
        sum(one.structured for one in costs),
    )
