"""Explain a token that the grammar does not expect: by a habit that is known, else by what could stand there."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence
from typing import Final

from toolexec.workflow.habits import INSTEAD_OF_INFIX, INSTEAD_OF_WORDS
from toolexec.workflow.lexer import Scan
from toolexec.workflow.mistakes import MistakeError
from toolexec.workflow.tokens import ACTIONS, AFTER_VALUE, BLOCKS, ENDS_VALUE, VALUES, Token

_IN_WORDS: Final = {
    "NAME": "a name",
    "NUMBER": "a number",
    "DURATION": "a duration",
    "STRING": "a string",
    "END": "the end of the line",
    "$END": "the end of the line",
    "END_BLOCK": "`}`",
    "RBRACE": "`}`",
    "END_INSERT": "`}`",
    "BLOCK": "`{`",
    "BRANCHES": "`{`",
    "LBRACE": "`{`",
    "RPAR": "`)`",
    "RSQB": "`]`",
    "LPAR": "`(`",
    "LSQB": "`[`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "BIND": "`:=`",
    "EQUAL": "`=`",
    "QMARK": "`?`",
    "VBAR": "`|`",
    "SPREAD": "`...`",
    "INPUT": "`input`",
}
_BEFORE_STATEMENT: Final = frozenset(["END", "BLOCK", "BRANCHES", "END_BLOCK", "FRONT_MATTER"])
_CATCH: Final = frozenset(["CATCH"])
_NAME: Final = frozenset(["NAME"])
_SOON: Final = re.compile(r"[ \t]*(:=|=(?!=))")


def in_words(expected: frozenset[str]) -> tuple[str, ...]:
    """Return what terminals are in words, the likeliest first."""
    left = expected
    words: list[str] = []
    if "DOT" in left or {"BIND", "EQUAL"} <= left:  # a value has ended
        left -= AFTER_VALUE | {"BIND", "EQUAL"}
        words.append("an operator")
    if "BREAK" in left:
        left -= VALUES | BLOCKS | ACTIONS | {"INPUT"}
        words.insert(0, "a statement")
    elif {"NUMBER", "LBRACE", "RUN"} <= left:
        left -= VALUES | BLOCKS
        words.insert(0, "a value")
    others = [_IN_WORDS.get(name, f"`{name.lower()}`") for name in sorted(left)]
    return tuple(dict.fromkeys([*(word for word in others if word[0] == "`"), *words, *others]))[:6]


def unexpected(scan: Scan, token: Token | None, expected: frozenset[str]) -> MistakeError:
    """Explain a token that the grammar does not expect, None for the end of the workflow."""
    seen = scan.seen[:-1] if token is not None and scan.seen[-1] is token else scan.seen
    words = in_words(expected)
    wanted = f"; expected {_joined(words)}" if words else ""
    if token is None or token.type == "END":
        what = "the workflow ends too early" if token is None else "the line ends too early"
        what = "unexpected `;`" if token is not None and token.value == ";" else what
        place = (1, 1)
        if token is not None and token.value == ";":
            place = (token.line, token.column)
        elif seen:
            place = (seen[-1].end_line, seen[-1].end_column)
        suggestion = "write a comma" if what[0] == "u" and "COMMA" in expected else _after_end(seen, expected)
        return MistakeError(what + wanted, *place, expected=words, suggestion=suggestion)
    habit = _habit(scan, seen, token, expected)
    if habit is not None:
        at, message, suggestion = habit
        return MistakeError(
            message, at.line, at.column, expected=() if at is not token else words, suggestion=suggestion
        )
    text = scan.source[token.start_pos : token.end_pos].split("\n")[0]
    what = f"unexpected `{text if len(text) <= 40 else text[:39] + '…'}`"
    suggestion = _missing(scan, seen, token, expected)
    return MistakeError(what + wanted, token.line, token.column, expected=words, suggestion=suggestion)


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _head(seen: Sequence[Token]) -> int:
    """Return the index of the first token of the statement."""
    index = len(seen)
    while index > 0 and seen[index - 1].type not in _BEFORE_STATEMENT:
        index -= 1
    return index


def _after_end(seen: Sequence[Token], expected: frozenset[str]) -> str:
    if "BLOCK" in expected or "BRANCHES" in expected:
        return "write `{` on the same line"
    if [token.type for token in seen[-2:]] == ["NUMBER", "DOT"]:
        return "a number is written 12, 1.5 or 1e6"
    if expected == _CATCH:
        return "`try { ... }` needs `catch err { ... }`"
    return ""


def _habit(scan: Scan, seen: list[Token], token: Token, expected: frozenset[str]) -> tuple[Token, str, str] | None:
    """Return where a known habit is, what is wrong with it, and what to write."""
    before = seen[-1] if seen else None
    begin = _head(seen)
    head = seen[begin] if begin < len(seen) else None
    if before is not None and before.type == "NAME":
        word = str(before.value)
        if word in ("await", "new", "lambda", "async", "function") or (before is head and word in INSTEAD_OF_WORDS):
            return before, f"there is no `{word}`", INSTEAD_OF_WORDS[word]
    found = _by_token(scan, seen, token, head) or _by_word(seen, token, expected)
    if found is not None:
        return found
    if head is not None and head is before and head.type == "NAME":
        meant = _keyword_near(str(head.value))
        if meant:
            return head, f"there is no statement `{str(head.value)[:40]}`", f"did you mean `{meant}`?"
    return None


def _by_word(seen: Sequence[Token], token: Token, expected: frozenset[str]) -> tuple[Token, str, str] | None:
    """Explain a name or a keyword in the wrong place."""
    word = str(token.value)
    before = seen[-1].type if seen else ""
    if token.type == "NAME":
        if before in ("END_BLOCK", "") or word in ("elif", "elsif", "elseif", "finally", "except"):
            if word in INSTEAD_OF_WORDS:
                return token, f"there is no `{word}`", INSTEAD_OF_WORDS[word]
            meant = _keyword_near(word) if before == "END_BLOCK" else ""
            return (token, f"unexpected `{word[:40]}`", f"did you mean `{meant}`?") if meant else None
        return (token, f"unexpected `{word}`", INSTEAD_OF_INFIX[word]) if word in INSTEAD_OF_INFIX else None
    if not word.isidentifier() or token.type != word.upper():
        return None
    if expected == _NAME or (expected >= {"NAME"} and "NUMBER" not in expected and before in ("FOR", "COLLECT")):
        return token, f"`{word}` is a word of the language", "choose another name"
    if token.type in BLOCKS and "NUMBER" in expected:
        return token, f"`{word}` cannot be a part of an expression", f"bind it first: `x := {word} ...`"
    return None


def _by_token(scan: Scan, seen: Sequence[Token], token: Token, head: Token | None) -> tuple[Token, str, str] | None:
    """Explain what can be seen from the token and the one before."""
    kind, before = token.type, seen[-1].type if seen else ""
    level = scan.levels[-1]
    text = str(token.value)
    soon = _SOON.match(scan.source, token.end_pos)
    if (
        soon is not None
        and token.type == text.upper()
        and text.isidentifier()
        and text not in ("true", "false", "null")
    ):
        return token, f"`{text}` is a word of the language", f"choose another name, such as `{text}_`"
    if kind == "IF" and before in ENDS_VALUE:
        return token, "unexpected `if`", "write `condition ? a : b`"
    if kind == "FOR" and level.kind in ("[", "(", "{"):
        return token, "unexpected `for`", "write `collect x in xs where ... { value }`"
    if kind == "EQUAL":
        called = level.kind == "(" and any(
            one is level.opener and before_it.type in ("NAME", "RUN") for before_it, one in itertools.pairwise(seen)
        )
        return _by_equal("call" if called else level.kind, token, head)
    if kind == "COLON":
        return _by_colon(level.kind, token, seen, head)
    if kind == "BIND" and level.kind != "{" and any(one.type == "BIND" for one in seen[-20:]) and head is not None:
        return token, "unexpected `:=`", "bind one name at a time"
    if kind == "BIND" and level.kind == "{":
        return token, "unexpected `:=` in an object", "write `key: value`; for a block write `do { ... }`"
    if kind in ("STRING", "OPEN_STRING") and seen:
        return _by_string(token, seen)
    if kind in ("OPERATOR", "IN", "TIMEOUT") and (before in _BEFORE_STATEMENT or not seen):
        return token, f"a line cannot begin with `{text}`", "write it at the end of the line before, or use parentheses"
    if kind == "DOT" and before != "NUMBER" and scan.source[token.end_pos : token.end_pos + 1].isdigit():
        return token, "a number cannot begin with `.`", "write 0 before it"
    if kind == "VBAR":
        return token, "unexpected `|`", "write `or`"
    if kind == "LPAR" and before in _OPENED_BY_HABIT:
        return token, "unexpected `(`", _OPENED_BY_HABIT[before]
    if kind == "WHILE" and before == "END_BLOCK":
        return token, "unexpected `while`", "a loop begins with its condition: while condition limit 100 { ... }"
    if kind == "COMMA" and head is not None and head.type in ("FOR", "COLLECT", "PARALLEL") and level.kind != "(":
        return token, "unexpected `,`", "a loop has one or two names: for i, x in xs { ... }"
    return None


_OPENED_BY_HABIT: Final = {
    "FOR": "write `for x in xs { ... }`",
    "COLLECT": "write `collect x in xs { ... }`",
    "CATCH": "write `catch err { ... }`",
    "PARALLEL": "write `parallel { ... }`",
    "INPUT": "write `input name: string`",
    "TRY": "write `try { ... } catch err { ... }`",
}


def _by_equal(level: str, token: Token, head: Token | None) -> tuple[Token, str, str] | None:
    if head is not None and head.type == "INPUT":
        return token, "unexpected `=`", "an input has a type: input name: string = ..."
    if level == "{":
        return token, "unexpected `=` in an object", "write `key: value`"
    if level == "call":
        return token, "unexpected `=`", 'arguments have no names; a tool takes an object: run("ns:tool", {key: value})'
    if head is not None and head.type in ("IF", "WHILE", "FOR", "COLLECT", "RETURN", "FAIL", "RETRY", "PARALLEL"):
        return token, "unexpected `=`", "to compare write `==`"
    return token, "unexpected `=`", "to compare write `==`; a value is assigned to one name at a time"


def _by_colon(level: str, token: Token, seen: Sequence[Token], head: Token | None) -> tuple[Token, str, str] | None:
    if level == "(":
        return token, "unexpected `:`", 'arguments have no names; a tool takes an object: run("ns:tool", {key: value})'
    if head is not None and (head.type in BLOCKS or head.type == "ELSE"):
        return token, "unexpected `:`", "a block is what stands in braces: { ... }"
    if head is not None and head is seen[-1] and head.type == "NAME":
        return token, "unexpected `:`", f"write `{str(head.value)[:40]} := value`"
    return None


def _by_string(token: Token, seen: Sequence[Token]) -> tuple[Token, str, str] | None:
    before = seen[-1]
    if before.type == "NAME" and before.end_pos == token.start_pos:
        return before, f"there are no `{str(before.value)[:40]}` strings", 'inserts are written "... ${x} ..."'
    if before.type in ("STRING", "CLOSE_STRING"):
        return token, "two strings stand side by side", "join them with `+`, or separate them with a comma"
    if before.type == "PRINT":
        return token, "unexpected string after `print`", "write print(...)"
    if before.type == "RUN":
        return token, "unexpected string after `run`", 'write run("ns:tool", {key: value})'
    return None


def _missing(scan: Scan, seen: Sequence[Token], token: Token, expected: frozenset[str]) -> str:
    """Suggest what was probably left out."""
    level = scan.levels[-1]
    if token.type in ("BLOCK", "BRANCHES", "LBRACE") and len(scan.levels) > 1:
        level = scan.levels[-2]  # the token itself has opened the last
    opener = level.opener
    if opener is not None and level.kind == "{" and seen:
        index = next((at for at, one in enumerate(seen) if one is opener), 0)
        if seen[index - 1].type == "RETRY":
            return "say how many attempts there are: retry 3 { ... }"
        if token.type in ("NUMBER", "OPEN_STRING", "LSQB"):
            return 'a key is a name or a plain string: {"1": value}'
        if index == 0 or seen[index - 1].type in _BEFORE_STATEMENT:
            return "this brace opens an object; for a block write `do { ... }`"
    if opener is not None and level.kind in ("(", "[", "{") and opener.line < token.line:
        return f"the `{level.kind}` at line {opener.line}, column {opener.column} is still open"
    if level.kind in ("(", "[", "{") and "COMMA" in expected:
        return "is a comma missing?"
    if [one.type for one in seen[-2:]] == ["NUMBER", "DOT"]:
        return "a number is written 12, 1.5 or 1e6"
    if "BLOCK" in expected:
        return "a block is what stands in braces: { ... }"
    if seen and {"END", "$END"} & expected and token.line == seen[-1].end_line:
        return "write statements on lines of their own, or `;` between them"
    return ""


def _keyword_near(word: str) -> str:
    """Return the keyword that begins a statement and is nearly *word*, or nothing."""
    begins = ["input", "if", "else", "for", "collect", "while", "parallel", "retry", "try", "catch", "do", "print"]
    close = difflib.get_close_matches(
        word[:20].lower(), [*begins, "return", "fail", "break", "continue", "run"], 1, 0.7
    )
    return close[0] if close and len(word) > 1 else ""
