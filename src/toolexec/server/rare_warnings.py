"""Warnings of what a caller can cause again and again, which must not fill the log of the others."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final

EVERY: Final = 10.0
"""How many seconds there are between two of one kind."""


class RareWarning:
    """Logs one kind of warning with *logger*, at most once in ten seconds, and how many were left out meanwhile."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged = -EVERY
        self._left_out = 0

    def log(self, message: str, *args: object) -> None:
        """Log it, or count it."""
        now = monotonic()
        if now - self._logged < EVERY:
            self._left_out += 1
            return
        more = f" ({self._left_out} more were not logged)" if self._left_out else ""
        self._logged, self._left_out = now, 0
        self._logger.warning(f"{message}%s", *args, more)
