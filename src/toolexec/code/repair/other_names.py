"""Names that a program has of another language: what there is in their place, for both."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.source import calls_of, instead, split

_NO_ATTRIBUTE: Final = re.compile(r"AttributeError: '(\w+)' object has no attribute '(\w+)'")
_NO_NAME: Final = re.compile(r"(?:NameError: name|ReferenceError:) '?(\w+)'? is not defined")
_NOT_FUNCTION: Final = re.compile(r"TypeError: .*not a function")
_BASE: Final = r"((?<![\w$.])[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*|\([^()]*\)|\[[^\[\]]*\])*?)"

_METHODS_IN_PYTHON: Final[Mapping[str, str]] = {
    "filter": "[each for each in {0} if ...]",
    "map": "[... for each in {0}]",
    "forEach": "for each in {0}: ...",
    "reduce": "functools.reduce(..., {0})",
    "find": "next((each for each in {0} if ...), None)",
    "some": "any(... for each in {0})",
    "every": "all(... for each in {0})",
    "flatMap": "[inner for each in {0} for inner in ...]",
    "join": "text.join({0})",
    "concat": "{0} + other",
    "includes": "value in {0}",
    "indexOf": "{0}.index(value)",
    "slice": "{0}[start:end]",
    "substring": "{0}[start:end]",
    "charAt": "{0}[at]",
    "unshift": "{0}.insert(0, value)",
    "shift": "{0}.pop(0)",
    "size": "len({0})",
    "toFixed": "f'{{{0}:.2f}}'",
    "toString": "str({0})",
    "hasOwnProperty": "key in {0}",
    "replaceAll": "{0}.replace(old, new)",
    "padStart": "{0}.rjust(width)",
    "padEnd": "{0}.ljust(width)",
    "mean": "statistics.mean({0})",
    "median": "statistics.median({0})",
    "sum": "sum({0})",
    "max": "max({0})",
    "min": "min({0})",
    "unique": "set({0})",
    "tolist": "list({0})",
}
"""Method of JavaScript, or of arrays of numpy → what Python has in its place."""

_METHODS_IN_JAVASCRIPT: Final[Mapping[str, str]] = {
    "append": "{0}.push(value)",
    "extend": "{0}.push(...values)",
    "splitlines": '{0}.trimEnd().split("\\n")',
    "strip": "{0}.trim()",
    "lstrip": "{0}.trimStart()",
    "rstrip": "{0}.trimEnd()",
    "upper": "{0}.toUpperCase()",
    "lower": "{0}.toLowerCase()",
    "startswith": "{0}.startsWith(text)",
    "endswith": "{0}.endsWith(text)",
    "get": "{0}[key] ?? other",
    "items": "Object.entries({0})",
    "keys": "Object.keys({0})",
    "values": "Object.values({0})",
    "update": "Object.assign({0}, other)",
    "format": "a template, `${{value}}`",
    "count": "{0}.filter((each) => each === value).length",
    "isdigit": "/^\\d+$/.test({0})",
    "sum": "{0}.reduce((a, b) => a + b, 0)",
    "mean": "({0}.reduce((a, b) => a + b, 0) / {0}.length)",
    "average": "({0}.reduce((a, b) => a + b, 0) / {0}.length)",
    "max": "Math.max(...{0})",
    "min": "Math.min(...{0})",
    "unique": "[...new Set({0})]",
    "distinct": "[...new Set({0})]",
    "uniq": "[...new Set({0})]",
    "first": "{0}[0]",
    "last": "{0}.slice(-1)[0]",
    "contains": "{0}.includes(value)",
    "isEmpty": "({0}.length === 0)",
    "sorted": "[...{0}].sort()",
    "reversed": "[...{0}].reverse()",
    "rjust": "{0}.padStart(width)",
    "ljust": "{0}.padEnd(width)",
    "zfill": "{0}.padStart(width)",
    "capitalize": "({0}[0].toUpperCase() + {0}.slice(1))",
}
"""Method of Python → what JavaScript has in its place."""

_NOT_IN_JAVASCRIPT: Final = (
    "splitlines",
    "strip",
    "lstrip",
    "rstrip",
    "upper",
    "lower",
    "startswith",
    "endswith",
    "append",
    "sum",
    "mean",
    "average",
    "unique",
    "distinct",
    "uniq",
    "first",
    "last",
    "contains",
    "isEmpty",
    "sorted",
    "reversed",
    "rjust",
    "ljust",
    "zfill",
    "capitalize",
)

_NAMES_IN_JAVASCRIPT: Final[Mapping[str, str]] = {
    "len": "{0}.length",
    "str": "String({0})",
    "int": "Math.trunc(Number({0}))",
    "float": "Number({0})",
    "bool": "Boolean({0})",
    "list": "Array.from({0})",
    "sum": "{0}.reduce((a, b) => a + b, 0)",
    "max": "Math.max(...{0})",
    "min": "Math.min(...{0})",
    "sorted": "[...{0}].sort()",
    "reversed": "[...{0}].reverse()",
    "set": "new Set({0})",
    "abs": "Math.abs({0})",
    "round": "Math.round({0})",
    "enumerate": "{0}.entries()",
    "any": "{0}.some(Boolean)",
    "all": "{0}.every(Boolean)",
    "range": "Array(count).keys()",
    "isinstance": "typeof value === '...'",
    "json": "JSON",
    "asyncio": "Promise.all([...])",
    "datetime": "new Date(text)",
    "math": "Math",
}
"""Name of Python → what JavaScript has in its place."""

_NAMES_IN_PYTHON: Final[Mapping[str, str]] = {
    "JSON": "json",
    "Math": "math",
    "Promise": "asyncio.gather(*calls)",
    "Number": "float({0})",
    "parseInt": "int({0})",
    "parseFloat": "float({0})",
    "String": "str({0})",
    "Boolean": "bool({0})",
    "Array": "list({0})",
    "Object": "the methods of a dict: .keys(), .values(), .items()",
    "Date": "datetime.fromisoformat(text)",
    "console": "print(...)",
    "isNaN": "math.isnan({0})",
    "setTimeout": "await asyncio.sleep(seconds)",
    "fetch": "a tool that fetches",
    "require": "import",
}
"""Name of JavaScript → what Python has in its place."""

_OF_OTHERS: Final[Mapping[tuple[str, str], str]] = {
    ("list", "add"): "append",
    ("list", "put"): "append",
    ("list", "update"): "extend",
    ("list", "addAll"): "extend",
    ("list", "concat"): "extend",
    ("set", "append"): "add",
    ("set", "push"): "add",
    ("set", "extend"): "update",
    ("dict", "iteritems"): "items",
    ("dict", "entries"): "items",
    ("dict", "set_default"): "setdefault",
    ("dict", "getOrDefault"): "get",
}
"""Kind of a value, and a method that other kinds or languages have → its own."""

_OF_ONE: Final = re.compile(r"(\{0\}\.\w+\()((?:\.\.\.)?(?:value|values|text))(\))")
"""A method with one argument, that of the other language."""

_FILLED: Final = re.compile(r"\.\.\.[^{]|\b(?:value|other|text|key|old|start|width|count|at|calls|seconds)\b")


def about_other_names(failure: Failure) -> str:
    """Return what to write instead of a name of another language; "" where it is none."""
    is_python = failure.language == "python"
    if found := _NO_NAME.match(failure.message):
        known = _NAMES_IN_PYTHON if is_python else _NAMES_IN_JAVASCRIPT
        return _of_name(found[1], known, failure) if found[1] in known else ""
    if is_python and (found := _NO_ATTRIBUTE.match(failure.message)):
        kind, name = found.groups()
        if (own := _OF_OTHERS.get((kind, name))) and f".{name}(" in failure.source:
            return f"a {kind} has no `{name}`: {instead(f'.{name}(', f'.{own}(')}"
        return _of_builtin(kind, name, failure) or _of_method(kind, name, _METHODS_IN_PYTHON, failure)
    if failure.language == "javascript" and _NOT_FUNCTION.match(failure.message):
        for method in _METHODS_IN_JAVASCRIPT:
            if re.search(rf"\.{method}\(", failure.source):
                return _of_method("value", method, _METHODS_IN_JAVASCRIPT, failure)
    return ""


def _of_builtin(kind: str, name: str, failure: Failure) -> str:
    """Advise on a function of Python that is called as a method of what it takes."""
    found = re.search(rf"{_BASE}\.{name}\(\)", failure.source)
    if found is None or name.islower() is False or not callable(getattr(builtins, name, None)):
        return ""
    return f"a {kind} has no `{name}()`, `{name}` is a function: {instead(found[0], f'{name}({found[1]})')}"


def about_foreign(failure: Failure) -> str:
    """Return what to write instead of a method of other languages, on the line of a JavaScript program; "" where it
    has not one."""
    if failure.language != "javascript" or not _NOT_FUNCTION.match(failure.message):
        return ""
    for method in _NOT_IN_JAVASCRIPT:
        if re.search(rf"\.{method}\(", failure.source):
            return _of_method("value", method, _METHODS_IN_JAVASCRIPT, failure)
    return ""


def _of_name(name: str, known: Mapping[str, str], failure: Failure) -> str:
    there = "Python" if failure.language == "python" else "JavaScript"
    new = known[name]
    calls = list(calls_of(name, failure.code))
    if "{0}" in new and len(calls) == 1 and calls[0][1]:
        return f"{there} has no `{name}`: {instead(calls[0][0], new.format(_bracketed(calls[0][1])))}"
    return f"{there} has no `{name}`: there it is `{new.format('it')}`"


def _of_method(kind: str, name: str, known: Mapping[str, str], failure: Failure) -> str:
    if name == "length" and failure.language == "python":
        found = re.search(rf"{_BASE}\.length\b", failure.source)
        return instead(found[0], f"len({found[1]})") if found is not None else ""
    new = known.get(name)
    found = re.search(rf"{_BASE}\.{name}\b(\()?", failure.source)
    if new is None or f".{name}" not in failure.source:
        return ""
    if found is None:
        return f"a {kind} has no `{name}(...)`, write it as `{new.format('it')}`"
    about = f"a {kind} has no `{name}(...)`"
    made = new.format(found[1])
    if found[2] and not _FILLED.search(new):
        for old, inner in calls_of(f"{found[1]}.{name}", failure.source):
            if not inner:
                return f"{about}: {instead(old, made)}"
    if found[2] and (hole := _OF_ONE.fullmatch(new)) is not None:
        for old, inner in calls_of(f"{found[1]}.{name}", failure.source):
            if len(split(inner)) == 1:
                given = hole[1].format(found[1]) + _spread(hole[2]) + inner + hole[3]
                return f"{about}: {instead(old, given)}"
    return f"{about}, write it as `{made}`"


def _spread(hole: str) -> str:
    return "..." if hole.startswith("...") else ""


def _bracketed(text: str) -> str:
    return text if re.fullmatch(r"[\w.$]+(?:\([^()]*\)|\[[^\[\]]*\])*", text) else f"({text})"
