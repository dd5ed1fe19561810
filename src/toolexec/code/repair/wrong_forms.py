"""What a program took for another form: calls in a generator for a list, a value for an object around it."""

from __future__ import annotations

import ast
import re
from collections.abc import Set as AbstractSet
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.shapes import VALUE
from toolexec.code.repair.source import instead
from toolexec.code.tools import Tools

_GENERATOR: Final = re.compile(r"TypeError: (?:'async_generator' object is not iterable|can only join an iterable)$")
_NOT_OBJECT: Final = re.compile(
    r"TypeError: '(int|float|bool)' object is not subscriptable"
    r"|TypeError: (string|list) indices must be integers"
    r"|AttributeError: '(int|float|bool|list|str)' object has no attribute 'get'"
)
_KINDS: Final = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "string": (str,),
    "str": (str,),
    "list": (list,),
}
_READ: Final = re.compile(
    r"(\(await tools\.[\w.]+\([^()]*\)\)|tools\.[\w.]+\([^()]*\)|(?<![\w.\])])[A-Za-z_]\w*)"
    r"(?:\[(['\"])(\w+)\2\]|\.get\((['\"])(\w+)\4(?:,[^()]*)?\))"
)


def about_forms(failure: Failure, tools: Tools | None, keys: AbstractSet[str]) -> str:
    """Return what to write instead; "" where nothing certain can be said. *keys* are those of the results so far."""
    if failure.language != "python":
        return ""
    if _GENERATOR.match(failure.message):
        return _as_list(failure)
    if (found := _NOT_OBJECT.match(failure.message)) and tools is not None:
        kinds = _KINDS[found[1] or found[2] or found[3]]
        if any(isinstance(call.value, kinds) for call in tools.tool_calls()):
            return _unwrapped(failure, keys)
    return ""


def _as_list(failure: Failure) -> str:
    tree = tree_of(failure.code)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.GeneratorExp)] if tree is not None else []
    awaiting = [node for node in nodes if any(isinstance(inner, ast.Await) for inner in ast.walk(node.elt))]
    here = [node for node in awaiting if failure.line <= node.lineno <= failure.line + 2] or awaiting
    old = ast.get_source_segment(failure.code, here[0]) if len(here) == 1 else None
    if old is None:
        return ""
    before = failure.code[: failure.code.find(old)].rstrip()
    is_only = re.search(r"[\w)\]]$", before) is not None and not re.search(r"\b(?:in|return|yield|and|or|not)$", before)
    new = f"([{old[1:-1].strip()}])" if is_only else f"[{old[1:-1].strip()}]"
    return f"a generator that awaits is not iterable, a list is: {instead(old, new)}"


def _unwrapped(failure: Failure, keys: AbstractSet[str]) -> str:
    reads = [found for found in _READ.finditer(failure.source) if (found[3] or found[5]) not in keys]
    return f"{VALUE}: {instead(reads[0][0], reads[0][1])}" if len(reads) == 1 else ""
