"""Copies of arguments for the trace, within a bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolexec.discovery.examples import copy_json

__all__ = ["snapshot"]


def snapshot(args: Mapping[str, Any] | None, room: list[int]) -> tuple[Mapping[str, Any] | None, bool]:
    """A copy of *args* as far as there is *room* for it, and whether there was not."""
    before = room[0]
    try:
        return _copied(args, room), False
    except RecursionError:  # the check of the arguments will say it better
        room[0] = before
        return None, False
    except OverflowError:
        room[0] = before
        return None, True


def _copied(value: Any, room: list[int]) -> Any:
    """A copy that shares no dict or list; the usual types first, as most values are of them. Raises OverflowError when
    there is no *room* for it: what a program sends in a few bytes can take twenty times as many here."""
    kind = type(value)
    if kind is int or value is None or kind is float or kind is bool:
        return value
    if kind is str:
        room[0] -= len(value)
    elif kind is dict:
        room[0] -= 64 + 100 * len(value)
        if room[0] >= 0:
            return {key: _copied(item, room) for key, item in value.items()}
    elif kind is list:
        room[0] -= 64 + 8 * len(value)
        if room[0] >= 0:
            return [_copied(item, room) for item in value]
    else:
        return copy_json(value)
    if room[0] < 0:
        raise OverflowError
    return value
