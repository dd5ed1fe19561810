"""What to write for a read that finds nothing in a result: decided by the values that the calls of the run have had.

The readers of each language (`python_reads`, `javascript_reads`) find the reads; nothing is said of one whose base is
not known, or that any of the values before it has.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from toolexec.code.repair.source import instead
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

__all__ = [
    "VALUE",
    "WRAPPERS",
    "Advice",
    "Read",
    "fold",
    "named_list",
    "nouns_of",
    "only_list",
    "results_of",
    "shown_keys",
    "shown_value",
    "time_as_text",
    "time_of_number",
    "what_to_write",
]

VALUE: Final = "the result of a tool is a value already"

WRAPPERS: Final = frozenset(
    {"body", "content", "data", "json", "output", "payload", "response", "result", "structuredContent"}
    | {"structured_content", "value"}
)
"""Where other APIs have the value of a call."""

_LISTS: Final = WRAPPERS | {"entries", "hits", "items", "list", "matches", "records", "results", "rows"}
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    type(None): "null",
}
_MOST: Final = 200
_MOST_SHOWN: Final = 20
_OF_EACH: Final = frozenset({"map", "filter", "forEach", "reduce", "some", "every", "find", "flatMap"})
_LONGEST_SHOWN: Final = 60
_SECONDS: Final = range(1_000_000_000, 10_000_000_000)
_MILLISECONDS: Final = range(1_000_000_000_000, 10_000_000_000_000)
"""Numbers that are times between 2001 and 2286."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")


@dataclass(frozen=True, slots=True)
class Read:
    """A read of `key` from `base`, as the program has it in `whole`.

    `values` are those that the base has had; `after` are the keys that are read from what it gives, and `as_list` says
    that it is used like a list. `tail` is the text with all that other APIs have around a value, as `.content[0].text`,
    and `nouns` are the words of the tools that were called.
    """

    base: str
    key: str
    whole: str
    values: Sequence[JSONValue]
    after: tuple[str, ...] = ()
    as_list: bool = False
    tail: str = ""
    nouns: frozenset[str] = frozenset()
    is_part: bool = False
    """Whether the base is a part of a result, and no result of its own."""
    takers: str = ""
    """Where the part is from, and the calls of tools that take it alone."""

    @property
    def is_wrapper(self) -> bool:
        """Whether the key says only that there is a value: "result", or "forecast" of `get_forecast`."""
        return self.key in WRAPPERS or _singular(self.key) in self.nouns

    def unwrapped(self) -> str:
        """Return the advice to leave the key out."""
        return instead(self.tail or self.whole, self.base)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to say of a read: `text`; `is_certain` where the values leave one meaning only."""

    text: str
    is_certain: bool = False


def results_of(tools: Tools, path: str) -> list[JSONValue]:
    """Return what the calls of a tool have given in this run, by its name as the program writes it."""
    wanted = fold(path.removeprefix("tools."))
    calls = (call for call in tools.tool_calls()[:_MOST] if call.error is None and not call.is_open)
    return [call.value for call in calls if wanted in (fold(call.tool_id), fold(call.tool_id.rpartition(":")[2]))]


def fold(name: str) -> str:
    """Return a name without its case and what stands between its words."""
    return re.sub(r"[\W_]", "", name).lower()


def only_list(values: Iterable[JSONValue]) -> str:
    """Return the one key under which each of these objects has a list; "" where there is none, or several."""
    names = {
        tuple(key for key, part in each.items() if isinstance(part, list)) for each in values if type(each) is dict
    }
    return next(iter(names))[0] if len(names) == 1 and len(next(iter(names))) == 1 else ""


def named_list(values: Sequence[Mapping[str, JSONValue]], name: str) -> str:
    """Return the key under which each of these objects has a list, by the name that a program gives to it all; ""
    without one."""
    keys = [key for key in values[0] if fold(key) == fold(name)] if values else []
    return keys[0] if keys and all(isinstance(each.get(keys[0]), list) for each in values) else ""


def what_to_write(read: Read, language: str) -> Advice | None:
    """Return what to say of *read*; None where it finds something, or the values are of several kinds."""
    kinds = {type(each) for each in read.values}
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    is_python = language == "python"
    if kind is dict:
        return _of_object(read, [each for each in read.values if isinstance(each, dict)], is_python=is_python)
    if kind is str:
        return _of_text(read, is_python=is_python)
    if kind is list:
        return _of_places(read, is_python=is_python) or _of_list(read)
    if kind is type(None):
        return Advice(f"`{read.base}` is {'None' if is_python else 'null'}: the tool gives no value; do not read one")
    if read.is_part and not read.is_wrapper:
        made = time_of_number(read.base, read.values[0], is_python=is_python) if of_a_time(read.key) else ""
        if made:
            new = made + read.whole.removeprefix(read.base)
            about = f"`{read.base}` is a number, such as {shown_value(read.values[0])}"
            return Advice(f"{about}: {instead(read.whole, new)}")
        about = f"`{read.base}` is {_KINDS[kind]}, such as {shown_value(read.values[0])}: nothing is read from it"
        return Advice(f"{about}; {read.takers}" if read.takers else about)
    return Advice(f"{VALUE}, here {_KINDS[kind]}: {read.unwrapped()}", is_certain=True)


def kind_of(value: JSONValue) -> str:
    """Return what a value is: its kind, with its keys, or with an example."""
    if isinstance(value, dict):
        return f"an object with {shown_keys([value])}"
    if isinstance(value, list):
        row = next((each for each in value if isinstance(each, dict)), None)
        return f"a list of objects with {shown_keys([row])}" if row is not None else f"a list, {shown_value(value)}"
    if value is None:
        return "null"
    name = {str: "text", bool: "a truth value"}.get(type(value), "a number")
    return f"{name}, such as {shown_value(value)}"


def shown_keys(values: Iterable[JSONValue]) -> str:
    """Return the keys of the first of these objects."""
    first = next((each for each in values if isinstance(each, dict)), {})
    return ", ".join([*first][:_MOST_SHOWN]) or "no keys"


def shown_value(value: JSONValue) -> str:
    """Return a value as JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def of_a_time(key: str) -> bool:
    """Return whether dates and times have this, in Python or JavaScript, and strings have not."""
    in_python = hasattr(datetime, key) and not hasattr(str, key)
    return (
        in_python
        or re.fullmatch(r"get(?:UTC)?(?:Time|FullYear|Month|Date|Day|Hours|Minutes)|toISOString", key) is not None
    )


