"""What the values on the line that failed are, as the program itself has reported: whatever has made them.

Reading a program beside the results of its calls gives what its names may have had in all turns of a loop; what they
had when it failed, only the program knows.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.held import described
from toolexec.code.repair.near_keys import words_of
from toolexec.code.repair.python_program import PythonProgram, program_of
from toolexec.code.repair.shown import kind_of, shown_value, whole_value
from toolexec.code.repair.source import instead
from toolexec.code.repair.times import format_of
from toolexec.code.repair.unmet import unmet_in
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_MOST: Final = 3
_MOST_NODES: Final = 300
_LONGEST: Final = 80
_MISSING: Final = re.compile(r"KeyError: (['\"])(.*)\1$|KeyError: (\d+)$", re.DOTALL)
_NO_ATTRIBUTE: Final = re.compile(r"AttributeError: .*has no attribute '(\w+)'")
_FORMAT: Final = re.compile(r"ValueError: time data '([^']{1,60})' does not match format '([^']{1,60})'")
_MORE_OF_TIME: Final = "ValueError: unconverted data remains"
_NOTHING: Final = re.compile(r"None(?:Type)?\b")
_OF_NOTHING: Final = re.compile(
    r"IndexError|StopIteration|empty (?:sequence|iterable)|at least one|iterable argument is"
)
_JSON: Final = frozenset({"dict", "list", "tuple", "str", "int", "float", "bool", "NoneType"})
_UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class Held:
    """A value as a program reported it: its `name`, its `kind`, what it is (in part), how many items it has, and the
    names that its kind has, where one was missing."""

    name: str
    kind: str
    value: JSONValue = None
    size: int | None = None
    own: tuple[str, ...] = ()


def read_held(data: object) -> tuple[Held, ...]:
    """Return what a guest reported; what is not of the form is left out."""
    found: list[Held] = []
    for each in data[:20] if isinstance(data, list) else ():
        entry: dict[str, Any] = each if isinstance(each, dict) else {}
        name, kind, own = entry.get("name"), entry.get("kind"), entry.get("own")
        if isinstance(name, str) and isinstance(kind, str):
            size = entry.get("size")
            names = tuple(str(item)[:50] for item in own[:100]) if isinstance(own, list) else ()
            found.append(
                Held(name[:100], kind[:100], entry.get("value"), size if isinstance(size, int) else None, names)
            )
    return tuple(found)


def facts_of_python(failure: Failure, held: Sequence[Held], tools: Tools) -> list[str]:
    """Return what is known of the values that a program failed with, what counts most first."""
    program = program_of(failure.code, tools)
    if program is None:
        return [_plainly(each) for each in held if each.name][:_MOST]
    facts = _Facts(failure, program, held, tools)
    return list(dict.fromkeys(facts.all()))[:_MOST]


class _Facts:
    def __init__(self, failure: Failure, program: PythonProgram, held: Sequence[Held], tools: Tools) -> None:
        self._failure = failure
        self._program = program
        self._tools = tools
        self._held: Mapping[str, Held] = {each.name: each for each in held if each.name}
        self._object = next((each for each in held if not each.name), None)
        self._described: set[str] = set()
        self._nodes = [each for each in program.nodes(failure.line)[:_MOST_NODES] if isinstance(each, ast.expr)]

    def all(self) -> Iterator[str]:
        message = self._failure.message
        if self._object is not None and (found := _NO_ATTRIBUTE.match(message)):
            yield from self._of_attribute(self._object, found[1])
        if found := _MISSING.match(message):
            yield from self._of_key(found[2] if found[3] is None else int(found[3]))
        if (found := _FORMAT.match(message)) and (right := format_of(found[1])):
            offset = ", as it has an offset" if right.endswith("%z") else ""
            yield f"{shown_value(found[1])} has another form{offset}: {instead(found[2], right)}"
        if message.startswith(_MORE_OF_TIME):
            yield from self._of_rest()
        if _OF_NOTHING.search(message):
            yield from self._of_nothing()
        if _NOTHING.search(message):
            yield from self._of_none()
        yield from self._of_each()

    def _value(self, node: ast.AST) -> Any:
        """Return the value that an expression has had; `_UNKNOWN` where only running it would report."""
        if isinstance(node, ast.Name):
            held = self._held.get(node.id)
            return held.value if held is not None and held.kind in _JSON else _UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Subscript):
            of, key = self._value(node.value), self._value(node.slice)
            try:
                return of[key] if of is not _UNKNOWN and key is not _UNKNOWN else _UNKNOWN
            except (LookupError, TypeError):
                return _UNKNOWN
        if isinstance(node, ast.Attribute):
            of = self._value(node.value)
            return of.get(node.attr, _UNKNOWN) if isinstance(of, dict) else _UNKNOWN
        is_get = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        if is_get and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            of, key = self._value(node.func.value), self._value(node.args[0])
            return of.get(key) if isinstance(of, dict) and isinstance(key, str) and len(node.args) == 1 else _UNKNOWN
        return _UNKNOWN

    def _size(self, node: ast.AST, value: Any) -> int:
        held = self._held.get(node.id) if isinstance(node, ast.Name) else None
        return held.size if held is not None and held.size is not None else len(value)

    def _of_attribute(self, held: Held, name: str) -> Iterator[str]:
        near = difflib.get_close_matches(name, held.own, 1, cutoff=0.75)
        words = {each for each in words_of(name) if len(each) > 2}
        near = near or [each for each in held.own if words & {*words_of(each)}][:1]
        if near:
            yield f"a {held.kind} has no `{name}`: {instead(f'.{name}', f'.{near[0]}')}"
        elif held.kind not in _JSON and held.own:
            yield f"a {held.kind} has {', '.join(held.own[:12])}"

    def _of_key(self, key: str | int) -> Iterator[str]:
        for node in self._nodes:
            of = self._value(node.value) if isinstance(node, ast.Subscript) else _UNKNOWN
            if not isinstance(node, ast.Subscript) or not isinstance(of, dict) or self._value(node.slice) != key:
                continue
            text = self._program.text(node.value)
            if near := _near(key, of):
                written = self._program.source(node.slice)
                yield f"`{text}` has no such key: {instead(written, written.replace(str(key), near))}"
                return
            new = f"{text}.get({self._program.text(node.slice)})"
            self._described.add(text)
            yield f"`{text}` here is {_shown(of)}, without {shown_value(key)}: `{new}` is None then"
            outer = node.value
            while isinstance(outer, ast.Subscript):
                outer = outer.value
                value = self._value(outer)
                if isinstance(value, dict):
                    yield f"`{self._program.text(outer)}` is {_shown(value)}"
            yield from self._places_of(key)
            return

    def _places_of(self, key: str | int) -> Iterator[str]:
        """Say under which key a result has a missing one for a value."""
        seen: dict[str, None] = {}
        for call in self._tools.tool_calls()[:50]:
            if isinstance(call.value, dict):
                for name, part in call.value.items():
                    if isinstance(part, list) and key in part[:200]:
                        seen[f"`{name}` of {call.tool_id}"] = None
        if seen:
            yield f"{shown_value(key)} is in {', '.join([*seen][:2])}"

    def _of_rest(self) -> Iterator[str]:
        """Say which format has all of a time that has more than the one that it was read by."""
        for node in self._nodes:
            match node:
                case ast.Call(func=ast.Attribute(attr="strptime"), args=[text, ast.Constant(value=str() as old)]):
                    times = self._program.values(text)
                    formats = {format_of(each) for each in times if isinstance(each, str)}
                    right = formats.pop() if len(formats) == 1 else ""
                    if right:
                        yield f"{shown_value(times[0])} has more than that: {instead(old, right)}"
                case _:
                    pass

    def _of_nothing(self) -> Iterator[str]:
        """Say which list is empty, or how long it is, what has made it, and what would have been found."""
        is_index = self._failure.kind == "IndexError"
        for node in self._nodes:
            of = node.value if is_index and isinstance(node, ast.Subscript) else node
            value = self._value(of)
            if not isinstance(value, list) or not isinstance(of, ast.Name | ast.Subscript | ast.Attribute):
                continue
            text, size = self._program.text(of), self._size(of, value)
            at = self._value(node.slice) if isinstance(node, ast.Subscript) and is_index else None
            if not size and (not is_index or of is not node):
                yield f"`{text}` is empty here{self._origin(of)}: check that first"
                continue
            is_open = isinstance(node, ast.Subscript) and at is _UNKNOWN and size > 0
            if is_open or (isinstance(at, int) and not -size <= at < size):
                yield f"`{text}` has {size} items: the last is `{text}[{size - 1}]`, or `{text}[-1]`"
        yield from unmet_in(self._program)

    def _of_none(self) -> Iterator[str]:
        for node in self._nodes:
            value = self._value(node)
            if isinstance(node, ast.Constant):
                continue
            text = self._program.text(node)
            if value is None:
                yield f"`{text}` is None here{self._origin(node)}: check it first"
            elif isinstance(value, list) and None in value:
                size, count = self._size(node, value), value.count(None)
                about = f"`{text}` is {shown_value(value)}{self._origin(node)}"
                yield f"{about}: None in {count} of {size}, leave those out"

    def _of_each(self) -> Iterator[str]:
        """Say what each read on the line is, the longest first. A number is not why a key is missing."""
        said = self._described
        is_missing = self._failure.kind == "KeyError"
        for node in sorted(self._nodes, key=lambda each: -len(self._program.text(each))):
            if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
                continue
            text, value = self._program.text(node), self._value(node)
            if len(text) > _LONGEST or any(text in each for each in said):
                continue
            if is_missing and isinstance(value, int | float):
                continue
            if value is not _UNKNOWN:
                said.add(text)
                about = described(text, [value], is_python=True)
                is_row = "list indices" in self._failure.message and isinstance(value, list) and len(value) > 1
                by_place = f": read it by place, as `{text}[1]`" if is_row and not isinstance(value[0], dict) else ""
                yield f"{about}: check it first" if value is None else f"{about}{by_place}"
            elif isinstance(node, ast.Name) and node.id in self._held:
                said.add(text)
                yield _plainly(self._held[node.id])

    def _origin(self, node: ast.AST) -> str:
        """Return what a name was last given above the line, as text; "" where that is a long story."""
        if not isinstance(node, ast.Name):
            return ""
        given = self._program.given_to(node.id, self._failure.line)
        text = " ".join(self._program.text(given).split()) if given is not None else ""
        return f", made by `{text}`" if text and len(text) <= _LONGEST and not text.isidentifier() else ""


def _near(key: str | int, of: Mapping[str, JSONValue]) -> str:
    """Return the key that one with a slip means; "" where there is none, or more than one."""
    if not isinstance(key, str) or not key.isidentifier() or any(each.isdigit() for each in key):  # IDs are alike
        return ""
    found = difflib.get_close_matches(key, [*of], 2, cutoff=0.75)
    return found[0] if len(found) == 1 else ""


def _plainly(held: Held) -> str:
    if held.kind == "bytes":
        return f"`{held.name}` is bytes: `{held.name}.decode()` makes text of it"
    if held.kind in _JSON:
        return f"`{held.name}` is {kind_of(held.value)}"
    shown = f", {shown_value(held.value)}" if held.value not in (None, [], {}) else ""
    return f"`{held.name}` is of type {held.kind}{shown}"


def _shown(value: dict[str, JSONValue]) -> str:
    return whole_value(value) or kind_of(value)
