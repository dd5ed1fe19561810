"""What a path selects: plain paths such as `items[0].name`, and JMESPath as far as it selects and does not compute.

The paths come from models, so their cost has a limit that does not depend on how clever they are.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import shorten
from toolexec.run.large import Budget, BudgetExceededError, search
from toolexec.run.reading import MAX_PATH, not_valid

__all__ = ["select"]

_MAX_STEPS: Final = 500_000
_MAX_MADE: Final = 20
_SHOWN_KEYS: Final = 10
_COMPARED_KEYS: Final = 1000
_STEP: Final = re.compile(
    r'\.?([^\s.\[\]"\'`|*?(){}&!@,:<>=]+)'  # .name
    r'|\.?("(?:[^"\\]|\\.)*")'  # ."odd name"
    r"|\[(-?[0-9]{1,9})\]"
    r'|\[("(?:[^"\\]|\\.)*")\]'
)
_FUNCTIONS: Final = frozenset(
    {"avg", "contains", "ends_with", "keys", "length", "max", "min", "reverse", "sort", "starts_with", "sum", "type"}
)


def select(value: Any, path: str) -> Any:
    """What *path* selects; an empty one (or `$`) is the value itself.

    Raises InputValidationError for a path that leads nowhere (it says how far it leads), does not parse, has over 500
    characters, computes more than it selects, or takes too long.
    """
    if len(path) > MAX_PATH:
        raise not_valid("path", f"a path may have {MAX_PATH} characters, not {len(path)}")
    steps = _plain(path)
    if steps is None:
        return _search(value, path)
    done = ""
    for step, text in steps:
        value = _step(value, step, done)
        done += text
    return value


def _plain(path: str) -> list[tuple[str | int, str]] | None:
    """The steps of a plain path, each with its text; None for one that is not plain."""
    at = 1 if path[:1] == "$" else 0
    steps: list[tuple[str | int, str]] = []
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or (steps and found.group()[0] not in '.["'):
            return None
        name, quoted, index, bracketed = found.groups()
        text = quoted or bracketed
        try:
            step = int(index) if index else json.loads(text) if text else name
        except ValueError:
            return None
        steps.append((step, found.group()))
        at = found.end()
    return steps


def _step(value: Any, step: str | int, done: str) -> Any:
    where = shorten(done) or "the top"
    if isinstance(value, dict):
        if str(step) in value:
            return value[str(step)]
        known = [shorten(key, 40) for key in list(value)[:_SHOWN_KEYS]]
        more = f" and {len(value) - _SHOWN_KEYS:,} more" if len(value) > _SHOWN_KEYS else ""
        keys = [key for key in value if isinstance(key, str)][:_COMPARED_KEYS]
        hint = did_you_mean(step, keys, otherwise=f"its keys: {', '.join(known)}{more}")
        raise not_valid("path", f"there is no {shorten(str(step))!r} at {where}; {shorten(hint, 500)}")
    if isinstance(value, list):
        number = int(step) if isinstance(step, int) or (step.isascii() and step.isdigit() and len(step) < 10) else None
        if number is None:
            raise not_valid("path", f"there is an array at {where}: use [0] or [*] before {shorten(str(step))!r}")
        if not -len(value) <= number < len(value):
            raise not_valid("path", f"there is no [{number}] at {where}: it has {len(value):,} items")
        return value[number]
    raise not_valid("path", f"{where} is neither object nor array; there is nothing below it")


def _search(value: Any, path: str) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        parsed = jmespath.compile(path.removeprefix("$.")).parsed
        _check(parsed, [0])
        return search(parsed, value, Budget(steps=_MAX_STEPS))
    except (JMESPathError, ValueError, TypeError, RecursionError, BudgetExceededError) as error:
        reason = shorten(" ".join(str(error).split()), 300)
        raise not_valid("path", f"cannot select {shorten(path)!r}: {reason}") from None


def _check(node: Any, made: list[int]) -> None:
    """Refuse what can make a result much larger than the value that it comes from. *made* counts the new parts."""
    if not isinstance(node, dict):
        return
    if node["type"] in ("multi_select_list", "multi_select_dict"):
        if made[0] or len(node["children"]) > _MAX_MADE:
            raise ValueError(f"it may make one new object, of at most {_MAX_MADE} parts")
        made[0] += 1
    if node["type"] == "function_expression" and node["value"] not in _FUNCTIONS:
        raise ValueError(f"of the functions there are {', '.join(sorted(_FUNCTIONS))}")
    for child in node.get("children", ()):
        _check(child, made)
