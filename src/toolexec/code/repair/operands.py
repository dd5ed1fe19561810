"""Operators and operands that Python does not take, as what to write in their place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.source import instead

_TO_TEXT: Final = re.compile(r'TypeError: can only concatenate str \(not "(?:int|float)"\) to str')
_TO_DECIMAL: Final = re.compile(
    r"TypeError: unsupported operand type\(s\) for [^:]+: '(?:(float)' and 'decimal\.|decimal\.Decimal' and '(float)')"
)
_TO_NUMBER: Final = re.compile(r"TypeError: unsupported operand type\(s\) for \+: '(?:int|float)' and 'str'")
_OPERATORS: Final = (
    (re.compile(r"&&"), "and"),
    (re.compile(r"\|\|"), "or"),
    (re.compile(r"(?<![=!])===(?!=)"), "=="),
    (re.compile(r"!=="), "!="),
    (re.compile(r"(?<![\w)])!(?=[\w(])"), "not "),
    (re.compile(r"\belse\s+if\b"), "elif"),
    (re.compile(r"(?<![\w.\[\]\"'])([\w.\[\]\"']+)\+\+"), r"\1 += 1"),
    (re.compile(r"(?<![\w.\[\]\"'])([\w.\[\]\"']+)--"), r"\1 -= 1"),
    (re.compile(r"(?<==\s)([^=?\s][^?\n]*) \?([^:?\n]+) :([^\n;]+)"), r"\2 if \1 else\3"),
    (re.compile(r"(?<=return )([^?\s][^?\n]*) \?([^:?\n]+) :([^\n;]+)"), r"\2 if \1 else\3"),
    (re.compile(r"(?<![\w.\[\]\"'])([\w.\[\]\"']+) *\?\?([^\n;]+)"), r"\1 if \1 is not None else\2"),
    (re.compile(r"\bnull\b"), "None"),
    (re.compile(r"([A-Za-z_]\w*(?:\[[^\[\]]*\])*)->([A-Za-z_]\w*)(?!\()"), r'\1["\2"]'),
    (re.compile(r"(?<!\w)`([^`$\n]*)\$\{([^`{}\n]+)\}([^`$\n]*)`"), r'f"\1{\2}\3"'),
)
"""What JavaScript's operators are in Python."""


_DECLARED: Final = re.compile(r"(?<!\S)(?:const|let|var)[ \t]+([A-Za-z_]\w*[ \t]*=)(?!=)")
_OF_PYTHON: Final = re.compile(
    r"^[ \t]*(?:\w+ = [^{;]*$|for .* in |def |import |from |print\(|if .*:$)|\(\w+=[^=]|\bfor \w+ in ", re.MULTILINE
)
"""What only Python has, or both languages."""

_LONGEST_LINE: Final = 500
"""Characters of a line beyond which operators are not looked for: each is read from several places."""


def about_operands(failure: Failure) -> str:
    """Return what to write instead; "" where nothing certain can be said."""
    if failure.language != "python":
        return ""
    if failure.kind == "SyntaxError":
        return _with_colon(failure) or _declared(failure) or _of_javascript(failure)
    if _TO_TEXT.match(failure.message):
        return _as_text(failure)
    if _TO_NUMBER.match(failure.message):
        return _as_numbers(failure)
    if found := _TO_DECIMAL.match(failure.message):
        return _as_decimal(failure, is_left=found[1] is not None)
    return ""


def _of_javascript(failure: Failure) -> str:
    """Advise on operators of JavaScript, where that makes a program of it."""
    lines = failure.code.splitlines()
    if not 0 < failure.line <= len(lines) or max(map(len, lines)) > _LONGEST_LINE:
        return ""
    code, said = failure.code, ""
    for pattern, new in _OPERATORS:
        if found := pattern.search(lines[failure.line - 1]):
            code = pattern.sub(new, code)
            written = found.expand(new)
            said = said or instead(found[0], written.strip() if new != "not " else written)
    if not said:
        return _of_braces(lines[failure.line - 1])
    return "" if tree_of(code) is None else f"this is JavaScript's operator: {said}"


