"""Imports of packages that are not there, of which nothing is used: a program runs without them."""

from __future__ import annotations

import ast
import re
from typing import Final

from toolexec.code.repair.python_tree import tree_of

_REQUIRED: Final = re.compile(r"^[ \t]*((?:const|let|var)[ \t]+(\w+)[ \t]*=[ \t]*require\([^()]*\);?)", re.MULTILINE)
_IMPORTED: Final = re.compile(
    r"^[ \t]*(import[ \t]+(?:\*[ \t]+as[ \t]+)?(\w+)[ \t]+from[ \t]+['\"][^'\"\n]+['\"];?)", re.MULTILINE
)


def unused_import(code: str, module: str) -> str:
    """Return the line of a Python program that imports *module*, and of which nothing is used; "" without one."""
    tree = tree_of(code)
    lines = code.splitlines()
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree is not None else set[str]()
    for node in tree.body if tree is not None else ():
        if not isinstance(node, ast.Import | ast.ImportFrom) or node.end_lineno != node.lineno:
            continue
        of = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        names = {(each.asname or each.name).partition(".")[0] for each in node.names}
        if {each.partition(".")[0] for each in of} == {module} and not names & used and "*" not in names:
            return lines[node.lineno - 1].strip()
    return ""


def unused_package(code: str) -> str:
    """Return the line of a JavaScript program that takes a package, and of which nothing is used; "" without one."""
    for found in (*_REQUIRED.finditer(code), *_IMPORTED.finditer(code)):
        if len(re.findall(rf"(?<![\w$.'\"]){found[2]}(?![\w$'\"])", code)) == 1:
            return found[1]
    return ""
