"""Results too large for a sandbox: they stay on the host, and code reads them as it uses them."""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

from toolexec.code.limits import DEFAULT_RESULT_BYTES
from toolexec.errors import ConfigurationError, InvalidRequestError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.run.large import Budget, BudgetExceededError, is_small, json_pieces, search

HANDLE_KEY = "$handle"
PageOf = Literal["items", "keys"]
_PREVIEW_CHARS = 500
_MAX_KEPT = 256 << 20
_MAX_PATH = 200
_TEXT_CHARS: Final = 1 << 16
_PAGE_TEXT_CHARS: Final = 1 << 20
_PAGE_KEYS_CHARS: Final = 1 << 20
_MAX_PAGE: Final = 1 << 20
_PART_BYTES: Final = 512
_ID: Final = re.compile(r"h-[A-Za-z0-9_-]{16}")
_HANDLE_KEYS = frozenset({HANDLE_KEY, "type", "bytes", "length", "preview"})
_TESTS = frozenset({"contains", "ends_with", "starts_with"})
_FUNCTIONS = _TESTS | frozenset(
    {
        "abs",
        "avg",
        "ceil",
        "floor",
        "keys",
        "length",
        "max",
        "max_by",
        "min",
        "min_by",
        "reverse",
        "sort",
        "sort_by",
        "sum",
        "type",
        "values",
    }
)
_encode = json.JSONEncoder(allow_nan=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """Stands for a value that is kept on the host: its JSON type (string, array or object), its size as JSON in bytes
    (of a part of a result: at least so many), the number of its items or characters, and how its JSON text begins."""

    id: str
    type: str
    bytes: int
    length: int
    preview: str

    def to_dict(self) -> JSONDict:
        """Return the handle as JSON-able data."""
        return {
            "id": self.id,
            "type": self.type,
            "bytes": self.bytes,
            "length": self.length,
            "preview": self.preview,
        }


@dataclass(frozen=True, slots=True)
class _Kept:
    value: JSONValue
    bytes: int
    counted: int  # what it adds to the total: a part of a kept value adds little


class Handles:
    """The values of one run, or of all runs of a session, that are kept on the host: strings, lists and objects whose
    JSON is longer than *budget* bytes. Numbers, booleans and null always travel.

    An ID is never used twice, and cannot be guessed. In the arguments of a tool call `{"$handle": id}` stands for the
    whole value. Safe to use from several threads. Raises ConfigurationError for a budget below 1.
    """

    def __init__(self, budget: int = DEFAULT_RESULT_BYTES) -> None:
        if budget < 1:
            raise ConfigurationError(f"the byte budget of a result must be at least 1, not {budget}")
        self.budget = budget
        self.ever_used = False
        """Whether there was a handle at any time."""
        self._kept: dict[str, _Kept] = {}
        self._total = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, value: JSONValue, text: str) -> Handle | None:
        """Return a handle for *value*, whose JSON is *text*; None when it fits the budget and needs none.

        Raises InvalidRequestError when the handles together would hold more than 256 MiB.
        """
        if len(text) <= self.budget or not isinstance(value, str | list | tuple | Mapping):
            return None
        return self._keep(value, len(text), len(text), text[:_PREVIEW_CHARS])

    def _keep(self, value: JSONValue, size: int, counted: int, preview: str) -> Handle:
        handle_id = f"h-{secrets.token_urlsafe(12)}"
        with self._lock:
            if self._total + counted > _MAX_KEPT:
                raise InvalidRequestError(
                    f"the results kept for this run would be over {_MAX_KEPT >> 20} MiB; ask the tools for less"
                )
            self._total += counted
            self._kept[handle_id] = _Kept(value, size, counted)
            self.ever_used: bool = True
        return Handle(id=handle_id, type=_type(value), bytes=size, length=len(value), preview=preview)

    def drop(self, ids: Iterable[JSONValue]) -> None:
        """Forget values that the code holds no longer; unknown IDs are left out."""
        with self._lock:
            for handle_id in ids:
                kept = self._kept.pop(handle_id, None) if isinstance(handle_id, str) else None
                self._total -= kept.counted if kept is not None else 0

    def read(
        self, handle_id: str, *, path: str = "", offset: int = 0, limit: int | None = None, budget: Budget | None = None
    ) -> JSONValue:
        """Return a part of a kept value: what the JMESPath *path* selects, and of a list or text at most *limit* items
        (characters) from *offset* on.

        Raises InvalidRequestError for an unknown handle, a path that does not parse, is over 200 characters, would
        make new values instead of selecting some, or takes more than *budget*, and for a negative number.
        """
        value = self._get(handle_id).value
        if path:
            value = _select(value, path, budget or Budget())
        if offset < 0 or (limit is not None and limit < 0):
            raise InvalidRequestError("offset and limit must be 0 or more")
        if not isinstance(value, str | list) or (offset == 0 and (limit is None or limit >= len(value))):
            return value
        return value[offset : None if limit is None else offset + limit]

    def answer(self, value: JSONValue, budget: Budget) -> tuple[str, Handle | None]:
        """Return a value that was read, as JSON, or a handle for it when it is over the budget. Raises as `page`."""
        if is_small(value):
            text = _encode(value)
            large = len(text) > self.budget and isinstance(value, str | list | tuple | Mapping)
            return text, self._part(value, text, len(value)) if large else None
        whole = _within(value, self.budget, budget)
        if whole is None:
            return "", self._part(value, _head(value), len(value))
        return whole, None

    def page(
        self,
        handle_id: str,
        *,
        of: PageOf = "items",
        offset: int = 0,
        limit: int | None = None,
        most_bytes: int = _MAX_PAGE,
        backward: bool = False,
        strings: bool = True,
        budget: Budget | None = None,
    ) -> str:
        """Return the next piece of a kept value, as JSON: as many items as fit the budget and *most_bytes*, at least
        one.

        Of a list `{"items": [...], "held": {...}}`, of an object with their `keys`, too; *of* `keys` gives only those.
        Of a text `{"text": ...}`. It begins at *offset*, or ends before it with *backward*, and has at most *limit*
        items. An item that does not fit is null, and `held` has a handle for it under its position; a long text ends
        the page before it, unless it comes first. Without *strings* even then, so that the page may be empty.

        Raises InvalidRequestError for an unknown handle, a negative number, and work that takes more than *budget*.
        """
        value, budget = self._get(handle_id).value, budget or Budget()
        if offset < 0 or (limit is not None and limit < 0):
            raise InvalidRequestError("offset and limit must be 0 or more")
        most = max(min(most_bytes, self.budget, _MAX_PAGE), 1)
        if isinstance(value, str):
            end = offset + min(_PAGE_TEXT_CHARS, _PAGE_TEXT_CHARS if limit is None else limit)
            return f'{{"text":{_encode(value[offset:end])}}}'
        if isinstance(value, Mapping):
            if of == "keys":
                return f'{{"keys":{_encode(_some_keys(value, offset))}}}'
            entries = islice(value.items(), offset, None if limit is None else offset + limit)
            return self._pack(((key, item) for key, item in entries), most, budget, strings=strings, keyed=True)
        limit = len(value) if limit is None else limit
        if backward:
            places: Sequence[int] = range(min(offset, len(value)) - 1, max(offset - limit, 0) - 1, -1)
        else:
            places = range(offset, min(offset + limit, len(value)))
        return self._pack((("", value[at]) for at in places), most, budget, strings=strings, backward=backward)

    def _pack(
        self,
        entries: Iterator[tuple[str, JSONValue]],
        most: int,
        budget: Budget,
        *,
        strings: bool,
        keyed: bool = False,
        backward: bool = False,
    ) -> str:
        """As many of *entries* as fit."""
        keys: list[str] = []
        items: list[str] = []
        held: dict[int, Handle] = {}
        size = 0
        for key, item in entries:
            budget.spend()
            text = self._within(item, most, budget)
            if isinstance(item, str) and text is None and (items or not strings):
                break
            cost = (len(text) if text is not None else _PREVIEW_CHARS) + len(key)
            if items and size + cost > most:
                break
            if text is None:
                held[len(items)] = self._part(item, _head(item), 0)
            keys.append(key)
            items.append(text or "null")
            size += cost
            if isinstance(item, str) and text is None:
                break
        if backward:
            items.reverse()
            held = {len(items) - 1 - at: handle for at, handle in held.items()}
        parts = [f'"items":[{",".join(items)}]']
        if keyed:
            parts.append(f'"keys":{_encode(keys)}')
        if held:
            parts.append(f'"held":{_encode({at: handle.to_dict() for at, handle in held.items()})}')
        return f"{{{','.join(parts)}}}"

    def _within(self, item: JSONValue, most: int, budget: Budget) -> str | None:
        """Return the JSON of an item that may go into a page: a number, a text that is not long, or what fits."""
        if isinstance(item, str):
            return _encode(item) if len(item) <= max(_TEXT_CHARS, most) else None
        if not isinstance(item, list | tuple | Mapping):
            return _encode(item)
        if most >= 2 and not item:
            return _encode(item)
        return _within(item, most, budget)

    def _part(self, value: JSONValue, text: str, length: int) -> Handle:
        """Return a handle for a part of a kept value; one that was made by selecting has a *length* of its own."""
        return self._keep(value, len(text), _PART_BYTES + 8 * length, text[:_PREVIEW_CHARS])

    def resolve(self, value: JSONValue) -> JSONValue:
        """Return *value* with each `{"$handle": id}` in it (other keys of a handle may be beside it) replaced by what
        it stands for. A value that is not the ID of a handle is data and stays.

        Raises InvalidRequestError for an unknown handle, for handles that together stand for more than 256 MiB, and
        for a value that is nested too deep.
        """
        try:
            return self._resolve(value, [0])
        except RecursionError:
            raise InvalidRequestError("the arguments are nested too deep") from None

    def _resolve(self, value: JSONValue, found: list[int]) -> JSONValue:
        """*found* counts the bytes that the handles stand for."""
        if isinstance(value, Mapping):
            handle_id = value.get(HANDLE_KEY)
            if isinstance(handle_id, str) and _ID.fullmatch(handle_id) and value.keys() <= _HANDLE_KEYS:
                kept = self._get(handle_id)
                found[0] += kept.bytes
                if found[0] > _MAX_KEPT:
                    raise InvalidRequestError(f"the handles stand for more than {_MAX_KEPT >> 20} MiB together")
                return kept.value
            return {key: self._resolve(item, found) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._resolve(item, found) for item in value]
        return value

    def _get(self, handle_id: str) -> _Kept:
        try:
            return self._kept[handle_id]
        except KeyError:
            raise InvalidRequestError(f"there is no result {handle_id!r} in this run") from None


