"""From the values of a program to JSON."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["NotJSONError", "from_text", "to_text"]

_MAX_DEPTH = 120
_MAX_NODES = 10_000_000
_FLAT = frozenset({str, int, float, bool, type(None)})
_TEXT = frozenset({str})
_SMALL = 100
_DAY = 86_400
by_reference = False
"""Whether there have been results that travel as references, which only a look at each value finds."""


class NotJSONError(TypeError):
    """A value that is not JSON and has no JSON form that everybody would expect."""


def to_text(value: Any, what: str = "the value") -> str:
    """Return *value* as JSON text.

    Beside JSON itself these have the form that the host gives them, too: tuples, sets, dataclasses, named tuples,
    dates, times, Decimal, Fraction, UUID, paths, enum members, and bytes that are UTF-8. Raises NotJSONError that says
    where something else is, and for more than 10,000,000 values, where what is in several places counts in each.
    """
    is_too_large, is_plain = (False, True) if _is_small(value) else _look(value)
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
    if value is None or isinstance(value, (bool, str)):
        return str.__str__(value) if type(value) is not str and isinstance(value, str) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotJSONError("{} at {} is {!r}, which JSON does not have".format(what, path or "its root", value))
        return float(value)
    if isinstance(value, dict):
        plain = {}
        for key, item in value.items():
            name = str.__str__(key) if isinstance(key, str) else _key(key, path, what)
            if name in plain:
                raise NotJSONError("two keys of {} at {} become {!r}".format(what, path or "its root", name))
            plain[name] = _plain(item, path + "/" + name, what, depth + 1)
        return plain
    if isinstance(value, (list, tuple, set, frozenset)) or _is_view(value):
        return [_plain(item, f"{path}/{i}", what, depth + 1) for i, item in enumerate(value)]
    return _plain(_form(value, path, what), path, what, depth + 1)


def _key(key: Any, path: str, what: str) -> str:
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(key, enum.Enum) and not isinstance(key, (int, float)):
        key = key.value
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (bool, int)) or (isinstance(key, float) and key - key == 0):
        return _encode(key)
    text = None if isinstance(key, (bytes, bytearray, float)) else _known_form(key)
    if isinstance(text, str):
        return text
    raise NotJSONError("a key of {} at {} is of type {}; use text".format(what, path or "its root", type(key).__name__))


def _form(value: Any, path: str, what: str) -> Any:
    form = _known_form(value)
    if form is not None:
        return form
    is_bytes = isinstance(value, (bytes, bytearray))
    hint = "use base64, as it is not UTF-8" if is_bytes else "use dicts, lists, text and numbers"
    raise NotJSONError(
        "{} at {} is of type {}, which is not JSON; {}".format(what, path or "its root", type(value).__name__, hint)
    )


def _is_view(value: Any) -> bool:
    return type(value).__name__ in ("dict_keys", "dict_values", "deque", "range")


def _known_form(value: Any) -> Any:
    """The JSON form of some classes; modules that were not imported have no instances."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    modules = sys.modules
    enum = modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        return value.value
    dataclasses = modules.get("dataclasses")
    if dataclasses is not None and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    datetime = modules.get("datetime")
    if datetime is not None:
        if isinstance(value, (datetime.datetime, datetime.time)):
            return _time_text(value)
        if isinstance(value, datetime.date):
            return value.isoformat()
        if isinstance(value, datetime.timedelta):
            return _duration_text(value)
    for module, name in (("decimal", "Decimal"), ("uuid", "UUID"), ("pathlib", "PurePath"), ("fractions", "Fraction")):
        if module in modules and isinstance(value, getattr(modules[module], name)):
            return str(value)
    return None


def _time_text(value: Any) -> str:
    """A time in ISO 8601 as the host writes it: UTC is Z, and offsets have no seconds."""
    text, offset = value.replace(tzinfo=None).isoformat(), value.utcoffset()
    if offset is None:
        return text
    seconds = offset.days * _DAY + offset.seconds
    if seconds == 0:
        return text + "Z"
    minutes = abs(seconds) // 60
    return "{}{}{:02}:{:02}".format(text, "-" if seconds < 0 else "+", minutes // 60, minutes % 60)


def _duration_text(value: Any) -> str:
    """A timedelta in ISO 8601 as the host writes it: a year has 365 days there."""
    micros = (value.days * _DAY + value.seconds) * 1_000_000 + value.microseconds
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    days, rest = divmod(micros, _DAY * 1_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    years, days = divmod(days, 365)
    date = (f"{years}Y" if years else "") + (f"{days}D" if days else "")
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if seconds or fraction:
        time += f"{seconds}" + (f".{fraction:06}".rstrip("0") if fraction else "") + "S"
    if not date and not time:
        time = "0S"
    return sign + "P" + date + ("T" + time if time else "")


_encode = _encoder()
_scan: Any = _decoder()
