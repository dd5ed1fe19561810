"""What the names of a JavaScript program are bound to, and its chains of reads, as `page.items[0].id`.

There is no parser of JavaScript here: chains are found in the text, and names are known where they are bound in one of
the usual ways. Nothing is said of any other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from toolexec.code.repair.source import ends_of, split

NAME: Final = r"[A-Za-z_$][\w$]*"
_ROOT: Final = re.compile(rf"(?:(?<![\w$.])|(?<=\.\.\.))(?:\(\s*await\s+|await\s+)?({NAME})")
_KEY: Final = re.compile(rf"\s*\??\.\s*({NAME})|(?:\?\.)?\[\s*(?:(\d+)|(['\"])([^'\"\n]*)\3)\s*\]")
_BINDING: Final = re.compile(
    rf"(?:\b(?:const|let|var)\s+)?(?<![\w$.])({NAME})(?:\s*:\s*[\w$<>\[\]., ]+?)?\s*=(?![=>])\s*"
)
PATTERN: Final = re.compile(r"\b(?:const|let|var)\s*(?:\{([^{}=]*)\}|\[([^\[\]=]*)\])\s*=\s*")
FOR: Final = re.compile(
    rf"\bfor\s*(?:await\s*)?\(\s*(?:const|let|var)\s+({NAME}|\{{[^{{}}]*\}}|\[[^\[\]]*\])\s+(of|in)\s+"
)
_TAKES_EACH: Final = re.compile(
    rf"\s*\.(map|filter|forEach|find|some|every|flatMap|findIndex|findLast|reduce|then|sort|toSorted)\(\s*(?:async\s*)?(?:\(([^()]*)\)|({NAME}))\s*=>"
)
_FUNCTION: Final = re.compile(
    rf"\bfunction\s*({NAME})?\s*\(([^()]*)\)(?:\s*:\s*[^{{\n]+?)?(?=\s*\{{)"
    rf"|\b(?:const|let|var)\s+({NAME})\s*=\s*(?:async\s*)?(?:\(([^()]*)\)|({NAME}))\s*=>"
)
_ARROW: Final = re.compile(rf"(?:async\b|\([^()]*\)\s*=>|{NAME}\s*=>|function\b)")
_OPENED: Final = re.compile(r"\b(?:const|let|var)\s*(?=[{\[])")
_RETURN: Final = re.compile(r"\breturn\s+(?=[\w(])")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_EMPTY: Final = re.compile(r"(?:null|undefined|\[\s*\]|\{\s*\}|''|\"\"|\d+|true|false)\s*(?=[;,\n)]|$)")
_PLACE: Final = re.compile(r"((?:\{[^{}]*\}|\[[^\[\]]*\]|[^,{}\[\]])*),")
_MOST_CHAINS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Step:
    """A read of a key or a place, or a call with what is in its brackets; `end` is where it ends in the text."""

    key: str | int | None
    inner: str
    end: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A root with the steps behind it; the root's text is from `start` to `end`."""

    root: str
    start: int
    end: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """What a name was bound to: a chain, or each of its items, and then what these keys lead to. It holds from `start`
    to `end` in the text."""

    chain: Chain | None
    path: tuple[str | int, ...] = ()
    each: bool = False
    start: int = 0
    end: int = sys.maxsize


