"""Tokens of workflows, what each of them says about its neighbours, and what is open while they are read."""

from __future__ import annotations

from typing import Final

MAX_BRACKETS: Final = 200
"""How many brackets of all kinds may be open at once."""
MAX_BLOCKS: Final = 100
"""How deep blocks may be nested."""
MAX_DEPTH: Final = 100
"""How many brackets, members, prefixes and choices of one expression may be nested."""
MAX_OPERATORS: Final = 2_000
"""How many operators may stand side by side, as in `a + b + c`."""
MAX_ELSE_IFS: Final = 1_000
"""How many `else if` one `if` may have."""
MAX_INTEGER_BITS: Final = 4096

KEYWORDS: Final = frozenset(
    [
        "input",
        "if",
        "else",
        "for",
        "in",
        "where",
        "collect",
        "while",
        "limit",
        "parallel",
        "retry",
        "delay",
        "backoff",
        "try",
        "catch",
        "do",
        "print",
        "return",
        "fail",
        "break",
        "continue",
        "true",
        "false",
        "null",
        "and",
        "or",
        "not",
        "run",
        "timeout",
    ]
)
SIMPLE: Final = {text: ("OPERATOR", text) for text in ("??", "==", "!=", "<", "<=", ">", ">=", "+", "*", "/", "%")} | {
    "||": ("OPERATOR", "or"),
    "&&": ("OPERATOR", "and"),
    "!": ("NOT", "not"),
    ".": ("DOT", "."),
    "?.": ("SAFE_DOT", "?."),
    ":": ("COLON", ":"),
    ":=": ("BIND", ":="),
    "=": ("EQUAL", "="),
    "?": ("QMARK", "?"),
    "|": ("VBAR", "|"),
    "...": ("SPREAD", "..."),
}
"""The type and value of each operator that is the same everywhere."""
OPENERS: Final = {"(": "LPAR", "[": "LSQB", "?[": "SAFE_BRACKET"}
CLOSERS: Final = {
    "(": (")", "RPAR"),
    "[": ("]", "RSQB"),
    "{": ("}", "RBRACE"),
    "block": ("}", "END_BLOCK"),
    "branches": ("}", "END_BLOCK"),
    "${": ("}", "END_INSERT"),
}
ENDS_VALUE: Final = frozenset(
    ["NAME", "NUMBER", "DURATION", "STRING", "CLOSE_STRING", "RPAR", "RSQB", "RBRACE", "NULL", "TRUE", "FALSE"]
)
BEFORE_BLOCK: Final = ENDS_VALUE | {"ELSE", "DO", "TRY", "CATCH", "PARALLEL"}
BEGINNING: Final = frozenset(["", "END", "BLOCK", "BRANCHES", "FRONT_MATTER"])
# After these a line break does not end the statement.
GOES_ON: Final = BEGINNING | {
    "OPERATOR",
    "MINUS",
    "IN",
    "NOT",
    "COMMA",
    "COLON",
    "BIND",
    "EQUAL",
    "DOT",
    "SAFE_DOT",
    "VBAR",
    "ELSE",
    "DO",
    "TRY",
}
BETWEEN: Final = frozenset(["newline", "comment", "semicolon"])
ON_ONE_LINE: Final = frozenset(["top", "block", "branches"])


VALUES: Final = frozenset(["NAME", "NUMBER", "DURATION", "STRING", "OPEN_STRING", "NULL", "TRUE", "FALSE"]) | {
    "NOT",
    "MINUS",
    "LSQB",
    "LBRACE",
    "LPAR",
    "RUN",
}
"""What an expression begins with."""
AFTER_VALUE: Final = frozenset(
    ["DOT", "SAFE_DOT", "SAFE_BRACKET", "LSQB", "LPAR", "OPERATOR", "MINUS", "IN", "TIMEOUT", "QMARK"]
)
"""What goes on an expression."""
BLOCKS: Final = frozenset(["DO", "IF", "FOR", "COLLECT", "WHILE", "PARALLEL", "RETRY", "TRY"])
"""What a block expression begins with."""
ACTIONS: Final = frozenset(["PRINT", "RETURN", "FAIL", "BREAK", "CONTINUE"])
"""What any other statement begins with."""


class Token:
    """A token as the parser takes it: its type is a terminal of the grammar."""

    __slots__ = ("column", "end_column", "end_line", "end_pos", "line", "start_pos", "type", "value")

    def __init__(self, type: str, value: object, line: int, column: int, start_pos: int, end_pos: int) -> None:
        self.type: str = type
        self.value: object = value
        self.line: int = line
        self.column: int = column
        self.end_line: int = line
        self.end_column: int = column + end_pos - start_pos
        self.start_pos: int = start_pos
        self.end_pos: int = end_pos


class Level:
    """An open bracket, or the top: what opened it, and how many blocks are around."""

    __slots__ = ("blocks", "kind", "opener", "string")

    def __init__(self, kind: str, opener: Token | None, blocks: int, string: Token | None = None) -> None:
        self.kind: str = kind
        self.opener: Token | None = opener
        self.blocks: int = blocks
        self.string: Token | None = string  # the beginning of the string that goes on after `${ }`