def time_as_text(values: Iterable[JSONValue]) -> bool:
    """Return whether all of these are a date or a time as text."""
    found = list(values)
    return bool(found) and all(isinstance(each, str) and _TIME.fullmatch(each) for each in found)


def time_of_number(text: str, value: JSONValue, *, is_python: bool) -> str:
    """Return what makes a time of a number of seconds or milliseconds since 1970; "" of any other value."""
    if type(value) is not int or (value not in _MILLISECONDS and value not in _SECONDS):
        return ""
    if is_python:
        return f"datetime.fromtimestamp({text}{' / 1000' if value in _MILLISECONDS else ''}, timezone.utc)"
    return f"new Date({text}{'' if value in _MILLISECONDS else ' * 1000'})"


def _of_object(read: Read, values: list[dict[str, JSONValue]], *, is_python: bool) -> Advice | None:
    if any(read.key in each for each in values):
        return None
    shared = [key for key in values[0] if all(key in each for each in values)]
    nested = [key for key in shared if all(isinstance(each[key], dict) for each in values)]
    has = f"it has {', '.join([*values[0]][:_MOST_SHOWN]) or 'no keys'}"
    certain = _certain(read, values, shared, nested, is_python=is_python)
    meant = certain or _probable(read, values, nested, is_python=is_python)
    if meant is not None:
        why, new = meant
        return Advice(
            f"{why}: {read.unwrapped() if new == read.base else instead(read.whole, new)}", certain is not None
        )
    if read.key in WRAPPERS:
        return Advice(f"{VALUE}: {read.unwrapped()}; {has}")
    close = _alike(read.key, shared)
    about = f"`{read.base}` has no `{read.key}`, {has}"
    return Advice(f"{about}: {instead(read.whole, _at(read.base, close, is_python=is_python))}" if close else about)


def _certain(
    read: Read, values: list[dict[str, JSONValue]], shared: list[str], nested: list[str], *, is_python: bool
) -> tuple[str, str] | None:
    """Return why, and what is certainly meant."""

    def at(*keys: str) -> str:
        return _at(read.base, *keys, is_python=is_python)

    missing = f"`{read.base}` has no `{read.key}`"
    if len(same := [key for key in shared if fold(key) == fold(read.key)]) == 1:
        return missing, at(same[0])
    if len(inside := [key for key in nested if all(read.key in _dict(each[key]) for each in values)]) == 1:
        return f"{missing}, `{inside[0]}` in it has", at(inside[0], read.key)
    words = _words(read.key)
    for key in nested:
        rest = "_".join(words[len(_words(key)) :])
        found = [inner for inner in _dict(values[0][key]) if fold(inner) == fold(rest)]
        if words[: len(_words(key))] == _words(key) and len(found) == 1:
            return f"{missing}, `{key}` in it has `{found[0]}`", at(key, found[0])
    listed = only_list(values)
    if listed and (read.as_list or read.key in _LISTS) and _means_list(read, listed):
        return f"{missing}; the list is in `{listed}`", at(listed)
    if read.is_wrapper and read.after and all(key in each for each in values for key in read.after):
        return VALUE, read.base
    return None


