"""Decide which caller gives way where all of something is taken that callers hold, such as sessions or connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol, TypeVar

_Key = TypeVar("_Key")


class Held(Protocol):
    """One of the things that callers hold."""

    @property
    def owner(self) -> str:
        """Whose it is, such as `replies.owner_of` of the server says."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be broken off if it ended now."""
        ...


class NoShareError(Exception):
    """The newcomer holds as many as any other, and all of them are in use."""


def giving_way(held: Mapping[_Key, Held], newcomer: str, opening: Counter[str] | None = None) -> _Key | None:
    """Return which of *held*, the least recently used first, ends so that *newcomer* gets one more.

    A caller with as many as any other gives up its oldest idle one. A caller with fewer gets one of the caller with
    most: an idle one, or else the oldest. *opening* counts what is being made and can not be ended yet, by owner; None
    is returned where all that should give way is of that kind, and there may be one more for a moment.

    Raises NoShareError for a newcomer that has its share and uses all of it.
    """
    counts = Counter(each.owner for each in held.values()) + (opening or Counter[str]())
    most, number = counts.most_common(1)[0] if counts else (newcomer, 0)
    has_share = counts[newcomer] + 1 >= number
    owner = newcomer if has_share else most
    key = next((key for key, each in held.items() if each.owner == owner and each.is_idle), None)
    if key is None and has_share:
        raise NoShareError
    return key if key is not None else next((key for key, each in held.items() if each.owner == owner), None)
