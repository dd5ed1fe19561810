"""What is known of the start of a run: only its own server process can take back that it may have started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from toolexec.errors import SandboxFailedError, SandboxUnavailableError
from toolexec_remote.incarnation import NEVER_STARTED, Incarnation
from toolexec_remote.server.past import PastRuns
from toolexec_remote.start import Begun, NeverStartedError, Released, Withheld

WHY = SandboxUnavailableError("no room", retryable=True)


def released(incarnation: Incarnation, remembers: float = 60.0) -> Released:
    return Withheld("r1").release(incarnation.id, "k1", at=100.0, remembers=remembers)


def test_a_withheld_run_never_started() -> None:
    """Nothing may start without the word."""
    error = Withheld("r1").never(WHY)
    assert (error.error, error.ground.run, error.final) == (WHY, "r1", False)


def test_the_proof_of_its_own_process_counts() -> None:
    """For this run, and for the key that asked."""
    its = Incarnation()
    error = released(its).never(its.state(NEVER_STARTED, "k1", "r1"), WHY, now=101.0)
    assert isinstance(error, NeverStartedError)


@pytest.mark.parametrize(
    ("statement", "now"),
    [
        (("k1", "r2"), 101.0),
        (("k2", "r1"), 101.0),
        (("k1", "r1"), 161.0),
        ((), 101.0),
    ],
    ids=["another run", "another key", "too late", "nothing"],
)
def test_all_else_is_not_a_proof(statement: tuple[str, ...], now: float) -> None:
    """Then the run may have started, and the error says so."""
    its = Incarnation()
    proof = its.state(NEVER_STARTED, *statement) if statement else None
    error = released(its).never(proof, WHY, now=now)
    assert isinstance(error, SandboxFailedError)
    assert (error.details["began"], error.retryable) == (True, False)


@pytest.mark.parametrize("proof", [5, None, "", "é", "AAAA", ["x"]], ids=str)
def test_what_is_not_a_signature_proves_nothing(proof: object) -> None:
    """No value in its place does."""
    assert isinstance(released(Incarnation()).never(proof, WHY, now=101.0), SandboxFailedError)


def test_another_process_cannot_speak_for_it() -> None:
    """Its signature does not fit, whatever it says."""
    proof = Incarnation().state(NEVER_STARTED, "k1", "r1")
    assert isinstance(released(Incarnation()).never(proof, WHY, now=101.0), SandboxFailedError)


def test_a_begun_run_has_no_way_back() -> None:
    """There is no such method, not even for the right proof."""
    begun = released(Incarnation()).begin()
    assert isinstance(begun, Begun)
    assert not hasattr(begun, "never")


@pytest.mark.full
def test_type_checkers_refuse_a_begun_run_that_never_started(tmp_path: Path) -> None:
    """Neither by a method, nor as the ground of the error; what is allowed passes."""
    program = tmp_path / "program.py"
    program.write_text(
        "from toolexec.errors import SandboxUnavailableError\n"
        "from toolexec_remote.start import Begun, NeverStartedError, Released, Withheld\n"
        "def fine(run: Withheld, why: SandboxUnavailableError) -> NeverStartedError:\n"
        "    return run.never(why)\n"
        "def by_method(run: Begun, why: SandboxUnavailableError) -> object:\n"
        "    return run.never(why)\n"
        "def by_hand(run: Begun, why: SandboxUnavailableError) -> object:\n"
        "    return NeverStartedError(why, run)\n"
        "def too_early(run: Released, why: SandboxUnavailableError) -> object:\n"
        "    return NeverStartedError(why, run)\n"
    )
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(program)]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout)
    lines = [each["range"]["start"]["line"] + 1 for each in report["generalDiagnostics"] if each["severity"] == "error"]
    assert lines == [6, 8, 10], report


def test_a_process_remembers_what_it_started() -> None:
    """A memory rules out nothing that it has started, starts nothing that it has ruled out, and forgets both in time."""
    past = PastRuns(10.0)
    past.start(("a", "r1"))
    assert not past.seal(("a", "r1"), 0.0)
    assert past.seal(("a", "r2"), 0.0)
    assert past.seal(("a", "r2"), 5.0)
    with pytest.raises(SandboxUnavailableError, match="given up"):
        past.start(("a", "r2"))
    past.start(("a", "r3"))
    past.take_back(("a", "r3"))
    assert past.seal(("a", "r3"), 5.0)
    past.end(("a", "r1"), 8.0)
    past.prune(11.0)
    assert [past.has_started(("a", "r1")), past.is_sealed(("a", "r2")), past.is_sealed(("a", "r3"))] == [
        True,
        False,
        True,
    ]
    past.prune(19.0)
    assert not past.has_started(("a", "r1"))


def test_a_process_forgets_nothing_for_want_of_room() -> None:
    """A full memory takes no more, and proves no more, instead."""
    past = PastRuns(10.0, most=1)
    past.start(("a", "r1"))
    assert not past.seal(("a", "r2"), 0.0)
    with pytest.raises(SandboxUnavailableError) as caught:
        past.start(("a", "r3"))
    assert (caught.value.code, caught.value.retryable) == ("queue_full", True)
    assert past.has_started(("a", "r1"))
