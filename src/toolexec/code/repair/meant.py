"""What goes to a sandbox beside the code of a program: how it may take calls and values that would fail otherwise.

The rules travel with the bare names, under keys that no program can have as a name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from toolexec.code.fitting import positional
from toolexec.code.names import tool_at
from toolexec.code.repair.python_tree import tree_of
from toolexec.code.tools import Tools
from toolexec.errors import ToolNotFoundError

ATTRIBUTES: Final = "dict."
"""The rule that keys of results can be read as attributes."""

PRINTED: Final = "print("
"""The rule that the only thing printed is the value of a program that has no other."""

_CALL: Final = re.compile(r"(?<![\w$])((?:tools\.)?[A-Za-z_]\w*(?:\.\w+)?)\(\s*(?![\s){])")
_PRINT: Final = re.compile(r"(?<![\w.])print\(\s*(?:([rfbRFB]{0,2}['\"]|\d)|(\)))?")
_TOOLS: Final = re.compile(r"(?<![\w.])tools(?:\.\w+)*")
_ATTRIBUTE: Final = re.compile(r"\.[\s\\]*+(?:[^\W\d]\w*+(?!\()|#)")
"""Text without which no attribute is read but to call it, once that of `tools` is left out."""

_MOST_CALLS: Final = 200
_MOST_TOOLS: Final = 5_000
"""Among how many tools one is looked up by a path that is spelled in another way, on the event loop: in some 15 ms."""
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def rules_of(code: str, language: str, tools: Tools, names: Mapping[str, str]) -> dict[str, str]:
    """Return the rules for *code*: for a path with "(" behind it, the arguments that values without a name stand for;
    `ATTRIBUTES` and `PRINTED` where they are of use. *names* are the bare names in it."""
    found: dict[str, str] = {}
    for called in list(dict.fromkeys(_CALL.findall(code)))[:_MOST_CALLS]:
        path = _path(called, names)
        order = _order(path, tools) if path else []
        if order:
            found[f"{path}("] = ",".join(order)
    if language != "python":
        return found
    printed = _PRINT.findall(code) if "print(" in code else ()
    prints = len(printed) == 1 and not any(printed[0])
    reads = _ATTRIBUTE.search(_TOOLS.sub("", code)) is not None
    tree = tree_of(code) if prints or reads else None
    if tree is None:
        return found
    if prints and not any(isinstance(node, ast.Return) for node in _at_top(tree)):
        found[PRINTED] = "value"
    if reads and _reads_attributes(tree):
        found[ATTRIBUTES] = "keys"
    return found


def without_idle_awaits(code: str, names: Mapping[str, str]) -> str:
    """Return *code* without the `await` of tools in functions that are not async: a call there gives its result. Every
    line and column stays where it is."""
    if "await" not in code or ("def " not in code and "lambda" not in code):
        return code
    tree = tree_of(code)
    if tree is None:
        return code
    lines = [line.encode() for line in code.splitlines(keepends=True)]
    for node in _awaits(tree, is_async=True):
        called = node.value.func if isinstance(node.value, ast.Call) else None
        root = called
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and (root.id == "tools" or names.get(root.id, "=")[:1] != "="):
            line, at = lines[node.lineno - 1], node.col_offset
            lines[node.lineno - 1] = line[:at] + b"     " + line[at + 5 :]
    return b"".join(lines).decode()


def _awaits(node: ast.AST, *, is_async: bool) -> Iterator[ast.Await]:
    """Yield the `await` in functions that cannot have one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Await) and not is_async:
            yield child
        inner = isinstance(child, ast.AsyncFunctionDef) if isinstance(child, _FUNCTIONS) else is_async
        yield from _awaits(child, is_async=inner)


def _path(called: str, names: Mapping[str, str]) -> str:
    """Return the path of a tool that is called by this text."""
    first, _, rest = called.partition(".")
    if first == "tools":
        return rest.replace(".", ":")
    base = names.get(first, "")
    if not base or base == "." or base.startswith(("import ", "=")):
        return ""
    return f"{base}:{rest.replace('.', ':')}" if rest else base


def _order(path: str, tools: Tools) -> list[str]:
    entry = tools.index.find(path)
    if entry is None and len(tools.index) <= _MOST_TOOLS:
        try:
            entry = tools.index.find(tool_at(tools.index, path.split(":"), allowed=tools.allows))
        except ToolNotFoundError:
            return []
    return positional(entry.tool) if entry is not None and tools.allows(entry.tool.id) else []


def _at_top(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, _FUNCTIONS | ast.ClassDef):
        for child in ast.iter_child_nodes(node):
            yield from _at_top(child)


def _reads_attributes(tree: ast.Module) -> bool:
    """Return whether it reads an attribute, other than to call it, that no class and no import of the program has."""
    nodes = _all_nodes(tree)
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    read = [node for node in nodes if isinstance(node, ast.Attribute) and id(node) not in called]
    own: set[str] = {"self", "cls", "tools"}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            own.update((each.asname or each.name).partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ClassDef):
            own.update([node.name, *_fields(node)])
    own.update(node.attr for node in read if isinstance(node.ctx, ast.Store))
    loads = [node for node in read if isinstance(node.ctx, ast.Load) and not node.attr.startswith("__")]
    return any(node.attr not in own and _root(node) not in own for node in loads)


def _all_nodes(tree: ast.Module) -> list[ast.AST]:
    """Return what `ast.walk` yields, in a third of its time."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        for part in vars(node).values():
            if isinstance(part, ast.AST):
                nodes.append(part)
            elif type(part) is list:
                nodes.extend(each for each in part if isinstance(each, ast.AST))  # pyright: ignore[reportUnknownVariableType]
    return nodes


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        elif isinstance(each, ast.FunctionDef):  # a property
            yield each.name


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
