"""Which one of several endpoints takes the next program, and what all of them have in common."""

from __future__ import annotations

import random
from collections.abc import Sequence
from time import monotonic
from typing import Final

from toolexec.sandbox import LimitsEnforced
from toolexec_remote.connection import EndpointConnection, RemoteSandbox

__all__ = ["common", "least_busy"]

_STALE_SECONDS: Final = 1.0
"""After how long many callers may have seen the same news of an endpoint, and would all choose the same one."""


def least_busy(usable: Sequence[EndpointConnection]) -> EndpointConnection:
    """Return which one of these takes the next program: the least busy of those that have room, by chance among equals.

    Where the news of one of them is old, other callers know no more, and all would choose the same: then it is the less
    busy one of two that are drawn.
    """
    free = [each for each in usable if each.free > 0] or [*usable]
    if any(monotonic() - each.reported_at > _STALE_SECONDS for each in free):
        free = random.sample(free, min(2, len(free)))
    return min(free, key=lambda each: (each.load, random.random()))  # noqa: S311 - not for secrets


def common(found: Sequence[RemoteSandbox]) -> RemoteSandbox | None:
    """Return what all of these have in common; None for none."""
    if not found:
        return None
    languages = frozenset.intersection(*(sandbox.languages for sandbox in found))
    enforces = {language: _common([each.enforces.get(language) for each in found]) for language in languages}
    return RemoteSandbox(
        kind=found[0].kind,
        isolation=found[0].isolation,
        languages=languages,
        enforces=enforces,
        interrupts=all(each.interrupts for each in found),
    )


def _common(held: list[LimitsEnforced | None]) -> LimitsEnforced:
    """Return the limits that hold on each."""
    names = LimitsEnforced().to_dict()
    return LimitsEnforced(**{name: all(each is not None and getattr(each, name) for each in held) for name in names})
