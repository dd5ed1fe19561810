"""The protocol, with every message lost, doubled, delayed or reordered, and every process killed, restored or replaced:
no program runs twice, none is lost without a word, and none that began counts as never started."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import Literal, TypeAlias

import pytest
from packages.remote.tests.simulated import World, simulated_time

SEEDS = 20
Protocol: TypeAlias = Literal["duplex", "post"]
PROTOCOLS: tuple[Protocol, ...] = ("duplex", "post")


def simulate(seeds: range, protocol: Protocol) -> Counter[str]:
    """Let the worlds of these seeds happen; return how the programs ended. Fails with the seeds that went wrong."""
    outcomes: Counter[str] = Counter()
    wrong: dict[int, list[str]] = {}
    logging.disable(logging.CRITICAL)
    try:
        with simulated_time() as loop:
            for seed in seeds:
                world = World(seed, protocol)
                loop.run_until_complete(world.run())
                outcomes += world.outcomes
                if world.problems:
                    wrong[seed] = world.problems
    finally:
        logging.disable(logging.NOTSET)
    assert not wrong, f"{len(wrong)} of {len(seeds)} seeds went wrong: {dict([*wrong.items()][:5])}"
    return outcomes


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_some_worlds(protocol: Protocol) -> None:
    """Programs end in all three ways, and never in two of them."""
    outcomes = simulate(range(SEEDS), protocol)
    assert outcomes["done"] > SEEDS / 2


@pytest.mark.full
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_thousands_of_worlds(protocol: Protocol) -> None:
    """The first thousands of seeds."""
    outcomes = simulate(range(SEEDS, 1_000), protocol)
    assert min(outcomes[name] for name in ("done", "never started", "lost")) > 20, outcomes


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("part", range(10))
def test_a_hundred_thousand_worlds(part: int, protocol: Protocol) -> None:
    """All seeds up to 100,000, or another number of them: `SIMULATED_SEEDS`."""
    share = int(os.environ.get("SIMULATED_SEEDS", "100000")) // 10
    simulate(range(part * share, (part + 1) * share), protocol)
