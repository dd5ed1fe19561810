"""Errors, results and steps as they travel, and what becomes of hostile ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import toolexec.errors as errors
from toolexec.errors import (
    CodeError,
    ConversionError,
    GatewayTimeoutError,
    HandlerError,
    InputValidationError,
    InvalidChainError,
    MissingExtraError,
    OutputValidationError,
    ProtocolError,
    ToolExecError,
    ToolNotFoundError,
    ToolTimeoutError,
    Violation,
)
from toolexec.model import LocalBinding, ToolReply
from toolexec.run import Result, StepResult
from toolexec.run.steps import Step
from toolexec.runtime.protocol.wire import (
    error_payload,
    read_code_error,
    read_error,
    read_steps,
    read_violations,
    result_fields,
    step_payload,
)

VIOLATIONS = [
    Violation(path="/a", keyword="type", message="5 is not text", expected="string", got=5),
    Violation(path="", keyword="required", message="'b' is missing"),
]


def _classes(root: type[ToolExecError] = ToolExecError) -> Iterator[type[ToolExecError]]:
    if not root.__name__.startswith("_"):
        yield root
    for child in root.__subclasses__():
        if child.__module__.startswith(errors.__name__):
            yield from _classes(child)


ALL = sorted(_classes(), key=lambda kind: kind.__name__)


def _make(kind: type[ToolExecError]) -> ToolExecError:
    if issubclass(kind, InputValidationError | OutputValidationError):
        return kind(VIOLATIONS, tool_id="ns:t", op="validate")
    if kind is ToolNotFoundError:
        return ToolNotFoundError("ns:t", close=["ns:u"])
    if kind is MissingExtraError:
        return MissingExtraError("mcp", needed_for="an MCP server")
    if kind is ConversionError:
        return ConversionError("openai", "to_tool", "no name", tool_id="ns:t")
    if kind is CodeError:
        return CodeError(
            "no", line=2, column=5, source="1/0", kind="ZeroDivisionError", traceback="Trace", details={"x": 1}
        )
    return kind("it went wrong", tool_id="ns:t", op="execute", backend="b", details={"n": [1]}, retryable=True)


def travel(error: BaseException) -> ToolExecError:
    return read_error(json.loads(json.dumps(error_payload(error), allow_nan=False)))


class TestErrors:
    """An error arrives as the same class with the same data."""

    @pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
    def test_every_class(self, kind: type[ToolExecError]) -> None:
        """Class, code, message, fields and what the class has of its own."""
        error = _make(kind).public()  # what an error says to operators stays on the host
        arrived = travel(_make(kind))
        assert type(arrived) is kind
        assert arrived.to_dict() == error.to_dict()
        assert str(arrived) == str(error)
        assert {key: value for key, value in vars(arrived).items() if value} == {
            key: value for key, value in vars(error).items() if value
        }
        assert travel(arrived).to_dict() == error.to_dict()

    @pytest.mark.parametrize("code", ["closed", "limit_exceeded", "policy_denied", "timeout", "sold_out"])
    def test_a_code_of_another_class(self, code: str) -> None:
        """An error keeps its class, and what follows from that, with the code of any other one."""
        given = HandlerError("no", code=code)
        read = read_error(json.loads(json.dumps(error_payload(given))))
        assert (type(read), read.code, read.outcome) == (HandlerError, code, given.outcome)

    @pytest.mark.parametrize("named", ["NoSuchError", "Exception", "", 5, None, ["ClosedError"]])
    def test_a_class_that_is_unknown(self, named: Any) -> None:
        """The code decides where a class is named that is not known."""
        assert type(read_error({"error": "late", "code": "timeout", "class": named})) is ToolTimeoutError

    def test_it_can_be_caught_as_before(self) -> None:
        """Timeouts are TimeoutErrors again."""
        assert isinstance(travel(ToolTimeoutError("late")), TimeoutError)
        assert isinstance(travel(GatewayTimeoutError("late")), TimeoutError)

    def test_violations_are_whole(self) -> None:
        """Each is there with what was expected and what came."""
        arrived = travel(InputValidationError(VIOLATIONS, tool_id="ns:t"))
        assert isinstance(arrived, InputValidationError)
        assert list(arrived.violations) == VIOLATIONS

    def test_the_cause_stays(self) -> None:
        """The cause of a tool's exception is not sent."""
        error = HandlerError("t raised ValueError: no")
        error.__cause__ = ValueError("host secret")
        assert "host secret" not in json.dumps(error_payload(error))

    @pytest.mark.parametrize(
        "error", [ValueError("/etc/ssh/id_rsa"), OSError(2, "no", "/etc/ssh"), KeyError("id_rsa")], ids=repr
    )
    def test_other_exceptions_say_only_their_class(self, error: Exception) -> None:
        """Their text may hold what a sandbox must not see."""
        payload = error_payload(error)
        assert payload == {
            "error": f"the host failed: {type(error).__name__}",
            "code": "internal",
            "retryable": False,
        }

    @pytest.mark.parametrize(
        "details", [{"x": object()}, {"x": float("inf")}, {"x": "y" * (5 << 20)}], ids=["object", "inf", "huge"]
    )
    def test_details_that_cannot_travel_stay(self, details: dict[str, Any]) -> None:
        """The rest of the error goes without them."""
        payload = error_payload(ToolExecError("no", tool_id="a:b", details=details))
        assert payload == {"error": "no", "code": "internal", "retryable": False, "toolId": "a:b"}

    def test_strings_are_bounded(self) -> None:
        """A flood in a message, an ID or a code does not get through either way."""
        flood = "x" * 100_000
        sent = error_payload(ToolExecError(flood, tool_id=flood, op=flood, backend=flood))
        assert len(json.dumps(sent)) < 100_000
        read = read_error({"error": flood, "toolId": flood, "op": flood, "backend": flood, "code": flood})
        assert max(len(text or "") for text in (read.message, read.tool_id, read.op, read.backend)) == 20_000
        assert len(read.code) == 100

    @pytest.mark.parametrize("code", ["tomorrows_code", "Quota"])
    def test_an_unknown_code_is_kept(self, code: str) -> None:
        """The error is a plain ToolExecError with that code, and other errors keep theirs."""
        error = read_error({"error": "no", "code": code})
        assert type(error) is ToolExecError
        assert error.to_dict() == {"code": code, "message": "no", "retryable": False}
        assert ToolExecError("x").code == "internal"

    @pytest.mark.parametrize(
        "payload",
        [
            {},
            {"error": ""},
            {"error": None, "code": None},
            {"error": 5, "code": 5, "toolId": [], "op": {}, "backend": 1, "retryable": "yes", "details": "x"},
            {"error": ["x"], "code": ["timeout"]},
            {"error": {}, "code": {}},
        ],
        ids=str,
    )
    def test_fields_of_the_wrong_type_count_as_absent(self, payload: dict[str, Any]) -> None:
        """There is always an error to raise."""
        error = read_error(payload)
        assert type(error) is ToolExecError
        assert error.to_dict() == {"code": "internal", "message": "unknown error", "retryable": False}

    @pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
    def test_only_a_code(self, kind: type[ToolExecError]) -> None:
        """With nothing else each class is still complete: it prints, copies, and is retryable as its kind is."""
        error = read_error({"code": kind.code, "details": {"violations": 5, "line": "x", "source": 1}})
        assert type(error) is kind
        assert str(error) == "unknown error"
        assert error.retryable is kind.default_retryable
        assert repr(error)

    def test_the_text_is_the_text(self) -> None:
        """An answer of a text alone arrives as it is."""
        assert str(read_error({"error": "kaputt"})) == "kaputt"

    def test_violations_of_the_wrong_shape(self) -> None:
        """Invalid violations are left out; parts of the wrong type are empty."""
        assert read_violations("x") == ()
        found = read_violations([1, {}, {"path": 1, "keyword": "k", "message": None, "got": [1]}])
        assert found == (
            Violation(path="", keyword="", message=""),
            Violation(path="", keyword="k", message="", got=[1]),
        )


