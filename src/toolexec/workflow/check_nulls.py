"""Find which values nothing in a workflow tests for null."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolexec.workflow.nodes import (
    Binary,
    Bind,
    Branch,
    Call,
    Collect,
    Conditional,
    Expression,
    For,
    If,
    Index,
    Member,
    Name,
    Node,
    ParallelFor,
    ToolRun,
    Unary,
    While,
    Workflow,
    children,
)

__all__ = ["Nulls"]


class Nulls:
    """Knows which names of a workflow any condition, operator or function looks at, whatever it tests.

    Names are taken together whose values come from each other: a test of one may be meant for the others. So a
    value counts as untested only where no test could have meant it. *known* are names whose values are not null.
    """

    def __init__(self, workflow: Workflow, known: Iterable[str] = ()) -> None:
        self._same: dict[str, str] = {}
        tested = set(known)
        left: list[tuple[Node, bool]] = [(workflow, False)]
        while left:
            node, is_test = left.pop()
            match node:
                case Name(name=name):
                    tested.update([name] if is_test else [])
                case Bind(name=str(name), value=value) | Branch(name=str(name), value=value):
                    self._join(name, *_names(value))
                case For(names=names, values=value) | Collect(names=names, values=value):
                    self._join(*names, *_names(value))
                case ParallelFor(names=names, values=value):
                    self._join(*names, *_names(value))
                case _:
                    pass
            condition = _condition(node)
            is_part = (is_test or isinstance(node, Binary | Unary | Call)) and not isinstance(node, ToolRun)
            left.extend((child, is_part or child is condition) for child in children(node))
        self._tested = {self._first(name) for name in tested}

    def untested(self, node: Expression) -> bool:
        """Return whether *node* is a name or a part of one, or a part of a result, and no test could have meant it."""
        while isinstance(node, Member | Index):
            node = node.value
        return isinstance(node, ToolRun) or (isinstance(node, Name) and self._first(node.name) not in self._tested)

    def _join(self, *names: str) -> None:
        first, *others = map(self._first, names)
        for other in others:
            if other != first:
                self._same[other] = first

    def _first(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name


def _condition(node: Node) -> Expression | None:
    match node:
        case If() | While() | Conditional():
            return node.condition
        case For() | Collect() | ParallelFor():
            return node.where
        case _:
            return None


def _names(node: Node) -> Iterator[str]:
    """Yield the names that a value is made of, without those that only the calls of tools in it are given."""
    left = [node]
    while left:
        found = left.pop()
        if isinstance(found, Name):
            yield found.name
        elif not isinstance(found, ToolRun):
            left.extend(children(found))
