"""Results too large for a sandbox: they stay on the host, and code holds a handle."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolexec.errors import ConfigurationError, InvalidRequestError

__all__ = ["DEFAULT_RESULT_BYTES", "HANDLE_KEY", "Handle", "Handles"]

DEFAULT_RESULT_BYTES = 1 << 20
HANDLE_KEY = "$handle"
_PREVIEW_CHARS = 500
_MAX_KEPT = 256 << 20
_MAX_PATH = 200
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """Stands for a value that is kept on the host: its JSON type, its size as JSON in bytes, the number of its items
    (or characters), and how its JSON text begins."""

    id: str
    type: str
    bytes: int
    length: int
    preview: str

    def to_dict(self) -> dict[str, Any]:
        """The handle as JSON-able data."""
        return {
            "id": self.id,
            "type": self.type,
            "bytes": self.bytes,
            "length": self.length,
            "preview": self.preview,
        }


class Handles:
    """The values of one run that are kept on the host: those whose JSON is longer than *budget* bytes.

    The same value gets the same handle. In the arguments of a tool call `{"$handle": id}` stands for the whole value.
    Raises ConfigurationError for a budget below 1.
    """

    def __init__(self, budget: int = DEFAULT_RESULT_BYTES) -> None:
        if budget < 1:
            raise ConfigurationError(f"the byte budget of a result must be at least 1, not {budget}")
        self.budget = budget
        self._values: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._kept = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def keep(self, value: Any, text: str) -> Handle | None:
        """A handle for *value*, whose JSON is *text*; None when it fits the budget and needs none.

        Raises InvalidRequestError when the handles of the run together would hold more than 256 MiB.
        """
        if len(text) <= self.budget:
            return None
        with self._lock:
            handle_id = self._ids.get(id(value), f"h{len(self._values) + 1}")
            more = len(text) - self._sizes.get(handle_id, 0)
            if self._kept + more > _MAX_KEPT:
                raise InvalidRequestError(
                    f"the results kept for this run would be over {_MAX_KEPT >> 20} MiB; ask the tools for less"
                )
            self._kept += more
            self._sizes[handle_id] = len(text)
            self._values[handle_id] = value
            self._ids[id(value)] = handle_id  # as long as the value is kept, no other one has this identity
        length = len(value) if isinstance(value, str | list | dict) else len(text)
        return Handle(id=handle_id, type=_type(value), bytes=len(text), length=length, preview=text[:_PREVIEW_CHARS])

    def read(self, handle_id: str, *, path: str = "", offset: int = 0, limit: int | None = None) -> Any:
        """A part of a kept value: what the JMESPath *path* selects, and of a list or text at most *limit* items
        (characters) from *offset* on.

        Raises InvalidRequestError for an unknown handle, a path that does not parse, is over 200 characters or would
        make new values instead of selecting some, or a negative number.
        """
        value = self._get(handle_id)
        if path:
            value = _select(value, path)
        if offset < 0 or (limit is not None and limit < 0):
            raise InvalidRequestError("offset and limit must be 0 or more")
        if not isinstance(value, str | list) or (offset == 0 and (limit is None or limit >= len(value))):
            return value
        return value[offset : None if limit is None else offset + limit]

    def resolve(self, value: Any) -> Any:
        """*value* with each `{"$handle": id}` in it (what else a handle says may be beside it) replaced by what it
        stands for.

        Raises InvalidRequestError for an unknown handle, for handles that together stand for more than 256 MiB, and
        for a value that is nested too deep.
        """
        try:
            return self._resolve(value, [0])
        except RecursionError:
            raise InvalidRequestError("the arguments are nested too deep") from None

    def _resolve(self, value: Any, found: list[int]) -> Any:
        """*found* counts the bytes that the handles stand for."""
        if isinstance(value, Mapping):
            if isinstance(handle_id := value.get(HANDLE_KEY), str) and value.keys() <= _HANDLE_KEYS:
                kept = self._get(handle_id)
                found[0] += self._sizes[handle_id]
                if found[0] > _MAX_KEPT:
                    raise InvalidRequestError(f"the handles stand for more than {_MAX_KEPT >> 20} MiB together")
                return kept
            return {key: self._resolve(item, found) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._resolve(item, found) for item in value]
        return value

    def _get(self, handle_id: str) -> Any:
        try:
            return self._values[handle_id]
        except KeyError:
            raise InvalidRequestError(f"there is no result {handle_id!r} in this run") from None


def _select(value: Any, path: str) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    if len(path) > _MAX_PATH:
        raise InvalidRequestError(f"a path may have {_MAX_PATH} characters, not {len(path)}")
    try:
        compiled = jmespath.compile(path)
        _check_path(compiled.parsed)
        return compiled.search(value)
    except (JMESPathError, ValueError, TypeError, RecursionError) as error:
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


def _type(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    for kinds, name in ((str, "string"), ((list, tuple), "array"), (Mapping, "object")):
        if isinstance(value, kinds):
            return name
    return "number"
