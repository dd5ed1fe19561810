"""Reading a part of a kept value: a page of it, what a path selects, or the places where a text is found.

Paths are plain (`items[0].name`) or JMESPath that selects and does not compute. They come from models, so their
cost has a limit that does not depend on how clever they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from toolexec.errors import InputValidationError, Violation
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, shorten
from toolexec.run.excerpt import encode, end_within, line_end, size
from toolexec.run.large import Budget, BudgetExceededError, search
from toolexec.run.outline import child_path, describe
from toolexec.run.settings import MIN_BYTES

_MATCHES: Final = 50
_MAX_PATTERN: Final = 500
_MAX_SHOWN: Final = 300
_AROUND: Final = 2
MAX_PATH: Final = 500
_PAGE_NAMES: Final = 160
_CUT_BYTES: Final = 200

_MAX_STEPS: Final = 500_000
_MAX_MADE: Final = 20
_SHOWN_KEYS: Final = 10
_COMPARED_KEYS: Final = 1000
_STEP: Final = re.compile(
    r'\.?([^\s.\[\]"\'`|*?(){}&!@,:<>=]+)'  # .name
    r'|\.?("(?:[^"\\]|\\.)*")'  # ."odd name"
    r"|\[(-?[0-9]{1,9})\]"
    r'|\[("(?:[^"\\]|\\.)*")\]'
)
_FUNCTIONS: Final = frozenset(
    {"avg", "contains", "ends_with", "keys", "length", "max", "min", "reverse", "sort", "starts_with", "sum", "type"}
)

READ_ARGUMENTS: Final[JSONObject] = {
    "type": "object",
    "properties": {
        "handle": {"type": "string", "maxLength": 100},
        "path": {
            "type": "string",
            "maxLength": MAX_PATH,
            "description": "A part: items[0].name, or JMESPath.",
        },
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "`next` of the last page.",
        },
        "limit": {"type": "integer", "minimum": 1},
        "grep": {"type": "string", "maxLength": _MAX_PATTERN, "description": "Text, or /regex/i."},
        "as_json": {"type": "boolean"},
        "max_bytes": {"type": "integer", "minimum": MIN_BYTES},
    },
    "required": ["handle"],
    "additionalProperties": False,
}
"""The JSON Schema of what a tool that reads kept results takes."""

_Kind: TypeAlias = Literal["text", "array", "object", "value", "json", "matches"]
_UNITS: Final[dict[_Kind, tuple[str, str]]] = {
    "text": ("character", "characters"),
    "json": ("character", "characters"),
    "array": ("item", "items"),
    "object": ("member", "members"),
    "value": ("value", "values"),
    "matches": ("match", "matches"),
}
"""What pages of each kind count: one, and several."""

_Matcher: TypeAlias = Callable[[str], int]
"""Where in a text the match ends, roughly; -1 when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a kept value.

    `kind` says what `value` is: a piece of `text`, items of an `array`, members of an `object`, a single `value`, a
    piece of the whole's `json` text, or `matches`. It begins at `offset` and has `count` characters, items, members or
    matches out of `total`; `next` is the offset of the next page, None after the last one. `cut` names the items of
    this page that are too large for any page; in their place are a few words, and their path reads them.
    """

    kind: _Kind
    value: JSONValue
    offset: int = 0
    count: int = 1
    total: int = 1
    next: int | None = None
    cut: tuple[str, ...] = ()

    def to_dict(self) -> JSONDict:
        """Return the page as JSON-able data; `next` and `cut` only when there is such a thing."""
        data: JSONDict = {"kind": self.kind, "value": self.value}
        data |= {"offset": self.offset, "count": self.count, "total": self.total}
        if self.next is not None:
            data["next"] = self.next
        if self.cut:
            data["cut"] = list(self.cut)
        return data


def page_of(value: JSONValue, path: str, offset: int, limit: int | None, room: int, *, as_json: bool = False) -> Page:
    """Return the page of *value* that begins at *offset*, has at most *limit* units and takes at most *room* bytes.

    *path* is where the value is in the whole. With *as_json* it is paged as JSON text, whatever it is. Raises
    InputValidationError for an offset that is negative or past the end, or a limit below 1.
    """
    if offset < 0 or (limit is not None and limit < 1):
        name = "offset" if offset < 0 else "limit"
        raise _not_valid(name, f"{name} must be {'0' if name == 'offset' else '1'} or more")
    room -= _PAGE_NAMES
    if as_json or isinstance(value, str):
        text = encode(value) if as_json else value
        end = end_within(text, min(offset, len(text)), room)
        end = line_end(text, offset, end) if limit is None else min(end, offset + limit)
        return _page("json" if as_json else "text", text[offset:end], offset, max(end - offset, 0), len(text))
    if isinstance(value, dict | list):
        return _members(value, path, offset, limit, room)
    if size(value) > room:  # a number of thousands of digits
        return page_of(encode(value), path, offset, limit, room + _PAGE_NAMES)
    return _page("value", value, offset, 1, 1)


def find_places(value: JSONValue, path: str, wanted: str, offset: int, limit: int | None, room: int) -> Page:
    """Return the places where *wanted* is found: the lines of a text with two lines around each, the leaves and keys of
    anything else by path.

    Upper and lower case are the same; `/pattern/` is a regular expression (without look-around and back references),
    `/pattern/i` one for both cases. *offset* and *limit* count matches. Raises InputValidationError for a pattern that
    does not parse or has over 500 characters, and for an offset past the last match.
    """
    if offset < 0 or (limit is not None and limit < 1):
        raise _not_valid("offset", "offset must be 0 or more, limit 1 or more")
    match = _matcher(wanted)
    places = _lines(value, match) if isinstance(value, str) else _leaves(value, path, match)
    room -= _PAGE_NAMES
    shown: list[JSONDict] = []
    total, is_open = 0, True
    for make in places:
        total += 1
        if not is_open or total <= offset:
            continue
        place = make()
        cost = size(place) + 1
        if cost > room and not shown:
            place = _smaller(place, room)
            cost = size(place) + 1
        is_open = cost <= room and len(shown) < (_MATCHES if limit is None else limit)
        if is_open:
            shown.append(place)
            room -= cost
    return _page("matches", shown, offset, len(shown), total)


def _not_valid(name: str, message: str) -> InputValidationError:
    """Return the error for an argument that makes no sense."""
    return InputValidationError([Violation(path=f"/{name}", keyword="value", message=message)], op="read")


def _page(kind: _Kind, value: JSONValue, offset: int, count: int, total: int, cut: tuple[str, ...] = ()) -> Page:
    """Return a page; raises InputValidationError for one that would begin past the end of the *total*."""
    if offset and offset >= total:
        one, many = _UNITS[kind]
        there = f"there {'is' if total == 1 else 'are'} {total:,} {one if total == 1 else many}"
        raise _not_valid("offset", f"offset {offset:,} is past the end: {there}, counted from 0")
    end = offset + count
    more = count > 0 and end < total
    return Page(kind=kind, value=value, offset=offset, count=count, total=total, next=end if more else None, cut=cut)


def _members(value: JSONValue, path: str, offset: int, limit: int | None, room: int) -> Page:
    is_array = isinstance(value, list)
    keys: list[JSONValue] = list(range(len(value)) if is_array else value)
    end = len(keys) if limit is None else offset + limit
    page: dict[Any, JSONValue] = {}
    cut: list[str] = []
    for key in keys[offset:end]:
        item, name = value[key], key
        cost = size(item) + (1 if is_array else size(key) + 2)
        if cost > room and page:
            break
        if cost > room:
            text = f"({size(item):,} bytes, too large for a page; its path reads it: {describe(item)}"
            item = f"{text[: end_within(text, 0, _CUT_BYTES)]})"
            name = key if is_array or size(key) <= _CUT_BYTES else f"{key[: end_within(key, 0, _CUT_BYTES)]}..."
            here = child_path(path, key)
            fits = len(here) <= MAX_PATH and size(here) <= room * 2 // 5
            cut.append(here if fits else "(its path is too long; use as_json)")
            page[name] = item
            break
        room -= cost
        page[name] = item
    count = len(page)
    return _page(
        "array" if is_array else "object",
        json.loads(encode(list(page.values()) if is_array else page)),  # the kept value stays ours
        offset,
        count,
        len(keys),
        tuple(cut),
    )


# -- finding --------------------------------------------------------------------------------------------------------


def _matcher(wanted: str) -> _Matcher:
    if not wanted or len(wanted) > _MAX_PATTERN:
        raise _not_valid("grep", f"grep must have 1 to {_MAX_PATTERN} characters")
    pattern = re.fullmatch(r"/(.+)/(i?)", wanted, re.DOTALL)
    if pattern is not None:
        return _pattern_matcher(f"(?i){pattern[1]}" if pattern[2] else pattern[1])
    lowered = wanted.lower()

    def find(text: str) -> int:
        at = text.lower().find(lowered)
        return at + len(lowered) if at >= 0 else -1

    return find


def _pattern_matcher(pattern: str) -> _Matcher:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:  # this engine takes time in proportion to the text, whatever the pattern
        validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        reason = " ".join(str(error).split())[:_MAX_SHOWN]
        raise _not_valid("grep", f"the pattern cannot be used: {reason}") from None
    matches = validator.isinstance_python

    def find(text: str) -> int:
        if not matches(text):
            return -1
        if len(text) <= _MAX_SHOWN:
            return len(text)
        low, high = 0, len(text)  # it shows whether there is a match, not where: halve the text until it is found
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if matches(text[:middle]) else (middle, high)
        return high

    return find


def _lines(text: str, match: _Matcher) -> Iterator[Callable[[], JSONDict]]:
    lines = text.split("\n")
    at = 0
    for number, line in enumerate(lines):
        found = match(line)
        if found >= 0:
            yield lambda number=number, at=at, found=found: _line(lines, number, at, found)
        at += len(line) + 1


def _line(lines: list[str], number: int, at: int, found: int) -> JSONDict:
    place: JSONDict = {"line": number + 1, "offset": at, "text": _around(lines[number], found)}
    before = [_around(line, 0) for line in lines[max(number - _AROUND, 0) : number]]
    after = [_around(line, 0) for line in lines[number + 1 : number + 1 + _AROUND]]
    return place | ({"before": before} if before else {}) | ({"after": after} if after else {})


def _leaves(value: JSONValue, path: str, match: _Matcher) -> Iterator[Callable[[], JSONDict]]:
    stack: list[tuple[str, JSONValue, JSONValue]] = [(path, "", value)]
    while stack:
        here, key, node = stack.pop()
        named = isinstance(key, str) and key and match(key) >= 0
        found = -1
        if isinstance(node, dict | list):
            members = node.items() if isinstance(node, dict) else enumerate(node)
            stack += [(child_path(here, name), name, item) for name, item in members][::-1]
        else:
            text = node if isinstance(node, str) else encode(node)
            found = match(text)
        if named or found >= 0:
            yield lambda here=here, node=node, found=found: _leaf(here, node, found)


def _leaf(path: str, node: JSONValue, found: int) -> JSONDict:
    if isinstance(node, dict | list):
        return {"path": path[:_MAX_SHOWN], "value": f"({describe(node)[:_MAX_SHOWN]})"}
    text = node if isinstance(node, str) else encode(node)
    if len(text) <= _MAX_SHOWN:
        return {"path": path[:_MAX_SHOWN], "value": node}
    return {"path": path[:_MAX_SHOWN], "value": _around(text, max(found, 0)), "characters": len(text)}


def _smaller(place: JSONDict, room: int) -> JSONDict:
    """Return the place without the lines around it, its strings cut to a third of the room each."""
    kept = {name: item for name, item in place.items() if name not in ("before", "after")}
    for name, item in kept.items():
        if isinstance(item, str):
            kept[name] = item[: end_within(item, 0, room // 3)]
    return kept


def _around(line: str, found: int) -> str:
    """At most 300 characters of a line, with the match that ends at *found* in them."""
    if len(line) <= _MAX_SHOWN:
        return line
    start = max(min(found - _MAX_SHOWN // 2, len(line) - _MAX_SHOWN), 0)
    end = start + _MAX_SHOWN
    return f"{'...' if start else ''}{line[start:end]}{'...' if end < len(line) else ''}"


def select(value: JSONValue, path: str) -> JSONValue:
    """Return what *path* selects; an empty one (or `$`) is the value itself.

    Raises InputValidationError for a path that leads nowhere (it says how far it leads), does not parse, has over 500
    characters, computes more than it selects, or takes too long.
    """
    if len(path) > MAX_PATH:
        raise _not_valid("path", f"a path may have {MAX_PATH} characters, not {len(path)}")
    steps = _plain(path)
    if steps is None:
        return _search(value, path)
    done = ""
    for step, text in steps:
        value = _step(value, step, done)
        done += text
    return value


def _plain(path: str) -> list[tuple[str | int, str]] | None:
    """Return the steps of a plain path, each with its text; None for one that is not plain."""
    at = 1 if path[:1] == "$" else 0
    steps: list[tuple[str | int, str]] = []
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or (steps and found.group()[0] not in '.["'):
            return None
        name, quoted, index, bracketed = found.groups()
        text = quoted or bracketed
        try:
            step = int(index) if index else json.loads(text) if text else name
        except ValueError:
            return None
        steps.append((step, found.group()))
        at = found.end()
    return steps


def _step(value: JSONValue, step: str | int, done: str) -> JSONValue:
    where = shorten(done) or "the top"
    if isinstance(value, dict):
        if str(step) in value:
            return value[str(step)]
        known = [shorten(key, 40) for key in list(value)[:_SHOWN_KEYS]]
        more = f" and {len(value) - _SHOWN_KEYS:,} more" if len(value) > _SHOWN_KEYS else ""
        keys = [key for key in value if isinstance(key, str)][:_COMPARED_KEYS]
        hint = did_you_mean(step, keys, otherwise=f"its keys: {', '.join(known)}{more}")
        raise _not_valid("path", f"there is no {shorten(str(step))!r} at {where}; {shorten(hint, 500)}")
    if isinstance(value, list):
        number = int(step) if isinstance(step, int) or (step.isascii() and step.isdigit() and len(step) < 10) else None
        if number is None:
            raise _not_valid("path", f"there is an array at {where}: use [0] or [*] before {shorten(str(step))!r}")
        if not -len(value) <= number < len(value):
            raise _not_valid("path", f"there is no [{number}] at {where}: it has {len(value):,} items")
        return value[number]
    raise _not_valid("path", f"{where} is neither object nor array; there is nothing below it")


def _search(value: JSONValue, path: str) -> JSONValue:
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        parsed = jmespath.compile(path.removeprefix("$.")).parsed
        _check(parsed, [0])
        return search(parsed, value, Budget(steps=_MAX_STEPS))
    except (JMESPathError, ValueError, TypeError, RecursionError, BudgetExceededError) as error:
        reason = shorten(" ".join(str(error).split()), 300)
        raise _not_valid("path", f"cannot select {shorten(path)!r}: {reason}") from None


def _check(node: JSONValue, made: list[int]) -> None:
    """Refuse what can make a result much larger than the value that it comes from. *made* counts the new parts."""
    if not isinstance(node, dict):
        return
    if node["type"] in ("multi_select_list", "multi_select_dict"):
        if made[0] or len(node["children"]) > _MAX_MADE:
            raise ValueError(f"it may make one new object, of at most {_MAX_MADE} parts")
        made[0] += 1
    if node["type"] == "function_expression" and node["value"] not in _FUNCTIONS:
        raise ValueError(f"of the functions there are {', '.join(sorted(_FUNCTIONS))}")
    for child in node.get("children", ()):
        _check(child, made)
