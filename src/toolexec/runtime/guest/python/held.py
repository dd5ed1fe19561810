"""What the names on the line of a failure hold, so that the author can be reported what was not as expected."""

from __future__ import annotations

import json
import re
from types import CodeType, FunctionType, ModuleType
from typing import Any

_MOST_NAMES = 12
_MOST_ITEMS = 20
_MOST_KEYS = 40
_MOST_OWN = 80
_MOST_DEPTH = 4
_LONGEST = 300
_MOST_TEXT = 8000
_MOST_LINES = 12
_HIDDEN = (ModuleType, CodeType, FunctionType, type)


def held_at(error: BaseException, filename: str, source: str) -> list[dict[str, Any]]:
    """Return the names on the failing lines of the program's two innermost frames, each with the kind of its value, its
    size, and what can be reported of it; for an attribute that there is not, those of its object, too. Never raises."""
    found: list[dict[str, Any]] = []
    try:
        lines = source.splitlines()
        for frame, first, last in _places(error, filename)[:2]:
            text = "\n".join(lines[first - 1 : last])
            own = set() if frame.f_code.co_name == "<genexpr>" else _bound_within(text)
            for name in re.findall(r"(?<![\w.\"'])[^\W\d]\w*", text):
                value = frame.f_locals.get(name, frame.f_globals.get(name))
                is_known = name in frame.f_locals or name in frame.f_globals
                if is_known and name != "tools" and name not in own and all(each["name"] != name for each in found):
                    entry = _entry(name, value)
                    if entry is not None and len(found) < _MOST_NAMES:
                        found.append(entry)
        if isinstance(error, AttributeError) and getattr(error, "obj", None) is not None:
            value = error.obj  # type: ignore[attr-defined] # from Python 3.10 on
            found.insert(0, {"name": "", "kind": _kind(value), "own": _own(value)})
        while found and len(json.dumps(found)) > _MOST_TEXT:
            found.pop()
    except BaseException:
        return []
    return found


def _bound_within(text: str) -> set[str]:
    """Return the names that comprehensions on these lines bind: by the time of the report a frame has again what such a
    name was outside."""
    bound = re.findall(r"(?<!^)\bfor\s+(.+?)\s+in\b", text.strip())
    return {name for each in bound for name in re.findall(r"\w+", each)}


def _places(error: BaseException, filename: str) -> list[tuple[Any, int, int]]:
    """Return the frames of the program, the innermost first, each with the first and the last line that it was at."""
    found: list[tuple[Any, int, int]] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == filename:
            first = last = trace.tb_lineno
            positions = getattr(code, "co_positions", None)
            for number, position in enumerate(positions() if positions is not None else ()):
                if number == trace.tb_lasti // 2 and position[0] is not None:
                    first, last = position[0], min(position[1] or first, position[0] + _MOST_LINES)
            found.insert(0, (trace.tb_frame, first, last))
        trace = trace.tb_next
    return found


def _entry(name: str, value: Any) -> dict[str, Any] | None:
    if isinstance(value, _HIDDEN) or callable(value):
        return None
    value = _settled(value)
    entry: dict[str, Any] = {"name": name, "kind": _kind(value), "value": _part(value, 0)}
    if isinstance(value, (dict, list, tuple, set, frozenset, str, bytes)):
        entry["size"] = len(value)
    return entry


def _settled(value: Any) -> Any:
    """Return the value of a call that is over; others stay as they are."""
    done = getattr(type(value), "__toolexec_value__", None)
    if done is not None and value.done() and value.exception() is None:
        return value.result()
    return value


def _kind(value: Any) -> str:
    return "dict" if isinstance(value, dict) and type(value).__name__ == "Record" else type(value).__name__


def _own(value: Any) -> list[str]:
    return [name for name in dir(type(value)) if not name.startswith("_")][:_MOST_OWN]


def _part(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value if value is None or abs(value) < 1e300 else None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[:_LONGEST] + "..."
    if depth >= _MOST_DEPTH:
        return {} if isinstance(value, dict) else []
    if isinstance(value, dict):
        keys = [key for key in list(value)[:_MOST_KEYS] if isinstance(key, str)]
        return {key: _part(value[key], depth + 1) for key in keys}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_part(_settled(each), depth + 1) for each in list(value)[:_MOST_ITEMS]]
    return None
