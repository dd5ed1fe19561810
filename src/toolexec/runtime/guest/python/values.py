"""From the values of a program to JSON."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["NotJSONError", "from_text", "to_text"]

_MAX_DEPTH = 120


class NotJSONError(TypeError):
    """A value that is not JSON and has no JSON form that everybody would expect."""


def to_text(value: Any, what: str = "the value") -> str:
    """*value* as JSON text.

    Beside JSON itself these have the form that one expects: tuples, sets, dataclasses, named tuples, dates, times,
    Decimal, UUID, paths and enum members. Raises NotJSONError that says where something else is.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):
        pass  # what goes wrong below must not seem to come from here
    import json

    return json.dumps(_plain(value, "", what, 0), allow_nan=False)


def _refuse(value: Any) -> Any:
    raise TypeError


def from_text(text: str) -> Any:
    """The value of a JSON text that begins and ends with it."""
    return _scan(text, 0)[0]


def _encoder() -> Any:
    """What `json.dumps` makes anew at each call, made once: calls of tools are many and small."""
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
        return str(value) if type(value) is not str and isinstance(value, str) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotJSONError("{} at {} is {!r}, which JSON does not have".format(what, path or "its root", value))
        return float(value)
    if isinstance(value, dict):
        plain = {}
        for key, item in value.items():
            name = key if isinstance(key, str) else _key(key, path, what)
            plain[name] = _plain(item, path + "/" + name, what, depth + 1)
        return plain
    if isinstance(value, (list, tuple, set, frozenset)) or _is_view(value):
        return [_plain(item, f"{path}/{i}", what, depth + 1) for i, item in enumerate(value)]
    return _plain(_form(value, path, what), path, what, depth + 1)


def _key(key: Any, path: str, what: str) -> str:
    if key is None or isinstance(key, (bool, int, float)):
        return _encode(key)
    text = _known_form(key)
    if isinstance(text, str):
        return text
    raise NotJSONError("a key of {} at {} is of type {}; use text".format(what, path or "its root", type(key).__name__))


def _form(value: Any, path: str, what: str) -> Any:
    form = _known_form(value)
    if form is not None:
        return form
    hint = "decode it, or use base64" if isinstance(value, (bytes, bytearray)) else "use dicts, lists, text and numbers"
    raise NotJSONError(
        "{} at {} is of type {}, which is not JSON; {}".format(what, path or "its root", type(value).__name__, hint)
    )


def _is_view(value: Any) -> bool:
    return type(value).__name__ in ("dict_keys", "dict_values", "deque", "range")


def _known_form(value: Any) -> Any:
    """The JSON form of some classes; modules that nobody has imported have no instances."""
    modules = sys.modules
    enum = modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        return value.value
    dataclasses = modules.get("dataclasses")
    if dataclasses is not None and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    datetime = modules.get("datetime")
    if datetime is not None:
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        if isinstance(value, datetime.timedelta):
            return value.total_seconds()
    for module, name in (("decimal", "Decimal"), ("uuid", "UUID"), ("pathlib", "PurePath"), ("fractions", "Fraction")):
        if module in modules and isinstance(value, getattr(modules[module], name)):
            return str(value)
    return None


_encode = _encoder()
_scan: Any = _decoder()