def _probable(
    read: Read, values: list[dict[str, JSONValue]], nested: list[str], *, is_python: bool
) -> tuple[str, str] | None:
    """Return why, and what is probably meant."""
    missing, after = f"`{read.base}` has no `{read.key}`", read.after[0] if read.after else ""
    having = [key for key in nested if after and all(after in _dict(each[key]) for each in values)]
    if len(having) == 1:
        return f"{missing}, and `{having[0]}` in it has `{after}`", _at(read.base, having[0], is_python=is_python)
    return None


def _means_list(read: Read, listed: str) -> bool:
    words = {_singular(word) for word in _words(read.key)}
    return read.key in _LISTS or _singular(listed) in read.nouns | words or bool(words & read.nouns)


def _of_text(read: Read, *, is_python: bool) -> Advice:
    if read.key in _OF_EACH and f".{read.key}" in read.whole:
        new = f'{read.base}.split("\\n").{read.key}'
        return Advice(f"`{read.base}` is text: {instead(read.whole, new)} for each of its lines")
    parsed = _parsed(read.values)
    if parsed is not None:
        inner = f"json.loads({read.base})" if is_python else f"JSON.parse({read.base})"
        rest = read.whole.removeprefix(read.base)
        return Advice(f"`{read.base}` is JSON as text: {instead(read.whole, inner + rest)}", is_certain=True)
    if time_as_text(read.values) and of_a_time(read.key) and f".{read.key}" in read.whole:
        made = f"datetime.fromisoformat({read.base})" if is_python else f"new Date({read.base})"
        about = f"`{read.base}` is text, such as {shown_value(read.values[0])}"
        return Advice(f"{about}: {instead(read.whole, made + read.whole.removeprefix(read.base))}")
    if read.is_part and not read.is_wrapper:
        about = f"`{read.base}` is text, such as {shown_value(read.values[0])}: it has no `{read.key}`"
        return Advice(about)
    return Advice(f"{VALUE}, here text: {read.unwrapped()}", is_certain=read.is_wrapper)


def _of_places(read: Read, *, is_python: bool) -> Advice | None:
    """Advise on a list whose items have a place, and no name: a place as text, or an item that is a list."""
    if read.key.isdigit():
        return Advice(f"`{read.base}` is a list: {instead(read.whole, f'{read.base}[{read.key}]')}", is_certain=True)
    first = next((each for each in read.values if isinstance(each, list) and each), None)
    if not read.is_part or first is None or isinstance(first[0], dict | list):
        return None
    about = f"`{read.base}` is {'a list' if is_python else 'an array'}, such as {shown_value(first)}"
    return Advice(f"{about}, without `{read.key}`: read it by place, as `{read.base}[0]`")


def _of_list(read: Read) -> Advice:
    rows = [row for each in read.values if isinstance(each, list) for row in each]
    if any(isinstance(row, dict) and read.key in row for row in rows):
        return Advice(f"`{read.base}` is a list, and each of its items has `{read.key}`: read it from them, one by one")
    return Advice(f"{VALUE}, here a list: {read.unwrapped()}", is_certain=True)


def _parsed(strings: Iterable[JSONValue]) -> list[JSONValue] | None:
    """Return the objects or lists that all of these strings are the JSON of."""
    found: list[JSONValue] = []
    for text in strings:
        try:
            value = json.loads(text) if isinstance(text, str) and text.lstrip()[:1] in ("{", "[") else None
        except (ValueError, RecursionError):
            return None
        if value is None:
            return None
        found.append(value)
    return found


def _alike(name: str, keys: Sequence[str]) -> str:
    """Return the one key that has all words of a name, or the other way round; else the one that is nearly the same."""
    words = {_singular(each) for each in _words(name)}
    having = {key: {_singular(each) for each in _words(key)} for key in keys}
    found = [key for key, own in having.items() if words <= own or words >= own]
    found = found or [key for key, own in having.items() if any(_begins(a, b) for a in words for b in own)]
    if len(found) == 1:
        return found[0]
    close = difflib.get_close_matches(name, keys, 1, cutoff=0.75) if not found else []
    return close[0] if close else ""


def _begins(a: str, b: str) -> bool:
    """Return whether a word is another one, cut, as `ref` is `reference`."""
    return len(a) > 2 < len(b) and (a.startswith(b) or b.startswith(a))


def _at(base: str, *keys: str, is_python: bool) -> str:
    if is_python:
        return base + "".join(f'["{key}"]' for key in keys)
    return base + "".join(f".{key}" if key.isidentifier() else f'["{key}"]' for key in keys)


def nouns_of(tools: Tools) -> frozenset[str]:
    """Return the words of the names of the tools that were called."""
    ids = {call.tool_id for call in tools.tool_calls()[:_MOST]}
    return frozenset(_singular(word) for each in ids for word in _words(each))


def _singular(word: str) -> str:
    return word.lower().removesuffix("s")


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _dict(value: JSONValue) -> dict[str, JSONValue]:
    return value if isinstance(value, dict) else {}
