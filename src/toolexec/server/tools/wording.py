"""What strangers say in longer forms, made fit to be shown to any caller: schemas, and reasons of failures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.redaction import redactor
from toolexec.server.plain import one_line, plain

__all__ = ["clean_schema", "public_reason"]

_SHOWN: Final = frozenset({"title", "description", "$comment"})
_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_MAX_SCHEMA_TEXT: Final = 2000
_STDERR: Final = re.compile(r"[;:,]?\s*the end of its stderr:.*", re.DOTALL)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)]+", re.IGNORECASE)
_MAX_REASON: Final = 200


def clean_schema(schema: JSONValue) -> JSONValue:
    """Return a copy of a JSON Schema whose titles, descriptions and comments are clean; what it means is the same."""
    if isinstance(schema, list):
        return [clean_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made: JSONDict = {}
    for key, part in schema.items():
        if key in _SHOWN and isinstance(part, str):
            made[key] = plain(part, _MAX_SCHEMA_TEXT)
        elif key in _NAMED and isinstance(part, Mapping):  # its keys are names, whatever words they are
            made[key] = {name: clean_schema(item) for name, item in part.items()}
        else:
            made[key] = part if key in _DATA else clean_schema(part)
    return made


def public_reason(reason: str | None) -> str:
    """Return why a backend is unavailable, as any caller may know it: no command lines and paths, nothing that a
    process printed, no addresses.
    """
    text = _URL.sub("its address", _STDERR.sub("", reason or "unavailable"))
    return redactor.text(one_line(_QUOTED.sub("…", text), _MAX_REASON)) or "unavailable"
