"""What a task is, and the values of earlier calls that its calls refer to."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_REFERENCE: Final = re.compile(r"^\$(\d+)((?:\[\d+\]|\.\w+)*)$")
_PART: Final = re.compile(r"\[(\d+)\]|\.(\w+)")


@dataclass(frozen=True, slots=True)
class Call:
    """A right call. A string such as `$0[0].id` in its arguments is a part of the value of an earlier call."""

    tool_id: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What a user asks for, and the calls that do it, in order."""

    text: str
    calls: tuple[Call, ...]

    @property
    def tool_ids(self) -> list[str]:
        """The tools that it needs, each once."""
        return list(dict.fromkeys(one.tool_id for one in self.calls))


def call(tool_id: str, **args: Any) -> Call:
    """Return a call."""
    return Call(tool_id, args)


def filled(value: Any, values: Sequence[Any]) -> Any:
    """Return arguments with the parts of earlier *values* in place of the references to them."""
    if isinstance(value, dict):
        return {name: filled(part, values) for name, part in value.items()}
    if isinstance(value, list):
        return [filled(part, values) for part in value]
    found = _REFERENCE.match(value) if isinstance(value, str) else None
    if found is None:
        return value
    part = values[int(found[1])]
    for index, name in _PART.findall(found[2]):
        part = part[int(index)] if index else part[name]
    return part


def program(task: Task) -> str:
    """Return the program that a model writes for a task: a line for each call, then the value of the last."""
    lines = []
    for number, one in enumerate(task.calls):
        args = ", ".join(f"{name}={_literal(value)}" for name, value in one.args.items())
        lines.append(f"r{number} = tools.{one.tool_id.replace(':', '.')}({args})")
    return "\n".join([*lines, f"return r{len(task.calls) - 1}"])


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    found = _REFERENCE.match(value) if isinstance(value, str) else None
    if found is None:
        return repr(value) if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)
    path = "".join(f"[{index}]" if index else f'["{name}"]' for index, name in _PART.findall(found[2]))
    return f"r{found[1]}{path}"
