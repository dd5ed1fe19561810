"""What people and models write by habit, and what to write instead."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

from toolexec.errors.hints import did_you_mean

if TYPE_CHECKING:
    from toolexec.workflow.lexer import Scan, Token
    from toolexec.workflow.nodes import Expression

__all__ = ["MistakeError"]

HIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
WRONG_NAMES: Final = {"None": "write null", "True": "write true", "False": "write false", "undefined": "write null"}


class MistakeError(Exception):
    """What is wrong with a workflow, and where; the parser makes an error of it that shows the line."""

    def __init__(
        self, message: str, line: int, column: int, *, expected: tuple[str, ...] = (), suggestion: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.expected = expected
        self.suggestion = suggestion


def bad_character(scan: Scan, offset: int) -> MistakeError:
    """Explain a character that cannot stand there."""
    found = scan.source[offset]
    name = unicodedata.name(found, "a control character")
    return scan.problem(offset, f"unexpected character U+{ord(found):04X} ({name})")


def bad_number(scan: Scan, offset: int) -> MistakeError:
    """Explain what looks like a number."""
    return scan.problem(offset, "this is not a number")


def bad_operator(scan: Scan, text: str, offset: int) -> MistakeError:
    """Explain an operator that is not in the language."""
    return scan.problem(offset, f"there is no operator `{text}`")


def wrong_type(token: Token, types: tuple[str, ...]) -> MistakeError:
    """Explain an unknown type of an input."""
    return MistakeError(
        f"there is no type `{token.value}`", token.line, token.column, suggestion=did_you_mean(token.value, types)
    )


def wrong_call(function: Expression, arguments: tuple[Expression, ...]) -> MistakeError:
    """Explain the call of what is not a function."""
    return MistakeError("values have no methods", function.at.line, function.at.column)