class TestProgramErrors:
    """What a guest says about its own failure."""

    def test_all_of_it(self) -> None:
        """Message, place, kind, traceback."""
        data = {"message": "no", "line": 3, "column": 1, "source": "1/0", "kind": "ZeroDivisionError", "traceback": "T"}
        error = read_code_error(data)
        assert str(error) == "no (line 3, col 1)"
        assert (error.source, error.kind, error.traceback, error.__cause__) == ("1/0", "ZeroDivisionError", "T", None)

    def test_a_tools_error_is_the_cause(self) -> None:
        """An uncaught one; it says itself whether to try again."""
        tool_error = error_payload(ToolTimeoutError("late", tool_id="a:b"))
        error = read_code_error({"message": "ToolTimeoutError: late", "tool_error": tool_error})
        assert isinstance(error.__cause__, ToolTimeoutError)
        assert (error.tool_id, error.retryable) == ("a:b", True)

    @pytest.mark.parametrize(
        "data",
        [
            None,
            5,
            [],
            {},
            {"message": 5, "line": -1, "column": "x", "source": [], "kind": {}, "traceback": 1, "tool_error": 7},
        ],
        ids=str,
    )
    def test_hostile_ones(self, data: Any) -> None:
        """Such errors come out as a failure about which nothing is known."""
        error = read_code_error(data)
        assert str(error) == "the program failed"
        assert (error.line, error.column, error.source, error.kind, error.traceback) == (0, 0, "", "", "")

    def test_floods(self) -> None:
        """Strings are cut, true is no line."""
        flood = "x" * 100_000
        error = read_code_error({"message": flood, "source": flood, "kind": flood, "traceback": flood, "line": True})
        assert [len(text) for text in (error.message, error.source, error.kind, error.traceback)] == [
            20000,
            1000,
            200,
            20000,
        ]
        assert error.line == 0


