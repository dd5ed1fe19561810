"""What is shown of a value that is too large: its shape, its beginnings, and how to read on.

Every function here counts bytes of compact JSON in UTF-8.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.run.excerpt import encode, excerpt, media_kind, size

OUTLINE_SCHEMA: Final[JSONObject] = {
    "type": "object",
    "properties": {
        "handle": {"type": "string"},
        "kind": {"enum": ["object", "array", "text", "binary"]},
        "bytes": {"type": "integer"},
        "about": {"type": "string"},
    },
    "required": ["handle", "kind", "bytes", "about"],
}
"""The JSON Schema that every outline satisfies."""

_MAX_PARTS: Final = 200
_MAX_SAMPLE: Final = 4000
_MAX_PATH: Final = 300
_MAX_DEPTH: Final = 6
_FIRST_ITEMS: Final = 3
_LOOKED_AT: Final = 100
_MAX_FIELDS: Final = 20
_MAX_NAME: Final = 60
_LONG_TEXTS: Final = 3
_SHORTEST_EXCERPT: Final = 200
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


class Outline(JSONDict):
    """An outline. It is a plain JSON object; the class distinguishes it from a value that a tool gave.

    `handle` names the whole (empty when it could not be kept), `kind` says what it is, `bytes` its size as JSON,
    `about` how to read on. Of a text there are `head`, `tail` and `cut`; of objects and arrays `count`, `parts` (what
    is where), `samples` (values as they are), `strings` (the beginnings and ends of long strings) and `left_out` (how
    many parts are not listed).
    """


def outline(
    value: str | dict[Any, JSONValue] | Sequence[JSONValue],
    *,
    total: int,
    max_bytes: int,
    handle: str = "",
    kept: str = "",
) -> Outline:
    """Return the outline of *value*, which takes *total* bytes; it takes at most *max_bytes* itself (at least 1000).

    *handle* is where the whole is kept, *kept* a few words on how long; without a handle the outline says that the
    value is not kept.
    """
    kind = _kind(value)
    head: JSONDict = {"handle": handle, "kind": kind, "bytes": total}
    head["about"] = _about(kind, total, max_bytes, handle, kept)
    if isinstance(value, str):
        head |= _of_text(value, kind, max_bytes - size(head))
    else:
        head["count"] = len(value)
        head |= _Sketch(max_bytes - size(head)).of(value)
    return Outline(head)


def describe(value: JSONValue) -> str:
    """Return a few words on what *value* is: type, number of items, fields; never more than some 1500 characters."""
    if isinstance(value, str):
        kind = media_kind(value)
        looks = f", looks like {kind}" if kind else ""
        return f"text of {len(value):,} characters{looks}"
    if isinstance(value, dict):
        return f"object of {len(value):,} keys"
    if isinstance(value, list | tuple):
        return _describe_array(value)
    return _type(value)


def child_path(path: str, key: str | int) -> str:
    """Return the path of a member: `items`, `items[0]`, `items[0]["odd key"]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if _NAME.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key, ensure_ascii=False)}]"


# -- parts ----------------------------------------------------------------------------------------------------------


class _Sketch:
    """Fills a budget with what is worth knowing of a value, breadth first."""

    def __init__(self, room: int) -> None:
        self._room = room - 120  # the names of the four entries, their brackets, and the count of what is left out
        self._parts_room = self._room // 2
        self._sample = min(_MAX_SAMPLE, max(self._room // 4, 0))
        self._parts: dict[str, str] = {}
        self._samples: JSONDict = {}
        self._strings: list[tuple[int, str, str]] = []
        self._left_out = 0

    def of(self, value: JSONValue) -> JSONDict:
        """Return the entries of the outline."""
        if isinstance(value, list | tuple):
            self._add_part("", describe(value))
        queue = deque([("", value, 0)])
        while queue:
            path, node, depth = queue.popleft()
            for child, item in self._children(path, node):
                if not self._add(child, item):
                    self._left_out += 1
                elif child not in self._samples and depth < _MAX_DEPTH and isinstance(item, dict | list | tuple):
                    queue.append((child, item, depth + 1))
        data: JSONDict = {"parts": self._parts, "samples": self._samples, "strings": self._excerpts()}
        data["left_out"] = self._left_out
        return {name: entry for name, entry in data.items() if entry}

    def _children(self, path: str, node: JSONValue) -> Iterator[tuple[str, JSONValue]]:
        """Yield the members that are looked at; of the others only the number is taken."""
        if isinstance(node, dict):
            for number, (key, item) in enumerate(node.items()):
                if self._is_full():
                    self._left_out += len(node) - number
                    return
                yield child_path(path, _shortened(str(key))), item
        else:
            for number, item in enumerate(node[:_FIRST_ITEMS]):
                if self._is_full():
                    return
                yield child_path(path, number), item

    def _is_full(self) -> bool:
        return len(self._parts) + len(self._samples) >= _MAX_PARTS or self._room < 40

    def _add(self, path: str, item: JSONValue) -> bool:
        if len(path) > _MAX_PATH:
            return False
        total = size(item)
        if total <= self._sample and path not in self._samples and not _has_media(item):
            cost = size(path) + total + 2
            if cost <= self._room:
                self._room -= cost
                self._samples[path] = item
                return True
        if isinstance(item, str) and not media_kind(item):
            self._strings.append((len(item), path, item))
        return self._add_part(path, f"{describe(item)}, {total:,} bytes")

    def _add_part(self, path: str, text: str) -> bool:
        cost = size(path) + size(text) + 2
        if cost > min(self._room, self._parts_room) or path in self._parts:
            return False
        self._room -= cost
        self._parts_room -= cost
        self._parts[path] = text
        return True

    def _excerpts(self) -> JSONDict:
        """Return head and tail of the longest strings, in the room that is left."""
        longest = sorted(self._strings, reverse=True)[:_LONG_TEXTS]
        found: JSONDict = {}
        for number, (_, path, text) in enumerate(longest):
            room = self._room // (len(longest) - number) - size(path) - 2
            if room >= _SHORTEST_EXCERPT and path not in found:
                found[path] = excerpt(text, room)
                self._room -= size(found[path]) + size(path) + 2
        return found


def _of_text(value: str, kind: str, room: int) -> JSONDict:
    facts: JSONDict = {"characters": len(value)}
    if kind == "binary":
        return facts | {"looks_like": media_kind(value)}
    facts["lines"] = value.count("\n") + 1
    return facts | excerpt(value, room - size(facts) - 2)


def _about(kind: str, total: int, max_bytes: int, handle: str, kept: str) -> str:
    text = f"Too large to be shown whole: {total:,} bytes of JSON, and {max_bytes:,} are allowed. This is an outline."
    if not handle:
        return f"{text} The whole is not kept; ask the tool for less."
    ways = {
        "text": "offset and limit (in characters) read on, grep finds lines.",
        "binary": "offset and limit (in characters) read it in pieces.",
    }.get(kind, "path (such as items[0].name) selects a part, offset and limit page through it, grep finds.")
    return f"{text} read_result with this handle has the whole{kept}: {ways}"


def _describe_array(value: Sequence[JSONValue]) -> str:
    kinds = Counter(_type(item) for item in value[:_LOOKED_AT])
    first = f"array of {len(value):,} items"
    if len(kinds) != 1:
        mixed = ", ".join(kinds)
        return f"{first}, of several types: {mixed}" if kinds else first
    (kind,) = kinds
    if kind != "object":
        return f"{first}, each {kind}"
    fields: dict[str, dict[str, None]] = {}
    for item in value[:_LOOKED_AT]:
        for key, member in item.items():
            if len(fields) <= _MAX_FIELDS or key in fields:
                fields.setdefault(str(key), {})[_type(member)] = None
    named = [f"{_shortened(key)} ({' or '.join(types)})" for key, types in fields.items()]
    more = ", ..." if len(named) > _MAX_FIELDS else ""
    return f"{first}, each object; fields: {', '.join(named[:_MAX_FIELDS])}{more}"


def _has_media(value: JSONValue) -> bool:
    """Return whether there is text in *value*, which is small, that is not text for people."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            if media_kind(node):
                return True
        elif isinstance(node, dict):
            stack += node.values()
        elif isinstance(node, list | tuple):
            stack += node
    return False


def _shortened(key: str) -> str:
    return key if len(key) <= _MAX_NAME else f"{key[:_MAX_NAME]}... ({len(key):,} characters)"


def _kind(value: JSONValue) -> str:
    if isinstance(value, str):
        return "binary" if media_kind(value) else "text"
    if isinstance(value, dict):
        return "object"
    return "array"


def _type(value: JSONValue) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    for kinds, name in ((str, "text"), (int, "integer"), (float, "number"), (dict, "object")):
        if isinstance(value, kinds):
            return name
    return "array" if isinstance(value, list | tuple) else encode(value)[:_MAX_NAME]
