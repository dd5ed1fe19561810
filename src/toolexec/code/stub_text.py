"""Text from strangers as parts of Python source: nothing in it can end the place that it is put into.

Names, descriptions, patterns and defaults come from untrusted tools, and a model reads what is made of them.
Everything is one line of printable characters, without marks that hide or reorder text.
"""

from __future__ import annotations

import json
import keyword
import re
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.model.visible import visible_line

_WIDTH: Final = 100
_MAX_NAME: Final = 100
_MAX_CONSTRAINT: Final = 60
_MAX_CLASS_NAME: Final = 60
_WORD: Final = re.compile(r"[A-Za-z0-9]+", re.ASCII)
_QUOTES: Final = re.compile(r'"{2,}|"$')
_ORDER: Final = re.compile(r"(?:type|pyright|mypy|ruff|flake8|pylint|isort|pyre-\w+)\s*:|noqa\b", re.IGNORECASE)
_HASH: Final = re.compile(rf"(?:#\s*)+(?=(?:{_ORDER.pattern}))", re.IGNORECASE)
_SHOWN: Final = ("format", "pattern", "multipleOf", "contentEncoding", "contentMediaType")
_BOUNDS: Final = (
    ("minimum", ">= {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "<= {}"),
    ("exclusiveMaximum", "< {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("minProperties", "at least {} names"),
    ("maxProperties", "at most {} names"),
)


def one_line(text: JSONValue, limit: int) -> str:
    """Return *text* on one visible line of at most *limit* characters; empty when it is not a string."""
    if not isinstance(text, str):
        return ""
    return visible_line(text, limit)


def paragraph(text: str, limit: int) -> str:
    """Return the first paragraph of *text* on one line, cut between words at *limit* characters."""
    first = re.split(r"\r?\n[ \t]*\r?\n", text.strip()[: limit * 4], maxsplit=1)[0]
    line = one_line(first, limit * 4)
    if len(line) <= limit:
        return line
    whole = line[: limit - 1].rpartition(" ")[0]
    return f"{whole or line[: limit - 1]}…"


def docstring(lines: Sequence[str], indent: str) -> list[str]:
    """Return the lines of a docstring; those given are made harmless and wrapped, their own indentation is kept."""
    safe: list[str] = []
    for line in lines:
        lead = line[: len(line) - len(line.lstrip(" "))]
        text = _QUOTES.sub("'", line.strip()).replace("\\", "\\\\")
        width = max(_WIDTH - len(indent) - len(lead) - 3, 40)  # the first line begins with quotes
        wrapped = textwrap.wrap(
            text, width, subsequent_indent="    " if lead else "", break_long_words=False, break_on_hyphens=False
        )
        safe += [f"{indent}{lead}{part}".rstrip() for part in wrapped or [""]]
    if len(safe) == 1:
        return [f'{indent}"""{safe[0].strip()}"""']
    return [f'{indent}"""{safe[0].strip()}', *safe[1:], f'{indent}"""']


def quoted(text: str) -> str:
    """Return *text* as a Python literal of printable ASCII or letters, in double quotes unless that needs escapes."""
    literal = repr(text)
    inner = literal[1:-1]
    return f'"{inner}"' if literal[0] == "'" and '"' not in inner and "\\'" not in inner else literal


def is_plain_name(name: str) -> bool:
    """Return whether code can write *name* as the name of an argument or an attribute, and Python takes it as it is.

    Python normalises letters (`ﬁ` becomes `fi`) and mangles names that begin with `__`; those are not plain names.
    """
    return (
        len(name) <= _MAX_NAME
        and name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("__")
        and unicodedata.normalize("NFKC", name) == name
    )


def joined_words(*strings: str) -> str:
    """Return the words of *strings* as one class name: `create_issue`, `result` gives `CreateIssueResult`; may be
    empty.
    """
    words = [word[0].upper() + word[1:] for text in strings for word in _WORD.findall(text[:_MAX_NAME])]
    name = "".join(words)[:_MAX_CLASS_NAME]
    return f"T{name}" if name[:1].isdigit() else name


def constraints(schema: JSONObject, words: Mapping[bool | None, str]) -> str:
    """Return what a type cannot say of a value, in a few words: format, bounds, pattern, default; without what begins a
    comment. *words* are the language's for true, false and nothing.
    """
    parts: list[str] = []
    for key in _SHOWN:
        value = schema.get(key)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            parts.append(f"{key} {_json(value) if key == 'pattern' else one_line(str(value), _MAX_CONSTRAINT)}")
    for key, bound in _BOUNDS:
        value = schema.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            parts.append(bound.format(one_line(str(value), 24)).removesuffix("s" if value == 1 else " "))
    if schema.get("uniqueItems") is True:
        parts.append("all different")
    if schema.get("deprecated") is True:
        parts.append("deprecated")
    if "default" in schema:
        default = schema["default"]
        parts.append(f"default {words[default] if isinstance(default, bool | None) else _json(default)}")
    return harmless_comment(", ".join(parts))


def harmless_comment(text: str) -> str:
    """Return a comment's text, what follows its `#`, in which no type checker or linter finds an order to itself."""
    safe = _HASH.sub("", text).strip()
    return f"note: {safe}" if _ORDER.match(safe) else safe


def _json(value: JSONValue) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:  # nested deeper than any default that helps a reader
        return "…"
    return one_line(text, _MAX_CONSTRAINT)
