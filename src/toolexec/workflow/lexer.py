"""Split a workflow into tokens, and decide all that depends on the context: where a statement ends, what a brace opens,
which words are names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from toolexec.workflow.mistakes import (
    HIDDEN,
    INVISIBLE,
    MistakeError,
    bad_character,
    bad_number,
    bad_operator,
)
from toolexec.workflow.nodes import Position
from toolexec.workflow.strings import EscapeError, cook, dedent
from toolexec.workflow.tokens import (
    BEFORE_BLOCK,
    BEGINNING,
    BETWEEN,
    CLOSERS,
    ENDS_VALUE,
    GOES_ON,
    KEYWORDS,
    MAX_BLOCKS,
    MAX_BRACKETS,
    MAX_INTEGER_BITS,
    ON_ONE_LINE,
    OPENERS,
    SIMPLE,
    Level,
    Token,
)

_TOKEN: Final = re.compile(
    r"""[ \t]*(?:
      (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<string>["'])
    | (?P<bracket>[()\[\]{}]|\?\[)
    | (?P<newline>\n)
    | (?P<comment>\#[^\n]*|//[^\n]*)
    | (?P<wrong>===|!==|\*\*|\+\+|--|[-+*/%]=|\?\?=|=>|->|<>|<<|>>|<-|\|>|::|/\*|\.\.(?!\.))
    | (?P<operator>\?\.(?![0-9])|\?\?|:=|==|!=|<=|>=|&&|\|\||\.\.\.|[-+*/%<>=!?:,.|])
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?:ms|[smh])?(?![A-Za-z0-9_]|\.[0-9]))
    | (?P<semicolon>;)
    | (?P<end>\Z)
    | (?P<other>[^ \t])
    )""",
    re.VERBOSE,
)
_SIGNED: Final = re.compile(r"[ \t]*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]|\.[0-9]))")
_NOT_IN: Final = re.compile(r"[ \t]+in(?![A-Za-z0-9_])")
_NEXT_COLON: Final = re.compile(r"[ \t]*:(?!=)")
_TEXT: Final = {
    '"': re.compile(r'[^"\\$\n]*(?:(?:\\[^\n]|\$(?!\{))[^"\\$\n]*)*'),
    "'": re.compile(r"[^'\\\n]*(?:\\[^\n][^'\\\n]*)*"),
    '"""': re.compile(r'[^"\\$]*(?:(?:\\.|\$(?!\{)|"(?!""))[^"\\$]*)*', re.DOTALL),
}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_FENCE: Final = re.compile(r"\+\+\+[ \t]*\n")
_FENCE_END: Final = re.compile(r"^\+\+\+[ \t]*$", re.MULTILINE)


class Scan:
    """One pass over the source of a workflow: `tokens()` yields them, `comments` and `seen` fill on the way."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.comments: list[tuple[Position, str]] = []
        """The place and text of each; a text begins with `#`."""
        self.seen: list[Token] = []
        """All tokens so far."""
        self.levels: list[Level] = [Level("top", None, 0)]
        """What is open, from the outside."""
        self._line = 1
        self._line_start = 0
        self._pending: Token | None = None  # an END that counts only if what comes next does not go on
        self._in_input = False
        self._branches_next = False

    def problem(self, offset: int, message: str, suggestion: str = "") -> MistakeError:
        """Make the problem of the character at *offset*."""
        line = self.source.count("\n", 0, offset) + 1
        column = offset - self.source.rfind("\n", 0, offset)
        return MistakeError(message, line, column, suggestion=suggestion)

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens; raises MistakeError at the first character that cannot be a part of one."""
        self._refuse_hidden()
        position, previous = 0, ""
        front = self._front_matter()
        if front is not None:
            yield front
            position, previous = front.end_pos, front.type
        match, source, levels = _TOKEN.match, self.source, self.levels
        make = {
            "word": self._word,
            "operator": self._operator,
            "bracket": self._bracket,
            "number": self._number,
            "string": self._string,
            "wrong": self._wrong,
            "other": self._wrong,
        }
        while True:
            found = match(source, position)
            assert found is not None
            kind = found.lastgroup
            assert kind is not None  # one of them takes any character, or the end
            start, position = found.span(kind)
            text = source[start:position]
            if kind in BETWEEN or (text == "," and levels[-1].kind == "branches"):
                self._between(kind, previous, start, position)
                continue
            if kind == "end":
                if len(levels) > 1:
                    raise self.unclosed(levels[-1])
                return
            if self._pending is not None:
                ending = self._ending(text, position)
                if ending is not None:
                    previous = "END"
                    yield ending
            if kind == "word" and text not in KEYWORDS:  # most tokens are names and operators
                token = self._token("NAME", text, start, position)
            elif kind == "operator" and text in SIMPLE:
                token = self._token(*SIMPLE[text], start, position)
            else:
                token = make[kind](text, previous, start, position)
                position = token.end_pos
            previous = token.type
            yield token
            if previous in ("OPEN_STRING", "END_INSERT"):
                yield from self._rest_of_string(token)
                previous, position = self.seen[-1].type, self.seen[-1].end_pos

    def _token(self, type: str, value: object, start: int, end: int) -> Token:
        token = Token(type, value, self._line, start - self._line_start + 1, start, end)
        self.seen.append(token)
        return token

    # -- between tokens -----------------------------------------------------------------------------------------

    def _between(self, kind: str, previous: str, start: int, end: int) -> None:
        """Take a comment, a line break, or a `;`; also a comma between branches."""
        level = self.levels[-1]
        if kind == "comment":
            self._comment(start, end)
        elif kind == "newline":
            if level.kind in ON_ONE_LINE:
                if self._pending is None and (previous not in GOES_ON) and (previous != "QMARK" or self._in_input):
                    self._pending = Token("END", "\n", self._line, start - self._line_start + 1, start, end)
            elif level.string is not None and level.string.value == '"':
                raise self.unclosed(level)
            self._line += 1
            self._line_start = end
        elif level.kind not in ON_ONE_LINE or previous not in BEGINNING:
            self._pending = Token("END", ";", self._line, start - self._line_start + 1, start, end)

    def _ending(self, text: str, end: int) -> Token | None:
        """Return the end of a statement that came before this token, unless the statement goes on."""
        pending, self._pending = self._pending, None
        assert pending is not None
        if text == "}":
            return None
        if pending.value == "\n" and (
            text in (".", "?.") or (text in ("else", "catch") and _NEXT_COLON.match(self.source, end) is None)
        ):
            return None
        self.seen.append(pending)
        self._in_input = False
        return pending

    def _comment(self, start: int, end: int) -> None:
        text = self.source[start:end]
        hidden = INVISIBLE.search(text) if not text.isascii() or not text.isprintable() else None
        if hidden is not None and hidden[0] not in "\u200c\u200d":  # parts of words and of emoji
            raise bad_character(self, start + hidden.start())
        text = text.rstrip()
        column = start - self._line_start + 1
        at = Position(self._line, column, self._line, column + len(text))
        self.comments.append((at, text if text[0] == "#" else f"#{text[2:]}"))

    def _refuse_hidden(self) -> None:
        hidden = HIDDEN.search(self.source)
        if hidden is not None:
            raise bad_character(self, hidden.start())

    def _front_matter(self) -> Token | None:
        opening = _FENCE.match(self.source)
        if opening is None:
            return None
        closing = _FENCE_END.search(self.source, opening.end())
        if closing is None:
            raise self.problem(0, "this front matter is not closed", "end it with a line `+++`")
        text = self.source[opening.end() : max(closing.start() - 1, opening.end())]
        token = self._token("FRONT_MATTER", text, 0, closing.end())
        self._count_lines(token)
        return token

    # -- words, operators, numbers ------------------------------------------------------------------------------

    def _word(self, word: str, previous: str, start: int, end: int) -> Token:
        if self._is_name(previous, end):
            return self._token("NAME", word, start, end)
        if word == "and" or word == "or":
            return self._token("OPERATOR", word, start, end)
        if word == "not" and previous in ENDS_VALUE:
            rest = _NOT_IN.match(self.source, end)
            if rest is not None:
                return self._token("OPERATOR", "not in", start, rest.end())
        elif word == "parallel":
            self._branches_next = True
        elif word == "for" and previous == "PARALLEL":
            self._branches_next = False
        elif word == "input":
            self._in_input = True
        return self._token(word.upper(), word, start, end)

    def _is_name(self, previous: str, end: int) -> bool:
        """Return whether a keyword is a name here: a member, a key or the name of a branch."""
        if previous in ("DOT", "SAFE_DOT"):
            return True
        kind = self.levels[-1].kind
        if kind == "{":
            return previous in ("LBRACE", "COMMA") and _NEXT_COLON.match(self.source, end) is not None
        return kind == "branches" and previous in BEGINNING and _NEXT_COLON.match(self.source, end) is not None

    def _operator(self, text: str, previous: str, start: int, end: int) -> Token:
        """Take a comma or a minus."""
        if text == ",":
            return self._token("COMMA", text, start, end)
        found = _SIGNED.match(self.source, end) if previous not in ENDS_VALUE else None
        if found is not None:  # the sign of a number is a part of it
            return self._number("-" + found[1], previous, start, found.end())
        return self._token("MINUS", text, start, end)

    def _number(self, text: str, previous: str, start: int, end: int) -> Token:
        digits = text.rstrip("hms")
        if digits != text:
            seconds = float(digits) * _SECONDS[text[len(digits) :]]
            if math.isinf(seconds):
                raise self.problem(start, "this duration is too long")
            return self._token("DURATION", (seconds, text), start, end)
        digits = text.lstrip("-")
        if digits[0] == "0" and digits[1:2].isdigit():
            raise bad_number(self, start)
        if digits.isdigit():
            if len(digits) > MAX_INTEGER_BITS * 0.302 or int(digits).bit_length() > MAX_INTEGER_BITS:
                raise self.problem(start, f"this integer has more than {MAX_INTEGER_BITS} bits")
            return self._token("NUMBER", int(text), start, end)
        value = float(text)
        if math.isinf(value):
            raise self.problem(start, "this number is too large")
        return self._token("NUMBER", value, start, end)

    def _wrong(self, text: str, previous: str, start: int, end: int) -> Token:
        if text.isdigit() and text.isascii():
            raise bad_number(self, start)
        raise bad_character(self, start) if len(text) == 1 else bad_operator(self, text, start)

    # -- brackets -----------------------------------------------------------------------------------------------

    def _bracket(self, text: str, previous: str, start: int, end: int) -> Token:
        level = self.levels[-1]
        if text in ("}", ")", "]"):
            return self._close(text, start, end)
        if text == "{":
            return self._open_brace(previous, start, end)
        if text == "?[" and (previous not in ENDS_VALUE or self.seen[-1].end_pos != start):
            return self._token("QMARK", "?", start, start + 1)  # `c ? [1] : [2]`
        token = self._token(OPENERS[text], text, start, end)
        self._open(Level(text[-1], token, level.blocks))
        return token

    def _open_brace(self, previous: str, start: int, end: int) -> Token:
        level = self.levels[-1]
        if previous not in BEFORE_BLOCK:
            token = self._token("LBRACE", "{", start, end)
            self._open(Level("{", token, level.blocks))
            return token
        kind = "branches" if self._branches_next else "block"
        self._branches_next = False
        token = self._token(kind.upper(), "{", start, end)
        inner = Level(kind, token, level.blocks + 1)
        if inner.blocks > MAX_BLOCKS:
            message = f"blocks are nested more than {MAX_BLOCKS} deep here"
            raise MistakeError(message, token.line, token.column, suggestion="call the inner part with run")
        self._open(inner)
        return token

    def _open(self, level: Level) -> None:
        self.levels.append(level)
        if len(self.levels) > MAX_BRACKETS + 1:
            assert level.opener is not None
            message = f"more than {MAX_BRACKETS} brackets are open here"
            raise MistakeError(
                message, level.opener.line, level.opener.column, suggestion="bind the inner parts to names"
            )

    def _close(self, text: str, start: int, end: int) -> Token:
        level = self.levels[-1]
        if level.opener is None:
            raise self.problem(start, f"this `{text}` closes nothing", "remove it, or open the bracket before")
        closer, type = CLOSERS[level.kind]
        if text != closer:
            opener = level.opener
            where = f"`{_opening(level)}` at line {opener.line}, column {opener.column}"
            raise self.problem(start, f"this `{text}` does not close {where}", f"close that first, with `{closer}`")
        self.levels.pop()
        token = self._token(type, text, start, end)
        if type == "END_INSERT":
            token.value = level.string
        return token

    def unclosed(self, level: Level) -> MistakeError:
        """Make the problem of a bracket that is never closed, at its place."""
        opener = level.opener
        assert opener is not None
        closer, _ = CLOSERS[level.kind]
        message = f"this `{_opening(level)}` is never closed"
        return MistakeError(message, opener.line, opener.column, suggestion=f"close it with `{closer}`")

    # -- strings ------------------------------------------------------------------------------------------------

    def _string(self, text: str, previous: str, start: int, end: int) -> Token:
        """Take a string without inserts, or only the beginning of one with some."""
        source = self.source
        if source.startswith("'''", start):
            raise self.problem(start, "`'''` is not a quote here", 'for several lines write """ at both ends')
        quote = '"""' if source.startswith('"""', start) else text
        begin = start + len(quote)
        stop = self._end_of_text(quote, begin, start)
        if source.startswith("${", stop):
            return self._token("OPEN_STRING", quote, start, begin)
        value = self._cooked(source[begin:stop], begin)
        if quote == '"""':
            value = cook(dedent([source[begin:stop]])[0])
        token = self._token("STRING", value, start, stop + len(quote))
        if quote == '"""':
            self._count_lines(token)
        return token

    def _rest_of_string(self, before: Token) -> Iterator[Token]:
        """Yield a piece of text and then the next INSERT or the end of the string."""
        opener = before if before.type == "OPEN_STRING" else before.value
        assert isinstance(opener, Token)
        quote = str(opener.value)
        start = before.end_pos
        stop = self._end_of_text(quote, start, opener.start_pos)
        raw = self.source[start:stop]
        text = self._token("TEXT", self._cooked(raw, start), start, stop)
        if quote == '"""':  # it is cooked when the indentation of all lines is known
            text.value = raw
            self._count_lines(text)
        yield text
        if not self.source.startswith("${", stop):
            yield self._token("CLOSE_STRING", quote, stop, stop + len(quote))
            return
        token = self._token("INSERT", "${", stop, stop + 2)
        self._open(Level("${", token, self.levels[-1].blocks, opener))
        yield token

    def _end_of_text(self, quote: str, begin: int, opened: int) -> int:
        found = _TEXT[quote].match(self.source, begin)
        assert found is not None  # it takes nothing, too
        stop = found.end()
        if self.source.startswith(quote, stop) or (quote != "'" and self.source.startswith("${", stop)):
            return stop
        inside = [level for level in self.levels if level.string is not None and level.string.start_pos != opened]
        if inside:  # this quote was probably meant to close the string around
            raise self.unclosed(inside[-1])
        several = 'for several lines write """ at both ends' if len(quote) == 1 else ""
        raise self.problem(opened, f"this string is never closed with `{quote}`", several)

    def _cooked(self, raw: str, start: int) -> str:
        try:
            text = cook(raw)
        except EscapeError as error:
            raise self.problem(start + error.index, error.message, error.suggestion) from None
        return text

    def _count_lines(self, token: Token) -> None:
        """Go to the line where *token* ends."""
        breaks = self.source.count("\n", token.start_pos, token.end_pos)
        if breaks:
            self._line += breaks
            self._line_start = self.source.rfind("\n", token.start_pos, token.end_pos) + 1
            token.end_line = self._line
            token.end_column = token.end_pos - self._line_start + 1


def _opening(level: Level) -> str:
    return "{" if level.kind in ("block", "branches") else level.kind