def _within(value: JSONValue, most: int, budget: Budget) -> str | None:
    """Return the JSON of *value* if it has at most *most* bytes; of a longer one not much more is written than that."""
    if is_small(value):
        text = _encode(value)
        return text if len(text) <= most else None
    pieces: list[str] = []
    for piece in _pieces(value, budget):
        pieces.append(piece)
        most -= len(piece)
        if most < 0:
            return None
    return "".join(pieces)


def _head(value: JSONValue) -> str:
    """Return how the JSON of a value begins."""
    head = ""
    for piece in json_pieces(value):
        head += piece
        if len(head) > _PREVIEW_CHARS:
            break
    return head


def _pieces(value: JSONValue, budget: Budget) -> Iterator[str]:
    try:
        yield from json_pieces(value, budget)
    except BudgetExceededError as error:
        raise InvalidRequestError(f"a part of the result could not be read: {error}") from None


def _some_keys(value: JSONObject, offset: int) -> list[str]:
    keys: list[str] = []
    room = _PAGE_KEYS_CHARS
    for key in islice(value, offset, None):
        keys.append(key)
        room -= len(key) + 4
        if room < 0:
            break
    return keys


def _select(value: JSONValue, path: str, budget: Budget) -> JSONValue:
    import jmespath
    from jmespath.exceptions import JMESPathError

    if len(path) > _MAX_PATH:
        raise InvalidRequestError(f"a path may have {_MAX_PATH} characters, not {len(path)}")
    try:
        parsed: Any = jmespath.compile(path).parsed
        _check_path(parsed)
        return search(parsed, value, budget)
    except (JMESPathError, ValueError, TypeError, RecursionError, BudgetExceededError) as error:
        raise InvalidRequestError(f"cannot select {path!r}: {error}") from error


def _check_path(node: Any, *, compared: bool = False) -> None:
    """Refuse what can make a result larger than the value it comes from: the host would have to hold that."""
    if not isinstance(node, dict):
        return
    kind = node.get("type")
    if kind in ("multi_select_list", "multi_select_dict") or (kind == "literal" and not compared):
        raise ValueError("it may select parts of the value and not make new ones; that is for the code to do")
    if kind == "function_expression" and node.get("value") not in _FUNCTIONS:
        raise ValueError(f"of the functions there are {', '.join(sorted(_FUNCTIONS))}")
    compared = kind == "comparator" or node.get("value") in _TESTS
    for child in node.get("children", ()):
        _check_path(child, compared=compared)


def _type(value: JSONValue) -> str:
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"
