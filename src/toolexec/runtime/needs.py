"""What a program needs of its sandbox beside the language, read from its source: packages and processes."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from toolexec.code.repair.lacks import distribution_of

_MOST_BYTES: Final = 200_000
_PROCESS_MODULES: Final = frozenset({"subprocess", "multiprocessing", "pty"})
_PROCESS_CALLS: Final = re.compile(
    r"system|popen|fork\w*|exec[lv]\w*|spawn[lv]\w*|posix_spawn\w*|create_subprocess_\w+"
)


@dataclass(frozen=True, slots=True)
class Needs:
    """The distributions that a program imports, by the names of pip, and whether it starts processes."""

    packages: frozenset[str] = frozenset()
    processes: bool = False

    def __bool__(self) -> bool:
        """Return whether it needs anything."""
        return self.processes or bool(self.packages)


def needs_of(code: str, own: Iterable[str] = ()) -> Needs:
    """Return what a Python program needs; *own* are paths of its files, which are modules of its own.

    Nothing is run. A program that cannot be parsed, and one of over 200 KB, needs nothing that is known.
    """
    if len(code) > _MOST_BYTES:
        return Needs()
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Needs()
    modules: set[str] = set()
    processes = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            modules.add(node.module.partition(".")[0])
            processes |= node.module == "os" and any(_PROCESS_CALLS.fullmatch(alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            processes |= node.value.id in ("os", "asyncio") and bool(_PROCESS_CALLS.fullmatch(node.attr))
    local = {path.partition("/")[0].removesuffix(".py") for path in own} | {"tools"}
    foreign = modules - sys.stdlib_module_names - local
    return Needs(frozenset(map(distribution_of, foreign)), processes or bool(modules & _PROCESS_MODULES))
