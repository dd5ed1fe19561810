"""Failures as the reader of a reply gets them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final, cast

from toolexec.errors import RemoteToolError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, to_json_lossy
from toolexec.model.redaction import redactor
from toolexec.model.visible import visible, visible_line
from toolexec.server.tools.base import MetaReply

logger: logging.Logger = logging.getLogger(__name__)
_MAX_MESSAGE: Final = 4000
_MAX_NAME: Final = 400
_MAX_DETAILS: Final = 4000
_MAX_TEXT: Final = 300
_MAX_ITEMS: Final = 10
_MAX_LEVELS: Final = 6
_MAX_NAMES: Final = 50
_MAX_NAME_SHOWN: Final = 64
_IN_MESSAGE: Final = frozenset({"validation_input", "validation_output"})
"""The codes of errors whose message has every violation."""
_OF_THE_CALL: Final = frozenset({"tool_id", "op", "retryable", "outcome"})
"""What a caller knows of a call with invalid arguments: which one it was, and that nothing has run."""


def error_object(error: ToolExecError, *, step_index: int | None = None) -> JSONDict:
    """*error* as JSON-able data that fits the schema `ERROR`: without secrets and terminal escapes, of bounded size.

    That ends the way of the error: it has no traceback any more.
    """
    _let_go(error)
    shown = error.public()
    if shown is not error:
        logger.warning("%s", visible(redactor.text(str(error)), _MAX_MESSAGE))  # what operators should know of it
        error = shown
    data = error.to_dict()
    data["message"] = visible(str(error), _MAX_MESSAGE)
    data |= {key: visible(data[key], _MAX_NAME) for key in ("tool_id", "op", "backend") if key in data}
    details = dict(data.pop("details", {}))
    if isinstance(error, RemoteToolError):
        details.pop("content", None)  # its strings are the message, its other parts are parts of the reply
    if step_index is not None:
        data["step_index"] = step_index
    if details:
        data["details"] = _bounded(details)
    return {key: redactor.value(value) for key, value in data.items()}


def _let_go(error: BaseException) -> None:
    """Drop the tracebacks of an error and of those before it.

    Frames that an error has passed have the call's arguments and results, and some have the error: such a cycle would
    keep them all until the garbage collector comes by, megabytes for each call.
    """
    todo: list[BaseException] = [error]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        todo += [before for before in (each.__cause__, each.__context__) if before is not None]
        if isinstance(each, BaseExceptionGroup):
            todo += cast("BaseExceptionGroup[BaseException]", each).exceptions


def error_reply(error: ToolExecError, **beside: JSONValue) -> MetaReply:
    """Return a reply that reports *error*; *beside* is what else there is to say."""
    return MetaReply(value={**beside, "error": error_object(error)}, is_error=True)


def short_errors(value: JSONObject) -> JSONDict:
    """Return *value*, that of a reply, as its text has it: an error of validation in it says each violation once, in
    its message, and names once what there is where a name was unknown. Its `details` are for programs, in the
    structured content."""
    short = dict(value)
    if isinstance(error := short.get("error"), dict):
        short["error"] = _short_error(error)
    if isinstance(results := short.get("results"), list):
        short["results"] = [short_errors(one) if isinstance(one, dict) else one for one in results]
    return short


def _short_error(error: JSONObject) -> JSONDict:
    details = dict(error.get("details") or {})
    violations = details.pop("violations", None)
    if error.get("code") not in _IN_MESSAGE or not isinstance(violations, list):
        return dict(error)
    left_out = {"details", *(_OF_THE_CALL if error["code"] == "validation_input" else ())}
    short = {key: part for key, part in error.items() if key not in left_out}
    unknown = [one for one in violations if isinstance(one, dict) and one.get("keyword") == "additionalProperties"]
    known = {str(one.get("path", "")): one.get("expected") for one in unknown}
    short["message"] += "".join(_names(path, names) for path, names in known.items() if isinstance(names, list))
    return {**short, "details": details} if details else short


def _names(path: str, names: Sequence[JSONValue]) -> str:
    """Return the known names at *path*, as the end of a message."""
    shown = ", ".join(visible_line(str(name), _MAX_NAME_SHOWN) for name in names[:_MAX_NAMES])
    more = ", …" if len(names) > _MAX_NAMES else ""
    return f"; known{f' at {visible_line(path, _MAX_NAME)}' if path else ''}: {shown}{more}" if shown else ""


def _bounded(details: JSONObject) -> JSONDict:
    """*details* if they are JSON and short, else the beginnings of all that is in them."""
    plain: JSONDict = to_json_lossy(details)
    if _fits(plain, _MAX_DETAILS):
        return plain
    short: JSONDict = _shortened(plain, 0)
    return short if _fits(short, _MAX_DETAILS * 2) else {"cut": True}


def _fits(value: JSONValue, limit: int) -> bool:
    return len(json.dumps(value, ensure_ascii=False)) <= limit


def _shortened(value: JSONValue, level: int) -> JSONValue:
    if isinstance(value, str):
        return visible(value, _MAX_TEXT)
    if not isinstance(value, dict | list):
        return value
    if level == _MAX_LEVELS:
        return "…"
    if isinstance(value, list):
        return [_shortened(item, level + 1) for item in value[:_MAX_ITEMS]]
    return {key: _shortened(item, level + 1) for key, item in [*value.items()][: _MAX_ITEMS * 2]}
