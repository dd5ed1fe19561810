"""What the chains of reads of a JavaScript program have had, by the results of the calls that the run has made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from toolexec.code.repair.javascript_names import Bound, Chain, JavaScriptNames, Step
from toolexec.code.repair.shapes import results_of
from toolexec.code.repair.source import ends_of, split
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_SAME: Final = frozenset({"filter", "slice", "sort", "reverse", "toSorted", "concat"})
_ONE: Final = frozenset({"find", "at", "pop", "shift"})
_OF_OBJECTS: Final[Mapping[str | int | None, Callable[[dict[str, JSONValue]], JSONValue]]] = {
    "entries": lambda value: [[key, part] for key, part in islice(value.items(), _MOST)],
    "keys": lambda value: [*islice(value, _MOST)],
    "values": lambda value: [*islice(value.values(), _MOST)],
}
_BY_ID: Final = frozenset({"run", "run_tool", "runTool", "call", "call_tool", "callTool", "execute"})
"""Functions that take the id of a tool, of `tools` or by themselves."""
_ARROW: Final = re.compile(r"\s*(?:async\s*)?(?:\([^()]*\)|[A-Za-z_$][\w$]*)\s*=>\s*")
_COMPARED: Final = re.compile(r"\s*={2,3}\s*(['\"])([^'\"\\\n]*)\1")
_MOST: Final = 200
_FEW: Final = 10
_LONG: Final = 2_000
_DEPTH: Final = 40


class JavaScriptProgram(JavaScriptNames):
    """A program with the values that its chains have had."""

    def __init__(self, code: str, tools: Tools) -> None:
        super().__init__(code)
        self._tools = tools
        self._known: dict[tuple[str, int], list[JSONValue]] = {}

    def values(self, chain: Chain, depth: int = 0) -> list[JSONValue]:
        """Return the values that a chain has had; none where they are not known."""
        if depth > _DEPTH:
            return []
        steps = list(chain.steps)
        if chain.root == "tools" or (chain.root in _BY_ID and steps and steps[0].key is None):
            path: list[str] = [] if chain.root == "tools" else [chain.root]
            while steps and isinstance(steps[0].key, str):
                path.append(steps.pop(0).key)  # pyright: ignore[reportArgumentType] - as was looked
            if not steps or steps[0].key is not None:
                return []
            inner = steps.pop(0).inner
            by_id = re.match(r"\s*['\"]([^'\"]+)['\"]", inner) if len(path) == 1 and path[0] in _BY_ID else None
            if path in (["run_chain"], ["runChain"]):
                calls = [call for call in self._tools.tool_calls() if call.error is None and not call.is_open]
                found = [calls[-1].value] if calls else []
            else:
                found = results_of(self._tools, by_id[1] if by_id is not None else ".".join(path))
        elif chain.root == "Promise" and len(steps) > 1 and steps[0].key == "all":
            found = self._gathered(steps[1], depth)
            steps = steps[2:]
        elif chain.root == "JSON" and len(steps) > 1 and steps[0].key == "parse":
            inner = JavaScriptProgram._chain(self._inside(steps[1]), 0)
            found = [_loaded(each) for each in self.values(inner, depth + 1)] if inner is not None else []
            steps = steps[2:]
        elif chain.root == "Object" and len(steps) > 1 and steps[0].key in _OF_OBJECTS:
            inner = JavaScriptProgram._chain(self._inside(steps[1]), 0)
            objects = self.values(inner, depth + 1) if inner is not None else []
            found = [_OF_OBJECTS[steps[0].key](each) for each in objects if isinstance(each, dict)]
            steps = steps[2:]
        elif chain.root in self._returned and steps and steps[0].key is None:
            found = self._whole(self._returned[chain.root], depth + 1)
            steps = steps[1:]
        elif (called := self._bare(chain)) >= 0:  # a tool that is called without `tools`
            found = results_of(self._tools, ".".join([chain.root, *(str(each.key) for each in steps[:called])]))
            steps = steps[called + 1 :]
        else:
            found = self._named(chain.root, chain.start + self._at, depth + 1)
        return self._stepped(found, steps, depth + 1)

    def _bare(self, chain: Chain) -> int:
        """Return which step of a chain calls its root, or a key of that, which the program has not bound; -1 else."""
        called = next((at for at, each in enumerate(chain.steps[:2]) if each.key is None), -1)
        return called if chain.root not in self._names else -1

    def read_on(self, line: int) -> Iterator[tuple[str, list[JSONValue]]]:
        """Yield the longest reads on a line whose values are known."""
        for chain in self._chains():
            if self._code.count("\n", 0, chain.end) + 1 != line:
                continue
            for count in range(len(chain.steps), -1, -1):
                part = Chain(chain.root, chain.start, chain.end, chain.steps[:count])
                is_folded = any(each.key == "reduce" for each in part.steps)
                if not is_folded and (values := self.values(part)) and not self._is_short(part):
                    start = self._code.find(chain.root, chain.start)
                    yield self._code[start : part.steps[-1].end if count else part.end].strip(), values
                    break

    def compared(self) -> Iterator[tuple[str, list[JSONValue], str]]:
        """Yield what is asked to be a text: its own, its values where they are known, and what it is asked to be."""
        for chain in self._chains(with_names=True):
            end = chain.steps[-1].end if chain.steps else chain.end
            found = _COMPARED.match(self._code, end)
            if found is not None and (values := self.values(chain)):
                yield self._code[self._code.find(chain.root, chain.start) : end].strip(), values, found[2]

    def _is_short(self, chain: Chain) -> bool:
        """Return whether a list is read at a place that some have not, or an object by a key."""
        last = chain.steps[-1].key if chain.steps else None
        if last is None or chain.root == "tools":
            return False
        before = Chain(chain.root, chain.start, chain.end, chain.steps[:-1])
        return any(not _item(each, last) for each in self.values(before))

    def _stepped(self, found: list[JSONValue], steps: list[Step], depth: int) -> list[JSONValue]:
        while steps and found:
            step = steps.pop(0)
            if step.key is None and not step.inner:
                continue
            is_call = bool(steps) and steps[0].key is None
            if is_call and step.key == "reduce" and len(split(steps[0].inner)) == 1:  # one of the items, as the largest
                step = Step("find", "", step.end)
            if is_call and isinstance(step.key, str) and step.key in _SAME | _ONE:
                steps.pop(0)
                if step.key in _ONE:
                    found = [each for value in found if isinstance(value, list) for each in islice(value, _MOST)]
                continue
            if is_call and step.key in ("map", "flatMap", "then"):
                call = steps.pop(0)
                mapped = self._given_by(call, depth)
                if step.key == "then":
                    found = mapped
                elif step.key == "map":
                    found = [mapped] if mapped else []
                else:
                    found = [[part for each in mapped for part in (each if isinstance(each, list) else [each])]]
                continue
            if is_call or step.key is None:
                return []
            found = [each for value in found for each in _item(value, step.key)]
        return found[:_MOST]

    def _given_by(self, call: Step, depth: int) -> list[JSONValue]:
        """Return what the function that a call is given has for its value: a chain, or a function of the program."""
        start = call.end - 1 - len(call.inner)
        if (name := call.inner.strip()) in self._returned:
            return self._whole(self._returned[name], depth + 1)
        arrow = _ARROW.match(call.inner)
        if arrow is None:
            return []
        within = self._within(call.inner[arrow.end() :], start + arrow.end())
        chain = JavaScriptProgram._chain(within, 0)
        return within.values(chain, depth + 1) if chain is not None and within.is_whole(chain) else []

    def _within(self, text: str, start: int) -> JavaScriptProgram:
        """Return a program with a part of the text of this one, which begins at *start*, and with its names."""
        other = object.__new__(JavaScriptProgram)
        other._code, other._tools, other._names, other._known = text.strip(), self._tools, self._names, self._known
        other._ends, other._returned = ends_of(other._code), self._returned
        other._at = self._at + start + len(text) - len(text.lstrip())
        return other

    def _inside(self, call: Step) -> JavaScriptProgram:
        return self._within(call.inner, call.end - 1 - len(call.inner))

    def _gathered(self, call: Step, depth: int) -> list[JSONValue]:
        """Return what `Promise.all` gives: a value for each item of an array, or of a call of the same tool."""
        inner, start = call.inner[:_LONG], call.end - 1 - len(call.inner)
        if inner.strip().startswith("[") and ".map(" not in inner:
            parts: list[list[JSONValue]] = []
            at = inner.index("[") + 1
            for part in split(inner.strip()[1:-1]):
                at = inner.find(part, at)
                within = self._within(part, start + at)
                chain = JavaScriptProgram._chain(within, 0)
                parts.append(within.values(chain, depth + 1) if chain is not None else [])
            return [[part[0] for part in parts]] if parts and all(parts) else []
        mapped = re.search(r"\.map\(\s*([A-Za-z_$][\w$]*)\s*\)", inner)
        if mapped is not None and mapped[1] in self._returned:
            found = self._whole(self._returned[mapped[1]], depth + 1)
            return [found] if found else []
        found = list[JSONValue]()
        for called in islice(re.finditer(r"\btools(?=[.\[])|\bcall_?[tT]ool(?=\()", inner), _FEW):
            within = self._within(inner[called.start() :], start + called.start())
            chain = JavaScriptProgram._chain(within, 0)
            found += within.values(chain, depth + 1) if chain is not None else []
        return [found] if found else []

    def _named(self, name: str, at: int, depth: int) -> list[JSONValue]:
        all_bound = self.bound(name, at)
        place = name, all_bound[0].start if all_bound else 0
        if place not in self._known:
            self._known[place] = []  # it is made of itself
            self._known[place] = self._bound_to(all_bound, depth)
        return self._known[place]

    def _bound_to(self, all_bound: Sequence[Bound], depth: int) -> list[JSONValue]:
        found: list[JSONValue] = []
        for bound in all_bound:
            values = self._of(bound, depth)
            if not values:
                return []
            found += values
        return found[:_MOST]

    def _of(self, bound: Bound, depth: int) -> list[JSONValue]:
        values = self._whole(bound.chain, depth + 1) if bound.chain is not None else []
        if bound.each:
            values = [each for value in values if isinstance(value, list) for each in islice(value, _MOST)]
        for key in bound.path:
            values = [each for value in values for each in _item(value, key)]
        return values

    def _whole(self, chain: Chain, depth: int) -> list[JSONValue]:
        """Return the values of a chain of the whole program, whose places are those of its text."""
        at, self._at = self._at, 0
        try:
            return self.values(chain, depth)
        finally:
            self._at = at


def _item(value: JSONValue, key: str | int) -> list[JSONValue]:
    if isinstance(key, str):
        return [value[key]] if isinstance(value, dict) and key in value else []
    return [value[key]] if isinstance(value, list) and key < len(value) else []


def _loaded(value: JSONValue) -> JSONValue:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
