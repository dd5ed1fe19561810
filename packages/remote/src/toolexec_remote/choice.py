"""Which one of several endpoints takes the next program, and what all of them have in common."""

from __future__ import annotations

import random
from collections.abc import Sequence

from toolexec.sandbox import LimitsEnforced
from toolexec_remote.connection import EndpointConnection, RemoteSandbox


def less_busy(usable: Sequence[EndpointConnection]) -> EndpointConnection:
    """Return which one of these takes the next program: the less busy one of two that are drawn, by chance if they are
    equally busy.

    What is known of them is up to 50 ms old, in which a server starts and ends dozens of programs; callers that all
    chose the least busy one would send all of them to the same. By the simulation of docs/scale.md, programs of 20
    callers on 12 servers at 80 % of their load take 27 ms at the median and 73 ms at p99 so, and 100 and 199 ms where
    each goes to the least busy of all. A program that waits behind others moves to an endpoint with room. See
    Mitzenmacher, "How Useful Is Old Information?", IEEE Transactions on Parallel and Distributed Systems 11 (1), 2000.
    """
    drawn = random.sample(usable, min(2, len(usable)))
    return min(drawn, key=lambda each: each.load)


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
