"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import re
from typing import Any, cast


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern of *text*, compiled at its first use; use it as what `re.compile` returns.

    For patterns of modules that every program imports: together theirs took 45 ms of the 320 ms that importing
    `toolexec.Exec` took, and most programs use none of them. A wrong pattern raises `re.error` at its first use.
    """
    return cast("re.Pattern[str]", _Pattern(text, flags))


class _Pattern:
    def __init__(self, text: str, flags: int) -> None:
        self.pattern = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Compile the pattern, and answer with its methods from now on, at the cost of an attribute."""
        compiled = re.compile(self.pattern, self._flags)
        for method in ("fullmatch", "match", "search", "finditer", "findall", "split", "sub", "subn"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)
