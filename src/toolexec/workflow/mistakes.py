"""Mistakes in characters, numbers, operators, types and calls: what is wrong, and what to write instead."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from toolexec.errors import WorkflowSyntaxError
from toolexec.errors.hints import did_you_mean
from toolexec.workflow.habits import (
    INSTEAD_OF_CALLS,
    INSTEAD_OF_CHARACTERS,
    INSTEAD_OF_METHODS,
    INSTEAD_OF_OPERATORS,
    LOOKALIKES,
)

if TYPE_CHECKING:
    from toolexec.discovery.index import Index
    from toolexec.workflow.lexer import Scan
    from toolexec.workflow.nodes import Expression
    from toolexec.workflow.tokens import Token

HIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What may stand nowhere: control characters, those that reverse the direction of writing, halves of characters."""
INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What may stand only in strings."""
_BAD_NUMBER: Final = re.compile(r"[0-9][A-Za-z0-9_.]*")
_MARKDOWN: Final = "leave out the ``` of Markdown"
_METHOD: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\.([A-Za-z_]\w*)\s*\(")
_MAX_NAMES: Final = 6


class MistakeError(Exception):
    """What is wrong with a workflow, and where; the parser makes an error of it that shows the line."""

    def __init__(
        self, message: str, line: int, column: int, *, expected: Sequence[str] = (), suggestion: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.expected: tuple[str, ...] = tuple(expected)
        self.suggestion = suggestion


# -- characters, numbers, operators -----------------------------------------------------------------------------


def bad_character(scan: Scan, offset: int) -> MistakeError:
    """Explain a character that cannot stand where it does."""
    found = scan.source[offset]
    if found.isascii() and found.isprintable():
        markdown = found == "`" and scan.source.startswith("```", offset)
        suggestion = _MARKDOWN if markdown else INSTEAD_OF_CHARACTERS.get(found, "")
        return scan.problem(offset, f"unexpected `{found}`", suggestion)
    code = f"U+{ord(found):04X}"
    name = unicodedata.name(found, "without a name")
    if HIDDEN.match(found) or INVISIBLE.match(found):
        escaped = f"\\u{ord(found):04x}" if ord(found) < 0x10000 else "its escape"
        kind = "invisible character" if ord(found) > 0xA0 else "control character"
        name = f" ({name})" if ord(found) > 0xA0 else ""
        return scan.problem(offset, f"{kind} {code}{name}", f"remove it; in a string write {escaped}")
    if unicodedata.category(found) == "Zs":
        return scan.problem(offset, f"unexpected space {code} ({name})", "write a plain space")
    ascii_only = unicodedata.normalize("NFKD", found).encode("ascii", "ignore").decode()
    instead = LOOKALIKES.get(found) or ascii_only
    if found.isdecimal():
        instead = str(unicodedata.decimal(found))
    if found.isalpha():
        message = f"`{found}` ({code}, {name}) cannot be a part of a name"
        return scan.problem(offset, message, f"write {instead}" if instead else "names have a-z, A-Z, 0-9 and _")
    suggestion = INSTEAD_OF_CHARACTERS.get(found) or (f"write {instead}" if instead else "in a string it would be fine")
    return scan.problem(offset, f"unexpected character `{found}` ({code}, {name})", suggestion)


def bad_number(scan: Scan, offset: int) -> MistakeError:
    """Explain what begins like a number."""
    found = _BAD_NUMBER.match(scan.source, offset)
    text = found[0][:40] if found is not None else ""
    plain = text.replace("_", "")
    if plain != text and plain.isdigit():
        suggestion = f"write {plain}"
    elif text[:2].lower() in ("0x", "0b", "0o"):
        suggestion = "numbers are decimal" if plain == text[:2] else _decimal(plain)
    elif text.isdigit():
        suggestion = f"write {text.lstrip('0') or '0'}; only 0 itself begins with 0"
    elif text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")[-1:].isdigit():
        suggestion = "the units of durations are ms, s, m and h; a name does not begin with a digit"
    else:
        suggestion = "a number is written 12, 1.5 or 1e6"
    return scan.problem(offset, f"`{text}` is not a number", suggestion)


def _decimal(text: str) -> str:
    try:
        return f"numbers are decimal: write {int(text, 0)}"
    except ValueError:
        return "numbers are decimal"


def bad_operator(scan: Scan, text: str, offset: int) -> MistakeError:
    """Explain an operator of other languages."""
    if scan.source.startswith("+++", offset):
        return scan.problem(offset, "front matter stands at the very top", "move `+++` to the first line")
    if scan.source.startswith("---", offset):
        return scan.problem(offset, "there is no operator `---`", "front matter is TOML between two lines `+++`")
    if text in ("+=", "-=", "*=", "/=", "%=", "??="):
        return scan.problem(offset, f"there is no operator `{text}`", f"write `x = x {text[:-1]} ...`")
    return scan.problem(offset, f"there is no operator `{text}`", INSTEAD_OF_OPERATORS[text])


# -- names and calls --------------------------------------------------------------------------------------------


def wrong_type(token: Token, types: Sequence[str]) -> MistakeError:
    """Explain an unknown type of an input."""
    usual = {
        "str": "string",
        "text": "string",
        "int": "integer",
        "float": "number",
        "double": "number",
        "bool": "boolean",
        "dict": "object",
        "map": "object",
        "array": "list",
        "tuple": "list",
        "date": "string",
    }
    word = str(token.value)
    known = usual.get(word.lower())
    suggestion = f"did you mean {known}?" if known else did_you_mean(word, types)
    return MistakeError(f"there is no type `{word[:40]}`", token.line, token.column, suggestion=suggestion)


def wrong_call(function: Expression) -> MistakeError:
    """Explain the call of what is not the name of a function."""
    from toolexec.workflow.nodes import Member

    at = function.at
    path: list[str] = []
    value = function
    while isinstance(value, Member) and len(path) < 10:
        path.insert(0, value.name)
        value = value.value
    root = getattr(value, "name", "x")
    if not path:
        return MistakeError("only a function can be called, by its name", at.line, at.column)
    whole = ".".join([root, *path])
    if whole in INSTEAD_OF_CALLS:
        return _methods(at.line, at.column, f"write {INSTEAD_OF_CALLS[whole]}")
    if root in ("tools", "tool", "mcp") and len(path) >= 2:
        return _methods(at.line, at.column, f'write run("{path[-2]}:{path[-1]}", {{key: value}})')
    instead = INSTEAD_OF_METHODS.get(path[-1])
    if instead is None:
        return _methods(
            at.line, at.column, f"write {path[-1]}({'.'.join([root, *path[:-1]])}), if there is such a function"
        )
    return _methods(at.line, at.column, "write " + instead.format(x=".".join([root, *path[:-1]])))


def _methods(line: int, column: int, suggestion: str) -> MistakeError:
    return MistakeError("values have no methods", line, column, suggestion=suggestion)


def with_tool(error: WorkflowSyntaxError, index: Index, allows: Callable[[str], bool]) -> WorkflowSyntaxError:
    """Return the error of a source that calls a tool of *index* as `math.add(...)`, with the call as it is written
    here for its suggestion; any other error as it is."""
    message = error.message.split("\n", 1)[0].partition(": ")[2]
    is_method = message.startswith("values have no methods")
    if not is_method and not message.startswith(("unexpected `=`", "unexpected `:`")):
        return error
    calls = [call for call in _METHOD.finditer(error.source) if call.start() < error.column]
    if not calls or (is_method and calls[-1].start() != error.column - 1):
        return error
    found = index.find(f"{calls[-1][1]}:{calls[-1][2]}")
    if found is None or not allows(found.tool.id):
        return error
    schema = found.tool.input_schema.to_json()
    names = [*schema.get("required", ())][:_MAX_NAMES] if isinstance(schema, Mapping) else []
    args = f", {{{', '.join(f'{name}: value' for name in names)}}}" if names else ""
    return WorkflowSyntaxError(
        message,
        line=error.line,
        column=error.column,
        source=error.source,
        expected=error.details.get("expected", ()),
        suggestion=f'write run("{calls[-1][1]}:{calls[-1][2]}"{args})',
    )