def _declared(failure: Failure) -> str:
    """Advise on names that are declared as in JavaScript, where all else is Python."""
    found = _DECLARED.search(failure.code)
    without = _DECLARED.sub(r"\1", failure.code)
    others = "\n".join(line for line in failure.code.splitlines() if not _DECLARED.search(line))
    if (
        found is None
        or ";\n" in f"{failure.code}\n"
        or not _OF_PYTHON.search(f"{others}\n{found.string[found.start(1) :]}")
        or tree_of(without) is None
    ):
        return ""
    return f"a name is not declared in Python: {instead(found[0], found[1])}"


def _with_colon(failure: Failure) -> str:
    """Advise on a block without its colon."""
    lines = failure.code.splitlines()
    if not failure.message.startswith("SyntaxError: expected ':'") or not 0 < failure.line <= len(lines):
        return ""
    line = lines[failure.line - 1].strip()
    return f"a block begins with `:`: {instead(line, f'{line}:')}"


def _of_braces(line: str) -> str:
    """Advise on a block in braces."""
    found = re.match(r"\s*\}?\s*((?:if|elif|else|for|while|def|try|except|with)\b[^\n]*?)\s*\{\s*$", line)
    return f"a block has no braces in Python: {instead(f'{found[1]} {{', f'{found[1]}:')}, and no `}}`" if found else ""


def _as_text(failure: Failure) -> str:
    """Advise on the one operand that is not certainly text, beside one that is."""
    sums = [node for node in _on_line(failure) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)]
    others = [node.right for node in sums if _is_text(node.left) and not _is_text(node.right)]
    found = [ast.get_source_segment(failure.code, node) or "" for node in others]
    if len(found) != 1 or not found[0]:
        return ""
    return f"text is joined with text: {instead(f'+ {found[0]}', f'+ str({found[0]})')}"


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (_is_text(node.left) or _is_text(node.right))
    is_str = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str"
    return is_str or isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _as_decimal(failure: Failure, *, is_left: bool) -> str:
    """Advise on the one operand that is a float, beside a Decimal."""
    found: list[tuple[str, str]] = []
    for node in _on_line(failure):
        if isinstance(node, ast.BinOp | ast.AugAssign) and not (is_left and isinstance(node, ast.AugAssign)):
            value = node.left if is_left and isinstance(node, ast.BinOp) else _right_of(node)
            whole, text = (ast.get_source_segment(failure.code, each) or "" for each in (node, value))
            match value:
                case ast.Constant(value=float() | int()):
                    new = f'Decimal("{text}")'
                case ast.Call(func=ast.Name(id="float"), args=[_]):
                    new = text.replace("float(", "Decimal(", 1)
                case _:
                    new = f"Decimal(str({text}))"
            written = new + whole.removeprefix(text) if is_left else whole.removesuffix(text) + new
            if text and isinstance(value, ast.Constant | ast.Call | ast.Name | ast.Attribute | ast.Subscript):
                found.append((whole, written))
    about = "a Decimal is not put together with a float"
    return f"{about}: {instead(*found[0])}" if len(found) == 1 else f"{about}: `Decimal(str(...))` makes one of it"


def _right_of(node: ast.BinOp | ast.AugAssign) -> ast.expr:
    return node.right if isinstance(node, ast.BinOp) else node.value


def _as_numbers(failure: Failure) -> str:
    """Advise on a sum of strings."""
    found: list[tuple[str, str]] = []
    for node in _on_line(failure):
        is_sum = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sum" and node.args
        if is_sum and isinstance(node, ast.Call) and isinstance(node.args[0], ast.GeneratorExp | ast.ListComp):
            whole = ast.get_source_segment(failure.code, node) or ""
            item = ast.get_source_segment(failure.code, node.args[0].elt) or ""
            before = whole[: whole.find(item)]
            found.append((before + item, f"{before}float({item})"))
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            value = ast.get_source_segment(failure.code, node.value) or ""
            found.append((f"+= {value}", f"+= float({value})"))
    return f"the values are text: {instead(*found[0])}" if len(found) == 1 and found[0][0] else ""


def _on_line(failure: Failure) -> Iterator[ast.AST]:
    tree = tree_of(failure.code)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.expr | ast.stmt) and node.lineno <= failure.line <= (node.end_lineno or node.lineno):
            yield node
