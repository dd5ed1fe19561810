"""Programs that are a function, or define the one that does it all, and leave the call of it to their host."""

from __future__ import annotations

import ast
import re
from typing import Final, NamedTuple

from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.source import ends_of

_NAMES: Final = frozenset({"execute", "main", "program", "run", "script", "solution", "solve"})
"""Names of such a function; another one may be for a later program of the session."""

_FUNCTION: Final = r"(?:async[ \t]+)?function\b[ \t]*(\w*)[ \t]*\(\s*((?:tools)?)\s*\)[^{]*\{"
_ARROW: Final = r"(?:async[ \t]*)?\(\s*((?:tools)?)\s*\)[^={]*=>\s*\{"
_EXPORTED: Final = re.compile(
    rf"^(?:export[ \t]+default|module\.exports[ \t]*=)(?=[ \t]*(?:{_FUNCTION}|{_ARROW}))", re.MULTILINE
)
_ALONE: Final = re.compile(rf"\s*(?:{_FUNCTION}|{_ARROW})")
_OWN: Final = re.compile(
    rf"^(?:export[ \t]+)?(?:{_FUNCTION}|(?:const|let|var)[ \t]+(\w+)[ \t]*=[ \t]*{_ARROW})", re.MULTILINE
)
_EXPORT: Final = re.compile(r"^export(?=[ \t]+(?:async|class|const|function|let)\b)", re.MULTILINE)
_DOES: Final = re.compile(r"^(?!export\b)[\w(].*\b(?:await|return|tools)\b", re.MULTILINE)
_DECLARED: Final = ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef, ast.Import, ast.ImportFrom, ast.Assign


class Entry(NamedTuple):
    """A program that calls its function, and the text of that call. Where it `has_name`, a later program of the same
    session can call it, too."""

    code: str
    call: str
    has_name: bool


def called(code: str, language: str) -> Entry | None:
    """Return *code* with a call of its function at its end; None where it does something itself."""
    return _in_python(code) if language == "python" else _in_javascript(code)


def _in_python(code: str) -> Entry | None:
    if not any(f"def {name}(" in code for name in _NAMES):
        return None
    tree = tree_of(code)
    last = tree.body[-1] if tree is not None and tree.body else None
    if tree is None or not isinstance(last, ast.FunctionDef | ast.AsyncFunctionDef) or last.name not in _NAMES:
        return None
    required = len(last.args.posonlyargs) + len(last.args.args) - len(last.args.defaults)
    does = any(not isinstance(each, _DECLARED) and not _is_text(each) for each in tree.body)
    used = any(isinstance(each, ast.Name) and each.id == last.name for each in ast.walk(tree))
    if required or last.decorator_list or does or used or None in last.args.kw_defaults:
        return None
    call = f"await {last.name}()" if isinstance(last, ast.AsyncFunctionDef) else f"{last.name}()"
    return Entry(f"{code.rstrip()}\n{call}", call, has_name=True)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _in_javascript(code: str) -> Entry | None:
    if alone := _ALONE.match(code):
        given = alone[2] or alone[3] or ""
        if not alone[1] and _is_last(code, alone.end() - 1):
            return Entry(f"({code.rstrip().removesuffix(';')})({given})", f"(...)({given})", has_name=False)
    if exported := _EXPORTED.search(code):
        name, given = exported[1] or "main", exported[2] or exported[3] or ""
        if _DOES.search(code) or (not exported[1] and re.search(r"\bmain\b", code)):
            return None
        width = exported.end() - exported.start()
        start = " " * width if exported[1] else f"var {name}".ljust(width - 1) + "="
        code = code[: exported.start()] + start + code[exported.end() :]
        return _with_call(_without_exports(code), name, given, has_name=False)
    found = [*_OWN.finditer(code)]
    name = (found[-1][1] or found[-1][3] or "") if found else ""
    if name not in _NAMES or not _is_last(code, found[-1].end() - 1) or _DOES.search(code[: found[-1].start()]):
        return None
    given = found[-1][2] or found[-1][4] or ""
    return _with_call(_without_exports(code), name, given, has_name=True)


def _with_call(code: str, name: str, given: str, *, has_name: bool) -> Entry | None:
    if len(re.findall(rf"(?<![\w$.]){name}\b", code)) != 1:
        return None
    return Entry(f"{code.rstrip()}\n{name}({given})", f"{name}({given})", has_name)


def _without_exports(code: str) -> str:
    return _EXPORT.sub("      ", code)


def _is_last(code: str, brace: int) -> bool:
    """Return whether nothing follows the function whose body begins with this brace."""
    end = ends_of(code).get(brace, 0)
    return bool(end) and not code[end:].strip(" \t\r\n;")
