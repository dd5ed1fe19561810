"""JSON: the one place that says what it is here, and makes it of Python's values.

JSON is dicts with string keys, lists, strings without lone surrogates, integers of at most `MAX_DIGITS` digits, finite
floats, booleans and None, at most `MAX_DEPTH` levels deep and with at most `MAX_NODES` values in all: what `json.dumps`
writes and `json.loads` reads back.
`to_json` makes it of other values, by what they are and not by how a function is annotated:

| Python | JSON |
|---|---|
| a subclass of `str`, `int`, `float`, `dict`, `list` | as what it is a subclass of |
| an enumeration's member | its value |
| a tuple, a named tuple, a set, a deque, a range, any other sequence, set or view | an array |
| any other mapping | an object |
| a dataclass, a pydantic model | an object of its fields, by their aliases |
| a `date`, `time`, `datetime`, `timedelta` | a string in ISO 8601 |
| a `Decimal`, `Fraction`, `UUID`, path, IP address or network | its exact string |
| a number, array or tensor with `tolist` and `dtype` (NumPy and its relatives) | its numbers |
| a DataFrame, a Series of pandas | an array of its rows, each an object, or of its values; what is missing is null |
| a compiled regular expression | its pattern |
| any other integer or real number | an integer or a float |
| `bytes` that are UTF-8 | that text |

Keys may be what is one string, number, boolean or None; they are written as `json.dumps` writes them, and two that
become the same are refused. Everything else is refused, with its place: NaN and infinities, complex numbers, other
bytes, generators, functions, objects.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import jsonschema_rs

from toolexec.errors import Violation
from toolexec.model.json_forms import MAX_INTEGER, json_form, key_text
from toolexec.model.tree_size import FLAT as _FLAT
from toolexec.model.tree_size import MAX_DEPTH, MAX_NODES, Excess, excess_of, has_many

JSONValue: TypeAlias = Any
"""A JSON value: str, int, float, bool, None, a list of such values, or a dict of them with string keys."""

JSONDict: TypeAlias = dict[str, Any]
"""A JSON object that its holder may change."""

JSONObject: TypeAlias = Mapping[str, Any]
"""A JSON object that is only read."""

MAX_DIGITS: Final = 4300
"""The most digits of an integer: Python neither writes nor reads longer ones."""

_MAX_REPORTED: Final = 20
_MAX_LOSSY_DEPTH: Final = 100  # a record puts it inside of something else
_SMALL_INTEGER: Final = 1 << 62
_SCALARS: Final[list[JSONDict]] = [
    # No number is a string, and no string is two things at once, so the second keywords exclude nothing; but they make
    # the validator read the value, and with that refuse an integer that is too long and a lone surrogate.
    {"type": "number", "not": {"const": "a"}},
    {"type": "string", "not": {"const": "a", "enum": ["b"]}},
    {"type": ["boolean", "null"]},
]
FLAT_FORMS: Final[Mapping[str, JSONDict]] = {
    "number": _SCALARS[0],
    "integer": _SCALARS[0],
    "string": _SCALARS[1],
    "boolean": _SCALARS[2],
    "null": _SCALARS[2],
}
"""The schemas that make a validator read a value of each of these types, and refuse what JSON does not have."""
ANY_FLAT: Final[JSONDict] = {"anyOf": _SCALARS}
"""The same for a value of any of these types."""
FLAT_JSON: Final[JSONDict] = {"additionalProperties": ANY_FLAT}
"""The schema of a dict with nothing but strings, numbers, booleans and None in it that is JSON. It makes a validator
read every key and every value, whatever other schema it stands beside."""

_SLICE: Final = 1000
_QUICK_NODES: Final = 200_000
"""How many values one may have at most to be copied without being counted first."""
_Trail: TypeAlias = "tuple[_Trail, str | int] | None"
"""The way to a value, from its last step to its first; it becomes text only where there is something to report."""


def _json_of_depth(levels: int) -> JSONDict:
    # jsonschema-rs looks at a value only where a keyword asks it to, so the whole of JSON is spelled out as a
    # schema, level by level: one check in compiled code is some twenty times as fast as a walk in Python.
    defs: JSONDict = {f"level{levels}": {"anyOf": _SCALARS}}
    for level in range(levels):
        deeper = {"$ref": f"#/$defs/level{level + 1}"}
        defs[f"level{level}"] = {
            "anyOf": [
                *_SCALARS,
                {"type": "object", "additionalProperties": deeper},
                {"type": "array", "items": deeper},
            ]
        }
    return {"$defs": defs, "$ref": "#/$defs/level0"}


def _first(value: object) -> bool:
    global _is_valid  # compiling takes milliseconds, which a program that only imports this does not have to wait
    _is_valid = jsonschema_rs.Draft202012Validator(_json_of_depth(MAX_DEPTH)).is_valid
    return _is_valid(value)


_is_valid: Callable[[Any], bool] = _first


class NotJSONError(ValueError):
    """A value that has no JSON form; `violations` has its places, at most 20, each with the reason."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations: tuple[Violation, ...] = tuple(violations)
        first = self.violations[0]
        super().__init__(f"not JSON at {first.path or 'its root'}: {first.message}")


