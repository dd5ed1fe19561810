"""Keep secrets out of whatever people and programs get to read."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.secret_forms import SHORTEST, base64_forms, written_forms
from toolexec.model.secret_keys import is_telling
from toolexec.model.secret_strings import without_secrets

REDACTED = "[REDACTED]"

NAMING: Final = ("name", "key", "header")
"""The keys under which an object says of what its `value` is; a telling one makes that secret."""

_SHORTEST: Final = 5  # of `jwt=x`
_ANY_CASE_LENGTH: Final = 8
_MAX_DEPTH: Final = 120
_MAX_SCHEMAS: Final = 64
_MARKS: Final = ("writeOnly", "x-secret", "x-sensitive")
_ALSO: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONAL: Final = ("if", "then", "else", "not", "dependentSchemas")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The known values in every form: `exact` as they are, `folded` in lower case for any case; longest first."""

    values: frozenset[str] = frozenset()
    exact: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    patterns: Mapping[str, re.Pattern[str]] | None = None


class Redactor:
    """Replaces secrets by `[REDACTED]`: known values anywhere, values under telling keys, strings that look like keys.

    It never raises and never changes what it is given. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = _Known()
        self._lasting: frozenset[str] = frozenset()
        self._renewed: dict[Hashable, deque[frozenset[str]]] = {}

    def add(self, *values: str) -> None:
        """Have these values replaced wherever they occur from now on, also encoded (URL, base64, hex, JSON).

        Those of fewer than 6 characters are ignored; from 8 on, upper and lower case are the same. The lines of a long
        value (a key in PEM) count for themselves, too.
        """
        with self._lock:
            self._lasting |= {part for value in values for part in _parts(value)}
            self._know()

    def add_renewed(self, owner: Hashable, *values: str) -> None:
        """Do as `add` for the tokens of *owner*, which are renewed again and again: those before the last ones, which
        nothing accepts any more, are forgotten, so that there are not more and more to look for."""
        with self._lock:
            earlier = self._renewed.setdefault(owner, deque(maxlen=2))
            wanted = frozenset(part for value in values for part in _parts(value))
            if wanted not in earlier:
                earlier.append(wanted)
                self._know()

    def forget_renewed(self, owner: Hashable) -> None:
        """Do not look for the tokens of *owner* any more."""
        with self._lock:
            if self._renewed.pop(owner, None) is not None:
                self._know()

    def _know(self) -> None:
        wanted = self._lasting.union(*(values for pair in self._renewed.values() for values in pair))
        if wanted != self._known.values:
            self._known = _prepare(wanted)

    def text(self, text: str) -> str:
        """*text* without secrets."""
        try:
            if len(text) < _SHORTEST:
                return text
            known = self._known
            if known.values and len(text) >= SHORTEST:
                text = _without_known(text, known)
            return without_secrets(text, REDACTED)
        except Exception:
            return REDACTED  # a text that cannot be looked through may hold anything

    def value(self, value: object, schema: Mapping[str, object] | None = None) -> JSONValue:
        """Return a copy of a JSON value without secrets.

        *schema* is its JSON Schema, which may mark parts as secret: `writeOnly`, `format: password`, `x-secret`. What
        is nested deeper than 120 levels is replaced as a whole; what is not JSON becomes text.
        """
        try:
            walk = _Walk(self, schema if schema is not None and has_secret_marks(schema) else None)
            return walk.copy(value, 0, walk.root)
        except Exception:
            return REDACTED  # a mapping or sequence of a foreign class may do anything

    @property
    def knows_any(self) -> bool:
        """Whether there are known secrets."""
        return bool(self._known.values)

    def has_known(self, text: str) -> bool:
        """Return whether a known secret is in *text*, in any form; true for a text that cannot be looked through."""
        known = self._known
        try:
            return bool(known.values) and len(text) >= SHORTEST and _without_known(text, known) != text
        except Exception:
            return True

    def knows(self, value: str) -> bool:
        """Return whether *value* is one of the known secrets."""
        return value in self._known.values


class _Walk:
    """One copy of one value."""

    def __init__(self, redact: Redactor, schema: Mapping[str, object] | None) -> None:
        self._text = redact.text
        self._knows = redact.knows
        self._shortest = SHORTEST if redact.knows_any else 12
        self._schema = schema
        self.root: tuple[Mapping[str, object], ...] = (schema,) if schema is not None else ()
        self._left = 1_000_000

    def copy(self, value: JSONValue, depth: int, schemas: tuple[JSONObject, ...]) -> JSONValue:
        """*value* without secrets; *schemas* are those that speak of it."""
        if schemas:
            schemas = _applicable(schemas, self._schema)
            if any(map(_is_marked, schemas)) and not _says_nothing(value):
                return REDACTED
        kind = type(value)
        if kind is str:
            return self._text(value)
        if value is None or kind is bool:
            return value
        if kind is int or kind is float:
            return REDACTED if self._knows(str(value)) else value
        self._left -= 1
        if depth >= _MAX_DEPTH or self._left < 0:
            return REDACTED
        if kind is dict or isinstance(value, Mapping):
            return self._mapping(cast("Mapping[Any, Any]", value), depth, schemas)
        if isinstance(value, list | tuple):
            return self._list(cast("Sequence[JSONValue]", value), depth, schemas)
        return self._text(value if isinstance(value, str) else repr(value))

    def _mapping(self, value: Mapping[Any, object], depth: int, schemas: tuple[Mapping[str, object], ...]) -> JSONDict:
        copy: JSONDict = {}
        for key, item in value.items():
            name = key if type(key) is str else str(key)
            if is_telling(name) and not _says_nothing(item) and not _is_count(name, item):
                item = REDACTED  # noqa: PLW2901 - whatever it is
            elif type(item) is str and not schemas:
                item = self._text(item)  # noqa: PLW2901
            else:
                item = self.copy(item, depth + 1, _of_property(schemas, name) if schemas else ())  # noqa: PLW2901
            if len(name) >= self._shortest:
                shown = self._text(name)
                name = shown if shown == name or shown not in copy else f"{shown} {len(copy)}"
            copy[name] = item
        if "value" in copy and any(is_telling(str(value[key])) for key in NAMING if key in value):
            copy["value"] = REDACTED
        return copy

    def _list(self, value: Sequence[object], depth: int, schemas: tuple[Mapping[str, object], ...]) -> list[JSONValue]:
        copy: list[JSONValue] = []
        pair = len(value) == 2
        told = False
        for place, item in enumerate(value):
            if told and isinstance(item, str) and not item.startswith("--"):
                copy.append(REDACTED)
                told = False
                continue
            copy.append(self.copy(item, depth + 1, _of_item(schemas, place) if schemas else ()))
            # ["--password", "..."], and ["Authorization", "..."] as some write headers
            told = type(item) is str and (item.startswith("-") or (pair and not place)) and is_telling(item)
        return copy


def _says_nothing(value: object) -> bool:
    return value is None or value is True or value is False or value in ("", REDACTED)


def _is_count(name: str, value: object) -> bool:
    return isinstance(value, int | float) and name.lower() == "tokens"


def has_secret_marks(schema: object) -> bool:
    """Return whether a JSON Schema marks anything as secret; only then it is worth walking along it."""
    todo: list[JSONValue] = [schema]
    for node in todo:
        if isinstance(node, Mapping):
            mapping = cast("Mapping[str, Any]", node)
            if _is_marked(mapping):
                return True
            todo.extend(mapping.values())
        elif isinstance(node, list):
            todo.extend(cast("list[JSONValue]", node))
    return False


def _is_marked(schema: Mapping[str, object]) -> bool:
    return schema.get("format") == "password" or any(schema.get(mark) is True for mark in _MARKS)


def _applicable(schemas: tuple[Mapping[str, object], ...], root: Mapping[str, object] | None) -> tuple[JSONObject, ...]:
    """Return the schemas with those that they refer to or are put together from."""
    found: list[JSONObject] = list(schemas)
    for schema in found:
        if len(found) > _MAX_SCHEMAS:
            break
        more = [schema.get(word) for word in _CONDITIONAL[:4]]
        more += [_referred(schema.get(word), root) for word in ("$ref", "$dynamicRef")]
        more += [part for word in _ALSO for part in _sequence(schema.get(word))]
        more += _values(schema.get("dependentSchemas"))
        for part in more:
            if isinstance(part, Mapping) and not any(part is known for known in found):
                found.append(cast("Mapping[str, Any]", part))
    return tuple(found[:_MAX_SCHEMAS])


def _referred(reference: object, root: object) -> JSONValue:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    node = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = cast("Mapping[str, Any]", node).get(name)
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(cast("list[JSONValue]", node)):
            node = cast("list[JSONValue]", node)[int(name)]
        else:
            return None
    return node


def _of_property(schemas: tuple[Mapping[str, object], ...], name: str) -> tuple[JSONObject, ...]:
    found: list[JSONValue] = []
    for schema in schemas:
        properties = schema.get("properties")
        own = cast("Mapping[str, Any]", properties).get(name) if isinstance(properties, Mapping) else None
        if own is not None:
            found.append(own)
        else:
            # Which pattern fits is not tried: patterns come from anywhere, and may take forever.
            found += _values(schema.get("patternProperties"))
            found += [schema.get("additionalProperties"), schema.get("unevaluatedProperties")]
    return tuple(part for part in found if isinstance(part, Mapping))


def _of_item(schemas: tuple[Mapping[str, object], ...], place: int) -> tuple[JSONObject, ...]:
    found: list[JSONValue] = []
    for schema in schemas:
        for word in ("prefixItems", "items"):
            found += [part for at, part in enumerate(_sequence(schema.get(word))) if at == place]
        found += [schema.get(word) for word in ("items", "additionalItems", "contains", "unevaluatedItems")]
    return tuple(part for part in found if isinstance(part, Mapping))


def _sequence(value: object) -> list[JSONValue]:
    return cast("list[JSONValue]", value) if isinstance(value, list) else []


def _values(value: object) -> list[JSONValue]:
    return list(cast("Mapping[str, Any]", value).values()) if isinstance(value, Mapping) else []


def _parts(value: str) -> Iterator[str]:
    stripped = value.strip()
    if len(stripped) >= SHORTEST:
        yield stripped
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= 16 and "-----" not in line)


def _prepare(values: frozenset[str]) -> _Known:
    exact: set[str] = set()
    folded: set[str] = set()
    for value in values:
        (folded if len(value) >= _ANY_CASE_LENGTH else exact).update(written_forms(value))
        exact.update(base64_forms(value))
    patterns = {form.lower(): re.compile(re.escape(form), re.IGNORECASE) for form in folded}
    return _Known(
        values=values,
        exact=tuple(sorted(exact, key=len, reverse=True)),
        folded=tuple(sorted(patterns, key=len, reverse=True)),
        patterns=patterns,
    )


def _without_known(text: str, known: _Known) -> str:
    lowered = text.lower()
    hits = [form for form in known.folded if form in lowered]
    if hits and known.patterns is not None:
        for form in hits:
            text = known.patterns[form].sub(REDACTED, text)
    for form in known.exact:
        if form in text:
            text = text.replace(form, REDACTED)
    return text


redactor: Redactor = Redactor()
"""The one that everything here uses: it knows the secrets that were resolved in this process."""
