"""What a program that failed should have written, by the catalogue and the API: as text that can be put in its place.

Each piece of advice says "write `this` instead of `that`", or "leave `that` out", in the program's own words.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from toolexec.code.names import python_name
from toolexec.code.repair.bare_names import Bare, catalogue_of
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.near_names import about_near_names
from toolexec.code.repair.other_tools import about_other_tool
from toolexec.code.repair.source import calls_of, instead, split
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_UNDEFINED: Final = re.compile(r"(?:NameError: name|ReferenceError:) '?(\w+)'? is not defined")
_POSITIONAL: Final = re.compile(r"TypeError: tools take (?:keyword arguments|one object): tools\.([\w.]+)\(")
_NOT_TEXT: Final = re.compile(
    r"TypeError: the JSON object must be str, bytes or bytearray, not|SyntaxError: .*(?:JSON|token|\[object)"
)
_HYPHEN: Final = re.compile(r"\btools\.(\w+)\.(\w+(?:-\w+)+)")
_MOST_SHOWN: Final = 10
_NO_TOOL: Final = re.compile(r"(?:ToolNotFoundError|ToolError): no tool (\S+); did you mean (\S+?)(?:\?| or )")
_ABSENT: Final = re.compile(r"(?:ToolNotFoundError|ToolError): no tool (\S+?)(?:;|$)")
_AWAIT: Final = "SyntaxError: 'await' outside async function"
_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "python": {"true": "True", "false": "False", "null": "None", "undefined": "None"},
    "javascript": {"True": "true", "False": "false", "None": "null", "print": "console.log"},
}


def about_calls(failure: Failure, tools: Tools | None) -> str:
    """Return what to write instead; "" where nothing certain can be said."""
    if found := _UNDEFINED.match(failure.message):
        word = found[1]
        other = _WORDS.get(failure.language, {}).get(word)
        return instead(word, other) if other is not None else _about_name(word, failure, tools)
    if (found := _NO_TOOL.match(failure.message)) and "-" in found[2]:
        old, new = _spelled(found[1]), _spelled(":".join(map(python_name, found[2].split(":"))))
        space, _, name = found[1].rpartition(":")
        quoted = (f"tools[{quote}{space}{quote}].{name}" for quote in "\"'")
        written = next((each for each in (old, *quoted) if each in failure.code), "")
        is_same = python_name(found[1].replace(":", "_")) == python_name(found[2].replace(":", "_"))
        return instead(written, new) if written and (is_same or written == old) else ""
    if tools is not None and (found := _ABSENT.match(failure.message)):
        return about_other_tool(found[1], failure, tools)
    if (found := _POSITIONAL.match(failure.message)) and tools is not None:
        return _about_positional(found[1], failure, tools)
    if tools is not None and (advice := _about_hyphen(failure, tools)):
        return advice
    if failure.message.startswith(_AWAIT) and failure.source:
        line = failure.source.strip()
        without = re.sub(r"\bawait[ \t]+", "", line)
        return f"a call in a function without `async` needs no `await`: {instead(line, without)}"
    if _NOT_TEXT.match(failure.message):
        name = "json.loads" if failure.language == "python" else "JSON.parse"
        for old, inner in calls_of(name, failure.source):
            return f"the result of a tool is a value already: {instead(old, inner)}"
    return ""


def _about_hyphen(failure: Failure, tools: Tools) -> str:
    """Advise on the name of a tool with a hyphen, which is a difference for the language."""
    for found in _HYPHEN.finditer(failure.source):
        entry = tools.index.find(f"{found[1].replace('.', ':')}:{found[2]}")
        if entry is not None and tools.allows(entry.tool.id):
            old = f"tools.{found[1]}.{found[2]}"
            return f"a name has no `-` here: {instead(old, f'tools.{found[1]}.{python_name(found[2])}')}"
    return ""


def _about_name(word: str, failure: Failure, tools: Tools | None) -> str:
    if tools is None:
        return about_near_names(word, failure)
    known = catalogue_of(tools.index)
    paths = [path for path in known.tools.get(word, ()) if tools.allows(path)]
    if paths:
        shown = ", ".join(f"`{_spelled(path)}`" for path in paths[:5])
        return f"several tools are called {word}: {shown}"
    is_space = re.search(rf"\b{word}\s*\.", failure.code) is not None
    if advice := about_near_names(word, failure, tools):
        return advice
    names = {**{name: (path,) for name, path in known.namespaces.items()}} if is_space else dict(known.tools)
    return _nearest(word, names, known, tools)


def _nearest(word: str, names: Mapping[str, tuple[str, ...]], known: Bare, tools: Tools) -> str:
    folded = {name.replace("_", "").lower(): name for name in names}
    close = difflib.get_close_matches(word.replace("_", "").lower()[:100], list(folded)[:5000], n=1, cutoff=0.7)
    if not close:
        return ""
    name = folded[close[0]]
    allowed = [path for path in names[name] if path in known.namespaces.values() or tools.allows(path)]
    if len(allowed) != 1:
        return ""
    return instead(word, _spelled(allowed[0]))


def _spelled(path: str) -> str:
    return "tools." + path.replace(":", ".")


def _about_positional(path: str, failure: Failure, tools: Tools) -> str:
    entry = tools.index.find(path.replace(".", ":"))
    if entry is None:
        paths = catalogue_of(tools.index).tools.get(path.rpartition(".")[2], ())
        entry = tools.index.find(paths[0]) if len(paths) == 1 else None
    if entry is None:
        about, other = _about_missing(path, tools), about_other_tool(path, failure, tools)
        return f"{about}; {other}" if about and other else about or other
    if not tools.allows(entry.tool.id):
        return ""
    names = arguments_of(entry.tool.input_schema.to_json())
    said = f"its arguments are {', '.join(names)}" if names else "it has no arguments"
    for called in (f"tools.{path}", path, path.rpartition(".")[2]):
        for old, inner in calls_of(called, failure.code):
            given = split(inner)
            if not given or len(given) > len(names) or given[0].startswith(("{", "**", "...")):
                continue
            if failure.language == "python":
                named = [each for each in given if re.match(r"\w+\s*=(?!=)", each)]
                plain = given[: len(given) - len(named)]
                spread = _spread(plain, names)
                plain, named = (plain[:-1], [*spread, *named]) if spread else (plain, named)
                pairs = [*(f"{name}={value}" for name, value in zip(names, plain, strict=False)), *named]
                new = f"{called}({', '.join(pairs)})"
            else:
                pairs = [f"{name}: {value}" for name, value in zip(names, given, strict=False)]
                new = f"{called}({{{', '.join(pairs)}}})"
            return f"{said}: {instead(old, new)}"
    return said


def _about_missing(path: str, tools: Tools) -> str:
    """Say which tools a namespace has, for one that it has not."""
    space = path.rpartition(".")[0]
    paths = [each for group in catalogue_of(tools.index).tools.values() for each in group]
    there = sorted(each for each in paths if each.rpartition(":")[0] == space and tools.allows(each))[:_MOST_SHOWN]
    return f"there is no tool {path.replace('.', ':')}; {space} has {', '.join(map(_spelled, there))}" if there else ""


def _spread(given: list[str], names: list[str]) -> list[str]:
    """Return what a last dict has, as arguments by name: where its keys are names of arguments, and behind others."""
    last = given[-1] if len(given) > 1 else ""
    if not (last.startswith("{") and last.endswith("}")):
        return []
    pairs = [re.fullmatch(r"(['\"])(\w+)\1\s*:\s*(.+)", each, re.DOTALL) for each in split(last[1:-1])]
    found = [f"{pair[2]}={pair[3]}" for pair in pairs if pair is not None and pair[2] in names[len(given) - 1 :]]
    return found if found and len(found) == len(pairs) else []


def arguments_of(schema: JSONValue) -> list[str]:
    """Return the names of the arguments in *schema*, those that are required first."""
    if not isinstance(schema, Mapping):
        return []
    properties = schema.get("properties")
    names = [*properties] if isinstance(properties, Mapping) else []
    required = schema.get("required")
    needed: set[object] = set(required) if isinstance(required, list) else set()
    return sorted(map(str, names), key=lambda name: name not in needed)
