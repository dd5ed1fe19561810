"""Find which values nothing in a workflow tests for null."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolexec.workflow import nodes


class Nulls:
    """Knows which names of a workflow any condition, operator or function looks at, whatever it tests.

    Names are taken together whose values come from each other: a test of one may be meant for the others. So a
    value counts as untested only where no test could have meant it. *known* are names whose values are not null.
    """

    def __init__(self, workflow: nodes.Workflow, known: Iterable[str] = ()) -> None:
        self._same: dict[str, str] = {}
        tested = set(known)
        left: list[tuple[nodes.Node, bool]] = [(workflow, False)]
        while left:
            node, is_test = left.pop()
            match node:
                case nodes.Name(name=name):
                    tested.update([name] if is_test else [])
                case nodes.Bind(name=str(name), value=value) | nodes.Branch(name=str(name), value=value):
                    self._join(name, *_names(value))
                case nodes.For(names=names, values=value) | nodes.Collect(names=names, values=value):
                    self._join(*names, *_names(value))
                case nodes.ParallelFor(names=names, values=value):
                    self._join(*names, *_names(value))
                case _:
                    pass
            condition = _condition(node)
            is_part = (is_test or isinstance(node, nodes.Binary | nodes.Unary | nodes.Call)) and not isinstance(
                node, nodes.ToolRun
            )
            left.extend((child, is_part or child is condition) for child in nodes.children(node))
        self._tested = {self._first(name) for name in tested}

    def untested(self, node: nodes.Expression) -> bool:
        """Return whether *node* is a name or a part of one, or a part of a result, and no test could have meant it."""
        while isinstance(node, nodes.Member | nodes.Index):
            node = node.value
        return isinstance(node, nodes.ToolRun) or (
            isinstance(node, nodes.Name) and self._first(node.name) not in self._tested
        )

    def _join(self, *names: str) -> None:
        first, *others = map(self._first, names)
        for other in others:
            if other != first:
                self._same[other] = first

    def _first(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name


def _condition(node: nodes.Node) -> nodes.Expression | None:
    match node:
        case nodes.If() | nodes.While() | nodes.Conditional():
            return node.condition
        case nodes.For() | nodes.Collect() | nodes.ParallelFor():
            return node.where
        case _:
            return None


def _names(node: nodes.Node) -> Iterator[str]:
    """Yield the names that a value is made of, without those that only the calls of tools in it are given."""
    left = [node]
    while left:
        found = left.pop()
        if isinstance(found, nodes.Name):
            yield found.name
        elif not isinstance(found, nodes.ToolRun):
            left.extend(nodes.children(found))
