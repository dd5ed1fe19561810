"""Strings whose lines a program takes apart: the last is empty where the string ends with one."""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.source import instead
from toolexec.code.repair.tables import parts_of
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_SPLIT: Final = re.compile(r"((?<![\w$.])[A-Za-z_$][\w$.]{0,80})\.split\((['\"])\\n\2\)")
_EMPTY: Final = re.compile(
    r"IndexError: |ValueError: (?:not enough values to unpack|invalid literal for int\(\) with base 10: ''"
    r"|could not convert string to float: '')|TypeError: .* of undefined"
)
_MOST: Final = 200


def about_empty_lines(failure: Failure, tools: Tools) -> str:
    """Return how to take the lines without the empty one, where a result ends with one; "" where none does."""
    written = {found[0]: found for found in _SPLIT.finditer(failure.code)} if _EMPTY.match(failure.message) else {}
    values = [call.value for call in tools.tool_calls()[:_MOST]] if len(written) == 1 else []
    if not any(map(_ends_empty, parts_of(values))):
        return ""
    [found] = written.values()
    trimmed = "strip" if failure.language == "python" else "trim"
    new = f"{found[1]}.{trimmed}(){found[0].removeprefix(found[1])}"
    return f"`{found[1]}` ends with an empty line: {instead(found[0], new)}"


def _ends_empty(value: JSONValue) -> bool:
    return isinstance(value, str) and value.endswith("\n") and "\n" in value[:-1]
