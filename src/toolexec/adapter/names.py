"""Names that vendors allow, and the way back from them to the IDs of tools."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from toolexec.errors import ToolNotFoundError

MAX_VENDOR_NAME: Final = 64
"""The most characters of a name. Google and MCP allow more, and `.` and `:`, but what all take is good everywhere."""

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_HASHES: Final = (0, 8, 16, 32, 64)
_MAX_CLOSE: Final = 3


def vendor_name(tool_id: str, *, letter_first: bool = False) -> str:
    """Return the name of a tool on its own: `__` for each `:` of the ID, `_` for what is not a letter, digit, `_` or
    `-`, and a hash in place of the end when it is over 64 characters. With *letter_first*, a `_` comes before what is
    neither that nor a letter, as Gemini wants it.

    >>> vendor_name("git:log:1.2.0")
    'git__log__1_2_0'
    """
    plain = _at(tool_id, 0, letter_first)
    return plain if len(plain) <= MAX_VENDOR_NAME else _at(tool_id, 1, letter_first)


class NameMap:
    """Names for a set of tools, and the way back: no two tools have the same name, whatever they are called.

    A tool has its `vendor_name`, unless another one comes to the same, or it is in *reserved*: then each of them has
    the beginning of it and a hash of its ID, so that none can take the place of another. The names of a set are the
    same in whatever order its IDs come. Immutable.

    >>> names = NameMap(["math:add", "a.b", "a_b"])
    >>> names.to_vendor("math:add"), names.to_id("math__add")
    ('math__add', 'math:add')
    >>> len({names.to_vendor(tool_id) for tool_id in names})
    3
    """

    __slots__ = ("_ids", "_letter_first", "_names", "_other", "reserved")

    def __init__(self, ids: Iterable[str], *, reserved: Iterable[str] = (), letter_first: bool = False) -> None:
        self.reserved: frozenset[str] = frozenset(reserved)
        self._letter_first = letter_first
        wanted = sorted(set(ids))
        levels = dict.fromkeys(wanted, 0)
        while True:
            names = {tool_id: _at(tool_id, level, letter_first) for tool_id, level in levels.items()}
            counts = Counter(names.values())
            again = [
                tool_id
                for tool_id, name in names.items()
                if (counts[name] > 1 or name in self.reserved or len(name) > MAX_VENDOR_NAME)
                and levels[tool_id] < len(_HASHES) - 1
            ]
            if not again:
                break
            for tool_id in again:
                levels[tool_id] += 1
        self._names = names
        self._ids = {name: tool_id for tool_id, name in names.items()}
        self._other: dict[str, str | None] | None = None

    def to_vendor(self, tool_id: str) -> str:
        """Return the name of a tool; raises ToolNotFoundError for one that is not in the map."""
        name = self._names.get(tool_id)
        if name is None:
            raise ToolNotFoundError(tool_id, op="convert")
        return name

    def to_id(self, name: str) -> str:
        """Return the ID behind a name; raises ToolNotFoundError, with similar names in `details["close"]`.

        An ID of the map is taken for itself, and so is a name that the tool would have in another set of tools, as long
        as it is one tool's only.
        """
        found = self._ids.get(name) or (name if name in self._names else self._elsewhere(name))
        if found is None:
            import difflib

            close = difflib.get_close_matches(str(name)[:200], list(self._ids)[:2_000], n=_MAX_CLOSE)
            raise ToolNotFoundError(str(name), close=close, op="convert")
        return found

    def _elsewhere(self, name: str) -> str | None:
        if self._other is None:
            other: dict[str, str | None] = {}
            for tool_id in self._names:
                for alias in {_at(tool_id, level, self._letter_first) for level in (0, 1)}:
                    other[alias] = None if alias in other else tool_id
            self._other = other
        return self._other.get(name) if name not in self.reserved else None

    def __iter__(self) -> Iterator[str]:
        """Yield the IDs, sorted."""
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, tool_id: object) -> bool:
        return tool_id in self._names

    def to_dict(self) -> dict[str, str]:
        """Name by name, the ID."""
        return dict(self._ids)


def _at(tool_id: str, level: int, letter_first: bool) -> str:
    """Return the name with so much of a hash as *level* says: none at 0, nothing but that at the last."""
    plain = _FOREIGN.sub("_", tool_id.replace(":", "__"))
    if not plain or (letter_first and not (plain[0].isalpha() or plain[0] == "_")):
        plain = f"_{plain}"
    if not level:
        return plain
    length = min(_HASHES[level], MAX_VENDOR_NAME - 1)
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).hexdigest()[:length]
    return f"{plain[: MAX_VENDOR_NAME - length - 1]}_{digest}"
