"""What became of wrong programs: whether they fail, whether their messages name the fix, and whether these mislead."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.mutants import calls, javascript, python, reads
from benchmarks.mutants.model import Mutant, Right, mutants_of, rights
from benchmarks.repair import add_tools, judge, programs
from benchmarks.repair_sets import BLIND
from toolexec import Exec

WAYS: Final = (calls, javascript, python, reads)
"""The modules that have the ways to make programs wrong."""

SETS: Final[Sequence[tuple[str, ...]]] = (("kept", "ways", "later"), *((name,) for name in BLIND))
"""The files of programs, those together that call the same tools."""


@dataclass(frozen=True, slots=True)
class Fate:
    """A wrong program that failed, or had nothing where its right one has a value: whether its message `named` the
    fix, and whether it `misled`: what was written as it says ran, and has another value."""

    mutant: Mutant
    named: bool
    misled: bool
    message: str


@dataclass(frozen=True, slots=True)
class Tally:
    """Of one way to make programs wrong: how many failed, how many messages named the fix, how many misled."""

    failed: int
    named: int
    misled: int

    @property
    def share(self) -> float:
        """The share of the messages that named the fix."""
        return self.named / self.failed if self.failed else 1.0


async def fates(
    names: Iterable[tuple[str, ...]] = SETS, *, each: int = 1, every: int = 1, first: int = 0
) -> list[Fate]:
    """Make the right programs of these sets wrong, at most *each* times in every way, and run each that comes of every
    *every*th of them, from the *first* on."""
    found: list[Fate] = []
    for of in names:
        async with Exec() as ex:
            BLIND.get(of[0], add_tools)(ex)
            right = [one for name in of for one in programs(name)[first::every]]
            for one in await rights(ex, right):
                found += [fate async for fate in _fates_of(ex, one, each)]
    return found


async def _fates_of(ex: Exec, right: Right, each: int) -> AsyncIterator[Fate]:
    for mutant in mutants_of(right, each):
        outcome = await judge(ex, mutant.program)
        if not outcome.failed and _nothings(outcome.value) <= _nothings(right.program.value):
            continue
        named = outcome.fixed or any(_has(outcome.message, name) for name in mutant.names)
        yield Fate(mutant, named, outcome.misled, outcome.message)


def _nothings(value: object) -> int:
    """Return how much of a value is nothing."""
    if isinstance(value, dict):
        return sum(map(_nothings, value.values())) + (not value)
    if isinstance(value, list):
        return sum(map(_nothings, value)) + (not value)
    return (
        value is None
        or value == ""
        or (isinstance(value, str) and re.search(r"\b(?:undefined|NaN|None)\b", value) is not None)
    )


def _has(message: str, name: str) -> bool:
    if name == "":
        return False
    before, after = (r"(?<!\w)" if name[0].isalnum() else ""), (r"(?!\w)" if name[-1].isalnum() else "")
    return re.search(before + re.escape(name) + after, message) is not None


def tallies(found: Iterable[Fate]) -> Iterator[tuple[str, str, Tally]]:
    """Yield each language, way to make programs wrong, and what became of those, the worst first."""
    by_way: dict[tuple[str, str], list[Fate]] = {}
    for fate in found:
        language = "python" if fate.mutant.program.language == "python" else "javascript"
        by_way.setdefault((language, fate.mutant.operator), []).append(fate)
    rows = [
        (language, name, Tally(len(of), sum(one.named for one in of), sum(one.misled for one in of)))
        for (language, name), of in by_way.items()
    ]
    yield from sorted(rows, key=lambda row: (row[0], row[2].named - row[2].failed))
