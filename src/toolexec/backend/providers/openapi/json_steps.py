"""Large JSON documents, read in steps: other threads, the event loop among them, go on in between."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json import decoder
from typing import Final

from toolexec.model.json_value import JSONDict, JSONValue

_SMALL: Final = 1 << 20
_LEVELS: Final = 3
"""How many objects inside of each other are taken apart: the document, its components, their schemas. What one of these
has is read at once: taken apart as well, GitHub's document of 13 MB took a fifth longer."""
_BLANKS: Final = re.compile(r"[ \t\n\r]*")

_scan_string: Final[Callable[[str, int], tuple[str, int]]] = vars(decoder)["scanstring"]  # no stub has it
_Decode = Callable[[str, int], tuple[JSONValue, int]]


class _UnexpectedError(Exception):
    """Something is there that this module does not read."""


def load_json(text: str, parse_constant: Callable[[str], JSONValue]) -> JSONValue:
    """Return what `json.loads` does; raises as it does.

    That holds the lock of the interpreter until it has read everything: more than a second for 40 MB. What has more
    than a million characters is read member by member instead.
    """
    if len(text) > _SMALL:
        decode: _Decode = json.JSONDecoder(parse_constant=parse_constant).raw_decode
        try:
            begin = _after_blanks(text, 0)
            if text[begin : begin + 1] == "{":
                found, end = _object(text, begin + 1, _LEVELS, decode)
                if _after_blanks(text, end) == len(text):
                    return found
        except (_UnexpectedError, ValueError):
            pass  # the error of `json.loads` says what is wrong
    return json.loads(text, parse_constant=parse_constant)


def _object(text: str, at: int, levels: int, decode: _Decode) -> tuple[JSONDict, int]:
    """Return the object whose brace ends before *at*, and where it ends."""
    found: JSONDict = {}
    at = _after_blanks(text, at)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        _expect(text, at, '"')
        key, at = _scan_string(text, at + 1)
        at = _after_blanks(text, at)
        _expect(text, at, ":")
        at = _after_blanks(text, at + 1)
        if levels > 1 and text[at : at + 1] == "{":
            found[key], at = _object(text, at + 1, levels - 1, decode)
        else:
            found[key], at = decode(text, at)
        at = _after_blanks(text, at)
        if text[at : at + 1] == "}":
            return found, at + 1
        _expect(text, at, ",")
        at = _after_blanks(text, at + 1)


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match is not None else at


def _expect(text: str, at: int, character: str) -> None:
    if text[at : at + 1] != character:
        raise _UnexpectedError
