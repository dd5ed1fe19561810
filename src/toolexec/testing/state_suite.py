"""The contract of stores of a server's state, as one check that any store can take."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolexec.server.state import StateKind, StateStore

_KINDS: tuple[StateKind, ...] = ("key", "session", "suspended", "result", "task", "stream")
_VALUES = ("", "a", "b", '{"used": "\u00e9\u2028"}', "x" * 70_000)


async def check_state(store: StateStore, other: StateStore, *, steps: int = 300, seed: int = 1) -> None:
    """Check that *store* and *other*, two over the same records, of which there are none yet, keep the contract.

    Both are used at random for *steps* steps, and must answer as a plain dictionary does; then many change one
    record at once, of which one may succeed; at the end both are closed. *seed* is where the steps come from.
    Raises AssertionError, which names the step.
    """
    await _check_steps((store, other), steps, random.Random(seed))  # noqa: S311 - not for secrets
    await _check_races(store, other)
    await _check_end(store, other)


async def _check_steps(stores: tuple[StateStore, StateStore], steps: int, chance: random.Random) -> None:
    model: dict[tuple[StateKind, str], str] = {}
    for number in range(steps):
        store, kind, key = chance.choice(stores), chance.choice(_KINDS), f"step-{chance.randrange(3)}"
        old, new = chance.choice(_VALUES), chance.choice(_VALUES)
        there = model.get((kind, key))
        what = chance.choice(("get", "put", "add", "swap", "delete"))
        found: object = None
        wanted: object = None
        if what == "get":
            found, wanted = await store.get(kind, key), there
        elif what == "put":
            await store.put(kind, key, new, 3600)
            model[kind, key] = new
        elif what == "add":
            found, wanted = await store.add(kind, key, new, 3600), there is None
            model.setdefault((kind, key), new)
        elif what == "swap":
            found, wanted = await store.swap(kind, key, old, new, 3600), there == old
            if wanted:
                model[kind, key] = new
        else:
            await store.delete(kind, key)
            model.pop((kind, key), None)
        assert found == wanted, f"step {number}: {what} gave {str(found)[:80]!r}, not {str(wanted)[:80]!r}"
    for kind in _KINDS:
        for key in ("step-0", "step-1", "step-2"):
            assert await stores[0].get(kind, key) == await stores[1].get(kind, key) == model.get((kind, key))


async def _check_races(store: StateStore, other: StateStore) -> None:
    both = (store, other)
    added = await asyncio.gather(*(both[n % 2].add("key", "race", str(n), 3600) for n in range(20)))
    assert sum(added) == 1, "of several that add one record, one succeeds"
    old = str(added.index(True))
    swapped = await asyncio.gather(*(both[n % 2].swap("key", "race", old, f"new-{n}", 3600) for n in range(20)))
    assert sum(swapped) == 1, "of several that swap one record, one succeeds"
    assert await other.get("key", "race") == f"new-{swapped.index(True)}"


async def _check_end(store: StateStore, other: StateStore) -> None:
    await store.put("session", "ends", "a", 3600)
    await store.put("session", "ends", "b", 0)
    assert await other.get("session", "ends") is None, "a record whose time is over is none"
    assert not await other.swap("session", "ends", "b", "c", 3600)
    assert await other.add("session", "ends", "d", 3600)
    assert await store.get("session", "ends") == "d"
    for each in (store, other, store):  # closing twice is fine
        await each.aclose()
