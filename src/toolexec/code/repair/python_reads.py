"""What the reads of a Python program that find nothing stand for, by the results of the calls that the run has made."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.near_keys import is_item_of
from toolexec.code.repair.python_names import Bound, Part, is_at
from toolexec.code.repair.python_program import PythonProgram
from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.shapes import WRAPPERS, Advice, Read, named_list, nouns_of, only_list, what_to_write
from toolexec.code.repair.shown import shown_keys
from toolexec.code.repair.signatures import takers_of
from toolexec.code.repair.source import instead
from toolexec.code.repair.tables import place_of
from toolexec.code.repair.times import of_a_time, time_as_text
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_MOST_READS: Final = 300
"""How many reads of a program are looked at: hundreds of reads of large results would take seconds."""
_METHODS: Final = frozenset({"get", "items", "keys", "values"})
_AS_LIST: Final = frozenset(
    {"enumerate", "len", "list", "reversed", "sorted", "sum", "max", "min", "set", "iter", "zip"}
)
OTHER_NAMES: Final[Mapping[str, str]] = {
    "push": "append",
    "toUpperCase": "upper",
    "toLowerCase": "lower",
    "trim": "strip",
    "startsWith": "startswith",
    "endsWith": "endswith",
    "length": "",
}
"""What methods of JavaScript are called in Python."""

_OF_READS: Final = frozenset({"AttributeError", "IndexError", "KeyError", "StopIteration", "TypeError", "ValueError"})


def about_python_reads(failure: Failure, tools: Tools) -> str:
    """Return what to write for the first read on the line that failed which finds nothing; "" where none is known."""
    program = _reads_of(failure.code, tools) if failure.kind in _OF_READS else None
    if program is None:
        return ""
    here = (each for each in program.reads() if is_at(each, failure.line))
    for node in islice(here, _MOST_READS):
        if not program.is_silent(node) and (advice := program.advice(node)):
            return advice.text
    return next(iter(program.silent()), "")


def silent_python_reads(code: str, tools: Tools, *, is_empty: bool = False) -> list[str]:
    """Return what to write for each `get` that certainly means another key, and gave its default. With *is_empty*,
    where the program has nothing for a value, also for reads whose errors it catches, and went on after."""
    program = _reads_of(code, tools)
    if program is None:
        return []
    return [*program.silent(is_empty=is_empty), *(program.caught() if is_empty else ())]


def _reads_of(code: str, tools: Tools) -> _Reads | None:
    tree = tree_of(code)
    return _Reads(tree, code, tools) if tree is not None else None


class _Reads(PythonProgram):
    """A program with what to say of its reads."""

    def __init__(self, tree: ast.Module, code: str, tools: Tools) -> None:
        super().__init__(tree, code, tools)
        self._nouns = nouns_of(tools)
        self._later: dict[str, dict[str, None]] = {}

    def is_silent(self, node: ast.AST) -> bool:
        """Return whether this read of a key gives its default where there is none."""
        return isinstance(node, ast.Call) and all(isinstance(each, dict) for each in self.values(self._base(node)))

    def silent(self, *, is_empty: bool = False) -> Iterator[str]:
        """Yield what to write for the reads that gave their default, where another is certain; with *is_empty* what
        there is, where they have never given anything else, and have no default of their own."""
        for node in islice(filter(self.is_silent, self.reads()), _MOST_READS):
            advice = self.advice(node)
            has_default = isinstance(node, ast.Call) and len(node.args) + len(node.keywords) > 1
            is_meant = advice is not None and (not has_default or " instead of " in advice.text)
            if advice is not None and (advice.is_certain or (is_empty and is_meant)):
                yield advice.text

    def caught(self) -> Iterator[str]:
        """Yield what to say of the reads of keys that are in none of the values, in a `try` that hides it."""
        for node in islice(self.reads(), _MOST_READS):
            key = self._key(node)
            if isinstance(node, ast.Subscript) and isinstance(key, str) and self.is_tried(node):
                values = self.values(self._base(node))
                if values and all(isinstance(each, dict) and key not in each for each in values):
                    yield f"an `except` hides an error: {self._of_missing(node, key)}"

    def _of_missing(self, node: ast.Subscript, key: str) -> str:
        """Return what to say of a key that no value has: that what holds it has the key, or what there is instead."""
        base, advice = node.value, self.advice(node)
        outer = base.value if isinstance(base, ast.Subscript) else None
        around = self.values(outer) if outer is not None else []
        if outer is not None and around and all(isinstance(each, dict) and key in each for each in around):
            new = f'{self.text(outer)}["{key}"]'
            return f"`{self.text(base)}` has no `{key}`, `{self.text(outer)}` has: {instead(self.text(node), new)}"
        return advice.text if advice is not None else f"`{self.text(base)}` has no `{key}`"

    def advice(self, node: ast.Subscript | ast.Attribute | ast.Call) -> Advice | None:
        """Return what to say of a read; None where it finds something, or its base is not known."""
        base, key, above = self._base(node), self._key(node), self._above.get(id(node))
        values = self.values(base)
        if key is None or not values:
            return (self._of_keys(base) or self._of_characters(base, key)) if isinstance(key, str) else None
        is_called = isinstance(above, ast.Call) and above.func is node
        of_times = is_called and time_as_text(values) and of_a_time(str(key))
        if (
            isinstance(node, ast.Attribute)
            and not of_times
            and (is_called or all(hasattr(type(each), node.attr) for each in values))
        ):
            return None
        text, whole = self.text(base), self.text(node)
        if isinstance(key, int):
            is_list = all(isinstance(each, dict) for each in values) and not self._is_chain(base)
            listed = only_list(values) if is_list else ""
            new = f'{text}["{listed}"]{whole.removeprefix(text)}'
            about = f"`{text}` is a dict, and the list is in `{listed}`: {instead(whole, new)}"
            if is_list and isinstance(above, ast.Subscript) and isinstance(self._key(above), str):
                written = self.text(above)
                if all(isinstance(each, dict) and self._key(above) in each for each in values):
                    new = text + written.removeprefix(whole)
                    return Advice(f"`{text}` is one object, and no list: {instead(written, new)}", is_certain=True)
            return Advice(about, is_certain=True) if listed else self._of_place(base, text, whole, values, key)
        is_text = all(isinstance(each, str) for each in values)
        if is_text and (advice := self._of_keys(base)):
            return advice
        if isinstance(node, ast.Attribute) and node.attr in OTHER_NAMES:
            return None
        after = self._key(above) if isinstance(above, ast.Subscript | ast.Attribute) and not is_called else None
        if after is None and isinstance(above, ast.Attribute):
            after = self._key(self._above.get(id(above), above))
        used = isinstance(after, int) or self._is_iterated(node, above)
        later = (after,) if isinstance(after, str) else self._read_later(above, node)
        tail = self._tail(node) if key in WRAPPERS else ""
        is_item = any(isinstance(each, Part) for each in self._bound_of(base))
        is_part = is_item or isinstance(base, ast.Subscript | ast.Attribute)
        takers = takers_of(values[0], text, self._tools) if is_item and isinstance(values[0], int) else ""
        if takers:
            of = [self.text(each.of) for each in self._bound_of(base) if isinstance(each, Part)]
            takers = f"it is one of `{of[0]}`, and {takers} reads what it stands for" if of else ""
        if is_item and all(isinstance(each, str) for each in values):
            lists = {self.text(each.of) for each in self._bound_of(base) if isinstance(each, Part)}
            if len(lists) == 1 and is_item_of(key, lists.copy().pop()):
                return Advice(f"`{text}` is text, one of `{lists.pop()}`: {instead(whole, text)}", is_certain=True)
        place = place_of(key, values, self._tools)
        read = Read(text, key, whole, values, later, used, tail, self._nouns, is_part, takers, place)
        return what_to_write(read, "python")

    def _read_later(self, above: ast.AST | None, node: ast.AST) -> tuple[str, ...]:
        """Return the keys that are read from the name that a read is given."""
        if not isinstance(above, ast.Assign) or above.value is not node or not isinstance(above.targets[0], ast.Name):
            return ()
        return tuple(self._keys_of().get(above.targets[0].id, ()))

    def _keys_of(self) -> dict[str, dict[str, None]]:
        """Return the keys that are read from each name, but for the names of methods."""
        if not self._later:
            for each in self.reads():
                base, key = self._base(each), self._key(each)
                if isinstance(base, ast.Name) and isinstance(key, str) and key not in _METHODS:
                    self._later.setdefault(base.id, {})[key] = None
        return self._later

    def _tail(self, node: ast.expr) -> str:
        """Return the text of a read with what other APIs have around a value behind it."""
        text, above = "", self._above.get(id(node))
        while isinstance(above, ast.Subscript | ast.Attribute):
            key = self._key(above)
            if not isinstance(key, int) and key not in WRAPPERS | {"text"}:
                break
            text, above = self.text(above), self._above.get(id(above))
        return text

    def _of_place(self, base: ast.expr, text: str, whole: str, values: Sequence[JSONValue], key: int) -> Advice | None:
        """Advise on a dict that is read by place, as if it were a list."""
        objects = [each for each in values if isinstance(each, dict)]
        if len(objects) != len(values):
            return None
        last = "; `run_chain` gives the value of its last step only" if self._is_chain(base) else ""
        about = f"`{text}` is a dict with {shown_keys(objects)}{last}"
        if last or len({type(part) for each in objects for part in each.values()}) != 1:
            return Advice(about)
        return Advice(f"{about}, and has no place {key}: {instead(whole, f'list({text}.values())[{key}]')}")

    def _bound_of(self, base: ast.expr) -> list[Bound]:
        return self.bound(base) if isinstance(base, ast.Name) else []

    def _is_chain(self, base: ast.expr) -> bool:
        bound = self._bound_of(base) or [base]
        return any(isinstance(each, ast.expr) and "run_chain" in ast.unparse(each) for each in bound)

    def _of_characters(self, base: ast.expr, key: str) -> Advice | None:
        """Advise on a name that is each character of a text, and is taken for an object."""
        for bound in self._bound_of(base):
            values = self.values(bound.of) if isinstance(bound, Part) else []
            if isinstance(bound, Part) and values and all(isinstance(each, str) for each in values):
                of = self.text(bound.of)
                about = f"`{of}` is text, and `for {bound.target} in {of}` gives its characters"
                heads = [
                    each.lstrip().partition("\n")[0].strip().split(",") for each in values if isinstance(each, str)
                ]
                if all(key in head for head in heads):
                    new = f"for {bound.target} in csv.DictReader({of}.splitlines())"
                    return Advice(f"{about}: {instead(f'for {bound.target} in {of}', new)}", is_certain=True)
                return Advice(f"{about}: `{of}.splitlines()` gives its lines, which have no keys")
        return None

    def _of_keys(self, base: ast.expr) -> Advice | None:
        """Advise on a name that is each key of a dict, and is taken for what is in a list in it."""
        for bound in self._bound_of(base):
            if not isinstance(bound, Part):
                continue
            is_numbered = isinstance(bound.of, ast.Call) and ast.unparse(bound.of.func) == "enumerate" and bound.at == 1
            source = bound.of.args[0] if isinstance(bound.of, ast.Call) and is_numbered and bound.of.args else bound.of
            values, of = self.values(source), self.text(source)
            if bound.at < 0 or is_numbered:
                if values and all(isinstance(each, dict) for each in values):
                    return self._of_key_of(bound.target, of, values, is_numbered=is_numbered)
            elif values and bound.at == 1 and self._items_are_objects(values):
                new = f"enumerate({of})"
                about = f"each of `{of}` is one object, and no pair"
                return Advice(f"{about}: {instead(f'in {of}', f'in {new}')}", is_certain=True)
        return None

    @staticmethod
    def _items_are_objects(values: Sequence[JSONValue]) -> bool:
        rows = [row for each in values if isinstance(each, list) for row in each]
        return bool(rows) and all(isinstance(row, dict) for row in rows)

    def _of_key_of(self, target: str, of: str, values: Sequence[JSONValue], *, is_numbered: bool) -> Advice:
        listed = only_list(values) or named_list([each for each in values if isinstance(each, dict)], of)
        if not listed:
            about = f"`for {target} in {of}` gives its keys, `{of}.values()` what they have"
            return Advice(f"`{of}` is a dict with {shown_keys(values)}: {about}")
        old = f"enumerate({of})" if is_numbered else f"for {target} in {of}"
        new = f'enumerate({of}["{listed}"])' if is_numbered else f'{old}["{listed}"]'
        return Advice(f"`{of}` is a dict, and the list is in `{listed}`: {instead(old, new)}", is_certain=True)

    def _is_iterated(self, node: ast.AST, above: ast.AST | None) -> bool:
        if isinstance(above, ast.For | ast.AsyncFor | ast.comprehension):
            return above.iter is node
        is_call = isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id in _AS_LIST
        return is_call or isinstance(above, ast.Subscript | ast.Starred)
