"""Where a run that is made again is to stop, and what is found there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

from toolexec.durable.offline import SeenCall
from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.visible import visible_line

StopReason: TypeAlias = Literal["start", "call", "line", "error", "end"]
Goal: TypeAlias = Literal["here", "step", "line", "next", "call", "end"]

MOST_CHARS: Final = 1000
"""How long the text of a value may be."""
_MOST_ITEMS: Final = 50
_MOST_DEPTH: Final = 5


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a run that is the same however often it is made: so many lines after a call was made, or after the
    beginning (no `call`)."""

    call: str = ""
    ticks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Where to stop: at the `goal`, when the place `after` was reached; and what to evaluate there."""

    goal: Goal
    after: Place = field(default_factory=Place)
    call: str = ""
    line: int = 0
    expression: str | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One function of the program that is under way, and the line where it is."""

    function: str
    line: int

    def to_dict(self) -> JSONDict:
        """Return the frame as JSON-able data."""
        return {"function": self.function, "line": self.line}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """What there is where a run has stopped.

    `variables` maps the names that the program knows there to the text of their values, bounded and with everything
    escaped that a terminal could take for an order: Python's repr for Python, JSON for workflows and chains. `calls`
    are all calls so far; the last one of a stop at a call is that call, which is about to be made. `stack` has the
    innermost function first. `error` is the failure that the program ended with, or why it cannot be made again any
    further.
    """

    reason: StopReason
    place: Place = field(default_factory=Place)
    line: int = 0
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    calls: Sequence[SeenCall] = ()
    stack: Sequence[Frame] = ()
    error: ToolExecError | None = None
    value: JSONValue = None
    evaluated: JSONDict | None = None


def value_text(value: JSONValue, most: int = MOST_CHARS) -> str:
    """Return a JSON value as JSON, cut to *most* characters, and escaped; long lists and strings in it are cut
    first.
    """
    return visible_line(json.dumps(_cut(value, _MOST_DEPTH), ensure_ascii=False), most)


def _cut(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MOST_CHARS else f"{value[:MOST_CHARS]}..."
    if not isinstance(value, list | dict | range):
        return value
    if depth == 0:
        return "..."
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        found = {key: _cut(part, depth - 1) for _, (key, part) in zip(range(_MOST_ITEMS), items, strict=False)}
        return found if len(value) <= _MOST_ITEMS else {**found, "...": f"{len(value) - _MOST_ITEMS} more"}
    parts = cast("Sequence[Any]", value)
    found = [_cut(part, depth - 1) for part in parts[:_MOST_ITEMS]]
    return found if len(parts) <= _MOST_ITEMS else [*found, f"... {len(parts) - _MOST_ITEMS} more"]
