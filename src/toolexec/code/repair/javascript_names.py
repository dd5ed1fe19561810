"""What the names of a JavaScript program are bound to, and its chains of reads, as `page.items[0].id`.

There is no parser of JavaScript here: chains are found in the text, and names are known where they are bound in one of
the usual ways. Nothing is said of any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from toolexec.code.repair.source import ends_of, split

__all__ = ["FOR", "NAME", "PATTERN", "Bound", "Chain", "JavaScriptNames", "Step"]

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
    rf"\.(map|filter|forEach|find|some|every|flatMap|findIndex|reduce)\(\s*(?:async\s*)?(?:\(([^()]*)\)|({NAME}))\s*=>"
)
_FUNCTION: Final = re.compile(rf"\bfunction\s*(?:{NAME})?\s*\(([^()]*)\)")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_EMPTY: Final = re.compile(r"(?:null|undefined|\[\s*\]|\{\s*\}|''|\"\"|\d+|true|false)\s*(?=[;,\n)]|$)")
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
    """What a name was bound to: a chain, and then a key of it, each of its items, or the keys of them."""

    chain: Chain
    key: str | int | None = None
    each: bool = False


class JavaScriptNames:
    """A program with what its names are bound to."""

    def __init__(self, code: str) -> None:
        self._code = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), code)
        self._names: dict[str, list[Bound | None]] = {}
        self._ends = ends_of(self._code)
        self._bind()

    def _bind(self) -> None:
        code = self._code
        for found in _BINDING.finditer(code):
            if _EMPTY.match(code, found.end()):
                self._names.setdefault(found[1], [])
                continue
            chain = self._chain(found.end())
            self._add(found[1], Bound(chain) if chain is not None else None)
        for found in PATTERN.finditer(code):
            chain = self._chain(found.end())
            if chain is None:
                continue
            for number, part in enumerate((found[1] or found[2]).split(",")):
                key, _, name = (each.strip() for each in part.partition(":"))
                if key and found[1] is not None and not key.startswith("..."):
                    self._add(name or key, Bound(chain, key))
                elif key and found[2] is not None:
                    self._add(key, Bound(chain, number))
        for found in FOR.finditer(code):
            chain = self._chain(found.end())
            if chain is not None:
                self._take(found[1], chain if found[2] == "of" else None)
        for found in _FUNCTION.finditer(code):
            for name in re.findall(NAME, found[1]):
                self._add(name, None)
        self._bind_arguments()

    def _bind_arguments(self) -> None:
        for chain in [*self._chains()]:
            for number in range(len(chain.steps)):
                before = chain.steps[number - 1].end if number else chain.end
                found = _TAKES_EACH.match(self._code, before)
                if found is None:
                    continue
                of = Chain(chain.root, chain.start, chain.end, chain.steps[:number])
                given = split(found[2] or found[3] or "")
                at = 1 if found[1] == "reduce" else 0
                if len(given) > at:
                    self._take(given[at], of)

    def _take(self, target: str, of: Chain | None) -> None:
        """Take a name, or the names of a pattern, for each item of a chain, or parts of it."""
        if re.fullmatch(NAME, target):
            self._add(target, Bound(of, each=True) if of is not None else None)
            return
        for number, part in enumerate(target[1:-1].split(",")):
            key, _, name = (each.strip() for each in part.partition(":"))
            if re.fullmatch(NAME, name or key):
                self._add(name or key, Bound(of, number if target[0] == "[" else key, True) if of is not None else None)

    def _add(self, name: str, bound: Bound | None) -> None:
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

    def _chains(self) -> Iterator[Chain]:
        for found in islice(_ROOT.finditer(self._code), _MOST_CHAINS):
            chain = self._chain(found.start())
            if chain is not None and chain.steps:
                yield chain
