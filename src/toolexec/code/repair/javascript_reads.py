"""What the reads of a JavaScript program that find nothing stand for, by the results of the calls of the run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from toolexec.code.repair.javascript_names import FOR, NAME, PATTERN, Chain, Step
from toolexec.code.repair.javascript_program import JavaScriptProgram
from toolexec.code.repair.near_keys import is_item_of, path_to
from toolexec.code.repair.shapes import WRAPPERS, Advice, Read, named_list, nouns_of, only_list, what_to_write
from toolexec.code.repair.shown import kind_of, shown_keys
from toolexec.code.repair.source import instead
from toolexec.code.repair.tables import place_of
from toolexec.code.repair.times import time_as_text
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_OPERAND: Final = re.compile(r"(?:[-+*/]=?|\bNumber\(|\bparseFloat\(|\bnew Date\()\s*(?=[A-Za-z_$])(?!new\b)")
_NO_KEYS: Final = re.compile(r"` is (?:text|a number|a truth value), such as")
_AT_LENGTH: Final = re.compile(r"(?<![\w$.])([A-Za-z_$][\w$]*(?:\.\w+)*)\[\1\.length\](?!\s*=(?!=))")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_MOST_CHAINS: Final = 2_000


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_PYTHON: Final = {"items": "Object.entries", "keys": "Object.keys", "values": "Object.values"}
_OF_LISTS: Final = _names(
    "map filter forEach find some every flatMap findIndex reduce length slice join sort concat includes indexOf "
    "at push pop shift flat entries keys values"
)
_TAKING_EACH: Final = _names("map filter forEach find some every flatMap reduce")
_OF_TEXT: Final = _names(
    "length charAt charCodeAt codePointAt concat endsWith includes indexOf lastIndexOf match matchAll normalize "
    "padEnd padStart repeat replace replaceAll search slice split startsWith substring substr toLowerCase "
    "toUpperCase trim trimEnd trimStart at localeCompare"
)
_OF_ALL: Final = _names("toString toFixed toPrecision toLocaleString valueOf hasOwnProperty constructor then")
_METHODS: Final = _names(
    "reverse splice unshift findLast findLastIndex reduceRight fill copyWithin lastIndexOf toSorted toReversed with"
)


def about_javascript_reads(code: str, line: int, tools: Tools) -> str:
    """Return what to write for the first read of the line, and else of *code*, that finds nothing; "" where none is
    known."""
    program = _Reads(code, tools)
    found = [(at, advice) for at, advice in program.advices()]
    here = [advice for at, advice in found if at == line]
    certain = [advice for _, advice in found if advice.is_certain]
    return next((advice.text for advice in (*here, *certain, *(advice for _, advice in found))), "")


def about_not_a_number(code: str, tools: Tools) -> str:
    """Return what to write for an operand that is not a number, where a value is not one; "" where none is known."""
    program = _Reads(code, tools)
    for text, values in program.operands():
        of = f"`{text}` is {kind_of(values[0])}" if values else ""
        if values and all(isinstance(each, str) and _NUMBER.fullmatch(each) for each in values):
            return f"{of}: {instead(text, f'Number({text})')}" if not text.isidentifier() else f"{of}: `Number({text})`"
        objects = [each for each in values if isinstance(each, dict)]
        if objects and len(objects) == len(values):
            keys = [key for key, part in objects[0].items() if isinstance(part, int | float) or time_as_text([part])]
            return f"{of}: {instead(text, f'{text}.{keys[0]}')}" if len(keys) == 1 else of
    return next((advice.text for _, advice in program.advices()), "")


def javascript_advice(code: str, tools: Tools, *, is_empty: bool = False) -> list[str]:
    """Return what to write for each read of *code* that certainly means another, and gave undefined; with *is_empty*
    for those of text and numbers, too."""
    found = (advice for _, advice in _Reads(code, tools).advices())
    return [
        each.text
        for each in found
        if each.is_certain
        or (is_empty and _NO_KEYS.search(each.text))
        or (" has no `" in each.text and " instead of " in each.text)
    ]


class _Reads(JavaScriptProgram):
    """A program with what to say of its reads."""

    def __init__(self, code: str, tools: Tools) -> None:
        super().__init__(code, tools)
        self._nouns = nouns_of(tools)

    def operands(self) -> Iterator[tuple[str, list[JSONValue]]]:
        """Yield each chain that an operation on numbers or times takes, with the values that it has had."""
        for found in islice(_OPERAND.finditer(self._code), _MOST_CHAINS):
            chain = self._chain(found.end())
            if chain is not None:
                end = chain.steps[-1].end if chain.steps else chain.end
                yield self._code[chain.start : end].strip(), self.values(chain)

    def advices(self) -> Iterator[tuple[int, Advice]]:
        """Yield what to say of each read that finds nothing, with its line."""
        yield from self._of_patterns()
        for chain in self._chains():
            skipped = chain.root == "tools"
            for number, step in enumerate(chain.steps):
                if skipped:
                    skipped = step.key is not None
                    continue
                if step.key is None:
                    continue
                base = Chain(chain.root, chain.start, chain.end, chain.steps[:number])
                values = self.values(base)
                if values and (advice := self._about(chain, number, values)):
                    yield self._code.count("\n", 0, step.end) + 1, advice
                if values and advice_needed(values, step.key):
                    break
        yield from self._of_ends()
        yield from self._of_loops()

    def _about(self, chain: Chain, number: int, values: list[JSONValue]) -> Advice | None:
        step = chain.steps[number]
        begin = self._code.find(chain.root, chain.start)
        start = chain.start if self._code[chain.start] == "(" else begin
        end = chain.steps[number - 1].end if number else chain.end
        base, whole = self._code[start:end], self._code[start : step.end]
        objects = [each for each in values if isinstance(each, dict)]
        if len(objects) == len(values) and (
            isinstance(step.key, int) or step.key in _OF_LISTS or self._is_of_python(chain, number)
        ):
            listed = only_list(objects) or named_list(objects, base.strip())
            if isinstance(step.key, str) and any(step.key in each for each in objects):
                return None
            if isinstance(step.key, str) and self._is_of_python(chain, number):
                called = self._code[start : step.end + 2]
                new = f"{_OF_PYTHON[step.key]}({base})"
                return Advice(f"an object has no `{step.key}()` in JavaScript: {instead(called, new)}", True)
            after = chain.steps[number + 1].key if number + 1 < len(chain.steps) else None
            if isinstance(step.key, int) and all(after in each for each in objects):
                written = self._code[start : chain.steps[number + 1].end]
                new = base + written.removeprefix(whole)
                return Advice(f"`{base}` is one object, and no array: {instead(written, new)}", True)
            if not listed:
                about = f"`{base}` is an object with {shown_keys(objects)}, and no array"
                new = f"Object.values({base}){whole.removeprefix(base)}"
                holds_lists = any(isinstance(part, list) for each in objects for part in each.values())
                if holds_lists:
                    return Advice(f"`{base}` is an object with {shown_keys(objects)}: take the array from it")
                return Advice(f"{about}: {instead(whole, new)}") if step.key in _TAKING_EACH else None
            new = f"{base}.{listed}{whole.removeprefix(base)}"
            return Advice(f"`{base}` is an object, and the list is in `{listed}`: {instead(whole, new)}", True)
        if any(each.key in ("find", "filter") for each in chain.steps[:number]):
            values = [each for each in values if each is not None] or values  # it was looked at
        is_mixed = None in values and any(each is not None for each in values)
        if is_mixed and isinstance(step.key, str) and advice_needed([each for each in values if each], step.key):
            values, is_mixed = [each for each in values if each is not None], False
        has_objects = any(
            isinstance(each, dict) for each in values
        )  # what a plain value is then, only its reader knows
        if isinstance(step.key, str) and is_mixed and has_objects and "?" not in whole.removeprefix(base):
            new = f"{base}?{whole.removeprefix(base)}"
            return Advice(f"`{base}` is null in {values.count(None)} of {len(values)}: {instead(whole, new)}")
        if not isinstance(step.key, str) or not advice_needed(values, step.key):
            return None
        after = chain.steps[number + 1 : number + 2]
        key = after[0].key if after else None
        used = isinstance(key, int) or key in _OF_LISTS or self._is_iterated(start, step.end)
        later = (key,) if isinstance(key, str) and key not in _OF_LISTS else ()
        if not after and (made := re.search(rf"({NAME})\s*=\s*$", self._code[:start])):
            read = re.findall(rf"(?<![\w$.]){re.escape(made[1])}\??\.({NAME})", self._code)
            later = tuple(each for each in dict.fromkeys(read) if each not in _OF_LISTS | _OF_TEXT)
        elif not after and (taken := re.search(r"\{([^{}=]*)\}\s*=\s*(?:await\s*)?$", self._code[:start])):
            later = tuple(each.partition(":")[0].strip() for each in taken[1].split(",") if each.strip())
        last = number
        while last + 1 < len(chain.steps) and _is_around(chain.steps[last + 1].key):
            last += 1
        tail = self._code[start : chain.steps[last].end] if step.key in WRAPPERS and last > number else ""
        is_part = number > 0 or any(each.each or each.path for each in self.bound(chain.root, chain.start))
        is_part = is_part and chain.root != "tools"
        if number == 0 and all(isinstance(each, str) for each in values):
            bound = [each.chain for each in self.bound(chain.root, chain.start) if each.chain is not None and each.each]
            lists = {self._code[each.start : each.steps[-1].end if each.steps else each.end] for each in bound}
            if len(lists) == 1 and is_item_of(step.key, lists.copy().pop()):
                return Advice(f"`{base}` is text, one of `{lists.pop()}`: {instead(whole, base)}", True)
        place = place_of(step.key, values, self._tools)
        read = Read(base, step.key, whole, values, later, used, tail, self._nouns, is_part, place=place)
        return what_to_write(read, "javascript")

    @staticmethod
    def _is_of_python(chain: Chain, number: int) -> bool:
        """Return whether a step is a call without arguments of a method that dicts of Python have."""
        step = chain.steps[number]
        return step.key in _OF_PYTHON and chain.steps[number + 1 : number + 2] == (Step(None, "", step.end + 2),)

    def _is_iterated(self, start: int, end: int) -> bool:
        before, behind = self._code[:start].rstrip(), self._code[end:].lstrip()
        return before.endswith("...") or (before.endswith(" of") and behind.startswith(")"))

    def _of_patterns(self) -> Iterator[tuple[int, Advice]]:
        """Advise on keys that are taken out of an object that has none of them."""
        for found in PATTERN.finditer(self._code):
            chain = self._chain(found.end())
            values = self.values(chain) if chain is not None else []
            if found[2] is not None and values and all(isinstance(value, dict) for value in values):
                yield self._of_array_pattern(found, values)
            names = [each.strip() for each in (found[1] or "").split(",") if each.strip()]
            for each in names:
                key, _, name = (part.strip() for part in each.partition(":"))
                line = self._code.count("\n", 0, found.start()) + 1
                if values and not any(isinstance(value, dict) for value in values) and len(names) == 1:
                    old = re.search(r"\{[^{}]*\}", found[0])
                    if old is not None and not (isinstance(values[0], list | str) and key in _OF_LISTS | _OF_TEXT):
                        yield line, Advice(f"the result is a value already: {instead(old[0], name or key)}", True)
                elif values and all(isinstance(value, dict) and key not in value for value in values):
                    if key in WRAPPERS and len(names) == 1:
                        pattern = re.search(r"\{[^{}]*\}", found[0])
                        if pattern is not None:
                            about = "the result is a value already"
                            yield line, Advice(f"{about}: {instead(pattern[0], name or key)}", True)
                            continue
                    used = re.search(
                        rf"(?<![\w$.]){re.escape(name or key)}\s*\.\s*({'|'.join(_OF_LISTS)})\b", self._code
                    )
                    listed = only_list(values)
                    path = path_to(key, [value for value in values if isinstance(value, dict)])
                    old = re.search(r"\{[^{}]*\}", found[0])
                    if path and path[-1] == key and old is not None:
                        inner = each
                        for above in reversed(path[:-1]):
                            inner = f"{above}: {{ {inner} }}"
                        taken = [inner if other == each else other for other in names]
                        new = f"{{ {', '.join(taken)} }}"
                        yield (
                            line,
                            Advice(f"`{key}` is in `{'.'.join(path[:-1])}`: {instead(old[0], new)}", len(path) == 2),
                        )
                    elif used is not None and listed:
                        taken = [f"{listed}: {name or key}" if other == each else other for other in names]
                        shown = f"{{ {', '.join(taken)} }}"
                        old = re.search(r"\{[^{}]*\}", found[0])
                        if old is not None:
                            yield (
                                line,
                                Advice(
                                    f"there is no `{key}`; the list is in `{listed}`: {instead(old[0], shown)}", True
                                ),
                            )

    def _of_array_pattern(self, found: re.Match[str], values: list[JSONValue]) -> tuple[int, Advice]:
        """Advise on an object that is taken apart like an array."""
        taken, old = [each.strip() for each in found[2].split(",")], f"[{found[2]}]"
        is_key = all(isinstance(value, dict) and each in value for value in values for each in taken)
        listed = only_list(values)
        new = f"{{ {', '.join(taken)} }}" if is_key else f"{{ {listed}: {old} }}" if listed else ""
        about = f"this is an object with {shown_keys(values)}, and no array"
        line = self._code.count("\n", 0, found.start()) + 1
        return line, Advice(f"{about}: {instead(old, new)}" if new else about, bool(new))

    def _of_ends(self) -> Iterator[tuple[int, Advice]]:
        """Advise on a list that is read at its length, where nothing is."""
        for found in islice(_AT_LENGTH.finditer(self._code), _MOST_CHAINS):
            new = f"{found[1]}[{found[1]}.length - 1]"
            about = f"the last of `{found[1]}` is at its length less one: {instead(found[0], new)}"
            yield self._code.count("\n", 0, found.start()) + 1, Advice(about, True)

    def _of_loops(self) -> Iterator[tuple[int, Advice]]:
        """Advise on loops over the numbers of a list, and over an object as if it were a list."""
        for found in FOR.finditer(self._code):
            chain = self._chain(found.end())
            values = self.values(chain) if chain is not None else []
            if chain is None or not values:
                continue
            end = chain.steps[-1].end if chain.steps else chain.end
            text = self._code[found.end() : end]
            line = self._code.count("\n", 0, found.start()) + 1
            is_list = all(isinstance(each, list) for each in values)
            is_pair = found[1].startswith("[")
            if is_pair and found[2] == "of" and all(isinstance(each, dict) for each in values):
                old = f"{found[1]} of {text}"
                new = f"{found[1]} of Object.entries({text})"
                yield line, Advice(f"`{text}` is an object with {shown_keys(values)}: {instead(old, new)}", True)
            elif found[2] == "in" and is_list and self._is_taken_for_item(found[1], self._code[end:]):
                old = f"{found[1]} in {text}"
                yield line, Advice(f"`in` gives the numbers of a list: {instead(old, f'{found[1]} of {text}')}", True)
            elif found[2] == "of" and all(isinstance(each, dict) for each in values) and (listed := only_list(values)):
                old = f"{found[1]} of {text}"
                yield line, Advice(f"the list is in `{listed}`: {instead(old, f'{old}.{listed}')}", True)

    def _is_taken_for_item(self, name: str, code: str) -> bool:
        """Return whether something is read from a name, or an object of the program has it as a key."""
        name = re.escape(name)
        if re.search(rf"(?<![\w$.\[]){name}\.{NAME}", code):
            return True
        holders = {found[1] for found in re.finditer(rf"(?<![\w$.])({NAME})\[{name}\]", code)}
        return bool(holders) and all(re.search(rf"\b{re.escape(each)}\s*=\s*\{{", self._code) for each in holders)


def _is_around(key: str | int | None) -> bool:
    return isinstance(key, int) or key in WRAPPERS or key == "text"


def advice_needed(values: list[JSONValue], key: str | int) -> bool:
    """Return whether none of these values has this key."""
    if not isinstance(key, str) or key in _OF_ALL:
        return False
    for value in values:
        if isinstance(value, dict) and key in value:
            return False
        if (isinstance(value, list) and key in _OF_LISTS) or (isinstance(value, str) and key in _OF_TEXT):
            return False
        if isinstance(value, list) and re.fullmatch(r"[a-z]+(?:[A-Z]\w*)?", key) and key in _METHODS:
            return False
    return True
