"""Colours for workflows in a terminal; wrong and unfinished ones too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolexec.workflow.tokens import KEYWORDS

if TYPE_CHECKING:
    from rich.text import Text

_STYLES: Final = {
    "comment": "dim",
    "string": "green",
    "number": "cyan",
    "keyword": "bold magenta",
    "constant": "cyan",
    "function": "blue",
    "operator": "yellow",
}
_CONSTANTS: Final = frozenset(["true", "false", "null"])
_PART: Final = re.compile(
    r'''
      (?P<comment>\#[^\n]*|//[^\n]*)
    | (?P<string>"""(?:[^"\\]|\\.|"(?!""))*(?:"""|\Z)|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)
    | (?P<member>\?\.\s*[A-Za-z_]\w*|(?<!\.)\.\s*[A-Za-z_]\w*)
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?:ms|[smh])?\b)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<operator>:=|[-+*/%<>=!?&|]+)
    ''',
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_INSERT: Final = re.compile(r"(?<!\\)\$\{([^{}]*)\}")
_CALLED: Final = re.compile(r"[ \t]*\(")
_KEY: Final = re.compile(r"[ \t]*:(?!=)")


def highlight(source: str) -> Text:
    """Return *source* as it is, in colours.

    >>> highlight("x := 1").plain
    'x := 1'
    """
    from rich.text import Text

    text = Text(source)
    _paint(text, source, 0, len(source))
    return text


def _paint(text: Text, source: str, begin: int, end: int) -> None:
    """Colour a part of the source."""
    for found in _PART.finditer(source, begin, end):
        kind = found.lastgroup or ""
        if kind == "word":
            kind = _kind_of_word(source, found)
        style = _STYLES.get(kind)
        if style is not None:
            text.stylize(style, found.start(), found.end())
        if kind == "string" and found[0][0] == '"':
            for insert in _INSERT.finditer(source, found.start(), found.end()):
                text.stylize("default", insert.start(), insert.end())
                _paint(text, source, *insert.span(1))


def _kind_of_word(source: str, found: re.Match[str]) -> str:
    word = found[0]
    if word in _CONSTANTS:
        return "constant"
    if word in KEYWORDS:
        return "" if _KEY.match(source, found.end()) else "keyword"
    return "function" if _CALLED.match(source, found.end()) else ""
