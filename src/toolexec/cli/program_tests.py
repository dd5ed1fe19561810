"""`toolexec test`: run programs, workflows and skills against their cassettes, and report as a test runner does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolexec.cassette.modes import CassetteMode
from toolexec.cli.exit_codes import FAILED, OK
from toolexec.cli.options import AsJson, Config, perform_command

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.cli.terminal import Screen
    from toolexec.exec import Exec
    from toolexec.testing.program_tests import ProgramOutcome


def check_programs(
    context: typer.Context,
    place: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The tests, or the program of one.", show_default=False)
    ],
    mode: Annotated[
        CassetteMode, typer.Option(help="Replay the calls, or record them, and what is expected.")
    ] = "replay",
    strict: Annotated[bool, typer.Option("--strict", help="Also fail on recorded calls that are not made.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run programs, workflows and skills against their cassettes.

    A test is a program (.py, .js) or a workflow or skill (.workflow) with a cassette, NAME.cassette.yaml, beside it;
    NAME.expected.json says what must come of it. Nothing is called: to record tests, name your tools with -c.
    """
    work = partial(_test, place=place, mode=mode, strict=strict, files=tuple(config or ()) + context.obj[0])
    perform_command(context, work, config, as_json, make=_nothing)


def _nothing() -> Exec:
    """Return an Exec for the session of the command itself: each test has one of its own."""
    from toolexec.exec import Exec

    return Exec()


async def _test(session: Session, *, place: Path, mode: CassetteMode, strict: bool, files: Sequence[Path]) -> int:
    from toolexec.testing.program_tests import find_tests, run_test

    screen = session.screen
    make = _maker(mode, files)
    outcomes: list[ProgramOutcome] = []
    for each in find_tests(place, mode):
        outcome = await run_test(each, make, mode)
        if strict and outcome.unused:
            outcome.problems += [f"a recorded call was not made: {line}" for line in outcome.unused]
        outcomes.append(outcome)
    failed = [each for each in outcomes if not each.passed]
    if screen.as_json:
        counts = {"passed": len(outcomes) - len(failed), "failed": len(failed)}
        screen.document({**counts, "tests": [each.to_dict() for each in outcomes]})
    else:
        _report(screen, outcomes)
    return FAILED if failed else OK


def _maker(mode: CassetteMode, files: Sequence[Path]) -> Callable[[], Exec]:
    """Return what gives the tools of a test: none where its calls are replayed."""
    if mode == "replay":
        return _nothing
    from toolexec.cli.sources import find_sources, load_exec

    return partial(load_exec, find_sources(files).files)


def _report(screen: Screen, outcomes: Sequence[ProgramOutcome]) -> None:
    """Print a dot or an F for each test, then what is wrong with each that failed, then the counts."""
    screen.exact("".join("." if each.passed else "F" for each in outcomes))
    for each in outcomes:
        if not each.passed:
            screen.exact(f"\nFAILED {each.test.path}")
            for problem in each.problems:
                screen.exact(problem)
        elif each.unused:
            screen.exact(f"\n{each.test.path}: recorded calls that were not made: {', '.join(each.unused)}")
    failed = sum(not each.passed for each in outcomes)
    counts = ([f"{failed} failed"] if failed else []) + [f"{len(outcomes) - failed} passed"]
    screen.exact(f"\n{', '.join(counts)}")
