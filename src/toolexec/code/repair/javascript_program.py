"""What the chains of reads of a JavaScript program have had, by the results of the calls that the run has made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from toolexec.code.repair.javascript_names import Bound, Chain, JavaScriptNames, Step
from toolexec.code.repair.shapes import results_of
from toolexec.code.repair.source import ends_of
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

__all__ = ["JavaScriptProgram"]

_SAME: Final = frozenset({"filter", "slice", "sort", "reverse", "toSorted", "concat"})
_ONE: Final = frozenset({"find", "at", "pop", "shift"})
_OF_OBJECTS: Final[Mapping[str | int | None, Callable[[dict[str, JSONValue]], JSONValue]]] = {
    "entries": lambda value: [[key, part] for key, part in islice(value.items(), _MOST)],
    "keys": lambda value: [*islice(value, _MOST)],
    "values": lambda value: [*islice(value.values(), _MOST)],
}
_MOST: Final = 200
_FEW: Final = 10
_LONG: Final = 2_000
_DEPTH: Final = 12


class JavaScriptProgram(JavaScriptNames):
    """A program with the values that its chains have had."""

    def __init__(self, code: str, tools: Tools) -> None:
        super().__init__(code)
        self._tools = tools
        self._known: dict[str, list[JSONValue]] = {}

    def values(self, chain: Chain, depth: int = 0) -> list[JSONValue]:
        """Return the values that a chain has had; none where they are not known."""
        if depth > _DEPTH:
            return []
        steps = list(chain.steps)
        if chain.root == "tools":
            path: list[str] = []
            while steps and isinstance(steps[0].key, str):
                path.append(steps.pop(0).key)  # pyright: ignore[reportArgumentType] - as was looked
            if not steps or steps[0].key is not None:
                return []
            inner = steps.pop(0).inner
            by_id = re.match(r"\s*['\"]([^'\"]+)['\"]", inner) if path in (["run"], ["run_tool"], ["runTool"]) else None
            found = results_of(self._tools, by_id[1] if by_id is not None else ".".join(path))
        elif chain.root == "Promise" and len(steps) > 1 and steps[0].key == "all":
            found = self._gathered(steps[1].inner, depth)
            steps = steps[2:]
        elif chain.root == "JSON" and len(steps) > 1 and steps[0].key == "parse":
            inner = JavaScriptProgram._chain(self._within(steps[1].inner), 0)
            found = [_loaded(each) for each in self.values(inner, depth + 1)] if inner is not None else []
            steps = steps[2:]
        elif chain.root == "Object" and len(steps) > 1 and steps[0].key in _OF_OBJECTS:
            inner = JavaScriptProgram._chain(self._within(steps[1].inner), 0)
            objects = self.values(inner, depth + 1) if inner is not None else []
            found = [_OF_OBJECTS[steps[0].key](each) for each in objects if isinstance(each, dict)]
            steps = steps[2:]
        else:
            found = self._named(chain.root, depth + 1)
        return self._stepped(found, steps)

    def read_on(self, line: int) -> Iterator[tuple[str, list[JSONValue]]]:
        """Yield the longest reads on a line whose values are known."""
        for chain in self._chains():
            if self._code.count("\n", 0, chain.end) + 1 != line:
                continue
            for count in range(len(chain.steps), -1, -1):
                part = Chain(chain.root, chain.start, chain.end, chain.steps[:count])
                if (values := self.values(part)) and not self._is_short(part):
                    start = self._code.find(chain.root, chain.start)
                    yield self._code[start : part.steps[-1].end if count else part.end].strip(), values
                    break

    def _is_short(self, chain: Chain) -> bool:
        """Return whether a list is read at a place that some have not, or an object by a key."""
        last = chain.steps[-1].key if chain.steps else None
        if last is None or chain.root == "tools":
            return False
        before = Chain(chain.root, chain.start, chain.end, chain.steps[:-1])
        return any(not _item(each, last) for each in self.values(before))

    def _stepped(self, found: list[JSONValue], steps: list[Step]) -> list[JSONValue]:
        while steps and found:
            step = steps.pop(0)
            if step.key is None and not step.inner:
                continue
            is_call = bool(steps) and steps[0].key is None
            if is_call and isinstance(step.key, str) and step.key in _SAME | _ONE:
                steps.pop(0)
                if step.key in _ONE:
                    found = [each for value in found if isinstance(value, list) for each in islice(value, _MOST)]
                continue
            if is_call or step.key is None:
                return []
            found = [each for value in found for each in _item(value, step.key)]
        return found[:_MOST]

    def _within(self, text: str) -> JavaScriptProgram:
        """Return a program with another text, whose chains are read with the names of this one."""
        other = object.__new__(JavaScriptProgram)
        other._code, other._tools, other._names, other._known = text.strip(), self._tools, self._names, self._known
        other._ends = ends_of(other._code)
        return other

    def _gathered(self, inner: str, depth: int) -> list[JSONValue]:
        found: list[JSONValue] = []
        for called in islice(re.finditer(r"tools(?=[.\[])", inner[:_LONG]), _FEW):
            chain = JavaScriptProgram._chain(self._within(inner[called.start() : called.start() + _LONG]), 0)
            found += self.values(chain, depth + 1) if chain is not None else []
        return [found] if found else []

    def _named(self, name: str, depth: int) -> list[JSONValue]:
        if name not in self._known:
            self._known[name] = []  # it is made of itself
            self._known[name] = self._bound_to(name, depth)
        return self._known[name]

    def _bound_to(self, name: str, depth: int) -> list[JSONValue]:
        found: list[JSONValue] = []
        for bound in self._names.get(name, ()):
            values = self._of(bound, depth) if bound is not None else []
            if not values:
                return []
            found += values
        return found[:_MOST]

    def _of(self, bound: Bound, depth: int) -> list[JSONValue]:
        values = self.values(bound.chain, depth + 1)
        if bound.each:
            items = [each for value in values if isinstance(value, list) for each in islice(value, _MOST)]
            return items if bound.key is None else [part for each in items for part in _item(each, bound.key)]
        if bound.key is not None:
            return [each for value in values for each in _item(value, bound.key)]
        return values


def _item(value: JSONValue, key: str | int) -> list[JSONValue]:
    if isinstance(key, str):
        return [value[key]] if isinstance(value, dict) and key in value else []
    return [value[key]] if isinstance(value, list) and key < len(value) else []


def _loaded(value: JSONValue) -> JSONValue:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
