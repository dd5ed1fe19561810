"""Tests of skills against recorded results."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolexec.workflow.skill import Skill
from toolexec.workflow.trial import run_tests

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "skills").glob("*.workflow"))
HEAD = '+++\nname = "a"\ndescription = "b"\n{}+++\n'
CALLS = 'input n: integer\nx := run("a:b", {n: n})\nretry 2 delay 1s { run("a:c", {x: x.y}) }\nreturn x.y\n'
RECORDED = """# test: recorded
#   inputs := {n: 1}
#   calls := [
#       {tool: "a:b", args: {n: 1}, result: {y: 2}},
#       {tool: "a:c", error: "busy", retryable: true},
#       {tool: "a:c", args: {x: 2}, result: "done"},
#   ]
#   returns := 2
"""


def problems(source: str, front: str = "") -> list[str]:
    """Return what is wrong with each test of a skill."""
    return [outcome.problem for outcome in run_tests(Skill.parse(HEAD.format(front) + source))]


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_the_example_skills_pass(path: Path) -> None:
    """Each does what its own tests say."""
    outcomes = run_tests(Skill.parse(path.read_text()))
    assert [(outcome.test.name, outcome.problem) for outcome in outcomes if not outcome.ok] == []


def test_recorded_calls_answer_the_workflow() -> None:
    """Each answers once, also with a failure that is retried; pauses take no time."""
    assert problems(CALLS + RECORDED) == [""]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("returns := 2", "returns := 3", "it gave 2 and not 3"),
        ("returns := 2", 'error := "no"', "it gave 2 and not the error 'no'"),
        ("args: {n: 1}", "args: {n: 7}", "line 6, column 6: no call of a:b with {'n': 1} is recorded"),
        (", retryable: true", "", "busy"),
        ("x: 2}", "x: 3}", "no call of a:c with {'x': 2} is recorded"),
        ("inputs := {n: 1}", 'inputs := {n: "1"}', "integer"),
    ],
)
def test_what_is_not_as_recorded_is_a_problem(old: str, new: str, problem: str) -> None:
    """The value, the error, the calls and their arguments, the inputs."""
    assert old in RECORDED
    (found,) = problems(CALLS + RECORDED.replace(old, new))
    assert problem in found


def test_a_recorded_call_that_is_not_made_is_a_problem() -> None:
    """A test says all that happens."""
    assert problems('return 1\n# test:\n#   calls := [{tool: "a:b"}]\n#   returns := 1') == [
        "it did not call a:b as recorded"
    ]


def test_an_expected_error_may_come_from_a_tool_or_the_workflow() -> None:
    """A part of its message is enough."""
    source = 'run("a:b")\nfail "too late"\n'
    first = '# test: tool\n#   calls := [{tool: "a:b", error: "is full"}]\n#   error := "full"\n'
    second = '# test: fail\n#   calls := [{tool: "a:b"}]\n#   error := "too late"\n'
    assert problems(source + first + second) == ["", ""]


def test_the_output_schema_holds_in_tests() -> None:
    """As it does in a run."""
    (found,) = problems("return 1\n# test:\n#   returns := 1", 'output_schema = {type = "string"}\n')
    assert found.startswith("its value breaks its output schema")


def test_the_time_in_tests_stands_still() -> None:
    """A skill that asks for the date gives the same on every day."""
    assert problems('return today()\n# test:\n#   returns := "2026-01-01"') == [""]
