"""Settings that have another key now, and are still read under the old one: with a hint at the new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolexec.model.json_value import JSONDict
from toolexec.runtime.kinds import RELAYED

__all__ = ["BLOCK", "hint_at", "is_moved", "take_moved"]

BLOCK: Final = "sandboxes"


def is_moved(path: str) -> bool:
    """Return whether *path* is an old key: `sandboxes.KIND`, what the workers of that kind run code in."""
    block, _, name = path.partition(".")
    return block == BLOCK and name in RELAYED


def take_moved(table: JSONDict) -> Iterator[tuple[str, Any]]:
    """Take the old keys out of the tables of a file; yield each kind, with the value."""
    given = table.get(BLOCK)
    if not isinstance(given, Mapping):
        return
    kinds = [kind for kind in RELAYED if kind in given]
    if kinds:
        table[BLOCK] = {name: value for name, value in given.items() if name not in kinds}
    yield from ((kind, given[kind]) for kind in kinds)


def hint_at(kind: str) -> str:
    """Return what to write in place of the old key."""
    return f'{BLOCK}.{kind} is inner in the table of {BLOCK}.plugins with kind = "{kind}" now; move it there'
