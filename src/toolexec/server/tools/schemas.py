"""The words that the schemas of the server's tools are made of.

What these tools look like is what a model pays for before it has done anything, so the words are few: no description
where the name says enough, and no type for what only stands beside an answer; which names there can be is always said.
A tool that finds or reads says nothing of errors: a reply with an error has no structured content then, only text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

JSONSchema: TypeAlias = JSONDict

_CHECKED_ONLY: Final = frozenset(
    {"additionalProperties", "exclusiveMinimum", "maxItems", "maxLength", "minimum", "minItems"}
)

_UNLISTED: Final = "x-unlisted"

ANY: Final[JSONSchema] = {}
TEXT: Final[JSONSchema] = {"type": "string"}
FLAG: Final[JSONSchema] = {"type": "boolean"}
NUMBER: Final[JSONSchema] = {"type": "number"}
OBJECT: Final[JSONSchema] = {"type": "object"}
TEXTS: Final[JSONSchema] = {"type": "array", "items": TEXT}


def text(description: str, **more: JSONValue) -> JSONSchema:
    """Return a text, with a word on what it is."""
    return {**TEXT, **more, "description": description}


def count(low: int, high: int | None = None, default: int | None = None) -> JSONSchema:
    """Return an integer from *low* to *high*, or of any size."""
    schema: JSONSchema = {"type": "integer", "minimum": low}
    if high is not None:
        schema["maximum"] = high
    return schema if default is None else {**schema, "default": default}


def closed(properties: Mapping[str, JSONSchema], required: Sequence[str] = ()) -> JSONSchema:
    """Return an object with these properties and no others."""
    schema: JSONSchema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}


def unlisted(schema: JSONObject) -> JSONSchema:
    """Return the schema of an argument that is taken, and that `brief` leaves out: hardly a model needs it."""
    return {**schema, _UNLISTED: True}


def brief(schema: JSONObject, *, whole: bool = False) -> JSONSchema:
    """Return *schema* as clients see it: without what only a mistake breaks, such as a limit of 0 items, and without
    arguments that are `unlisted` (with them if *whole*). The server checks the one and takes the other all the same,
    and its error says what is wrong."""
    shown = {key: part for key, part in schema.items() if key not in _CHECKED_ONLY and key != _UNLISTED}
    if "properties" in shown:
        parts = shown["properties"].items()
        shown["properties"] = {
            name: brief(part, whole=whole) for name, part in parts if whole or not part.get(_UNLISTED)
        }
    if isinstance(shown.get("items"), dict):
        shown["items"] = brief(shown["items"], whole=whole)
    return shown


def listing(items: JSONSchema) -> JSONSchema:
    """Return a list of *items*."""
    return {"type": "array", "items": items}


ERROR: Final = closed(
    {
        "code": TEXT,
        "message": TEXT,
        **dict.fromkeys(("tool_id", "op", "backend", "retryable", "outcome", "step_index", "details"), ANY),
    },
    ["code", "message"],
)
"""What went wrong."""

LIMIT: Final = count(1, 100, 20)
"""How many items a page has."""

TOOLS: Final = listing(
    closed(
        {
            "id": TEXT,
            "name": TEXT,
            **dict.fromkeys(("namespace", "shortDescription", "signature", "tags", "unavailable", "produces"), ANY),
        },
        ["id", "name"],
    )
)
"""Tools in a list: enough to choose by."""

EXAMPLES: Final = listing(
    closed(dict.fromkeys(("id", "title", "description", "args", "resultHint"), ANY), ["title", "description", "args"])
)
"""The examples of a tool: calls that its author wrote."""

CUT: Final[dict[str, JSONSchema]] = {"cut": FLAG, "handle": ANY}
"""What stands beside the outline of a value that is too large to be shown: `cut` is true, `handle` is for read_result
(absent when the value is too large to be kept, too)."""

ON_ERROR: Final[JSONSchema] = {"enum": ["stop", "undo"]}
"""What follows the failure of a chain or a workflow."""

UNDONE: Final = listing(closed({"index": ANY, "tool_id": TEXT, "ok": FLAG, "undone_by": TEXT, "reason": TEXT}, ["ok"]))
"""What became of the effects of a chain or a workflow that was undone."""


def outcome(properties: Mapping[str, JSONSchema], answer: str) -> JSONSchema:
    """Return the schema of what a run gives: an object with *answer*, or with the `error` that is in its place."""
    schema = closed({**properties, "error": ERROR})
    return {**schema, "anyOf": [{"required": [answer]}, {"required": ["error"]}]}
