"""From the values of a program to JSON."""

from __future__ import annotations

from typing import Any

from .forms import json_form, key_text

_MAX_DEPTH = 120
_MAX_NODES = 10_000_000
_FLAT = frozenset({str, int, float, bool, type(None)})
_TEXT = frozenset({str})
_SMALL = 100
by_reference = False
"""Whether there have been results that travel as references, which only a look at each value finds."""


class NotJSONError(TypeError):
    """A value that is not JSON and has no JSON form that everybody would expect."""


def to_text(value: Any, what: str = "the value") -> str:
    """Return *value* as JSON text.

    What is not JSON itself has the form that the host gives it, too: see `forms`. Raises NotJSONError that says
    where something else is, and for more than 10,000,000 values, where what is in several places counts in each.
    """
    is_too_large, is_plain = (False, True) if type(value) in _FLAT or _is_small(value) else _look(value)
    if is_too_large:
        raise NotJSONError(
            f"{what} has more than {_MAX_NODES:,} values in it, where what is in several places counts in each, or "
            "contains itself; make it smaller"
        )
    try:
        if is_plain and not by_reference:
            return _encode(value)
    except (TypeError, ValueError, RecursionError):
        pass  # what goes wrong below must not seem to come from here
    import json

    return json.dumps(_plain(value, "", what, 0), allow_nan=False)


def _is_small(value: Any) -> bool:
    """Say whether it is a dict of plain values, or of dicts of them, as most arguments are: no look is needed then."""
    if type(value) is not dict or len(value) > _SMALL:
        return False
    for key, part in value.items():
        if type(key) is not str:
            return False
        if type(part) is dict:
            if len(part) > _SMALL or not (
                _TEXT.issuperset(map(type, part)) and _FLAT.issuperset(map(type, part.values()))
            ):
                return False
        elif type(part) not in _FLAT:
            return False
    return True


def _look(value: Any) -> tuple[bool, bool]:
    """Say whether it has too many values, and whether all dicts have string keys and nothing is too deep. Takes
    no longer for what is shared, however often."""
    level, times, total, is_plain = {id(value): value}, {id(value): 1}, 1, True
    for _ in range(_MAX_DEPTH):
        deeper: dict[int, Any] = {}
        deeper_times: dict[int, int] = {}
        for number, part in level.items():
            if hasattr(type(part), "__toolexec_value__"):
                continue  # it is on the host, or on its way
            if isinstance(part, dict):
                items: Any = dict.values(part)
                is_plain = is_plain and _TEXT.issuperset(map(type, dict.keys(part)))
            elif isinstance(part, (list, tuple)):
                items = part if type(part) in (list, tuple) else [*_iterate(part)]
            else:
                continue
            count = times[number]
            total += count * len(items)
            if not _FLAT.issuperset(map(type, items)):
                for item in items:
                    if type(item) not in _FLAT:
                        deeper[id(item)] = item
                        deeper_times[id(item)] = deeper_times.get(id(item), 0) + count
        if total > _MAX_NODES:
            return True, False
        if not deeper:
            return False, is_plain
        level, times = deeper, deeper_times
    return False, False


def _iterate(part: Any) -> Any:
    return list.__iter__(part) if isinstance(part, list) else tuple.__iter__(part)


def _refuse(value: Any) -> Any:
    raise TypeError


def from_text(text: str) -> Any:
    """Return the value of a JSON text that begins and ends with it."""
    return _scan(text, 0)[0]


def _encoder() -> Any:
    """What `json.dumps` makes again at each call, made once: calls of tools are many and small."""
    try:
        from _json import encode_basestring_ascii, make_encoder  # json takes longer to import than all that is here

        chunks: Any = make_encoder({}, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, False)
    except (ImportError, TypeError):  # as below
        import json

        return json.JSONEncoder(allow_nan=False, default=_refuse).encode
    return lambda value: "".join(chunks(value, 0))


class _Plain:
    """How JSON is read, for `make_scanner`."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None  # newer versions of Python look for it
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.__getitem__


def _decoder() -> Any:
    """What reads a value from a text, at an index."""
    settings: Any = _Plain()
    try:
        from _json import make_scanner

        return make_scanner(settings)
    except (ImportError, AttributeError):  # it is not there, or wants what we do not know of
        import json

        return json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def _plain(value: Any, path: str, what: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise NotJSONError(f"{what} has more than {_MAX_DEPTH} levels, or contains itself")
    settled = getattr(type(value), "__toolexec_value__", None)
    if settled is not None:
        value = settled(value)
    if value is None or value is True or value is False or type(value) in (str, int):
        return value
    if type(value) is float:
        if value - value != 0:
            raise NotJSONError("{} at {} is {!r}, which JSON does not have".format(what, path or "its root", value))
        return value
    if type(value) is dict:
        return _object(value, path, what, depth)
    if type(value) in (list, tuple):
        return _array(value, path, what, depth)
    form = json_form(value, lambda part: _plain(part, path, what, depth + 1))
    if form is None:
        is_bytes = isinstance(value, (bytes, bytearray))
        hint = "use base64, as it is not UTF-8" if is_bytes else "use dicts, lists, text and numbers"
        raise NotJSONError(
            "{} at {} is of type {}, which is not JSON; {}".format(what, path or "its root", type(value).__name__, hint)
        )
    if form[0] == "object":
        return _object(form[1], path, what, depth)
    if form[0] == "array":
        return _array(form[1], path, what, depth)
    return _plain(form[1], path, what, depth + 1)


def _object(value: Any, path: str, what: str, depth: int) -> Any:
    plain = {}
    for key, item in value.items():
        name = key if type(key) is str else _key(key, path, what)
        if name in plain:
            raise NotJSONError("two keys of {} at {} become {!r}".format(what, path or "its root", name))
        plain[name] = _plain(item, path + "/" + name, what, depth + 1)
    return plain


def _array(value: Any, path: str, what: str, depth: int) -> Any:
    return [_plain(item, f"{path}/{i}", what, depth + 1) for i, item in enumerate(value)]


def _key(key: Any, path: str, what: str) -> str:
    name = key_text(key)
    if name is not None:
        return name
    raise NotJSONError("a key of {} at {} is of type {}; use text".format(what, path or "its root", type(key).__name__))


_encode = _encoder()
_scan: Any = _decoder()
