"""How long to wait before something is looked at, or tried, once more: longer each time."""

from __future__ import annotations

import random
from collections.abc import Iterator


def pauses(first: float, longest: float, *, factor: float = 2.0, spread: bool = False) -> Iterator[float]:
    """Yield pauses in seconds without end: *first*, then each *factor* times the one before, up to *longest*.

    With *spread*, each is cut at random, to its half at most, so that many clients do not come at once.

    >>> waits = pauses(0.1, 0.5)
    >>> [next(waits) for _ in range(4)]
    [0.1, 0.2, 0.4, 0.5]
    """
    pause = first
    while True:
        yield pause * random.uniform(0.5, 1.0) if spread else pause  # noqa: S311 - not for secrets
        pause = min(pause * factor, longest)
