"""Write expressions of workflows on one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from toolexec.workflow import nodes
from toolexec.workflow.parse_expressions import COMPARISONS, LEVELS, PREFIX_LEVELS
from toolexec.workflow.strings import escape

WIDTH: Final = 100
"""How long a line may be, if it can be broken in an object, a list or a call."""
POSTFIX: Final = 10
"""How tightly members and calls bind."""
_ATOM: Final = 11
_BARE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
INSERT: Final = "\0"
"""Stands between the strings of an interpolation."""


class OneLine:
    """Expressions on one line; what was asked before is known, and what an expression is made of is asked first."""

    def __init__(self) -> None:
        self._known: dict[int, str | None] = {}
        self._whole: dict[int, str] = {}

    def short(self, node: nodes.Expression) -> str | None:
        """Return the expression on one line; None if that is too long, or if it has a string over several."""
        if id(node) not in self._known:
            for part in _inner_first(node):
                if id(part) not in self._known:
                    self._known[id(part)] = self._short(part)
        return self._known[id(node)]

    def _short(self, node: nodes.Expression) -> str | None:
        text = self._on_one_line(node, self.short)
        if (
            text is not None
            and len(text) > WIDTH
            and not isinstance(node, nodes.Constant | nodes.Interpolation | nodes.Name)
        ):
            text = None
        if isinstance(node, nodes.Constant | nodes.Interpolation) and is_tall(_strings(node)):
            text = None
        return text

    def whole(self, node: nodes.Expression) -> str:
        """Return the expression on one line, however long."""
        if id(node) not in self._whole:
            for part in _inner_first(node):
                if id(part) not in self._whole:
                    text = self._on_one_line(part, self.whole)
                    assert text is not None
                    self._whole[id(part)] = text
        return self._whole[id(node)]

    def _on_one_line(
        self, node: nodes.Expression | nodes.Spread | nodes.Entry, flat: Callable[[nodes.Expression], str | None]
    ) -> str | None:
        """Join the parts of a node as *flat* gives them; None if it gives none for one of them."""

        def part(child: nodes.Expression | None, level: int = 0) -> str:
            if child is None:
                return ""
            text = flat(child)
            if text is None:
                raise _TooLong
            return f"({text})" if level_of(child) < level else text

        try:
            return self._join(node, part)
        except _TooLong:
            return None

    def _join(self, node: nodes.Expression | nodes.Spread | nodes.Entry, part: Callable[..., str]) -> str:
        match node:
            case nodes.Constant(value):
                return _constant(value)
            case nodes.Duration():
                return node.text
            case nodes.Name(name):
                return name
            case nodes.Interpolation(parts):
                strings, inserts = pieces_of(parts)
                shown = zip(inserts, strings[1:], strict=True)
                rest = "".join(f"${{{self.whole(insert)}}}{escape(text)}" for insert, text in shown)
                return f'"{escape(strings[0])}{rest}"'
            case nodes.Member(value, name, safe):
                return f"{part(value, POSTFIX)}{'?.' if safe else '.'}{name}"
            case nodes.Index(value, index, safe):
                return f"{part(value, POSTFIX)}{'?[' if safe else '['}{part(index)}]"
            case nodes.Slice(value, start, stop):
                return f"{part(value, POSTFIX)}[{part(start, 1)}:{part(stop, 1)}]"
            case nodes.Unary(operator, value):
                return f"{'not ' if operator == 'not' else '-'}{part(value, level_of_operand(node))}"
            case nodes.Binary(operator, left, right):
                own = LEVELS[operator]
                return f"{part(left, own + (own == COMPARISONS))} {operator} {part(right, own + 1)}"
            case nodes.Conditional(condition, then, otherwise):
                return f"{part(condition, 1)} ? {part(then)} : {part(otherwise)}"
            case nodes.ListLiteral(items):
                return f"[{', '.join([self._join_item(item, part) for item in items])}]"
            case nodes.ObjectLiteral(entries):
                return f"{{{', '.join([self._join_item(entry, part) for entry in entries])}}}"
            case nodes.Call(function, arguments):
                return f"{function}({', '.join([part(argument) for argument in arguments])})"
            case nodes.ToolRun(tool, arguments, timeout):
                given = part(tool) if arguments is None else f"{part(tool)}, {part(arguments)}"
                return f"run({given})" if timeout is None else f"run({given}) timeout {part(timeout, POSTFIX)}"
            case _:
                raise TypeError(f"{type(node).__name__} is not an expression")

    def _join_item(self, item: nodes.Expression | nodes.Spread | nodes.Entry, part: Callable[..., str]) -> str:
        if isinstance(item, nodes.Spread):
            return f"...{part(item.value)}"
        if isinstance(item, nodes.Entry):
            key, is_all = head_of_entry(item)
            return key if is_all else f"{key}{part(item.value)}"
        return part(item)


def _inner_first(node: nodes.Expression) -> Iterator[nodes.Expression]:
    """Yield all expressions in *node*, each after what it is made of, and then itself."""
    return (part for part in reversed([*nodes.walk(node)]) if isinstance(part, nodes.Expression))


class _TooLong(Exception):  # noqa: N818 - it ends a search, it is not an error
    """A part of an expression does not fit on one line."""


def level_of(node: nodes.Expression) -> int:
    """Return how tightly the expression binds."""
    match node:
        case nodes.Conditional():
            return 0
        case nodes.Binary(operator):
            return LEVELS[operator]
        case nodes.Unary(operator):
            return PREFIX_LEVELS[operator]
        case nodes.ToolRun(timeout=timeout) if timeout is not None:
            return LEVELS["timeout"]
        case _:
            return _ATOM


def level_of_operand(node: nodes.Unary) -> int:
    """Return how tightly the operand of a prefix must bind to stand there without parentheses."""
    return _ATOM + 1 if node.operator == "-" and _signed(node.value) else PREFIX_LEVELS[node.operator]


def head_of_entry(entry: nodes.Entry) -> tuple[str, bool]:
    """Return what is before the value of an entry, and whether that is all there is to write: `name` or `key: `."""
    key = entry.key if _BARE_KEY.match(entry.key) else f'"{escape(entry.key)}"'
    is_all = isinstance(entry.value, nodes.Name) and entry.value.name == entry.key
    return key if is_all else f"{key}: ", is_all


def _signed(node: nodes.Expression) -> bool:
    """Return whether a minus sign before the expression would be read with its beginning: `-5`, `--x`."""
    while isinstance(node, nodes.Member | nodes.Index | nodes.Slice):
        node = node.value
    if isinstance(node, nodes.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return isinstance(node, nodes.Unary) and node.operator == "-"


def _constant(value: bool | float | str | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{escape(value)}"' if isinstance(value, str) else repr(value)


def type_text(node: nodes.TypeName) -> str:
    """Return the type of an input."""
    if node.name == "choice":
        text = " | ".join([f'"{escape(choice)}"' for choice in node.choices])
    else:
        text = node.name if node.items is None else f"{node.name}[{type_text(node.items)}]"
    return f"{text}?" if node.nullable else text


def pieces_of(parts: Sequence[str | nodes.Expression]) -> tuple[list[str], list[nodes.Expression]]:
    """Return the strings of an interpolation, one more than its inserts, and the inserts."""
    strings, inserts = [""], list[nodes.Expression]()
    for part in parts:
        if isinstance(part, str):
            strings[-1] += part
        else:
            inserts.append(part)
            strings.append("")
    return strings, inserts


def _strings(node: nodes.Constant | nodes.Interpolation) -> list[str]:
    if isinstance(node, nodes.Interpolation):
        return pieces_of(node.parts)[0]
    return [node.value] if isinstance(node.value, str) else []


def is_tall(strings: Sequence[str]) -> bool:
    """Return whether the string reads better over several lines."""
    inner = INSERT.join(strings).strip("\n")
    return "\n" in inner and len(inner) > 30
