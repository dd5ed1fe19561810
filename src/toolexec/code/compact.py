"""One line for each tool: what a model needs to call it, in as few tokens as that takes."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from toolexec.code.names import ToolPath
from toolexec.code.stub_dialects import PYTHON, TYPESCRIPT, Dialect, is_javascript
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.tool import Tool
from toolexec.model.visible import visible_line

_MAX_TAKES: Final = 400
_MAX_GIVES: Final = 200
_MAX_TYPE: Final = 1000
_MAX_SENTENCE: Final = 90
_MAX_NAME: Final = 64
_MAX_CHOICES: Final = 8
_MAX_CHOICE: Final = 24
_MAX_DEFAULT: Final = 20
_MAX_LEVEL: Final = 3
_MAX_FIELDS: Final = 40
_MAX_PARTS: Final = 400
"""How many parts of a schema are looked at: far more than a line has room for, and few enough for an event loop."""
_MAX_REMEMBERED: Final = 16_000
_WORD: Final = re.compile(r"[^\W\d_]+")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")
_MARK: Final = re.compile(r"(?<!\S)#+(?=\s|$)")
"""What begins a note behind a tool, and a heading of Markdown."""
_SMALL: Final = frozenset({"a", "an", "the", "of", "in", "to", "for", "by", "and", "or", "all", "with", "given", "new"})
_INNER: Final = re.compile(r'"(?:\\.|[^"\\])*"|\{[^{}]*\}|<[^<>]*>|\([^()]*\)')
_KEY: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_JSON_NAMES: Final = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})


def compact_stub(tool: Tool, path: ToolPath | None = None, *, language: str = "python") -> str:
    """Return one line that says how a tool is called, what it gives and what it does, of at most about 800 characters.

    *path* are the attributes that lead to it from code; without them the line begins with its ID. `?` marks what may be
    left out, `…` what was cut; a field of a result without a type is a string. What the name says already is not
    repeated, and a result that is not described is left out. For programs in JavaScript and TypeScript, the arguments
    are one object and the types those of TypeScript.

    >>> from toolexec import Tool
    >>> schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"default": 1}}, "required": ["a"]}
    >>> compact_stub(Tool(name="add", namespace="math", description="Exact. Slow.", input_schema=schema))
    'math:add(a: int, b=1)  # Exact.'
    >>> compact_stub(Tool(name="add", namespace="math", input_schema=schema), ("math", "add"), language="typescript")
    'math.add({a: number, b?=1})'
    """
    head = visible_line(".".join(path) if path else tool.id, 4 * _MAX_NAME)
    dialect = TYPESCRIPT if is_javascript(language) else PYTHON
    result = tool.output_schema.text if tool.output_schema is not None else ""
    takes, gives = _signature(tool.input_schema.text, result, dialect)
    if dialect is TYPESCRIPT and takes:
        takes = f"{{{takes}}}"
    comment = " ".join(filter(None, (first_sentence(tool), _danger(tool))))
    mark = "//" if dialect is TYPESCRIPT else "#"
    return f"{head}({takes}){f' -> {gives}' if gives else ''}{f'  {mark} {comment}' if comment else ''}"


def call_line(tool: Tool) -> str:
    """Return one line to choose and call a tool by: its ID, its arguments, and what it does where the ID does not say
    that. Marks are those of `compact_stub`; what it gives is left out.

    >>> from toolexec import Tool
    >>> schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"default": 1}}, "required": ["a"]}
    >>> call_line(Tool(name="add", namespace="math", description="Exact. Slow.", input_schema=schema))
    'math:add(a: int, b=1): Exact.'
    """
    takes, _ = _signature(tool.input_schema.text, "", PYTHON)
    words = " ".join(filter(None, (first_sentence(tool), _danger(tool))))
    return f"{visible_line(tool.id, 4 * _MAX_NAME)}({takes}){f': {words}' if words else ''}"


def result_type(tool: Tool) -> str:
    """Return the type of what a tool gives in at most 1,000 characters; empty where it is not described. A field
    without a type is a string."""
    if tool.output_schema is None:
        return ""
    gives = tool.output_schema.to_json()
    shown = _Types(gives, PYTHON).of(gives, 0, bare=True)
    return "" if shown == "any" else shown if len(shown) <= _MAX_TYPE else f"{shown[: _MAX_TYPE - 1]}…"


def _danger(tool: Tool) -> str:
    return "Destructive." if tool.annotations.destructive is True and not tool.annotations.read_only else ""


def first_sentence(tool: Tool) -> str:
    """Return what a tool does in at most 90 characters, without what could be taken for a note; empty where its ID has
    all of these words."""
    shown = visible_line(tool.description or tool.title or tool.annotations.title, 4 * _MAX_SENTENCE)
    sentence = " ".join(_MARK.sub("", _SENTENCE.split(shown, maxsplit=1)[0]).split())
    named = "".join(_WORD.findall(tool.id.lower()))
    rest = [word for word in _WORD.findall(sentence.lower()) if word not in _SMALL and word.rstrip("s") not in named]
    if not rest:
        return ""
    return sentence if len(sentence) <= _MAX_SENTENCE else f"{sentence[: _MAX_SENTENCE - 1].rstrip()}…"


def _signature(takes_text: str, gives_text: str, dialect: Dialect) -> tuple[str, str]:
    """Return the arguments and the type of the result that two schemas (JSON text) say. Those of long ones are not
    remembered: a backend that changes its tools all the time would fill the memory."""
    read = _remembered if len(takes_text) + len(gives_text) <= _MAX_REMEMBERED else _read
    return read(takes_text, gives_text, dialect)


def _read(takes_text: str, gives_text: str, dialect: Dialect) -> tuple[str, str]:
    takes = json.loads(takes_text)
    arguments = _Types(takes, dialect).arguments() if isinstance(takes, dict) else "…"
    if not gives_text:
        return arguments, ""
    gives = json.loads(gives_text)
    shown = _Types(gives, dialect).of(gives, 0, bare=True)
    shown = shown if len(shown) <= _MAX_GIVES else f"{shown[: _MAX_GIVES - 1]}…"
    return arguments, "" if shown == "any" else shown


_remembered = lru_cache(maxsize=2048)(_read)


class _Types:
    """Short names for the types of a schema; *root* is what its references point into."""

    def __init__(self, root: JSONValue, dialect: Dialect) -> None:
        self._root = root
        self._is_python = dialect is PYTHON
        self._words = dialect.words
        self._null = f"|{dialect.null}"
        self._plain = dialect.plain
        self._text = dialect.plain["string"]
        self._left = _MAX_PARTS

    def arguments(self) -> str:
        """Return the arguments, the required ones first; what there is no room for becomes `…` and a number."""
        root = self._root
        assert isinstance(root, dict)
        properties = root.get("properties")
        if not isinstance(properties, dict):
            return "" if root.get("additionalProperties") is False else "**any" if self._is_python else "…"
        required = root.get("required")
        needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set[str]()
        ordered = sorted(properties, key=lambda name: name not in needed)
        parts: list[str] = []
        room = _MAX_TAKES
        for number, name in enumerate(ordered):
            part = self._argument(name, properties[name], name in needed)
            room -= len(part) + 2
            if room < 0:
                parts.append(f"… {len(ordered) - number} more")
                break
            parts.append(part)
        return ", ".join(parts)

    def _argument(self, name: str, schema: JSONValue, is_needed: bool) -> str:
        shown = self._shown_name(name)
        kind = self.of(schema, 0)
        if is_needed:
            return f"{shown}: {kind}"
        default = schema.get("default") if isinstance(schema, dict) else None
        if default is None:
            kind = kind.removesuffix(self._null)
            return f"{shown}?: {kind}"
        literal = self._words[default] if isinstance(default, bool) else json.dumps(default, ensure_ascii=False)
        if len(literal) > _MAX_DEFAULT:
            return f"{shown}?: {kind}"
        literal = visible_line(literal, 2 * _MAX_DEFAULT)
        shown = shown if self._is_python else f"{shown}?"
        return f"{shown}: {kind}={literal}" if '"' in kind else f"{shown}={literal}"

    def of(self, schema: JSONValue, level: int, *, bare: bool = False) -> str:
        """Return the name of a schema's type; *bare* leaves the types of strings in objects out."""
        self._left -= 1
        if not isinstance(schema, dict) or level > _MAX_LEVEL or self._left < 0:
            return "any"
        if isinstance(reference := schema.get("$ref"), str):
            return self.of(self._at(reference), level + 1, bare=bare)
        if choices := _choices(schema):
            return choices
        for key in ("anyOf", "oneOf"):
            if isinstance(branches := schema.get(key), list):
                words = [self.of(branch, level + 1, bare=bare) for branch in branches[:_MAX_CHOICES]]
                return "any" if "any" in words else "|".join(dict.fromkeys(words))
        kinds = schema.get("type")
        named = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind in _JSON_NAMES]
        return "|".join(dict.fromkeys(self._kind(str(kind), schema, level, bare=bare) for kind in named)) or "any"

    def _kind(self, kind: str, schema: JSONDict, level: int, *, bare: bool) -> str:
        if kind == "array":
            inner = self.of(schema.get("items"), level + 1, bare=bare)
            return self._list(inner)
        if kind != "object":
            return self._plain[kind]
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties and level < _MAX_LEVEL:
            return f"{{{', '.join(self._fields(schema, properties, level, bare=bare))}}}"
        inner = self.of(schema.get("additionalProperties"), level + 1, bare=bare)
        if not self._is_python:
            return f"Record<string, {inner}>" if inner != "any" else "object"
        return f"dict[str, {inner}]" if inner != "any" else "dict"

    def _list(self, inner: str) -> str:
        if not self._is_python:
            return f"({inner})[]" if _is_union(inner) else f"{inner}[]"
        return f"list[{inner}]" if inner != "any" else "list"

    def _fields(self, schema: JSONDict, properties: JSONDict, level: int, *, bare: bool) -> Iterator[str]:
        required = schema.get("required")
        needed: Sequence[JSONValue] = required if isinstance(required, list) else ()
        for number, (name, part) in enumerate(properties.items()):
            if number == _MAX_FIELDS:
                yield f"… {len(properties) - number} more"
                return
            kind = self.of(part, level + 1, bare=bare)
            shown = self._shown_name(name) if bare or name in needed else f"{self._shown_name(name)}?"
            yield shown if bare and kind == self._text else f"{shown}: {kind}"

    def _shown_name(self, name: str) -> str:
        plain = name.isidentifier() and not keyword.iskeyword(name) if self._is_python else _KEY.fullmatch(name)
        shown = name if plain and len(name) <= _MAX_NAME else json.dumps(name, ensure_ascii=False)
        return visible_line(shown, _MAX_NAME)

    def _at(self, reference: str) -> JSONValue:
        """Return the part of the schema that a reference points to; None for one that points elsewhere."""
        found = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        return found if reference.startswith("#") else None


def _is_union(type: str) -> bool:
    """Return whether a type is one of several, not only a part of it."""
    while (without := _INNER.sub("", type)) != type:
        type = without
    return "|" in type


def _choices(schema: JSONDict) -> str:
    """Return the values that a schema names, if they are few and short; else nothing."""
    choices = schema.get("enum")
    if choices is None and "const" in schema:
        choices = [schema["const"]]
    if not isinstance(choices, list) or not 0 < len(choices) <= _MAX_CHOICES:
        return ""
    words = [json.dumps(choice, ensure_ascii=False) for choice in choices]
    return "" if any(len(word) > _MAX_CHOICE for word in words) else "|".join(visible_line(w, 40) for w in words)