class TestSteps:
    """Chains on their way to the host."""

    def test_they_are_read(self) -> None:
        """ID, arguments if there are any, and whether the value before goes in."""
        items = [
            {"toolId": "a:b", "args": {"x": 1}, "usePrevious": True},
            {"toolId": "c"},
            {"toolId": "d", "args": None},
        ]
        assert read_steps({"steps": items}) == [
            Step(tool_id="a:b", args={"x": 1}, use_previous=True),
            Step(tool_id="c"),
            Step(tool_id="d"),
        ]
        assert read_steps({"steps": []}) == []

    @pytest.mark.parametrize("payload", [{}, {"steps": None}, {"steps": {"0": {}}}, {"steps": "x"}], ids=str)
    def test_no_list(self, payload: dict[str, Any]) -> None:
        """Refuses what is not a list."""
        with pytest.raises(ProtocolError, match="list of steps"):
            read_steps(payload)

    @pytest.mark.parametrize(
        "item",
        [None, "a:b", {}, {"toolId": 5}, {"toolId": "a", "args": []}, {"toolId": "a", "usePrevious": 1}],
        ids=str,
    )
    def test_a_wrong_step(self, item: Any) -> None:
        """The error says which."""
        with pytest.raises(InvalidChainError, match="step 1: "):
            read_steps({"steps": [{"toolId": "a"}, item]})


class TestResults:
    """What came of calls, on its way to the guest."""

    def test_what_goes_beside_the_value(self) -> None:
        """The canonical ID, the time in milliseconds, where it ran, warnings, the raw reply."""
        reply = ToolReply(content=[{"type": "text", "text": "5"}], structured=5, has_structured=True, meta={"m": 1})
        result = Result("a:b", 5, None, 0.0125, LocalBinding("a:b"), reply, VIOLATIONS[:1])
        assert result_fields(result, 1000) == {
            "tool": "a:b",
            "durationMs": 12.5,
            "backendKind": "local",
            "binding": {"kind": "local", "local": {"name": "a:b"}},
            "warnings": [{"path": "/a", "keyword": "type", "message": "5 is not text", "expected": "string", "got": 5}],
            "mcpResult": {"content": [{"type": "text", "text": "5"}], "_meta": {"m": 1}},
        }

    @pytest.mark.parametrize(
        "part", [{"type": "image", "data": "x" * 2000}, {"type": "image", "data": b"x"}], ids=["huge", "not JSON"]
    )
    def test_a_reply_that_cannot_travel_stays(self, part: dict[str, Any]) -> None:
        """A reply over the budget, or one that is not JSON, does not get into a sandbox by the back door."""
        result = Result("a:b", None, reply=ToolReply(content=[part]))
        assert result_fields(result, 1000) == {"tool": "a:b", "durationMs": 0.0}

    def test_a_step_that_worked(self) -> None:
        """Its value and where it ran."""
        step = StepResult(0, "a:b", "", {}, 5, None, 0.5, False, 2, Result("a:b", 5, None, 0.5, LocalBinding("a:b")))
        assert step_payload(step) == {
            "toolId": "a:b",
            "structured": 5,
            "durationMs": 500.0,
            "backendKind": "local",
            "binding": {"kind": "local", "local": {"name": "a:b"}},
            "attempts": 2,
        }

    def test_a_step_that_failed_or_was_skipped(self) -> None:
        """The error, or that it was not run."""
        failed = step_payload(StepResult(1, "a:b", error=ToolNotFoundError("a:b"), attempts=1))
        assert failed["error"]["code"] == "tool_not_found"
        assert "skipped" not in failed
        assert step_payload(StepResult(2, "a:b", skipped=True)) == {
            "toolId": "a:b",
            "structured": None,
            "durationMs": 0.0,
            "skipped": True,
        }
