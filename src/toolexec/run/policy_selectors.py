"""Find what a condition looks at: the value of an expression on the arguments, or that it is unknown.

JMESPath leaves out what does not fit: `files[*].path` of `[{"path": "a"}, "b"]` is `["a"]`. A tool may well use what is
left out. So the expressions of conditions are evaluated by its grammar, but strictly: an element that would be left
out, and a value of another type than the expression needs, make the answer UNFIT.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Final, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONValue

Selector: TypeAlias = Callable[[JSONValue], Any]
"""Returns a value of the arguments: None where it is missing or null, UNFIT where that is unknown."""

UNFIT: Final = object()
"""Stands for an unknown value."""

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_LEAVING_OUT: Final = {
    "filter_projection": "a filter ([?...])",
    "slice": "a slice ([a:b])",
    "comparator": "a comparison",
    "or_expression": "||",
    "and_expression": "&&",
    "not_expression": "!",
}


class _Projected(list[Any]):
    """What a projection gives: its elements are values of their own, also where it is an element of another one."""


class _UnfitError(Exception):
    """Raised where an expression does not fit all of what it meets."""


def selector(expression: str) -> Selector:
    """Return what finds the value of a JMESPath expression. Raises ConfigurationError for one that is invalid, or that
    leaves out elements on purpose."""
    if _PLAIN.fullmatch(expression):
        return _walker(expression.split("."))  # as below, in a fraction of the time
    tree = _parsed(expression)
    for node in _nodes(tree):
        if (what := _LEAVING_OUT.get(node["type"])) is not None:
            raise ConfigurationError(
                f"{expression!r} has {what}, which leaves out values that a tool may use; name the values, for all "
                "elements of a list as files[*].path, and compare them by operators such as equals, in or above"
            )
    return _strict(tree)


def leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values that the elements of a list stand for."""
    for value in values:
        if isinstance(value, _Projected):
            yield from leaves(value)
        else:
            yield value


def _walker(names: list[str]) -> Selector:
    def walk(value: Any) -> Any:
        for name in names:
            if isinstance(value, dict):
                value = value.get(name)
            else:
                return None if value is None else UNFIT
        return value

    return walk


def _parsed(expression: str) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.compile(expression).parsed
    except JMESPathError as error:
        raise ConfigurationError(
            f"{expression!r} is not a JMESPath expression: {' '.join(str(error).split())}; "
            'a name with other signs than letters, digits and _ goes in double quotes: "dry-run"'
        ) from error


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    for child in tree.get("children", ()):
        if isinstance(child, dict):
            yield from _nodes(child)


def _strict(tree: Any) -> Selector:
    visit = _interpreter().visit

    def find(value: Any) -> Any:
        try:
            return visit(tree, value)
        except Exception:
            return UNFIT  # _UnfitError, or a function that gets what it was not made for

    return find


@cache
def _interpreter() -> Any:
    """Return what evaluates expressions; made late, as few policies need it."""
    from jmespath.visitor import TreeInterpreter

    class Strict(TreeInterpreter):  # pyright: ignore[reportUntypedBaseClass]
        """Evaluates an expression, and raises _UnfitError where JMESPath would leave something out."""

        def visit_field(self, node: Any, value: Any) -> Any:
            return None if value is None else _need(value, dict).get(node["value"])

        def visit_index(self, node: Any, value: Any) -> Any:
            items = [] if value is None else _need(value, list)
            number = node["value"]
            return items[number] if -len(items) <= number < len(items) else None

        def visit_projection(self, node: Any, value: Any) -> Any:
            base = self._base(node, value, list)
            return None if base is None else self._all(node, base)

        def visit_value_projection(self, node: Any, value: Any) -> Any:
            base = self._base(node, value, dict)
            return None if base is None else self._all(node, base.values())

        def visit_flatten(self, node: Any, value: Any) -> Any:
            base = self._base(node, value, list)
            if base is None:
                return None
            return [item for element in base for item in (element if isinstance(element, list) else [element])]

        def visit_multi_select_list(self, node: Any, value: Any) -> Any:
            return None if value is None else _Projected(self.visit(child, value) for child in node["children"])

        def _base(self, node: Any, value: Any, kind: type[Any]) -> Any:
            base = self.visit(node["children"][0], value)
            return None if base is None else _need(base, kind)

        def _all(self, node: Any, elements: Iterable[Any]) -> _Projected:
            found = _Projected(self.visit(node["children"][1], element) for element in elements)
            if any(value is None for value in found):
                raise _UnfitError
            return found

    return Strict()


def _need(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise _UnfitError
    return value
