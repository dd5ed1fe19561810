"""Programs as models write them run, or say how they are fixed."""

from __future__ import annotations

import pytest
from benchmarks.repair import Outcome, add_tools, judge, programs, shares
from benchmarks.repair_sets import BLIND

from toolexec import Exec

FLOORS = {"python": (0.8, 0.95), "javascript": (0.6, 0.95)}
"""Of each language: the share that runs at the first try, and the share of the rest that its messages fix."""

BLIND_FLOORS = {
    "blind": {"python": (0.83, 0.92), "javascript": (0.7, 0.95)},
    "blind2": {"python": (0.85, 0.95), "javascript": (0.8, 0.95)},
    "blind3": {"python": (0.8, 0.95), "javascript": (0.8, 0.95)},
    "blind4": {"python": (0.35, 0.95), "javascript": (0.4, 0.95)},
    "blind5": {"python": (0.25, 0.94), "javascript": (0.32, 0.95)},
    "blind6": {"python": (0.2, 0.95), "javascript": (0.17, 0.95)},
    "blind7": {"python": (0.29, 0.95), "javascript": (0.32, 0.95)},
    "blind8": {"python": (0.63, 0.94), "javascript": (0.61, 0.95)},
    "blind9": {"python": (0.61, 0.95), "javascript": (0.62, 0.95)},
    "blind10": {"python": (0.4, 0.93), "javascript": (0.31, 0.95)},
    "blind11": {"python": (0.05, 0.9), "javascript": (0.0, 0.95)},
    "blind12": {"python": (0.4, 0.95), "javascript": (0.38, 0.95)},
    "blind13": {"python": (0.35, 0.95), "javascript": (0.2, 0.95)},
}
"""The same for each set of programs that were written blindly; a fourth of them is wrong, four in ten of the
eighth and the ninth, and most or all of the others from the fourth on.
One of the first set finds another tool than its author thought."""

LATEST = {"blind5", "blind6", "blind7", "blind8", "blind9", "blind10", "blind11", "blind12", "blind13"}
"""Sets in which a program that only its reader can change counts in the share, and need not say all of it."""

RIGHT_AFTER_ALL = {
    "blind8-python-149",
    "blind8-typescript-12",
    "blind9-python-70",
    "blind9-javascript-35",
    "blind10-python-31",
    "blind10-python-51",
    "blind10-python-76",
    "blind10-typescript-7",
    "blind11-python-17",
    "blind11-python-33",
}
"""Their authors thought them wrong. The first returns a coroutine: the value of a program is awaited. The second has
fields that its constructor declares. The others call a tool with another name of an argument, and with values without
names: they are passed as the tool has them. The last six write `null` for None, parse what is parsed, or give one string
for a list of strings or a string for a number."""

NOT_FIXED = {"ways-python-133"}
"""It has a line of each of two languages."""


async def outcomes_of(names: tuple[str, ...], every: int = 1) -> list[Outcome]:
    """The outcomes of each such program of these files."""
    async with Exec() as ex:
        BLIND.get(names[0], add_tools)(ex)
        return [await judge(ex, program) for name in names for program in programs(name)[::every]]


def check(outcomes: list[Outcome]) -> None:
    """Each right program has its value at once; each wrong one says why, and is fixed by that."""
    for outcome in outcomes:
        program = outcome.program
        assert outcome.ran is (not program.says), (program, outcome.message)
        assert all(any(form in outcome.message for form in said) for said in program.says), (program, outcome.message)
        assert outcome.ran or outcome.fixed or program.name in NOT_FIXED, (program, outcome.message)


def test_the_size_of_the_corpus() -> None:
    """The corpus has at least 300 programs, each with a value of its own."""
    found = [program for name in ("kept", "ways", "later", *BLIND) for program in programs(name)]
    assert len(found) >= 300
    assert len({(program.language, program.code) for program in found}) == len(found)


async def test_a_sample() -> None:
    """A sample of all ways to write a program runs, or is fixed."""
    check(await outcomes_of(("kept",)))
    check(await outcomes_of(("ways",), every=9))


@pytest.mark.full
@pytest.mark.parametrize("name", BLIND_FLOORS)
async def test_programs_that_were_written_blindly(name: str) -> None:
    """Programs that were written without a look at the repairs keep their floors, and wrong ones say why."""
    outcomes = await outcomes_of((name,))
    for language, share in shares(outcomes):
        first, rest = BLIND_FLOORS[name][language]
        assert share.ran >= first, (language, share)
        assert share.fixed >= rest, (language, share)
    assert not any(outcome.misled for outcome in outcomes)
    for outcome in outcomes:
        says = () if outcome.program.for_reader and name in LATEST else outcome.program.says
        assert all(any(form in outcome.message for form in said) for said in says), (outcome.program, outcome.message)
        assert not (outcome.ran and outcome.program.says) or outcome.program.name in RIGHT_AFTER_ALL, outcome.program


@pytest.mark.full
async def test_the_whole_corpus() -> None:
    """All of the corpus keeps its floors."""
    outcomes = await outcomes_of(("ways", "later"))
    check(outcomes)
    for language, share in shares([each for each in outcomes if each.program.name.startswith("later")]):
        first, rest = FLOORS[language]
        assert share.ran >= first, (language, share)
        assert share.fixed >= rest, (language, share)
