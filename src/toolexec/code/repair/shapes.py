"""What to write for a read that finds nothing in a result: decided by the values that the calls of the run have had.

The readers of each language (`python_reads`, `javascript_reads`) find the reads; nothing is said of one whose base is
not known, or that any of the values before it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolexec.code.repair.near_keys import alike, fold, part_of, path_to, singular, words_of
from toolexec.code.repair.shown import parsed_strings, shown_value
from toolexec.code.repair.source import instead
from toolexec.code.repair.times import of_a_time, time_as_text, time_of_number
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

VALUE: Final = "the result of a tool is a value already"

WRAPPERS: Final = frozenset(
    {"body", "content", "data", "json", "output", "payload", "response", "result", "structuredContent"}
    | {"structured_content", "value"}
)
"""Where other APIs have the value of a call."""

_LISTS: Final = WRAPPERS | {"entries", "hits", "items", "list", "matches", "records", "results", "rows"}
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
    place: int = -1
    """Where the base, a row of a table, has what is called so in its columns; -1 where that is not known."""

    @property
    def is_wrapper(self) -> bool:
        """Whether the key says only that there is a value: "result", or "forecast" of `get_forecast`."""
        return self.key in WRAPPERS or singular(self.key) in self.nouns

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
    close = alike(read.key, shared)
    inner = [(key, alike(read.key, [*_dict(values[0][key])])) for key in nested] if not close else []
    if len(inside := [pair for pair in inner if pair[1]]) == 1:
        new = _at(read.base, *inside[0], is_python=is_python)
        return Advice(f"`{read.base}` has no `{read.key}`, {has}: {instead(read.whole, new)}")
    about = f"`{read.base}` has no `{read.key}`, {has}"
    parts = [*_dict(values[0][close])] if close in nested and not {*read.after} & {*_dict(values[0][close])} else []
    part = part_of(read.key, close, parts)
    if parts and not part and not read.after:  # a part of the object is meant
        return Advice(f"{about}; `{close}` in it has {', '.join(parts[:_MOST_SHOWN])}")
    keys = (close, part) if part else (close,)
    return Advice(f"{about}: {instead(read.whole, _at(read.base, *keys, is_python=is_python))}" if close else about)


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
    words = words_of(read.key)
    for key in nested:
        rest = "_".join(words[len(words_of(key)) :])
        found = [inner for inner in _dict(values[0][key]) if fold(inner) == fold(rest)]
        if words[: len(words_of(key))] == words_of(key) and len(found) == 1:
            return f"{missing}, `{key}` in it has `{found[0]}`", at(key, found[0])
    if read.is_wrapper and read.after and all(key in each for each in values for key in read.after):
        return VALUE, read.base
    listed = only_list(values)
    if read.key in WRAPPERS and read.tail.endswith("text"):
        return VALUE, read.base
    if listed and (read.as_list or read.key in _LISTS) and _means_list(read, listed):
        return f"{missing}; the list is in `{listed}`", at(listed)
    return None


def _probable(
    read: Read, values: list[dict[str, JSONValue]], nested: list[str], *, is_python: bool
) -> tuple[str, str] | None:
    """Return why, and what is probably meant."""
    missing, after = f"`{read.base}` has no `{read.key}`", read.after[0] if read.after else ""
    having = [key for key in nested if after and all(after in _dict(each[key]) for each in values)]
    if len(having) == 1:
        return f"{missing}, and `{having[0]}` in it has `{after}`", _at(read.base, having[0], is_python=is_python)
    if read.key in _LISTS and (rows := _rows_of(values)):
        return f"{missing}; the rows are in `{rows}`", _at(read.base, rows, is_python=is_python)
    if path := path_to(read.key, values):
        return f"{missing}, `{'.'.join(path[:-1])}` in it has", _at(read.base, *path, is_python=is_python)
    return None


def _rows_of(values: list[dict[str, JSONValue]]) -> str:
    """Return the one key under which each of these objects has a list of lists or of objects; "" without one."""
    found = {
        key
        for each in values
        for key, part in each.items()
        if isinstance(part, list) and part and all(isinstance(row, list | dict) for row in part)
    }
    return found.pop() if len(found) == 1 else ""


def _means_list(read: Read, listed: str) -> bool:
    words = {singular(word) for word in words_of(read.key)}
    return (
        read.key in _LISTS
        or (read.as_list and listed in _LISTS)
        or singular(listed) in read.nouns | words
        or bool(words & read.nouns)
    )


def _of_text(read: Read, *, is_python: bool) -> Advice:
    if read.key in _OF_EACH and f".{read.key}" in read.whole:
        new = f'{read.base}.split("\\n").{read.key}'
        return Advice(f"`{read.base}` is text: {instead(read.whole, new)} for each of its lines")
    parsed = parsed_strings(read.values)
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
    if read.place >= 0:
        about = f"`{read.base}` is a row, with `{read.key}` at {read.place}"
        return Advice(f"{about}: {instead(read.whole, f'{read.base}[{read.place}]')}")
    first = next((each for each in read.values if isinstance(each, list) and each), None)
    if not read.is_part or first is None or isinstance(first[0], dict | list):
        return None
    about = f"`{read.base}` is {'a list' if is_python else 'an array'}, such as {shown_value(first)}"
    return Advice(f"{about}, without `{read.key}`: read it by place, as `{read.base}[0]`")


def _of_list(read: Read) -> Advice:
    rows = [row for each in read.values if isinstance(each, list) for row in each]
    if any(isinstance(row, dict) and read.key in row for row in rows):
        return Advice(f"`{read.base}` is a list, and each of its items has `{read.key}`: read it from them, one by one")
    by = next((key for row in rows if isinstance(row, dict) for key, part in row.items() if part == read.key), "")
    if by:
        return Advice(
            f"`{read.base}` is a list, and `{by}` of one of its items is {shown_value(read.key)}: find it by that"
        )
    return Advice(f"{VALUE}, here a list: {read.unwrapped()}", is_certain=True)


def _at(base: str, *keys: str, is_python: bool) -> str:
    if is_python:
        return base + "".join(f'["{key}"]' for key in keys)
    return base + "".join(f".{key}" if key.isidentifier() else f'["{key}"]' for key in keys)


def nouns_of(tools: Tools) -> frozenset[str]:
    """Return the words of the names of the tools that were called."""
    ids = {call.tool_id for call in tools.tool_calls()[:_MOST]}
    return frozenset(singular(word) for each in ids for word in words_of(each))


def _dict(value: JSONValue) -> dict[str, JSONValue]:
    return value if isinstance(value, dict) else {}
