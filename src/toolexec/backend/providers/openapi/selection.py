"""Which operations become tools, and what those are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.ids import MAX_NAME_LENGTH, check_segment, clean_segment

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_ODD: Final = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rules of a user: only what matches *include* (all, where it is empty) and has one of *tags*, and nothing that
    matches *exclude*.

    A pattern with a space in it is matched with the method and the path, such as `GET /pets/*`; any other with the
    operation's ID and with the tool's name. `*` stands for any characters.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    tags: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for old, new in self.rename.items():
            problem = check_segment(new)
            if problem:
                raise ConfigurationError(f"rename: the name for {old!r} {problem}")

    def takes(self, names: Sequence[str], route: str, tags: Iterable[str]) -> bool:
        """Return whether an operation becomes a tool; *names* are what it may be called, *route* is `GET /pets`."""
        if self.tags and not set(self.tags) & set(tags):
            return False
        if self.include and not any(_matches(pattern, names, route) for pattern in self.include):
            return False
        return not any(_matches(pattern, names, route) for pattern in self.exclude)


class Names:
    """Gives each operation of a document a name of its own, the same one each time the document is read."""

    def __init__(self, rename: Mapping[str, str]) -> None:
        self._rename = rename
        self._unused = set(rename)
        self._taken: set[str] = set(rename.values())

    @staticmethod
    def plain(operation_id: str, method: str, path: str) -> str:
        """Return the name that an operation has if no other has it: its ID with legal characters, or else its method
        and path, such as `get_pets_by_id`."""
        return clean_segment(operation_id) or _from_route(method, path)

    def of(self, operation_id: str, plain: str, route: str) -> str:
        """Return the name of a further operation: what it is renamed to, or *plain*, with a number where that is taken.

        Raises ConfigurationError when two operations are given one name.
        """
        for old in (operation_id, plain, route):
            if old and old in self._rename:
                if old not in self._unused:
                    break
                self._unused.discard(old)
                return self._rename[old]
        name, number = plain, 1
        while name in self._taken:
            number += 1
            suffix = f"_{number}"
            name = plain[: MAX_NAME_LENGTH - len(suffix)] + suffix
        self._taken.add(name)
        return name

    def check(self, known: Iterable[str]) -> None:
        """Raise ConfigurationError for a name to replace that no operation has, with the nearest of *known*."""
        if len(set(self._rename.values())) != len(self._rename):
            raise ConfigurationError("rename: two operations are given the same name")
        for old in sorted(self._unused):
            raise ConfigurationError(f"rename: the document has no operation {old!r}; {did_you_mean(old, known)}")


def _matches(pattern: str, names: Sequence[str], route: str) -> bool:
    if " " in pattern.strip():
        method, _, path = pattern.strip().partition(" ")
        return fnmatchcase(route, f"{method.upper()} {path.strip()}")
    return any(fnmatchcase(name, pattern) for name in names)


def _from_route(method: str, path: str) -> str:
    """Return `get_pets_by_id` for GET /pets/{id}."""
    words = [method.lower()]
    for part in path.split("/"):
        plain = _PLACEHOLDER.sub(r" by \1 ", part)
        words.extend(word for word in _ODD.split(plain) if word)
    return "_".join(words)[:MAX_NAME_LENGTH].strip("_")