def to_json(value: JSONValue) -> JSONValue:
    """Return *value* as plain JSON that shares no dict or list with it; only containers are copied.

    Raises NotJSONError where it has no JSON form: see the table above.
    """
    kind = type(value)
    if kind is str and value.isascii():
        return value
    if kind is bool or value is None or (kind is int and -_SMALL_INTEGER < value < _SMALL_INTEGER):
        return value
    try:
        if kind is dict:  # right here and not in `_own`, as a flat one is in the way of every call
            own = value.copy()
            for name, item in own.items():
                if type(item) not in _FLAT:
                    own[name] = _own(item, _QUICK_NODES // (len(own) + 1))
                if type(name) is not str:
                    return _unusual(value)
        elif kind is list:
            own = _own(value, _QUICK_NODES)
        elif kind in _FLAT:
            own = value
        else:
            return _unusual(value)
        if _is_valid(own):
            return own
    except Exception:  # a type, a key or a text that JSON does not have, or what may be too large
        return _unusual(value)
    return _unusual(value)


def _own(value: JSONValue, room: int) -> JSONValue:
    """Return a copy of a dict or list of what JSON is made of, of exactly these types; raises TypeError for others, and
    for what may have more than *room* values in it.

    One walk copies and looks at the types; the rest the validator sees in a third of that time. How many values there
    are is not counted but bounded: no more than the product of the sizes (and one each) on the way to the deepest. To
    count first and then have pydantic copy takes three times as long for a table of a hundred rows.
    """
    kind = type(value)
    if kind is dict:
        if len(value) >= room:
            raise TypeError
        own = value.copy()  # before a look at it, as another thread may change the value at any time
        for name, item in own.items():
            if type(item) not in _FLAT:
                own[name] = _own(item, room // (len(own) + 1))
            if type(name) is not str:
                raise TypeError
        return own
    if kind is not list or len(value) >= room:
        raise TypeError
    own = value.copy()
    if _FLAT.issuperset(map(type, own)):
        return own
    room //= len(own) + 1
    return [item if type(item) in _FLAT else _own(item, room) for item in own]


def _unusual(value: object) -> JSONValue:
    """Return what `to_json` gives for a value that is large, of other types, or not JSON."""
    excess = excess_of(value)
    if excess not in (None, Excess.DEEP):  # of what is too deep a walk finds the places
        raise NotJSONError([excess_violation(value, excess)])
    try:
        if excess is None and has_many(value):
            return _in_slices(value)
        if _is_valid(value):
            return value if type(value) in _FLAT else _copied(value)
    except Exception:  # see `to_json`; or code of the value's own that fails
        return _converted(value)
    return _converted(value)


def _in_slices(value: JSONValue) -> JSONValue:
    """Return a copy of a large value that is nearly JSON; raises ValueError for one that is not. Compiled code gets a
    slice at a time, as no other thread runs meanwhile."""
    if not has_many(value):
        if not _is_valid(value):
            raise ValueError
        return value if type(value) in _FLAT else _copied(value)
    if type(value) is dict:
        if not _is_valid(dict.fromkeys(value)):
            raise ValueError
        return {name: _in_slices(item) for name, item in value.items()}
    own: list[JSONValue] = []
    for at in range(0, len(value), _SLICE):
        batch = value[at : at + _SLICE]
        own += [_in_slices(item) for item in batch] if has_many(batch) else _in_slices(batch)
    return own


def _converted(value: object) -> JSONValue:
    """Return a value that is not JSON yet, as plain JSON; raises NotJSONError."""
    problems: list[Violation] = []
    try:
        plain = _Conversion(problems.append).plain(value, None, 0)
    except _EnoughError:
        plain = None
    if problems:
        raise NotJSONError(problems)
    return plain


def to_json_lossy(value: object) -> JSONValue:
    """Give *value* as plain JSON as `to_json` does, with text in place of what has no JSON form (`NaN`, the `str` of an
    object), for logs and records. Never raises."""
    excess = excess_of(value)
    if excess not in (None, Excess.DEEP):
        return f"<{type(value).__name__}, which has {excess.value}>"
    return _copied(value) if _is_nearly_json(value) else _Conversion(None, _MAX_LOSSY_DEPTH).plain(value, None, 0)


def own_args(args: Mapping[str, object]) -> JSONObject:
    """Return arguments as plain JSON that shares no nested dict or list with *args*.

    A dict of nothing but strings, numbers, booleans and None is returned as it is: code that takes arguments copies the
    mapping itself. Raises NotJSONError as `to_json` does.
    """
    if type(args) is dict:
        for value in args.values():
            if type(value) not in _FLAT:
                break
        else:
            try:
                if _is_valid(args):
                    return args
            except Exception:
                return _converted(args)
    return to_json(args)


def excess_violation(value: object, excess: Excess) -> Violation:
    """Return what an error says of a value that is too much to be walked."""
    message = f"{type(value).__name__} has {excess.value}; make it smaller, or text"
    return Violation(path="", keyword="json", message=message, expected=excess.limit, got=None)


def _is_nearly_json(value: object) -> bool:
    """Return whether *value* is JSON, but for tuples, subclasses of dicts and lists, Decimals and members of
    enumerations."""
    try:
        return _is_valid(value)
    except Exception:  # a type, a key or a text that JSON does not have; or code of the value's own that fails
        return False


def _copied(value: object) -> JSONValue:
    """Return a copy of a value that is nearly JSON, as plain JSON."""
    global _copied
    from pydantic_core import to_jsonable_python

    _copied = to_jsonable_python  # not earlier, as importing it takes a while; and only once
    return _copied(value)


class _EnoughError(Exception):
    """So many problems are found that no more are looked for."""


class _Conversion:
    """Makes JSON of one value that is none yet. Problems go to *report*; where that is None, text takes their place."""

    def __init__(self, report: Callable[[Violation], None] | None, levels: int = MAX_DEPTH) -> None:
        self._report = report
        self._levels = levels
        self._count = 0
        self._nodes = 0
        self._too_deep_count = 0

    def plain(self, value: JSONValue, trail: _Trail, depth: int) -> JSONValue:
        """Return the JSON form of the value at *trail*."""
        kind = type(value)
        if kind is str:
            return self._text(value, trail)
        if kind is int:
            return value if -MAX_INTEGER < value < MAX_INTEGER else self._long_integer(value, trail)
        if kind is float:
            return value if math.isfinite(value) else self._not_finite(value, trail)
        if value is None or kind is bool:
            return value
        if depth > self._levels or self._too_deep_count > _MAX_REPORTED:  # what contains itself would never end
            return self._too_deep(trail)
        if self._nodes > MAX_NODES:
            return self._too_many(trail)
        if kind is dict:
            return self._object(value, trail, depth)
        if kind is list:
            return self._array(value, trail, depth)
        try:
            return self._other(value, trail, depth)
        except _EnoughError:
            raise
        except RecursionError:
            return self._too_deep(trail)
        except Exception as error:
            reason = f"cannot be read: {type(error).__name__}: {shorten(str(error), 200)}"
            return self._problem(value, trail, f"{kind.__name__} {reason}")

    def _other(self, value: object, trail: _Trail, depth: int) -> JSONValue:
        """Return the JSON form of what is of no type that JSON has itself."""
        form = json_form(value, to_json)
        match form:
            case ("object", given):
                return self._object(given, trail, depth)
            case ("array", given):
                return self._array(given, trail, depth)
            case ("value", given):
                return self.plain(given, trail, depth + 1)
            case _:
                name = type(value).__name__
        if isinstance(value, bytes | bytearray):
            return self._problem(value, trail, f"{name} that are not UTF-8; use base64")
        return self._problem(value, trail, f"{name} is not a JSON type{_hint(value)}")

    def _object(self, value: Mapping[Any, Any], trail: _Trail, depth: int) -> JSONValue:
        if depth >= self._levels:
            return self._too_deep(trail)
        plain: JSONDict = {}
        for key, item in value.items():
            self._nodes += 1
            if self._nodes > MAX_NODES:
                self._too_many(trail)
                break
            name = key if type(key) is str else self._key(key, trail)
            if name is None:
                continue
            if name in plain:
                self._problem(None, trail, f"two keys become {shorten(repr(name))}")
            if not name.isascii() and has_surrogate(name):
                text = f"the key {shorten(repr(name))} has a lone surrogate, which UTF-8 cannot carry"
                name = self._problem(name, trail, text, got=None) or ""
            plain[name] = self.plain(item, (trail, name), depth + 1)
        return plain

    def _array(self, value: Iterable[object], trail: _Trail, depth: int) -> JSONValue:
        if depth >= self._levels:
            return self._too_deep(trail)
        plain: list[JSONValue] = []
        for number, item in enumerate(value):
            self._nodes += 1
            if self._nodes > MAX_NODES:
                self._too_many(trail)
                break
            plain.append(self.plain(item, (trail, number), depth + 1))
        return plain

    def _key(self, key: object, trail: _Trail) -> str | None:
        """Return a key as text; None, with the problem reported, for one that cannot be text."""
        name = key_text(key)
        if name is None:
            name = self._problem(key, trail, f"the key {shorten(_safe(repr, key))} is not text")
        return name

    # -- problems -----------------------------------------------------------------------------------------------

    def _text(self, value: str, trail: _Trail) -> JSONValue:
        if value.isascii() or not has_surrogate(value):
            return value
        return self._problem(value, trail, "the text has a lone surrogate, which UTF-8 cannot carry", got=None)

    def _not_finite(self, value: float, trail: _Trail) -> JSONValue:
        return self._problem(value, trail, f"{value} is not a JSON number", got=str(value))

    def _long_integer(self, value: int, trail: _Trail) -> JSONValue:
        text = f"an integer of {value.bit_length()} bits has more than {MAX_DIGITS} digits"
        return self._problem(text, trail, text, got="int")

    def _too_deep(self, trail: _Trail) -> JSONValue:
        self._too_deep_count += 1
        text = f"nested more than {MAX_DEPTH} levels deep, or contains itself"
        return self._problem("...", trail, text, got=None)

    def _too_many(self, trail: _Trail) -> JSONValue:
        text = f"the value has {Excess.MANY.value}; make it smaller, or text"
        stand_in = self._problem("...", trail, text, got=None)
        if self._report is not None:
            raise _EnoughError
        return stand_in

    def _problem(self, value: object, trail: _Trail, message: str, got: str | None = "") -> JSONValue:
        """Report what is wrong at *trail*; or give what stands for the value."""
        if self._report is None:
            return _stand_in(value)
        path = _path_of(trail)
        self._report(
            Violation(
                path=path if len(path) <= 200 else f"{path[:100]}/...",
                keyword="json",
                message=message,
                expected="JSON",
                got=type(value).__name__ if got == "" else got,
            )
        )
        self._count += 1
        if self._count >= _MAX_REPORTED:
            raise _EnoughError
        return None


def _hint(value: object) -> str:
    if isinstance(value, Iterator):
        return "; make a list of it"
    return "; await it" if isinstance(value, Awaitable) else ""


def _stand_in(value: object) -> str:
    """Return what stands for a value that has no JSON form."""
    if isinstance(value, float):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return shorten(_safe(str, value), 1000).encode("utf-8", "replace").decode()


def _safe(write: Callable[[Any], str], value: object) -> str:
    try:
        return write(value)
    except Exception:  # code of the value's own
        return f"<{type(value).__name__}>"


def has_surrogate(text: str) -> bool:
    """Return whether a text has half a character, which UTF-8 cannot carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _path_of(trail: _Trail) -> str:
    steps: list[str] = []
    while trail is not None:
        trail, step = trail
        steps.append(f"/{pointer(step)}")
    return "".join(reversed(steps))


def pointer(key: object) -> str:
    """Return one step of a JSON pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def refuse_constant(name: str) -> JSONValue:
    """Raise ValueError for `NaN` and infinities, as the `parse_constant` of a decoder: they are not JSON."""
    raise ValueError(f"{name} is not JSON")


def shorten(text: str, limit: int = 100) -> str:
    """Cut long text at *limit* characters, with an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
