"""Bounds for checks that multiply with the depth of the value.

Two alternatives that both lead to `left` of the same recursive schema are checked twice at the first level, four
times at the second, 2**n times at the nth; a plain chain of definitions can do the same without recursion. Such a
schema is not wrong (every union of expression nodes looks like that), so it is not refused: the work is counted
before it is done, for the value at hand. Schemas that cannot multiply are recognised once and never counted again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import jsonschema_rs

from toolexec.model.json_value import JSONDict
from toolexec.model.schema_graph import ANY_ITEM, ANY_NAME, Node, SchemaGraph

MAX_CHECKS: Final = 1_000_000
"""The most subschema checks that telling whether a value conforms may take, if the schema can multiply them."""
MAX_EXPLAINED: Final = 50_000
"""The same for saying where a value does not conform, which costs a hundred times as much per check."""

_FREE_CHECKS: Final = 10_000
_FREE_EXPLAINED: Final = 100
_MAX_STEPS: Final = 200_000
_MAX_TRAIL: Final = 500
_SHUFFLES: Final = 3


class Validator(Protocol):
    """What is needed of a compiled schema."""

    def is_valid(self, instance: object) -> bool:
        """Return whether the value conforms."""
        ...

    def iter_errors(self, instance: object) -> Any:
        """Return every way in which it does not."""
        ...


def bounded(validator: jsonschema_rs.Validator, schema: object) -> Validator:
    """Return the validator itself if its schema cannot multiply checks, else one that counts before it works.

    `is_valid` follows a recursive reference at most once per value, because the library remembers the answers there,
    so recursion alone makes only `iter_errors` slow. What multiplies between two recursive steps makes both slow.
    """
    if not isinstance(schema, dict):
        return validator
    counter = _Counter(SchemaGraph(schema), schema)
    try:
        checks, recursive = counter.growth()
    except _TooMuchError:
        return CountingValidator(validator, counter, always=True)
    if not recursive and checks <= _FREE_EXPLAINED:
        return validator
    return CountingValidator(validator, counter, always=checks > _FREE_CHECKS)


class _IsValid(Protocol):
    def __call__(self, instance: object) -> bool: ...


class _IterErrors(Protocol):
    def __call__(self, instance: object) -> Iterator[jsonschema_rs.ValidationError]: ...


class CountingValidator:
    """Counts the checks that a value would take, and refuses what would take too many.

    Counting for `is_valid` happens only when *always* is set; for explanations it is up to the caller to ask
    `explainable` first.
    """

    def __init__(self, validator: jsonschema_rs.Validator, counter: _Counter, *, always: bool) -> None:
        self._counter = counter
        self._validator = validator
        self.always = always
        self.is_valid: _IsValid = self._count_and_check if always else validator.is_valid
        self.iter_errors: _IterErrors = validator.iter_errors

    def _count_and_check(self, instance: object) -> bool:
        return self.checkable(instance) and self._validator.is_valid(instance)

    def checkable(self, instance: object) -> bool:
        """Return whether `is_valid` can answer for this value within bounds."""
        return not self.always or self._counter.within(instance, MAX_CHECKS)

    def explainable(self, instance: object) -> bool:
        """Return whether `iter_errors` ends within bounds for this value."""
        return self._counter.within(instance, MAX_EXPLAINED)


class _TooMuchError(Exception):
    """Counting itself would take too long, or its result is over the limit."""


class _Budget:
    """The steps that one count may take."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MAX_STEPS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _TooMuchError


