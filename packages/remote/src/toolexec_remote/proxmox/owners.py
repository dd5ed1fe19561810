"""What the notes of a clone say: which process it belongs to, and until when. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from toolexec.remote import is_orphan, this_owner

PREFIX: Final = "toolexec-"
"""How the host names of clones begin."""
_NOTES: Final = re.compile(r"^toolexec clone (?P<name>\S+) of (?P<owner>\S+) until (?P<until>\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneNotes:
    """The notes of a clone: its host `name`, its `owner` (see `toolexec.process.owner`), and `until` when that counts
    as alive, unless it writes later ones (a Unix time)."""

    name: str
    until: int
    owner: str = ""

    def text(self) -> str:
        """Return them as they are written, for people too."""
        return (
            f"toolexec clone {self.name} of {self.owner or this_owner()} until {self.until}\n\n"
            "A sandbox; it is removed when it has been used, or its owner is dead."
        )

    def is_left_over(self, now: float) -> bool:
        """Return whether its owner is another process that is known to be dead, or was silent until *now*."""
        return self.owner != this_owner() and (self.until < now or is_orphan(self.owner))


def read_notes(text: str) -> CloneNotes | None:
    """Return what the notes of a container say; None for one that is not a clone of ours."""
    found = _NOTES.search(text)
    if found is None:
        return None
    return CloneNotes(name=found["name"], owner=found["owner"], until=int(found["until"]))
