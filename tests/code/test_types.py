"""What goes into a run of code and what comes out: defaults, snapshots and JSON names."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import pytest

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.code.types import BackendInfo, CodeEvent, CodeResult, ExecuteRequest, ToolCallRecord
from toolexec.errors import CodeError, ToolNotFoundError


class TestRecords:
    """One call that code made."""

    def test_what_was_never_set_is_left_out(self) -> None:
        """Only the ID, the value and the time are always there."""
        assert ToolCallRecord("a:b").to_dict() == {"toolId": "a:b", "structured": None, "durationMs": 0.0}

    def test_a_call_that_worked(self) -> None:
        """Its names in JSON."""
        record = ToolCallRecord("a:b", {"x": 1}, value=[1], duration=0.0123456, backend_kind="mcp")
        assert record.to_dict() == {
            "toolId": "a:b",
            "args": {"x": 1},
            "structured": [1],
            "backendKind": "mcp",
            "durationMs": 12.346,
        }
        assert record.ok
        assert repr(record) == "<ToolCallRecord a:b ok, 12.35 ms>"

    def test_a_call_that_failed(self) -> None:
        """The error as data and where it happened, no value."""
        error = ToolNotFoundError("a:b")
        record = ToolCallRecord("a:b", error=error, error_op="chain")
        assert record.to_dict() == {
            "toolId": "a:b",
            "error": error.to_dict(),
            "errorOp": "chain",
            "durationMs": 0.0,
        }
        assert not record.ok
        assert "error=tool_not_found" in repr(record)

    def test_the_value_is_read_when_it_is_asked_for(self) -> None:
        """The value is kept as a string until then, and is the same value afterwards."""
        record = ToolCallRecord("a:b")
        assert record.value is None
        record.settle('{"a": [1, 18446744073709551617]}')
        assert record.value == {"a": [1, 2**64 + 1]}
        assert record.value is record.value


class TestResults:
    """What came of a run."""

    def test_an_empty_one(self) -> None:
        """Leaves empty fields out."""
        result = CodeResult()
        assert result.ok
        assert result.raise_for_error() is result
        assert result.to_dict() == {"ok": True, "value": None, "durationMs": 0.0, "language": ""}

    def test_a_full_one(self) -> None:
        """Everything that was captured, as JSON; of files the sizes."""
        result = CodeResult(
            value={"n": 1},
            stdout="out",
            stderr="err",
            tool_calls=[ToolCallRecord("a:b")],
            duration=1.5,
            files={"a.csv": b"1,2"},
            language="python",
            backend=BackendInfo(kind="wasm", readiness="prod", isolation="wasm", details={"version": "1"}),
            limits_enforced=LimitsEnforced(timeout=True),
        )
        data = result.to_dict()
        assert json.loads(json.dumps(data)) == data
        assert (data["stdout"], data["stderr"], data["files"], data["durationMs"]) == ("out", "err", {"a.csv": 3}, 1500)
        assert data["toolCalls"] == [ToolCallRecord("a:b").to_dict()]
        assert data["backend"] == {
            "kind": "wasm",
            "readiness": "prod",
            "isolation": "wasm",
            "details": {"version": "1"},
        }
        assert data["limitsEnforced"]["timeout"] is True

    def test_a_failed_one(self) -> None:
        """The error can be raised, and keeps what was captured beside it."""
        result = CodeResult(stdout="so far", error=CodeError("no", line=2))
        assert not result.ok
        assert result.to_dict()["error"]["details"] == {"line": 2}
        with pytest.raises(CodeError):
            result.raise_for_error()
        assert result.stdout == "so far"


def test_params_have_defaults() -> None:
    """Only the code is needed; nothing is bounded or allowed beyond what the operator says."""
    params = ExecuteRequest(code="1")
    assert (params.language, params.timeout, params.limits) == ("", None, Limits())
    assert (params.allowed_tools, params.best_effort, params.seed) == (None, False, None)
    with pytest.raises(FrozenInstanceError):
        params.code = "2"  # type: ignore[misc]


def test_an_event_is_a_print_or_a_call() -> None:
    """An event carries either a print or a call."""
    assert CodeEvent(kind="print", text="x").stream == "stdout"
    record = ToolCallRecord("a:b")
    assert CodeEvent(kind="call_end", call=record).call is record


def test_an_unknown_sandbox_is_not_ready() -> None:
    """By default nothing is claimed about it."""
    info = BackendInfo(kind="x")
    assert (info.readiness, info.isolation) == ("beta", "none")
