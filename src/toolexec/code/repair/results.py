"""What a program that failed did with a result: it took it for another form, or forgot to await it."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Final

from toolexec.code.repair.braced_functions import about_braced_functions
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.javascript_reads import about_javascript_reads, about_not_a_number
from toolexec.code.repair.lines import about_empty_lines
from toolexec.code.repair.near_keys import alike
from toolexec.code.repair.plain_values import about_plain_values
from toolexec.code.repair.promises import about_promises
from toolexec.code.repair.python_reads import OTHER_NAMES, about_python_reads
from toolexec.code.repair.python_values import about_python_values
from toolexec.code.repair.shapes import VALUE, WRAPPERS
from toolexec.code.repair.source import end_of, instead
from toolexec.code.repair.wrong_forms import about_forms
from toolexec.code.tools import Tools

_ATTRIBUTE: Final = re.compile(r"AttributeError: '(dict|Record|list|str)' object has no attribute '(\w+)'")
_KEY: Final = re.compile(r"KeyError: '([^'\n]+)'")
_UNDEFINED: Final = re.compile(
    r"TypeError: cannot read property '(\w+)' of undefined"
    r"|TypeError: Cannot read properties of undefined \(reading '(\w+)'\)"
)
_METHOD: Final = re.compile(
    r"TypeError: (?:'builtin_function_or_method' object is not (?:iterable|subscriptable)"
    r"|object of type 'builtin_function_or_method' has no len\(\))"
)
_COROUTINE: Final = re.compile(r"\bcoroutine\b")
_PROMISES: Final = re.compile(r"the value at ((?:/\d+)?) ?(?:its root )?is a promise \(await it\)")
_NO_TIME: Final = re.compile(r"Date value is NaN|[Ii]nvalid (?:time|date)")
_CALLS: Final = frozenset({"call", "execute", "fetch", "fetchall", "invoke", "run", "send", "unwrap"})
"""Methods by which other APIs make a call that was only built."""

_METHODS: Final = ("items", "keys", "values", "copy", "get", "pop", "update")
_BASE: Final = r"([A-Za-z_]\w*(?:\[[^\[\]]*\]|\.\w+)*)"
_REST: Final = r"(?:\[\d+\]|\.(?:text|data|value|json\(\)))*"
_MOST_KEYS: Final = 200


def about_results(failure: Failure, tools: Tools | None) -> str:
    """Return what to write instead; "" where nothing certain can be said."""
    if tools is not None and (advice := _about_reads(failure, tools)):
        return advice
    keys = _keys_of(tools) if tools is not None else set[str]()
    if advice := about_forms(failure, tools, keys):
        return advice
    if advice := about_plain_values(failure):
        return advice
    if found := _ATTRIBUTE.match(failure.message):
        return _about_attribute(found[1], found[2], failure, keys)
    if (found := _KEY.match(failure.message)) and keys and found[1] not in keys:
        return _about_key(found[1], failure, keys)
    if found := _UNDEFINED.match(failure.message):
        return _about_undefined(found[1] or found[2], failure, keys)
    if _METHOD.match(failure.message):
        return _about_method(failure, keys)
    if failure.language == "python" and _COROUTINE.search(failure.message):
        return _about_coroutine(failure.code)
    return ""


def _about_reads(failure: Failure, tools: Tools) -> str:
    """Advise on a read that finds nothing, by the values that the calls of the run have given."""
    if advice := about_empty_lines(failure, tools):
        return advice
    if failure.language == "python":
        return about_python_reads(failure, tools) or about_python_values(failure, tools)
    if failure.language != "javascript" or failure.kind not in ("TypeError", "RangeError"):
        return ""
    if found := _PROMISES.search(failure.message):
        return _about_returned(found[1], failure.code)
    if failure.kind == "RangeError" and not _NO_TIME.search(failure.message):
        return ""
    if failure.kind == "RangeError" or " is NaN, " in failure.message:
        return about_not_a_number(failure.code, tools)
    advice = next(about_promises(failure.code), "")
    if "promise" in failure.message:
        return advice
    if not advice and "undefined" in failure.message:
        advice = next(about_braced_functions(failure.code), "")
    return advice or about_javascript_reads(failure.code, failure.line, tools)


def _about_returned(path: str, code: str) -> str:
    """Advise on a list of promises that is the value of a program."""
    returned = re.findall(r"^return[ \t]+(?!await\b)(\w+(?:\.\w+)*)[ \t]*(?:;[ \t]*)?$", code, re.MULTILINE)
    if len(returned) != 1:
        return ""
    new = f"await Promise.all({returned[0]})" if path else f"await {returned[0]}"
    return f"these are promises still: {instead(f'return {returned[0]}', f'return {new}')}"


def _about_attribute(kind: str, name: str, failure: Failure, keys: set[str]) -> str:
    if name in _CALLS and name not in keys and f".{name}()" in failure.source:
        return f"{VALUE}: leave `.{name}()` out"
    found = re.search(rf"{_BASE}\.{re.escape(name)}\b(?!\s*\()", failure.source)
    if kind in ("list", "str"):
        if other := OTHER_NAMES.get(name):
            return instead(f".{name}(", f".{other}(")
        return instead(found[0], f"len({found[1]})") if found is not None and name == "length" else ""
    if name not in keys and keys:
        whole = re.search(rf"{_BASE}\.{re.escape(name)}\b(?:\(\))?{_REST}", failure.source)
        if name in WRAPPERS and whole is not None:
            return f"{VALUE}: {instead(whole[0], whole[1])}; {_has(keys)}"
        close = difflib.get_close_matches(name, keys, 1)
        if not close:
            return f"results are dicts; {_has(keys)}"
        name = close[0]
    if found is None:
        return f'results are dicts: read the key as `["{name}"]`'
    read = f'{found[1]}["{name}"]'
    return f"results are dicts: {instead(found[0], read)}"


def _about_method(failure: Failure, keys: set[str]) -> str:
    """Advise on a key of a result that dicts have a method by the name of, as `items`."""
    found = re.search(rf"{_BASE}\.({'|'.join(_METHODS)})\b(?!\s*\()", failure.source)
    if found is None or found[2] not in keys:
        return ""
    read = f'{found[1]}["{found[2]}"]'
    return f"`{found[2]}` is a method of dicts: {instead(found[0], read)}"


def _about_key(name: str, failure: Failure, keys: set[str]) -> str:
    found = re.search(rf"{_BASE}\[(['\"]){re.escape(name)}\2\]{_REST}", failure.source)
    if found is None:
        return ""
    if name in WRAPPERS:
        return f"{VALUE}: {instead(found[0], found[1])}; {_has(keys)}"
    close = alike(name, sorted(keys))
    return instead(found[0], f'{found[1]}["{close}"]') if close else _has(keys)


def _about_undefined(name: str, failure: Failure, keys: set[str]) -> str:
    found = re.search(rf"([A-Za-z_$][\w$]*)\??\.(\w+)\??(?=[.\[]\W*{re.escape(name)}\b)", failure.source)
    if found is None or not keys or found[2] in keys:
        return ""
    if found[2] in WRAPPERS:
        rest = re.match(r"(?:\??\.?\[\d+\]|\??\.(?:text|data|value)\b)*", failure.source[found.end() :])
        return f"{VALUE}: {instead(found[0] + (rest[0] if rest is not None else ''), found[1])}"
    close = difflib.get_close_matches(found[2], keys, 1)
    return instead(found[0], f"{found[1]}.{close[0]}") if close else _has(keys)


def _about_coroutine(code: str) -> str:
    for name in re.findall(r"\basync\s+def\s+(\w+)", code):
        for found in re.finditer(rf"(?<![\w.]){name}(?=\()", code):
            before, old = code[: found.start()].rstrip(), code[found.start() : end_of(code, found.end())]
            if old and not before.endswith(("await", "def", "run(", "create_task(", "gather(", "*")):
                is_head = re.search(rf"\bdef\s+{re.escape(old)}", code) is not None  # which has the same text
                start = code[code.rfind("\n", 0, found.start()) + 1 : found.start()].lstrip() if is_head else ""
                return f"a function with `async` is awaited: {instead(start + old, f'{start}await {old}')}"
    return ""


def _has(keys: Iterable[str]) -> str:
    return f"the keys of the results are {', '.join(sorted(keys)[:20])}"


def _keys_of(tools: Tools) -> set[str]:
    """The keys of the dicts in the results so far, of those near to their top."""
    found: set[str] = set()
    pending: list[tuple[object, int]] = [(call.value, 0) for call in tools.tool_calls()[:_MOST_KEYS]]
    while pending and len(found) < _MOST_KEYS:
        value, depth = pending.pop()
        if depth > 3:
            continue
        if isinstance(value, Mapping):
            found.update(key for key in itertools.islice(value, _MOST_KEYS) if isinstance(key, str))
            pending += [(inner, depth + 1) for inner in itertools.islice(value.values(), 20)]
        elif isinstance(value, list):
            pending += [(inner, depth + 1) for inner in itertools.islice(value, 20)]
    return found
