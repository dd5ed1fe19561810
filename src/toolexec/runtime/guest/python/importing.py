"""`import tools` and `from tools.math import add`, though `tools` is an object and no module."""

from __future__ import annotations

import sys
from typing import Any


class _Finder:
    """Finds `tools`, and namespaces and tools in it, where no module of this name is."""

    def __init__(self) -> None:
        self.tools: Any = None
        self.made: list[str] = []  # a look through all modules would touch all of the memory

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the specification of a module that is an object of ours."""
        if name.partition(".")[0] != "tools" or name.partition(".")[2].startswith("_"):
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Any:
        """Return the object itself."""
        found = self.tools
        self.made.append(spec.name)
        for name in spec.name.split(".")[1:]:
            found = getattr(found, name)
        return found

    def exec_module(self, module: Any) -> None:
        """Do nothing: there is nothing to run."""


_finder = _Finder()


def make_importable(tools: Any) -> Any:
    """Have programs import *tools* (which is returned) by the name `tools`; a module of that name comes first."""
    while _finder.made:
        name = _finder.made.pop()
        if isinstance(getattr(getattr(sys.modules.get(name), "__spec__", None), "loader", None), _Finder):
            del sys.modules[name]  # of an earlier run
    _finder.tools = tools
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)  # type: ignore[arg-type]
    return tools
