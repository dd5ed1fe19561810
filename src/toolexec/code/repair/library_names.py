"""Names of the standard library that a program looks for in the wrong place, or by another name."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Sequence
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.missing_imports import HOME
from toolexec.code.repair.near_keys import fold
from toolexec.code.repair.source import calls_of, instead

_MODULE: Final = re.compile(r"AttributeError: module '(\w+)' has no attribute '(\w+)'")
_TYPE: Final = re.compile(r"AttributeError: type object '(?:\w+\.)?(\w+)' has no attribute '(\w+)'")
_NO_IMPORT: Final = re.compile(r"ImportError: cannot import name '(\w+)' from '(\w+)'")
_NOT_AWAITABLE: Final = "TypeError: An asyncio.Future, a coroutine or an awaitable is required"
_DONE: Final = re.compile(r"\basyncio\.wait\(")
_HOMES: Final = (
    *("datetime", "collections", "statistics", "itertools", "functools", "math", "json", "re", "decimal", "operator"),
    *("random", "string", "typing", "dataclasses", "enum", "heapq", "bisect", "fractions", "zoneinfo", "time", "copy"),
)
"""Modules that programs take a name from."""

_SAME: Final = tuple(
    group.split()
    for group in (
        "loads parse decode deserialize from_string fromisoformat",
        "dumps stringify encode serialize to_string",
        "fromisoformat parse from_iso from_string",
        "gather all all_settled parallel wait_all",
        "sleep delay wait pause",
        "mean average avg",
        "median med",
        "stdev std stddev",
        "ceil ceiling round_up",
        "floor round_down",
        "sqrt square_root squareroot",
        "sub replace",
        "findall match_all find_all",
        "search find",
        "fromtimestamp from_timestamp from_epoch unix",
        "deepcopy clone deep_copy",
    )
)
"""Name of the standard library, and what other languages and libraries call it."""
_MOST_SHOWN: Final = 20


def about_library_names(failure: Failure) -> str:
    """Return what to write instead; "" where nothing certain can be said."""
    if failure.language != "python":
        return ""
    if found := _MODULE.match(failure.message):
        return _of_module(found[1], found[2])
    if found := _NO_IMPORT.match(failure.message):
        return _of_import(found[1], found[2], failure.code)
    if found := _TYPE.match(failure.message):
        return _of_type(found[1], found[2])
    if failure.message.startswith(_NOT_AWAITABLE):
        for old, inner in calls_of("asyncio.gather", failure.code):
            new = old.replace(inner, f"*({inner})")
            return f"`gather` takes calls one by one: {instead(old, new)}"
    if failure.kind == "TypeError" and "'set' object" in failure.message and _DONE.search(failure.code):
        for old, inner in calls_of("asyncio.wait", failure.code):
            new = f"asyncio.gather(*{inner})"
            return f"`asyncio.wait` gives two sets of tasks, `asyncio.gather` their results: {instead(old, new)}"
    return ""


def _of_type(name: str, attribute: str) -> str:
    """Advise on a name of the module that a type is called like, or on another name of the type."""
    module, old = _module(name), f"{name}.{attribute}"
    if module is not None and hasattr(module, attribute):
        about = f"`{name}` is the type here, not the module: use `from {name} import {attribute}`"
        return f"{about}, and {instead(old, attribute)}"
    kind = next((getattr(home, name) for home in map(_module, _HOMES) if hasattr(home, name)), None)
    near = _near(attribute, _public(kind)) if isinstance(kind, type) else ""
    return instead(old, f"{name}.{near}") if near else ""


def _of_module(name: str, attribute: str) -> str:
    """Advise on what a type of the module has, or another name of it."""
    module = _module(name)
    if module is None:
        return ""
    old, known = f"{name}.{attribute}", _public(module)
    if same := [each for each in known if fold(each) == fold(attribute)]:
        return instead(old, f"{name}.{same[0]}")
    kinds = [each for each in known if isinstance(getattr(module, each), type)]
    having = [each for each in kinds if hasattr(getattr(module, each), attribute)]
    same = [each for each in having if each == name] or having
    if len(same) == 1:
        return f"`{name}` is the module here: {instead(old, f'{name}.{same[0]}.{attribute}')}"
    if near := _near(attribute, known):
        return instead(old, f"{name}.{near}")
    if home := _home(attribute):
        return f"`{attribute}` is in `{home}`: import that, and {instead(old, f'{home}.{attribute}')}"
    said = [each for each in known if callable(getattr(module, each)) and each not in kinds]
    return f"`{name}` has {', '.join(said)}" if 0 < len(said) <= _MOST_SHOWN else ""


def _of_import(attribute: str, name: str, code: str) -> str:
    """Advise on a name that is imported from a module that has not got it."""
    lines = [line.strip() for line in code.splitlines() if re.match(rf"\s*from\s+{name}\s+import\b", line)]
    if len(lines) != 1 or not re.fullmatch(rf"from {name} import [\w, ]+", lines[0]):
        return ""
    names = [each.strip() for each in lines[0].partition(" import ")[2].split(",")]
    module, home = _module(name), _home(attribute)
    if home:
        moved = [each for each in names if home in (_home(each), name) or each == attribute]
        left = [each for each in names if each not in moved]
        new = f"from {home} import {', '.join(moved)}" + (f"\nfrom {name} import {', '.join(left)}" if left else "")
        return f"`{attribute}` is in `{home}`: {instead(lines[0], new)}"
    near = _near(attribute, _public(module)) if module is not None else ""
    return f"`{name}` has `{near}`: {instead(attribute, near)}" if near else ""


def _module(name: str) -> object | None:
    """Return a module of the standard library: one of those above, or one that is imported already."""
    if name in _HOMES:
        return importlib.import_module(name)
    return sys.modules.get(name) if name in sys.stdlib_module_names else None


def _home(attribute: str) -> str:
    """Return the module that programs import a name from; "" where none has it."""
    homes = [each for each in _HOMES if attribute in _public(_module(each))]
    return HOME.get(attribute) or (homes[0] if homes else "")


def _public(of: object) -> list[str]:
    return [each for each in dir(of) if not each.startswith("_")] if of is not None else []


def _near(attribute: str, known: Sequence[str]) -> str:
    folded = fold(attribute)
    groups = [group for group in _SAME if folded in map(fold, group)]
    same = [each for group in groups for each in group if each in known and fold(each) != folded]
    close = same or difflib.get_close_matches(attribute[:50], known, 1)
    return close[0] if close else ""
