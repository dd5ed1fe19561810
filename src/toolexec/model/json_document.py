"""JSON documents that people write: strictly, so that nothing that they wrote is silently left out."""

from __future__ import annotations

import json
from typing import Any

from toolexec.model.json_value import JSONDict, JSONValue, refuse_constant, shorten


class KeyTwiceError(ValueError):
    """An object of a JSON document has a key twice."""


def read_document(text: str) -> JSONValue:
    """Return the value of a JSON document.

    Raises ValueError for what is not JSON, for `NaN` and infinities; KeyTwiceError, a ValueError, for an object with a
    key twice, of which a lenient reader takes the last; RecursionError for too many levels.

    >>> read_document('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    toolexec.model.json_document.KeyTwiceError: the key 'a' is there twice
    """
    return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=_object)


def twice(key: str) -> str:
    """Return what is said of a key that an object has twice."""
    return f"the key {shorten(repr(key))} is there twice"


def _object(pairs: list[tuple[str, Any]]) -> JSONDict:
    found: JSONDict = {}
    for key, value in pairs:
        if key in found:
            raise KeyTwiceError(twice(key))
        found[key] = value
    return found
