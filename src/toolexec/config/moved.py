"""Settings that have another key now, and are still read under the old one: with a hint at the new one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from toolexec.errors.moved import MOVED_SETTINGS, MovedSetting
from toolexec.model.json_value import JSONDict

__all__ = ["hint_at", "moved_table", "take_moved"]


def moved_table(path: str, value: object) -> JSONDict | None:
    """Return a variable or a flag with the old key *path* as the tables of a file would have it; None for a key that
    has not moved. A string is read as JSON where the setting is not one."""
    moved = MOVED_SETTINGS.get(path)
    if moved is None:
        return None
    if isinstance(value, str) and moved.fits is not str:
        with suppress(ValueError, RecursionError):  # then it does not fit, which is said with what is expected
            value = json.loads(value)
    block, _, name = path.partition(".")
    return {block: {name: value}}


def take_moved(table: JSONDict) -> Iterator[tuple[str, MovedSetting, Any]]:
    """Take the old keys out of the tables of a file; yield the path of each, its place now, and the value."""
    for path, moved in MOVED_SETTINGS.items():
        block, _, name = path.partition(".")
        given = table.get(block)
        if isinstance(given, Mapping) and name in given:
            table[block] = {key: value for key, value in given.items() if key != name}
            yield path, moved, given[name]


def hint_at(path: str, moved: MovedSetting) -> str:
    """Return what to write in place of the old key."""
    return f'{path} is {moved.name} in the table of sandboxes.plugins with kind = "{moved.kind}" now; move it there'
