"""Text and numbers from which a Python line reads a key, or that it takes for text, by what the error says they are.

This needs no values: it is what is left to say where the values of a line are not known.
"""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.source import instead

_READ_FROM: Final = re.compile(
    r"TypeError: (?:'(int|float|bool)' object is not subscriptable|(string) indices must be integers, not 'str')"
)
_NO_METHOD: Final = re.compile(r"AttributeError: '(?:int|float)' object has no attribute '(\w+)'")
_PART: Final = r"([A-Za-z_]\w*(?:\[[^\[\]]+\]|\.\w+)+)"
_KEY: Final = re.compile(_PART + r"(\[(?:'\w+'|\"\w+\")\])(?![\[.])")


def about_plain_values(failure: Failure) -> str:
    """Return what to leave out, or to write; "" where the line has several such reads."""
    if failure.language != "python":
        return ""
    if found := _READ_FROM.match(failure.message):
        reads = [*_KEY.finditer(failure.source)]
        if len({each[0] for each in reads}) != 1:
            return ""
        kind = "text" if found[2] else "a number" if found[1] != "bool" else "a truth value"
        return f"`{reads[0][1]}` is {kind}: {instead(reads[0][0], reads[0][1])}"
    found = _NO_METHOD.match(failure.message)
    if found is None or not hasattr(str, found[1]):
        return ""
    called = re.search(rf"{_PART}\.{found[1]}\(\)", failure.source)
    return f"`{called[1]}` is a number: leave `.{found[1]}()` out" if called is not None else ""
