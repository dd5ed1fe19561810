"""Which tools a pattern means: the one place where that is decided, for rules, lists, limits and commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.model.ids import without_version

_MAX_PATTERNS: Final = 1_000
_WILD: Final = frozenset("*?[")


class IDPatterns:
    """IDs, and patterns of them: `*` for anything, `?` for one character, `[ab]` for one of these; case-sensitive.

    One that fits the ID without its version means all versions of the tool, also where it is just that ID: `git:log`
    means `git:log:1.0.0` and `git:log:2.0.0`. *what* names the patterns in errors. Raises ConfigurationError for more
    than 1,000 patterns that are not just IDs.

    >>> patterns = IDPatterns("tools of a rule", ["git:log", "files:*:1.*"])
    >>> [patterns.match(each) for each in ("git:log:2.0.0", "files:read:1.4", "files:read:2.0")]
    [True, True, False]
    """

    __slots__ = ("_exact", "_wild")

    def __init__(self, what: str, patterns: Iterable[str]) -> None:
        patterns = tuple(patterns)
        self._wild = tuple(each for each in patterns if not _WILD.isdisjoint(each))
        self._exact = frozenset(patterns).difference(self._wild)
        if len(self._wild) > _MAX_PATTERNS:
            raise ConfigurationError(f"{what} has more than {_MAX_PATTERNS} patterns; write fewer that each mean more")

    def match(self, tool_id: str) -> bool:
        """Return whether one of them means the tool with this full ID."""
        if self.fits(tool_id):
            return True
        plain = without_version(tool_id)
        return plain != tool_id and self.fits(plain)

    def fits(self, text: str) -> bool:
        """Return whether one of them fits this text, which need not be an ID, as a whole."""
        return text in self._exact or (bool(self._wild) and _compiled(self._wild).match(text) is not None)

    def fit_any(self, strings: Iterable[str]) -> bool:
        """Return whether one of them fits one of these strings."""
        return any(map(self.fits, strings))


@lru_cache(maxsize=1024)
def _compiled(patterns: Sequence[str]) -> re.Pattern[str]:
    # What `translate` makes never tries a second way to fit a piece, so no pattern takes long on any text.
    return re.compile("|".join(map(translate, patterns)))
