"""Turn the calls that a run of code made into a workflow to start from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

from toolexec.code.types import CodeResult, ToolCallRecord
from toolexec.errors import InvalidRequestError
from toolexec.workflow.written import Names, path_text, string_text, value_text

__all__ = ["record"]

_MAX_KNOWN: Final = 100_000
_MAX_PATH: Final = 12
_SHORT: Final = 3
_SMALL: Final = 100

_Place = tuple[int, tuple[str | int, ...]]
"""The number of a call, and the steps to a part of its result."""


def record(result: CodeResult) -> str:
    """Return a workflow that makes the calls of a successful run again, in the same order.

    An argument that equals a part of an earlier result refers to it. Small numbers and short strings, which are often
    equal by chance, do so only where the argument and the part have the same name. Calls that failed are left out.
    Raises InvalidRequestError for a run that failed or called nothing.
    """
    calls = [call for call in result.tool_calls if call.ok]
    if result.error is not None or not calls:
        raise InvalidRequestError("only a successful run that called tools can be recorded")
    return _Recorder(calls).write(result)


class _Recorder:
    """Knows the parts of earlier results by their value."""

    def __init__(self, calls: Sequence[ToolCallRecord]) -> None:
        self._calls = calls
        names = Names()
        self._names = [names.take(call.tool_id.split(":")[1 if ":" in call.tool_id else 0]) for call in calls]
        self._known: dict[str, _Place] = {}
        self._used: set[int] = set()

    def write(self, result: CodeResult) -> str:
        written: list[str] = []
        for number, call in enumerate(self._calls):
            if call.args is None:
                written.append(f"run({string_text(call.tool_id)}, {{}})  # its arguments were too large to be kept")
            else:
                arguments = f", {value_text(call.args, self._reference)}" if call.args else ""
                written.append(f"run({string_text(call.tool_id)}{arguments})")
            self._learn(number, call.value)
        last = self._reference(result.value, "")
        returned = "" if last is None else f"return {last}\n"
        lines = [
            f"{self._names[number]} := {text}" if number in self._used else text for number, text in enumerate(written)
        ]
        failed = len(result.tool_calls) - len(self._calls)
        head = f"# {failed} call{'s' * (failed != 1)} that failed {'are' if failed != 1 else 'is'} left out\n"
        return "".join([head if failed else "", *(f"{line}\n" for line in lines), returned])

    def _reference(self, value: object, name: str) -> str | None:
        """Return the part of an earlier result that a value probably is."""
        if value is None or isinstance(value, bool) or value in ("", [], {}):
            return None
        place = self._known.get(_canonical(value))
        if place is None or (_is_common(value) and not _is_same_name(name, place)):
            return None
        self._used.add(place[0])
        return path_text(self._names[place[0]], place[1])

    def _learn(self, number: int, value: object) -> None:
        """Know the parts of a result, the outermost first; those of later calls take the place of earlier ones."""
        found: dict[str, _Place] = {}
        level: list[tuple[tuple[str | int, ...], object]] = [((), value)]
        while level and len(found) + len(self._known) < _MAX_KNOWN:
            deeper: list[tuple[tuple[str | int, ...], object]] = []
            for path, part in level:
                if part is None or isinstance(part, bool):
                    continue
                found.setdefault(_canonical(part), (number, path))
                if len(path) < _MAX_PATH:
                    deeper += [((*path, step), inner) for step, inner in _parts(part)]
            level = deeper
        self._known.update(found)


def _parts(value: object) -> list[tuple[str | int, object]]:
    if isinstance(value, Mapping):
        return list(cast("Mapping[str, object]", value).items())  # pyright: ignore[reportReturnType] - it only grows
    return list(enumerate(cast("Sequence[object]", value))) if isinstance(value, list) else []


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _is_common(value: object) -> bool:
    """Return whether a value is so short that it is often equal to another one by chance."""
    if isinstance(value, str):
        return len(value) < _SHORT
    return isinstance(value, int | float) and abs(value) < _SMALL


def _is_same_name(name: str, place: _Place) -> bool:
    step = next((step for step in reversed(place[1]) if isinstance(step, str)), "")
    return bool(step) and (name.lower() == step.lower() or name.lower().endswith(f"_{step.lower()}"))
