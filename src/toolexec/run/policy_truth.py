"""Three values for conditions: true, false, and unknown."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Truth(Enum):
    """Whether a condition holds. UNKNOWN is never rounded here: `Rule.applies` alone decides what it means."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"

    @staticmethod
    def of(holds: bool) -> Truth:
        """Return TRUE or FALSE."""
        return Truth.TRUE if holds else Truth.FALSE

    @staticmethod
    def every(truths: Iterable[Truth]) -> Truth:
        """Return whether all hold: one that is FALSE decides, else one that is UNKNOWN does."""
        return _decided(truths, Truth.FALSE, otherwise=Truth.TRUE)

    @staticmethod
    def some(truths: Iterable[Truth]) -> Truth:
        """Return whether one holds: one that is TRUE decides, else one that is UNKNOWN does."""
        return _decided(truths, Truth.TRUE, otherwise=Truth.FALSE)

    @staticmethod
    def agreed(truths: Iterable[Truth]) -> Truth:
        """Return what all of them are; UNKNOWN where they differ, or where there are none."""
        different = set(truths)
        return different.pop() if len(different) == 1 else Truth.UNKNOWN


def _decided(truths: Iterable[Truth], deciding: Truth, *, otherwise: Truth) -> Truth:
    """Return *deciding* if one of *truths* is that, else UNKNOWN if one is, else *otherwise*."""
    answer = otherwise
    for truth in truths:
        if truth is deciding:
            return truth
        if truth is Truth.UNKNOWN:
            answer = truth
    return answer
