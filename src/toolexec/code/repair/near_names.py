"""Names that a program has not bound, as the one of its own that is meant: nearly the same, its plural, a part of it.

A name that is bound in a function alone is said to be there.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import re
from collections.abc import Iterable
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.near_keys import fold, singular, words_of
from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.source import instead
from toolexec.code.tools import Tools

_NAME: Final = r"[A-Za-z_$][\w$]*"
_BOUND: Final = re.compile(
    rf"\b(?:const|let|var|function|class)\s+({_NAME})|[{{,\[(]\s*({_NAME})\s*(?=[,}}\])=])|({_NAME})\s*=>|:\s*({_NAME})\s*(?=[,}}])"
)
_OF_JAVASCRIPT: Final = frozenset(
    [
        "Array",
        "Boolean",
        "Date",
        "JSON",
        "Map",
        "Math",
        "Number",
        "Object",
        "Promise",
        "Set",
        "String",
        "console",
        "tools",
    ]
)
_CUTOFF: Final = 0.75
_LONGEST: Final = 100
_MOST_CALLS: Final = 200


def about_near_names(word: str, failure: Failure, tools: Tools | None = None) -> str:
    """Return what to write for a name that is not defined; "" where none of the program's own is near."""
    is_python = failure.language == "python"
    tree = tree_of(failure.code) if is_python else None
    if tree is not None and (where := _only_in(word, tree)):
        return f"`{word}` is a name in `{where}` alone: return it from there, and take it from the call"
    own = _bound_in(tree) if tree is not None else _bound(failure.code)
    known = [name for name in dict.fromkeys(own) if name != word and len(name) > 1]
    found = _meant(word, known)
    if found and not is_python and tools is not None and (taken := _taken(word, found, tools)):
        return taken
    is_class = word[:1].isupper() and not found[:1].isupper() and f"{word}(" in failure.code
    if found and not is_class:
        return f"`{word}` is not bound, `{found}` is: {instead(word, found)}"
    close = difflib.get_close_matches(word[:_LONGEST], dir(builtins) if is_python else _OF_JAVASCRIPT, 1, cutoff=0.8)
    return instead(word, close[0]) if close else ""


def _taken(word: str, found: str, tools: Tools) -> str:
    """Advise on a name that is taken out of a result, which has no such key, but one by the name that is read."""
    keys = {key for call in tools.tool_calls()[:_MOST_CALLS] if isinstance(call.value, dict) for key in call.value}
    return f"the result has `{word}`: {instead(found, word)}" if word in keys and found not in keys else ""


def _meant(word: str, known: list[str]) -> str:
    """Return the name with the same letters or words, nearly the same letters, or the only one with its words."""
    words = {singular(each) for each in words_of(word)}
    own = {name: {singular(each) for each in words_of(name)} for name in known}
    ways = (
        [name for name in known if fold(name) == fold(word)],
        [name for name, of in own.items() if of and of == words],
        difflib.get_close_matches(word[:_LONGEST], known, 1, cutoff=_CUTOFF),
        [name for name, of in own.items() if of and words and (of < words or words < of)],
        [name for name, of in own.items() if len(of) == 1 and len(word) > 1 and _is_short(word.lower(), name.lower())],
    )
    found = next((way for way in ways if way), [])
    return found[0] if len(found) == 1 else ""


def _is_short(word: str, name: str) -> bool:
    """Return whether a word has some of the letters of a name in their order, from its first, as `cfg` of `config`."""
    letters = iter(name)
    return word[0] == name[0] and all(letter in letters for letter in word)


def _bound_in(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _only_in(word: str, tree: ast.Module) -> str:
    """Return the function that alone binds a name, as `main()`; "" where none does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and word in _bound_in(ast.Module(node.body, [])):
            return f"{node.name}()"
    return ""


def _bound(code: str) -> Iterable[str]:
    for found in _BOUND.finditer(code):
        yield next(each for each in found.groups() if each)
