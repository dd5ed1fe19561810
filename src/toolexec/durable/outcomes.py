"""How calls end, as JSON: what a journal keeps of results and errors, and what it gives back."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

import toolexec.errors as errors
from toolexec.errors import CodeError, InvalidResultError, Outcome, ToolExecError
from toolexec.errors.base import readable
from toolexec.model.binding import binding_from_dict
from toolexec.model.content import ToolReply
from toolexec.model.json_value import JSONDict, JSONObject, to_json_lossy
from toolexec.run.types import Result
from toolexec.runtime.protocol.wire import read_violations

MAX_OUTCOME_BYTES: Final = 64 << 20
"""How long an outcome may be, as JSON: a larger one is an error, to the program, too."""

_MAX_CAUSES: Final = 5
_COMMON: Final = frozenset(
    {"message", "code", "tool_id", "op", "backend", "retryable", "outcome", "details", "violations"}
)


class RecordedCause(Exception):  # noqa: N818 - it stands for an error that is not here any more
    """Stands for the cause of a recorded error that is not a ToolExecError: its class and its text."""


def outcome_of(result: Result) -> JSONDict:
    """Return a result as JSON-able data. Raises InvalidResultError for one that is not JSON, or too large."""
    data: JSONDict = {"tool": result.tool_id, "value": result.value, "duration": result.duration}
    if result.error is not None:
        data["error"] = error_to_json(result.error)
    if result.binding is not None:
        data["binding"] = result.binding.to_dict()
    if result.reply is not None:
        data["reply"] = result.reply.to_mcp()
    if result.warnings:
        data["warnings"] = to_json_lossy([asdict(violation) for violation in result.warnings])
    data |= {"handle": result.handle} if result.handle else {}
    data |= {"cached": True} if result.cached else {}
    data |= {"attempts": result.attempts} if result.attempts != 1 else {}
    _check_size(data, result.tool_id)
    return data


def outcome_of_error(error: ToolExecError) -> JSONDict:
    """Return as JSON-able data that the call raised *error*."""
    return {"raised": error_to_json(error)}


def called_off(tool_id: str) -> JSONDict:
    """Return how a call ends that the program has called off."""
    error = ToolExecError(f"the program called off {tool_id}; it may have done a part of its work", tool_id=tool_id)
    error.outcome = Outcome.UNKNOWN
    return outcome_of_error(error)


def read_outcome(data: JSONObject) -> Result:
    """Return the result that `outcome_of` has written; raises the error that `outcome_of_error` has."""
    raised = data.get("raised")
    if isinstance(raised, dict):
        raise error_from_json(raised)
    error, binding, reply = data.get("error"), data.get("binding"), data.get("reply")
    return Result(
        str(data.get("tool", "")),
        data.get("value"),
        error_from_json(error) if isinstance(error, dict) else None,
        data.get("duration") or 0.0,
        binding_from_dict(binding) if isinstance(binding, dict) else None,
        ToolReply.from_mcp(reply) if isinstance(reply, dict) else None,
        read_violations(data.get("warnings")),
        str(data.get("handle", "")),
        data.get("cached") is True,
        data.get("attempts") or 1,
    )


def error_to_json(error: BaseException, *, depth: int = 0) -> JSONDict:
    """Return an error as JSON-able data, with its class, all of its fields, and its causes."""
    if not isinstance(error, ToolExecError):
        return {"class": type(error).__name__, "message": readable(error)}
    data: JSONDict = {"class": type(error).__name__, **error.to_dict(), "details": to_json_lossy(error.details)}
    data["outcome"] = error.outcome.value
    more = {name: value for name, value in vars(error).items() if name not in _COMMON}
    if more:
        data["more"] = to_json_lossy(more)
    if error.__cause__ is not None and depth < _MAX_CAUSES:
        data["cause"] = error_to_json(error.__cause__, depth=depth + 1)
    return data


def error_from_json(data: JSONObject) -> ToolExecError:
    """Return the error that `error_to_json` has written, of the same class; a ToolExecError where that is gone."""
    kind: type[ToolExecError] = _CLASSES.get(str(data.get("class")), ToolExecError)
    error = kind.__new__(kind)
    error.__dict__.update(data.get("more") or {})
    details = dict(data.get("details") or {})
    code = str(data.get("code") or kind.code)
    # Past the class's own constructor: it would word the message again.
    ToolExecError.__init__(
        error,
        str(data.get("message", "")),
        tool_id=data.get("tool_id"),
        op=data.get("op"),
        backend=data.get("backend"),
        retryable=data.get("retryable") is True,
        details=details,
        code=code if code != kind.code else None,
    )
    error.outcome = Outcome.read(data.get("outcome")) or error.outcome
    if isinstance(error, errors.InputValidationError | errors.OutputValidationError):
        error.violations = read_violations(details.get("violations"))
    elif isinstance(error, CodeError):
        for name in ("line", "column"):
            error.__dict__.setdefault(name, 0)
        for name in ("source", "kind", "traceback"):
            error.__dict__.setdefault(name, "")
    cause = data.get("cause")
    if isinstance(cause, dict):
        error.__cause__ = _cause(cause)
    return error


def _cause(data: JSONObject) -> Exception:
    if "code" in data:
        return error_from_json(data)
    return RecordedCause(f"{data.get('class')}: {data.get('message')}")


def _check_size(data: JSONObject, tool_id: str) -> None:
    """Raise InvalidResultError for what cannot be written as JSON in UTF-8, or is too long; most values are short."""
    size = 0
    try:
        for key, part in data.items():
            if type(part) not in _SCALARS or part != part or part in _INFINITE:
                size += len(_encode(part).encode()) if key not in _PLAIN else len(part)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidResultError(f"{tool_id} returned something that is not JSON: {error}", tool_id=tool_id) from error
    if size > MAX_OUTCOME_BYTES:
        raise InvalidResultError(
            f"{tool_id} returned {size >> 20} MiB, more than the {MAX_OUTCOME_BYTES >> 20} MiB that a durable run "
            "records; have it return less, or where the data is",
            tool_id=tool_id,
            op="normalize",
        )


_encode: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
_SCALARS: Final = frozenset({int, float, bool, type(None)})
_INFINITE: Final = (float("inf"), float("-inf"))
_PLAIN: Final = frozenset({"tool", "binding", "handle"})
"""Parts that are strings, or short objects of them, which the host has made."""


def _classes(kind: type[ToolExecError]) -> dict[str, type[ToolExecError]]:
    found: dict[str, type[ToolExecError]] = {kind.__name__: kind}
    for child in kind.__subclasses__():
        if child.__module__.startswith(errors.__name__):
            found |= _classes(child)
    return found


_CLASSES: Final[dict[str, type[ToolExecError]]] = _classes(ToolExecError)
