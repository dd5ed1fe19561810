"""What is recorded of results and errors comes back as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolexec.durable.outcomes import error_from_json, error_to_json, outcome_of, outcome_of_error, read_outcome
from toolexec.errors import (
    BackendUnavailableError,
    CodeError,
    ConnectionLostError,
    InputValidationError,
    InvalidResultError,
    Outcome,
    OutputValidationError,
    PolicyError,
    ToolExecError,
    ToolNotFoundError,
    ToolTimeoutError,
    Violation,
)
from toolexec.model.binding import LocalBinding
from toolexec.model.content import ToolReply, image
from toolexec.run.types import Result

VIOLATIONS = [Violation(path="/n", keyword="type", message="must be a number", expected="number", got="'x'")]
ERRORS = [
    ToolExecError("plain", tool_id="a:b", op="execute", backend="local", details={"n": [1, None]}),
    ToolNotFoundError("a:c", close=["a:b"]),
    InputValidationError(VIOLATIONS, tool_id="a:b", op="validate_input"),
    OutputValidationError(VIOLATIONS, tool_id="a:b", value={"n": "x"}),
    PolicyError("no", code="outcome_unknown", retryable=True),
    BackendUnavailableError("down", backend="http://10.0.0.1", code="circuit_open"),
    ConnectionLostError("lost", outcome=Outcome.NOT_SENT),
    ToolTimeoutError("late", tool_id="a:b"),
    CodeError("bad", line=3, column=4, source="1 / 0", kind="ZeroDivisionError", traceback="line 3"),
]


def through_json(data: object) -> Any:
    """Return data as a journal gives it back."""
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_it_was(error: ToolExecError) -> None:
    """Class, message, code, place, details and whether the call began are the same; so is what is public of it."""
    again = error_from_json(through_json(error_to_json(error)))
    assert type(again) is type(error)
    assert again.to_dict() == through_json(error.to_dict())
    assert (again.outcome, str(again)) == (error.outcome, str(error))
    assert str(again.public()) == str(error.public())
    facts = {name: value for name, value in vars(error).items() if name != "details"}
    assert {name: vars(again)[name] for name in facts} == facts


def test_causes_come_back() -> None:
    """A cause of toolexec is itself again, another one its class and text."""
    error = ToolExecError("outer")
    error.__cause__ = ToolTimeoutError("inner")
    error.__cause__.__cause__ = ConnectionResetError("reset by peer")
    again = error_from_json(through_json(error_to_json(error)))
    assert isinstance(again.__cause__, ToolTimeoutError)
    assert str(again.__cause__.__cause__) == "ConnectionResetError: reset by peer"


def test_a_class_that_is_gone_is_a_plain_error() -> None:
    """A journal of another version may name what there is not."""
    again = error_from_json({"class": "NoSuchError", "message": "old", "code": "old_code", "retryable": True})
    assert (type(again), again.code, again.retryable) == (ToolExecError, "old_code", True)


def test_a_result_comes_back_as_it_was() -> None:
    """Value, error, binding, reply, warnings and the rest are the same."""
    reply = ToolReply(content=[image(b"x")], structured={"n": 1}, has_structured=True)
    result = Result(
        "a:b", {"n": [1, 2.5, "é"]}, ERRORS[3], 0.25, LocalBinding("a:b"), reply, VIOLATIONS, "r-1", True, 3
    )
    again = read_outcome(through_json(outcome_of(result)))
    assert again.to_dict() == through_json(result.to_dict())
    assert again.reply == reply
    assert list(again.warnings) == VIOLATIONS


def test_what_was_raised_is_raised() -> None:
    """An error of a call that was not made is not a result."""
    with pytest.raises(PolicyError):
        read_outcome(through_json(outcome_of_error(PolicyError("no"))))


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), [float("nan")], {"a": object()}, "\ud800", ["\ud800"]],
    ids=["nan", "infinity", "nested", "object", "surrogate", "nested surrogate"],
)
def test_what_is_not_json_is_refused(value: Any) -> None:
    """A value that could not be read again is an error at once."""
    with pytest.raises(InvalidResultError):
        outcome_of(Result("a:b", value))
