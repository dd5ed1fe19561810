"""Names of the standard library that a program looks for in the wrong place."""

from __future__ import annotations

import difflib
import re
import sys
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.source import calls_of, instead

__all__ = ["about_library_names"]

_MODULE: Final = re.compile(r"AttributeError: module '(\w+)' has no attribute '(\w+)'")
_TYPE: Final = re.compile(r"AttributeError: type object '(?:\w+\.)?(\w+)' has no attribute '(\w+)'")
_NOT_AWAITABLE: Final = "TypeError: An asyncio.Future, a coroutine or an awaitable is required"
_DONE: Final = re.compile(r"\basyncio\.wait\(")


def about_library_names(failure: Failure) -> str:
    """Return what to write instead; "" where nothing certain can be said."""
    if failure.language != "python":
        return ""
    if found := _MODULE.match(failure.message):
        return _of_module(found[1], found[2])
    if found := _TYPE.match(failure.message):
        module = sys.modules.get(found[1]) if found[1] in sys.stdlib_module_names else None
        old = f"{found[1]}.{found[2]}"
        has = module is not None and hasattr(module, found[2])
        about = f"`{found[1]}` is the type here, not the module: use `from {found[1]} import {found[2]}`"
        return f"{about}, and {instead(old, found[2])}" if has else ""
    if failure.message.startswith(_NOT_AWAITABLE):
        for old, inner in calls_of("asyncio.gather", failure.code):
            new = old.replace(inner, f"*({inner})")
            return f"`gather` takes calls one by one: {instead(old, new)}"
    if failure.kind == "TypeError" and "'set' object" in failure.message and _DONE.search(failure.code):
        for old, inner in calls_of("asyncio.wait", failure.code):
            new = f"asyncio.gather(*{inner})"
            return f"`asyncio.wait` gives two sets of tasks, `asyncio.gather` their results: {instead(old, new)}"
    return ""


def _of_module(name: str, attribute: str) -> str:
    """Advise on what a type of the module has, or another name of it. Nothing is imported for that."""
    module = sys.modules.get(name) if name in sys.stdlib_module_names else None
    if module is None:
        return ""
    kinds = [each for each in dir(module) if isinstance(getattr(module, each), type) and not each.startswith("_")]
    having = [each for each in kinds if hasattr(getattr(module, each), attribute)]
    same = [each for each in having if each == name] or having
    if len(same) == 1:
        return f"`{name}` is the module here: {instead(f'{name}.{attribute}', f'{name}.{same[0]}.{attribute}')}"
    close = difflib.get_close_matches(attribute, dir(module), 1)
    return instead(f"{name}.{attribute}", f"{name}.{close[0]}") if close else ""
