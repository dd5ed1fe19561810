"""Failures as the reader of a reply gets them."""

from __future__ import annotations

import json
import logging
from typing import Final

from toolexec.errors import RemoteToolError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, to_json_lossy
from toolexec.model.redaction import redactor
from toolexec.model.visible import visible
from toolexec.server.tools.base import MetaReply

__all__ = ["error_object", "error_reply"]

logger: logging.Logger = logging.getLogger(__name__)
_MAX_MESSAGE: Final = 4000
_MAX_NAME: Final = 400
_MAX_DETAILS: Final = 4000
_MAX_TEXT: Final = 300
_MAX_ITEMS: Final = 10
_MAX_LEVELS: Final = 6


def error_object(error: ToolExecError, *, step_index: int | None = None) -> JSONDict:
    """*error* as JSON-able data that fits the schema `ERROR`: without secrets and terminal escapes, of bounded size."""
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


def error_reply(error: ToolExecError, **beside: JSONValue) -> MetaReply:
    """Return a reply that reports *error*; *beside* is what else there is to say."""
    return MetaReply(value={**beside, "error": error_object(error)}, is_error=True)


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