class _Counter:
    """Counts checks on the graph of one schema. Safe to use from several threads: all it keeps is a cache."""

    def __init__(self, graph: SchemaGraph, root: Node) -> None:
        self.graph = graph
        self.root = root
        self._members: dict[int, list[tuple[Node, int]]] = {}

    def growth(self) -> tuple[int, bool]:
        """Return how often one value may be checked at the most, whatever lies above it, when recursive references are
        not followed again; and whether there are any. Raises _TooMuchError when that is too much work to compute.

        Which of the references in a loop counts as the recursive one depends on the order of compilation, which is
        not ours to know. So several orders are tried, and the worst counts.
        """
        most, recursive = 0, False
        orders: list[Callable[[list[Any]], None]] = [lambda _: None, list.reverse]
        shuffle = random.Random(0).shuffle  # noqa: S311 - the same schema is to get the same answer every time
        for arrange in (*orders, *[shuffle] * _SHUFFLES):
            walk = _Walk(self.graph, arrange)
            checks, steps = walk.visit(self.root, 0)
            most, recursive = max(most, checks, _widest(steps)), recursive or walk.recursive
            if most > _FREE_CHECKS:
                break
        return most, recursive

    def within(self, value: object, limit: int) -> bool:
        """Return whether checking *value* takes at most *limit* checks of subschemas, none of them cut short."""
        try:
            return self._count(self.root, value, limit, {}, _Budget()) <= limit
        except _TooMuchError:
            return False

    def _count(self, node: Node, value: object, limit: int, known: dict[tuple[int, int], int], budget: _Budget) -> int:
        members = self._members_of(node, budget)
        total = sum(times for _, times in members)
        if not isinstance(value, dict | list | tuple):
            return total
        key = (id(node), id(value))
        if key in known:
            return known[key]
        wild, items = (ANY_NAME, _members(value)) if isinstance(value, dict) else (ANY_ITEM, _items(value))
        deeper = [(times, _by_step(self.graph.deeper(member))) for member, times in members]
        for step, item in items:
            for times, children in deeper:
                for child in (*children.get(step, ()), *children.get(wild, ())):
                    budget.spend()
                    total += times * self._count(child, item, limit, known, budget)
                    if total > limit:
                        raise _TooMuchError
        known[key] = total
        return total

    def _members_of(self, node: Node, budget: _Budget) -> list[tuple[Node, int]]:
        """*node* and all subschemas that look at the same value, each with how often it does."""
        known = self._members.get(id(node))
        if known is not None:
            return known
        again = _looks(node)
        counts: Counter[int] = Counter({id(node): 1})
        nodes = {id(node): node}
        for child in self.graph.same_value(node):
            for member, times in self._members_of(child, budget) if isinstance(child, dict) else ():
                budget.spend()
                counts[id(member)] += again * times
                nodes[id(member)] = member
        members = [(nodes[key], times) for key, times in counts.items()]
        self._members[id(node)] = members
        return members


class _Walk:
    """One walk over a schema in the way that a compiler goes: depth first, each subschema once."""

    def __init__(self, graph: SchemaGraph, arrange: Callable[[list[Any]], None]) -> None:
        self.graph = graph
        self.recursive = False
        self._arrange = arrange
        self._budget = _Budget()
        self._loads: dict[int, tuple[int, Counter[str]] | None] = {}

    def visit(self, node: Node, depth: int) -> tuple[int, Counter[str]]:
        """Return how often *node* checks its own value, and for each step into that value how often what lies there."""
        if id(node) in self._loads:
            known = self._loads[id(node)]
            self.recursive = self.recursive or known is None
            return known or (1, Counter())
        if depth > _MAX_TRAIL:
            raise _TooMuchError
        self._loads[id(node)] = None  # under way: a second visit comes by recursion
        again = _looks(node)
        edges: list[tuple[str, Any]] = [("", child) for child in self.graph.same_value(node)]
        edges.extend(self.graph.deeper(node))
        self._arrange(edges)
        own, steps = 1, Counter[str]()
        for step, child in edges:
            self._budget.spend()
            if not isinstance(child, dict):
                continue
            checks, below = self.visit(child, depth + 1)
            if step:
                steps[step] += max(checks, _widest(below))
                continue
            own += again * checks
            for deeper, count in below.items():
                self._budget.spend()
                steps[deeper] += again * count
        self._loads[id(node)] = own, steps
        return own, steps


def _looks(node: Node) -> int:
    """Return how often the subschemas of *node* look at its value: the unevaluated keywords need a second look."""
    return 2 if "unevaluatedProperties" in node or "unevaluatedItems" in node else 1


def _members(value: JSONDict) -> Iterator[tuple[str, Any]]:
    return ((f".{name}", item) for name, item in value.items())


def _items(value: Sequence[object]) -> Iterator[tuple[str, Any]]:
    return ((str(position), item) for position, item in enumerate(value))


def _by_step(pairs: Iterable[tuple[str, Node]]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for step, child in pairs:
        found.setdefault(step, []).append(child)
    return found


def _widest(counts: Counter[str]) -> int:
    """Return the largest sum that one member or item can see: its own step and the step into any."""
    names, items = counts[ANY_NAME], counts[ANY_ITEM]
    own = (count + (names if step.startswith(".") else items) for step, count in counts.items())
    return max(1, names, items, *own)
