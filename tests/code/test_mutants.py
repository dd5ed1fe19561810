"""Right programs that were made wrong as models write them name what they had, for every way to make them wrong."""

from __future__ import annotations

import pytest
from benchmarks.mutants.judge import SETS, fates, tallies
from benchmarks.mutants.model import OPERATORS

SAMPLE = 40
"""Of how many right programs of a set one is made wrong in every way."""

FLOORS = {"python": 0.9, "javascript": 0.85}
"""The share of the messages that name the fix."""


def test_the_ways_to_make_programs_wrong() -> None:
    """There are at least thirty for each language."""
    for language in FLOORS:
        assert sum(not languages or language in languages for languages, _ in OPERATORS.values()) >= 30


@pytest.mark.full
async def test_messages_name_the_fix() -> None:
    """Nearly all wrong programs of a sample fail with a message that names the fix, and hardly one misleads."""
    found = await fates(SETS[::4], every=SAMPLE)
    for language, floor in FLOORS.items():
        rows = [tally for of, _, tally in tallies(found) if of == language]
        failed, named = sum(each.failed for each in rows), sum(each.named for each in rows)
        assert failed >= 40
        unnamed = [(fate.mutant.program.name, fate.message) for fate in found if not fate.named]
        assert named / failed >= floor, unnamed
    assert sum(fate.misled for fate in found) <= len(found) // 50
