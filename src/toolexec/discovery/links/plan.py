"""Calls that lead to a goal, each before the one that needs its result: computed here, made elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from toolexec.discovery.index import Index
from toolexec.discovery.links.links import Links, VisibleID
from toolexec.discovery.links.producer import Producer
from toolexec.discovery.links.profile import Input
from toolexec.errors import ConfigurationError, ToolNotFoundError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.tool import Tool

MAX_CHAIN_DEPTH: Final = 6
"""The most producers in a row that a plan may be asked for."""

Examples: TypeAlias = Callable[[str], JSONObject]
"""Arguments that a tool was documented with."""

_MAX_CALLS: Final = 8
_MAX_CANDIDATES: Final = 6
_MAX_LOOKS: Final = 300
_MAX_SCHEMA: Final = 4000
_MAX_DEPTH: Final = 100
_NEAR_BEST: Final = 0.7
_OPEN: Final = 0.5
_THERE_ALREADY: Final = 1.05
_ONE_MORE_CALL: Final = 0.92
_ENOUGH: Final = 0.22
_REFERRING: Final = ("$ref", "$literal")

Place: TypeAlias = tuple[int, tuple[str, ...]]
"""The number of a call, and the names that lead to an argument of it."""
_Slot: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingArgument:
    """An argument that no call gives: the caller must. `schema` is what *tool_id* asks for, `places` are all the calls,
    by number, with the names that lead to it there; `producers` are tools that may give it, though it is unknown where
    in their results; `example` is a documented value, None if there is none."""

    name: str
    tool_id: str
    schema: JSONObject = field(default_factory=JSONDict)
    places: tuple[Place, ...] = ()
    producers: tuple[Producer, ...] = ()
    example: object = None

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data, without what is empty."""
        data: JSONDict = {"name": self.name, "tool": self.tool_id, "schema": dict(self.schema)}
        data["steps"] = sorted({number for number, _ in self.places})
        if self.producers:
            data["producers"] = [producer.to_dict() for producer in self.producers]
        if self.example is not None:
            data["example"] = self.example
        return data


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call; its arguments have references (`{"$ref": "steps.0.items[0].id"}`) to the results of earlier calls."""

    tool_id: str
    args: JSONDict


@dataclass(slots=True)
class Plan:
    """Calls in order, the goal last. `confidence` is the product of the scores of the links that are used, and
    `reasons` say what they are. `needs_confirmation` lists the tools before the goal that are not known to be
    read-only, and the goal if it is not and works on what was only the first of several."""

    calls: list[PlannedCall] = field(default_factory=list[PlannedCall])
    missing: list[MissingArgument] = field(default_factory=list[MissingArgument])
    confidence: float = 1.0
    reasons: list[str] = field(default_factory=list[str])
    needs_confirmation: list[str] = field(default_factory=list[str])


def plan_chain(
    links: Links,
    index: Index,
    goal: str,
    given: Mapping[str, object] | None = None,
    *,
    depth: int = 3,
    visible: VisibleID | None = None,
    examples: Examples | None = None,
) -> Plan:
    """Return the calls that end in *goal*, with at most *depth* producers in a row and at most 8 calls in all.

    *given* are arguments of the goal that are known already; earlier calls that need the same get them, too. Only tools
    that *visible* accepts are used. Raises ToolNotFoundError for an unknown goal, ConfigurationError for a depth that
    is not between 0 and 6.
    """
    if type(depth) is not int or not 0 <= depth <= MAX_CHAIN_DEPTH:
        raise ConfigurationError(f"the depth of a chain must be from 0 to {MAX_CHAIN_DEPTH}, not {depth!r}")
    entry = index.find(goal)
    if entry is None or (visible is not None and not visible(entry.tool.id)):
        raise ToolNotFoundError(goal)
    links.build()
    work = _Planning(links, index, visible, examples)
    work.call(entry.tool, depth, (), given or {})
    if work.guesses and not entry.tool.annotations.read_only:
        work.plan.needs_confirmation.append(entry.tool.id)
    return work.plan


def set_argument(args: JSONDict, names: Sequence[str], value: object) -> None:
    """Put *value* where *names* lead to, in objects that are made where there are none."""
    for name in names[:-1]:
        inner = args.get(name)
        if not isinstance(inner, dict):
            inner = args[name] = {}
        args = inner
    args[names[-1]] = value


def literal(value: object, level: int = 0) -> JSONValue:
    """Return a copy of *value* in which nothing is taken for a reference."""
    if isinstance(value, Mapping):
        if (len(value) == 1 and next(iter(value)) in _REFERRING) or level >= _MAX_DEPTH:
            return {"$literal": value}
        return {key: literal(item, level + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [literal(item, level + 1) for item in value] if level < _MAX_DEPTH else {"$literal": value}
    return value


class _Planning:
    """One plan in the making."""

    def __init__(self, links: Links, index: Index, visible: VisibleID | None, examples: Examples | None) -> None:
        self.plan = Plan()
        self.guesses = False
        self._links = links
        self._index = index
        self._visible = visible
        self._examples = examples
        self._numbers: dict[str, int] = {}
        self._values: dict[_Slot, JSONValue] = {}
        self._due: set[_Slot] = set()
        self._open: dict[_Slot, int] = {}
        self._known: dict[tuple[str, str], list[Producer]] = {}
        self._worths: dict[tuple[str, int], float] = {}
        self._looks = 0

    # -- calls --------------------------------------------------------------------------------------------------

    def call(self, tool: Tool, depth: int, above: tuple[str, ...], given: JSONObject) -> int:
        """Plan a call of *tool*, after those that it needs; gives its number."""
        args = {name: literal(value) for name, value in given.items()}
        inputs = self._links.inputs(tool)
        needed: list[Input] = []
        for taken in inputs:
            value = _at(given, taken.argument.names)
            if value is not _NOTHING:
                self._values[_slot(tool, taken)] = literal(value)
            elif taken.argument.required:
                needed.append(taken)
        self._due |= {_slot(tool, taken) for taken in needed}
        still: list[Input] = []
        used: dict[tuple[int, str], int] = {}
        for taken in needed:
            value = self._value(tool, taken, depth, above, used)
            if value is _NOTHING:
                still.append(taken)
            else:
                set_argument(args, taken.argument.names, value)
                self._values.setdefault(_slot(tool, taken), value)
        number = self._numbers[tool.id] = len(self.plan.calls)
        self.plan.calls.append(PlannedCall(tool.id, args))
        for taken in still:
            self._leave_open(tool, taken, number)
        return number

    def _value(
        self, tool: Tool, taken: Input, depth: int, above: tuple[str, ...], used: dict[tuple[int, str], int]
    ) -> JSONValue:
        """Return a value for one argument: one that is there, a constant, or a reference; `_NOTHING` if there is
        none."""
        slot = _slot(tool, taken)
        if slot in self._values:
            return self._values[slot]
        constant = self._constant(tool, taken, is_goal=not above)
        if constant is not _NOTHING:
            return constant
        if slot in self._open:
            return _NOTHING
        best = self._best(tool, taken, depth, above)
        if best is None:
            return _NOTHING
        producer, source = best
        step = self._numbers.get(source.id)
        if step is None:
            if not source.annotations.read_only:
                self.plan.needs_confirmation.append(source.id)
            step = self.call(source, depth - 1, (*above, tool.id), {})
        return self._reference(tool, taken, producer, step, used)

    def _reference(
        self, tool: Tool, taken: Input, producer: Producer, step: int, used: dict[tuple[int, str], int]
    ) -> JSONValue:
        path, many = producer.path or "@", taken.argument.many
        item = used.get((step, path), 0)  # two arguments of one call are not to be the same thing
        used[step, path] = item + 1
        self.plan.confidence *= producer.score
        which = f"; the {'next' if item else 'first'} one is taken" if "[]" in path else ""
        if many and "[]" in path and tool.annotations.read_only:
            value: object = producer.reference(step, many=True)
            which = "; all of them are taken"
        else:
            self.guesses = self.guesses or "[]" in path
            reference = producer.reference(step, to=taken.argument.kind, item=item)
            value = [reference] if many else reference
        self.plan.reasons.append(f"{tool.id} {taken.name}: from {producer.tool_id}: {producer.reason}{which}")
        return value

    def _leave_open(self, tool: Tool, taken: Input, number: int) -> None:
        slot, place = _slot(tool, taken), (number, taken.argument.names)
        known = self._open.get(slot)
        if known is not None:
            missing = self.plan.missing[known]
            self.plan.missing[known] = replace(missing, places=(*missing.places, place))
            return
        names = {missing.name for missing in self.plan.missing}
        name = next(n for n in (taken.name, f"{tool.name}.{taken.name}", f"{tool.id}.{taken.name}") if n not in names)
        self._open[slot] = len(self.plan.missing)
        self.plan.missing.append(
            MissingArgument(
                name=name,
                tool_id=tool.id,
                schema=_bounded(taken),
                places=(place,),
                producers=tuple(p for p in self._candidates(tool, taken) if p.path is None)[:3],
                example=self._example(tool, taken),
            )
        )

    # -- constants ----------------------------------------------------------------------------------------------

    def _constant(self, tool: Tool, taken: Input, *, is_goal: bool) -> JSONValue:
        """Return a value that is safe to give without asking: the only possible one, the default, and for read-only
        tools before the goal the first of a few possible ones, or a documented one that finds nothing in particular."""
        node = taken.argument.node
        if taken.argument.secret:
            return _NOTHING
        for key in ("const", "default"):
            if key in node:
                return literal(node[key])
        options = node.get("enum")
        if (
            isinstance(options, list)
            and options
            and (len(options) == 1 or (tool.annotations.read_only and not is_goal))
        ):
            return literal(options[0])
        if tool.annotations.read_only and not is_goal and taken.argument.kind in ("integer", "boolean"):
            example = None if taken.wanted else self._example(tool, taken)
            return _NOTHING if example is None else literal(example)
        return _NOTHING

    def _example(self, tool: Tool, taken: Input) -> JSONValue:
        listed = taken.argument.node.get("examples")
        if isinstance(listed, list) and listed:
            return listed[0] if _is_small(listed[0]) else None
        if self._examples is None:
            return None
        value = _at(self._examples(tool.id), taken.argument.names)
        return None if value is _NOTHING or not _is_small(value) else value

    # -- choice -------------------------------------------------------------------------------------------------

    def _best(self, tool: Tool, taken: Input, depth: int, above: tuple[str, ...]) -> tuple[Producer, Tool] | None:
        """Return the producer to use: read-only ones before all others, then by score and by what they need
        themselves."""
        self._worths.clear()
        self._looks = _MAX_LOOKS
        best: tuple[Producer, Tool] | None = None
        best_rank = (-9, 0.0)
        for producer, source in self._usable(tool, taken, (*above, tool.id)):
            total = producer.score * self._worth(source, depth - 1, (*above, tool.id))
            if source.id in self._numbers:
                total *= _THERE_ALREADY
            elif depth < 1 or len(self.plan.calls) + len(above) + 2 > _MAX_CALLS:
                continue
            rank = (-_danger(source), total)
            if total >= _ENOUGH and rank > best_rank:
                best, best_rank = (producer, source), rank
        return best

    def _usable(self, tool: Tool, taken: Input, above: tuple[str, ...]) -> Iterator[tuple[Producer, Tool]]:
        """Yield the producers to choose from: of those that are equally safe, none that is much worse than the best."""
        found = 0
        best: dict[int, float] = {}
        for producer in self._candidates(tool, taken):
            source = self._tool(producer.tool_id)
            if producer.path is None or source is None or source.id in above:
                continue
            if producer.score < _NEAR_BEST * best.setdefault(_danger(source), producer.score):
                continue
            yield producer, source
            found += 1
            if found == _MAX_CANDIDATES:
                return

    def _worth(self, tool: Tool, depth: int, above: tuple[str, ...]) -> float:
        """Return how much of what *tool* needs can be had, from 0 to 1 (nothing is open)."""
        if tool.id in self._numbers:
            return 1.0
        known = self._worths.get((tool.id, depth))
        if known is not None:
            return known
        self._looks -= 1
        worth = _ONE_MORE_CALL
        for taken in self._links.inputs(tool) if self._looks > 0 else ():
            slot = _slot(tool, taken)
            shared = slot in self._values or slot in self._due
            if not taken.argument.required or shared or self._constant(tool, taken, is_goal=False) is not _NOTHING:
                continue
            best = _OPEN
            for producer, source in self._usable(tool, taken, (*above, tool.id)) if depth > 0 else ():
                best = max(best, producer.score * self._worth(source, depth - 1, (*above, tool.id)))
            worth *= best
        self._worths[tool.id, depth] = worth
        return worth

    def _candidates(self, tool: Tool, taken: Input) -> list[Producer]:
        key = (tool.id, taken.name)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._links.candidates(taken, tool, self._visible)
        return known

    def _tool(self, tool_id: str) -> Tool | None:
        entry = self._index.find(tool_id)
        return entry.tool if entry is not None and (self._visible is None or self._visible(entry.tool.id)) else None


class _Nothing:
    """The mark of a value that is not there, as None is a value."""


_NOTHING: Final = _Nothing()


def _danger(tool: Tool) -> int:
    hints = tool.annotations
    return 0 if hints.read_only else 1 if hints.destructive is False else 3 if hints.destructive else 2


def _slot(tool: Tool, taken: Input) -> _Slot:
    """Return what arguments with the same meaning and type have in common; others have a slot of their own."""
    kind = f"{taken.argument.kind}{'[]' if taken.argument.many else ''}"
    return (tool.namespace, taken.slot, kind) if taken.slot else (tool.id, taken.name, "")


def _at(values: object, names: Sequence[str]) -> JSONValue:
    for name in names:
        if not isinstance(values, Mapping) or name not in values:
            return _NOTHING
        values = values[name]
    return values


def _bounded(taken: Input) -> JSONDict:
    """Return the argument's subschema, or its type and description when it is long."""
    text = json.dumps(taken.argument.node)
    if len(text) <= _MAX_SCHEMA:
        return json.loads(text)
    return {"type": taken.argument.kind, "description": taken.argument.description[:200]}


def _is_small(value: object) -> bool:
    return isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) <= 200)
