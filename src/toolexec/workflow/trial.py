"""Run the tests of a skill against recorded results, without its tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolexec.errors import RemoteToolError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONValue, shorten
from toolexec.model.schema import Schema, same_json
from toolexec.run.large import MAX_STEPS, Budget
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.machine import CallRequest, Finished, Machine, Outcome, Paused
from toolexec.workflow.program import Program
from toolexec.workflow.skill import RecordedCall, Skill, SkillTest

_NOW: Final = 1_767_225_600.0
"""The time in tests: 2026-01-01, midnight in UTC, so that they give the same on every day."""
_STEPS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """What came of one test: `problem` says what is not as it was recorded, and is empty when all is."""

    test: SkillTest
    problem: str = ""
    value: JSONValue = None

    @property
    def ok(self) -> bool:
        """Whether the skill did what the test expects."""
        return not self.problem

    def to_dict(self) -> JSONDict:
        """Return the outcome as JSON-able data."""
        return {"test": self.test.name, "line": self.test.line, "ok": self.ok, "problem": self.problem}


def run_tests(skill: Skill) -> list[TrialOutcome]:
    """Run all tests of a skill, in their order, without any tool; raises WorkflowCheckError.

    Each recorded call answers one call of its tool with its arguments. A call that is not recorded, and a recorded one
    that is not made, are problems.
    """
    program = compile_workflow(skill.workflow)
    return [_run(skill, program, test) for test in skill.tests]


def _run(skill: Skill, program: Program, test: SkillTest) -> TrialOutcome:
    left = list(test.calls)
    try:
        value = _finish(Machine(program, test.inputs, now=_NOW), left)
    except _NotRecordedError as error:
        return TrialOutcome(test=test, problem=str(error))
    except ToolExecError as error:
        is_expected = test.error != "" and test.error in str(error)
        return TrialOutcome(test=test, problem="" if is_expected else str(error))
    return TrialOutcome(test=test, problem=_problem(skill, test, left, value), value=value)


def _problem(skill: Skill, test: SkillTest, left: list[RecordedCall], value: object) -> str:
    if test.error:
        return f"it gave {_shown(value)} and not the error {test.error!r}"
    if not same_json(value, test.returns):
        return f"it gave {_shown(value)} and not {_shown(test.returns)}"
    if left:
        return f"it did not call {left[0].tool} as recorded"
    schema = skill.header.output_schema
    wrong = Schema.of(schema).violations(value) if schema is not None else ()
    return f"its value breaks its output schema: {wrong[0]}" if wrong else ""


class _NotRecordedError(Exception):
    """A call that no recorded one answers."""


def _finish(machine: Machine, left: list[RecordedCall]) -> JSONValue:
    """Run to the end with recorded results; raises the workflow's own error, or _NotRecordedError."""
    while not isinstance(outcome := _advance(machine), Finished):
        for call in outcome.calls:
            _answer(machine, call, left)
        for pause in outcome.sleeps:
            machine.answer(pause.key, None)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def _advance(machine: Machine) -> Outcome:
    outcome = machine.advance(_STEPS)
    if isinstance(outcome, Paused) and outcome.is_long and not outcome.calls and not outcome.sleeps:
        return machine.advance(1, budget=Budget(steps=MAX_STEPS))
    return outcome


def _answer(machine: Machine, call: CallRequest, left: list[RecordedCall]) -> None:
    for number, recorded in enumerate(left):
        if recorded.tool == call.tool_id and (recorded.args is None or same_json(recorded.args, call.args)):
            del left[number]
            if recorded.error:
                error = RemoteToolError(recorded.error, tool_id=call.tool_id, retryable=recorded.retryable)
                machine.fail(call.key, error, may_repeat=True)
            else:
                machine.answer(call.key, recorded.result, may_repeat=True)
            return
    line, column = call.at
    raise _NotRecordedError(
        f"line {line}, column {column}: no call of {call.tool_id} with {_shown(dict(call.args))} is recorded"
    )


def _shown(value: object) -> str:
    return shorten(repr(value), 200)
