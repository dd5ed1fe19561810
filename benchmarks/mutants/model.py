"""A right program with what its calls gave, the ways to make it wrong, and the wrong programs that come of them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.repair import Program
from toolexec import Exec
from toolexec.model.json_value import JSONValue


@dataclass(frozen=True, slots=True)
class Right:
    """A program that has its value, with each key of its results and a value of it, what each tool gave, and their
    schemas."""

    program: Program
    keys: Mapping[str, JSONValue]
    by_tool: Mapping[str, JSONValue]
    schemas: Mapping[str, Mapping[str, Any]]

    @property
    def code(self) -> str:
        """Its text."""
        return self.program.code

    @property
    def is_python(self) -> bool:
        """Whether it is no JavaScript."""
        return self.program.language == "python"


@dataclass(frozen=True, slots=True)
class Change:
    """What stands from `start` to `end` is replaced by `new`; a message names the fix that has one of `names`."""

    start: int
    end: int
    new: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong program, the name of the way in which it was made so, and what its message has to have one of."""

    operator: str
    program: Program
    names: tuple[str, ...]


Mutate = Callable[[Right], Iterable[Change]]
OPERATORS: Final[dict[str, tuple[frozenset[str], Mutate]]] = {}
"""Name of a way to make a program wrong → its languages, and what yields the changes."""


def operator(*languages: str) -> Callable[[Mutate], Mutate]:
    """Add a function to the ways, by its name; without *languages* for all."""

    def add(function: Mutate) -> Mutate:
        OPERATORS[function.__name__] = (frozenset(languages), function)
        return function

    return add


def change(found: re.Match[str], new: str, *names: str, group: int = 0) -> Change:
    """Return the change of a match, or of a group of it."""
    return Change(found.start(group), found.end(group), new, names or (found[group],))


def changes(right: Right, pattern: str, new: str, *names: str) -> Iterator[Change]:
    """Yield a change of each place that a pattern finds, with *new* as its template, as *names* are."""
    for found in re.finditer(pattern, right.code, re.MULTILINE):
        yield change(found, found.expand(new), *(found.expand(each) for each in names))


def mutants_of(right: Right, each: int = 1) -> Iterator[Mutant]:
    """Yield at most *each* mutants of every operator, at places that depend on the program's name alone."""
    language = "python" if right.is_python else "javascript"
    for name, (languages, mutate) in OPERATORS.items():
        if languages and language not in languages:
            continue
        found = [one for one in mutate(right) if right.code[one.start : one.end] != one.new]
        first = zlib.crc32(f"{right.program.name}:{name}".encode())
        for number in range(min(each, len(found))):
            one = found[(first + number) % len(found)]
            code = right.code[: one.start] + one.new + right.code[one.end :]
            program = replace(right.program, name=f"{right.program.name}-{name}-{number}", code=code)
            yield Mutant(name, program, one.names)


async def rights(ex: Exec, programs: Iterable[Program]) -> list[Right]:
    """Return those programs that have their value at once, and call a tool."""
    found: list[Right] = []
    for program in programs:
        result = await ex.execute_code(program.code, language=program.language)
        if result.error is not None or result.value != program.value or not result.tool_calls:
            continue
        by_tool = {call.tool_id: call.value for call in result.tool_calls if call.error is None}
        values = [call.value for call in result.tool_calls if call.error is None]
        schemas = {call.tool_id: _schema_of(ex, call.tool_id) for call in result.tool_calls}
        found.append(Right(program, dict(_keys(values)), by_tool, schemas))
    return found


def _schema_of(ex: Exec, tool_id: str) -> Mapping[str, Any]:
    entry = ex.visible()[0].find(tool_id)
    schema = entry.tool.input_schema.to_json() if entry is not None else None
    return schema if isinstance(schema, dict) else {}


def _keys(values: Iterable[JSONValue]) -> Iterator[tuple[str, JSONValue]]:
    for value in values:
        if isinstance(value, dict):
            yield from value.items()
            yield from _keys(value.values())
        elif isinstance(value, list):
            yield from _keys(value)