class JavaScriptNames:
    """A program with what its names are bound to."""

    def __init__(self, code: str) -> None:
        self._code = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), code)
        self._names: dict[str, list[Bound]] = {}
        self._returned: dict[str, Chain] = {}
        self._ends = ends_of(self._code)
        self._at = 0
        self._bind()

    def bound(self, name: str, at: int) -> list[Bound]:
        """Return what a name is bound to where it stands: by the innermost function that has it."""
        found = [each for each in self._names.get(name, ()) if each.start <= at < each.end]
        within = min((each.end - each.start for each in found), default=0)
        return [each for each in found if each.end - each.start == within]

    def is_whole(self, chain: Chain) -> bool:
        """Return whether a chain goes to the end of the text."""
        return (chain.steps[-1].end if chain.steps else chain.end) == len(self._code)

    def is_bound(self, name: str) -> bool:
        """Return whether a name is bound to a value, and to no function of the program."""
        return name in self._names and name not in self._returned

    def _bind(self) -> None:
        code = self._code
        for found in _BINDING.finditer(code):
            if _EMPTY.match(code, found.end()):
                self._names.setdefault(found[1], [])
            elif not _ARROW.match(code, found.end()):
                self._add(found[1], Bound(self._chain(found.end())))
        for found in _OPENED.finditer(code):
            end = self._ends.get(found.end(), 0)
            value = re.compile(r"\s*=\s*").match(code, end) if end else None
            chain = self._chain(value.end()) if value is not None else None
            if chain is not None:
                self._take(code[found.end() : end], Bound(chain))
        for found in FOR.finditer(code):
            chain = self._chain(found.end())
            if chain is not None:
                self._take(found[1], Bound(chain if found[2] == "of" else None, each=True))
        self._bind_functions()
        self._bind_arguments()

    def _bind_functions(self) -> None:
        """Take the arguments of the program's own functions for what they are called with, and know what those give
        that have one value."""
        for found in _FUNCTION.finditer(self._code):
            name, given = found[1] or found[3], split(found[2] or found[4] or found[5] or "")
            body = re.compile(r"\s*").match(self._code, found.end())
            start = body.end() if body is not None else found.end()
            is_block = self._code.startswith("{", start)
            end = self._ends.get(start, 0) if is_block else self._end_of_line(start)
            end = end or len(self._code)
            returned = [*_RETURN.finditer(self._code, start, end)] if is_block else []
            value = (
                self._chain(returned[0].end() if returned else start) if len(returned) == 1 or not is_block else None
            )
            if name and value is not None:
                self._returned[name] = value
            calls = [*re.finditer(rf"(?<![\w$.]){re.escape(name)}(?=\()", self._code)] if name else []
            calls = [each for each in calls if not self._code[: each.start()].rstrip().endswith("function")]
            for number, each in enumerate(given):
                target = each.partition("=")[0].strip()
                held = [self._argument(call.end(), number) for call in calls] or [None]
                for chain in held:
                    self._take(target, Bound(chain, start=start, end=end))

    def _end_of_line(self, start: int) -> int:
        """Return where an expression ends: at the first line end, comma or closing bracket that is not inside of it."""
        at = start
        while at < len(self._code) and self._code[at] not in "\n;,)]}":
            at = self._ends.get(at, at + 1) if self._code[at] in "([{" else at + 1
        return at

    def _argument(self, opened: int, number: int) -> Chain | None:
        """Return an argument of a call; None where it is not a chain alone."""
        end = self._ends.get(opened, 0)
        given = split(self._code[opened + 1 : end - 1]) if end else []
        start = self._code.find(given[number], opened + 1) if number < len(given) else -1
        chain = self._chain(start) if start >= 0 else None
        last = (chain.steps[-1].end if chain.steps else chain.end) if chain is not None else -1
        return chain if chain is not None and last == start + len(given[number]) else None

    def _bind_arguments(self) -> None:
        for chain in [*self._chains()]:
            for number in range(len(chain.steps)):
                before = chain.steps[number - 1].end if number else chain.end
                found = _TAKES_EACH.match(self._code, before)
                if found is None:
                    continue
                of = Chain(chain.root, chain.start, chain.end, chain.steps[:number])
                given = split(found[2] or found[3] or "")
                is_fold = found[1] == "reduce"
                places = (0, 1) if found[1] in ("sort", "toSorted") else (1,) if is_fold else (0,)
                opened = self._code.index("(", found.start())
                end = self._ends.get(opened, len(self._code))
                if is_fold and len(split(self._code[opened + 1 : end - 1])) == 1:
                    places = (0, 1)
                for at in places:
                    if len(given) > at:
                        self._take(given[at], Bound(of, each=found[1] != "then", start=opened, end=end))

    def _take(self, target: str, of: Bound) -> None:
        """Take a name, or the names of a pattern, for what there is of it."""
        target = target.strip()
        if re.fullmatch(NAME, target):
            self._add(target, of)
        elif target[:1] in ("{", "["):
            for number, part in enumerate(split(target[1:-1]) if target[0] == "{" else _parts(target[1:-1])):
                key, inner = self._keyed(part) if target[0] == "{" else (number, part)
                inner = re.split(r"\s*=(?![=>])", inner, maxsplit=1)[0]
                if key != "" and inner and not inner.startswith("..."):
                    self._take(inner, replace(of, path=(*of.path, key)))

    @staticmethod
    def _keyed(part: str) -> tuple[str, str]:
        found = re.match(rf"(['\"]?)({NAME}|[\w-]+)\1\s*(?::\s*(.+))?", part, re.DOTALL)
        return (found[2], found[3] or found[2]) if found is not None else ("", "")

    def _add(self, name: str, bound: Bound) -> None:
        self._names.setdefault(name, []).append(bound)

    def _chain(self, start: int) -> Chain | None:
        """Return the chain that begins at *start*."""
        found = _ROOT.match(self._code, start)
        if found is None:
            return None
        steps: list[Step] = []
        at = found.end()
        is_open = found[0].startswith("(")
        while at < len(self._code):
            if is_open and (closed := re.compile(r"\s*\)").match(self._code, at)):
                at, is_open = closed.end(), False
                steps.append(Step(None, "", at))
            elif self._code[at] == "(":
                end = self._ends.get(at, 0)
                if not end:
                    break
                steps.append(Step(None, self._code[at + 1 : end - 1], end))
                at = end
            elif key := _KEY.match(self._code, at):
                at = key.end()
                steps.append(Step(int(key[2]) if key[2] else key[1] or key[4], "", at))
            else:
                break
        return Chain(found[1], start, found.end(), tuple(steps))

    def _chains(self, *, with_names: bool = False) -> Iterator[Chain]:
        for found in islice(_ROOT.finditer(self._code), _MOST_CHAINS):
            chain = self._chain(found.start())
            if chain is not None and (chain.steps or with_names):
                yield chain


def _parts(text: str) -> list[str]:
    """Return the places of a pattern for an array, of which some may be empty."""
    return [each.strip() for each in _PLACE.findall(f"{text},")]
