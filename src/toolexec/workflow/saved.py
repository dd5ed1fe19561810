"""Results of runs that were saved as JSON, and the calls of a run as its picture shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolexec.code.types import CodeResult, ToolCallRecord
from toolexec.errors import InvalidRequestError, ToolExecError
from toolexec.model.json_value import JSONObject
from toolexec.workflow.graph import CallOutcome
from toolexec.workflow.nodes import NOWHERE, Position

__all__ = ["outcomes_of", "result_from"]


def result_from(data: object) -> CodeResult:
    """Return the result that `CodeResult.to_dict` gave *data* of: its value, its error, and its calls.

    Raises InvalidRequestError for what is not a result.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("ok"), bool):
        raise InvalidRequestError("this is not the result of a run, as --json prints it")
    found = cast("JSONObject", data)
    try:
        calls = [_call(each) for each in found.get("toolCalls", ())]
        return CodeResult(value=found.get("value"), tool_calls=calls, error=_error(found.get("error")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequestError(f"this result of a run cannot be read: {error!r}") from error


def outcomes_of(result: CodeResult) -> list[CallOutcome]:
    """Return what became of the calls of a workflow, for `Graph.add_calls`."""
    return [
        CallOutcome(_place(call), call.tool_id, call.duration, "" if call.error is None else call.error.code)
        for call in result.tool_calls
    ]


def _place(call: ToolCallRecord) -> Position:
    if call.at is None:
        return NOWHERE
    line, column = call.at
    return Position(line, column, line, column)


def _call(data: JSONObject) -> ToolCallRecord:
    at = (int(data["line"]), int(data["column"])) if "line" in data else None
    seconds, args = float(data.get("durationMs", 0)) / 1000, data.get("args")
    value, error = data.get("structured"), _error(data.get("error"))
    args = dict(args) if args is not None else None
    return ToolCallRecord(str(data["toolId"]), args, value=value, error=error, duration=seconds, at=at)


def _error(data: JSONObject | None) -> ToolExecError | None:
    return ToolExecError(str(data["message"]), code=str(data["code"])) if data is not None else None
