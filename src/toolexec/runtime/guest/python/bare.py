"""What programs find without asking for it: names of tools below all others, a `__main__`, an event loop."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import Any

Module: Any = type(sys)
_CONSTANTS = {"True": True, "False": False}


def with_names(tools: Any, names: dict[str, str] | None) -> Any:
    """Return the builtins of a program: those of Python, and below them what *names* stand for in *tools*.

    A name stands for the namespace or tool at a path; with "" for the function that calls a tool by its ID, with "."
    for *tools*, and with "import json" for that module. So whatever the program, its imports or Python itself call by
    such a name comes first.
    """
    builtins.help = helped  # type: ignore[assignment]
    if not names or not ("print(" in names or any(map(str.isidentifier, names))):
        return builtins  # no name and no print of its own
    found = Module("builtins")
    for name, path in names.items():
        if not name.isidentifier():  # a rule, for `tools` and the program
            continue
        if path[:1] == "=":
            found.__dict__[name] = _CONSTANTS.get(path[1:])
            continue
        if path.startswith("import "):
            found.__dict__[name] = __import__(path[7:])
            continue
        target = tools if path else tools.run
        for part in path.split(":") if path not in ("", ".") else ():
            target = getattr(target, part)
        found.__dict__[name] = target
    found.__dict__.update(builtins.__dict__)
    return found


def helped(*about: Any) -> None:
    """Be `help`, which shows tools and namespaces, too."""
    shown = getattr(type(about[0]), "__toolexec_help__", None) if about else None
    if shown is not None:
        print(shown(about[0]))  # noqa: T201 - that is what it is for
        return
    import pydoc

    pydoc.help(*about)


def current_loop(asyncio: Any) -> Callable[[], Any]:
    """Return an `asyncio.get_event_loop` that makes a loop where there is none, as it did for long."""
    events = asyncio.events

    def get_event_loop() -> Any:
        try:
            return events.get_event_loop()
        except RuntimeError:
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            return loop

    return get_event_loop
