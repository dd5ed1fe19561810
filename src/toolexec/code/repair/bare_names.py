"""Names of tools without `tools.` before them: what `weather.get(...)` and `get_forecast(...)` stand for.

A sandbox makes them known below all names of the program, of its language and of earlier runs in its session, so that
they mean something only where a program would fail without them.
"""

from __future__ import annotations

import builtins
import keyword
import re
import weakref
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolexec.code.names import MAX_LISTED, TOOLS_METHODS, attribute_path, names_of, python_name
from toolexec.code.tools import Tools
from toolexec.discovery.index import Index

CALLS: Final = frozenset(
    f"{verb}{end}" for verb in ("call", "run", "invoke", "execute", "use") for end in ("_tool", "Tool")
)
"""Functions that models expect: they take the ID of a tool, and its arguments."""

ROOTS: Final = frozenset({"codemode", "default_api", "functions", "mcp"})
"""What the APIs of some models, and other systems, call the object with the tools."""

ROOT: Final = "."
"""The path of `tools` itself."""

_MODULES: Final = frozenset(
    {
        "asyncio",
        "base64",
        "collections",
        "csv",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "os",
        "re",
    }
    | {"statistics", "sys", "textwrap", "time"}
)
"""Modules of Python that have one meaning only, wherever a program forgets to import them."""

_LITERALS: Final = {"true": "=True", "false": "=False", "null": "=None", "undefined": "=None"}
"""What the constants of JSON and JavaScript are in Python, where a program has no such names."""

_WORD: Final = re.compile(r"(?<![\w.])[^\W\d]\w*", re.ASCII)
_TAKEN: Final = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | {"tools", "console", "files", "env", "args"}


class Bare(NamedTuple):
    """The names of one state of a catalogue: namespaces, and each tool's name with the IDs of those that have it."""

    version: int
    namespaces: Mapping[str, str]
    tools: Mapping[str, tuple[str, ...]]


_by_index: weakref.WeakKeyDictionary[Any, Bare] = weakref.WeakKeyDictionary()


def catalogue_of(index: Index) -> Bare:
    """Return the names of *index*; none where it has more than 20,000 tools, which take too long to list."""
    version = index.version
    try:
        known = _by_index.get(index)
    except TypeError:
        known = None
    if known is not None and known.version == version:
        return known
    namespaces: dict[str, str] = {}
    tools: dict[str, tuple[str, ...]] = {}
    if len(index) <= MAX_LISTED:
        for entry in index.tools():
            tool = entry.tool
            path = ":".join(attribute_path(tool.namespace, tool.name))
            if tool.namespace:
                namespaces.setdefault(python_name(tool.namespace), path.partition(":")[0])
            name = python_name(tool.name)
            if path not in tools.get(name, ()):
                tools[name] = (*tools.get(name, ()), path)
    found = Bare(version, namespaces, tools)
    try:
        _by_index[index] = found
    except TypeError:
        return found
    return found


def bare_names(code: str, tools: Tools, language: str = "python") -> dict[str, str]:
    """Return what words of *code* may stand for: the path of a namespace or of the only tool of that name that the
    code may call, in this or another spelling; "" for a function that calls tools by ID, "." for `tools`, and in Python
    "import json" for a module that the program uses without importing it, and "=True" for a constant."""
    words = {word for word in _WORD.findall(code) if word not in _TAKEN}
    found = {word: "" for word in words if word in CALLS} | {word: ROOT for word in words if word in ROOTS}
    if language == "python":
        found |= {word: f"import {word}" for word in words & _MODULES if _is_forgotten(word, code)}
        found |= {word: _LITERALS[word] for word in words & _LITERALS.keys()}
    if not words:
        return found
    known, names = catalogue_of(tools.index), names_of(tools.index)
    for word in sorted(words):
        space, paths = known.namespaces.get(word), known.tools.get(word, ())
        allowed = [path for path in paths if tools.allows(path)]
        if space is not None and word not in TOOLS_METHODS:
            found[word] = space
        elif len(allowed) == 1:
            found[word] = allowed[0]
        elif not paths and word not in found and not (word.islower() and word.isalpha()):
            meant = names.meant((word,), allowed=tools.allows)
            if meant is not None:
                namespace, _, name = meant.rpartition(":")
                found[word] = ":".join(attribute_path(namespace, name))
    return found


def _is_forgotten(module: str, code: str) -> bool:
    """Whether a module is used by its name, and no import is of that name."""
    if re.search(rf"(?<![\w.]){module}\.\w", code) is None:
        return False
    return re.search(rf"^[ \t]*(?:import|from)\b[^\n]*\b{module}\b", code, re.MULTILINE) is None
