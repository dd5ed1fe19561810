"""What people and models write by habit, and what to write instead."""

# ruff: noqa: RUF001 - lookalikes of characters are the subject

from __future__ import annotations

import difflib
import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from toolexec.errors.hints import did_you_mean

if TYPE_CHECKING:
    from toolexec.workflow.lexer import Scan, Token
    from toolexec.workflow.nodes import Expression

__all__ = ["INSTEAD_OF_MEMBERS", "INSTEAD_OF_METHODS", "INSTEAD_OF_NAMES", "MistakeError"]

HIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What may stand nowhere: control characters, those that reverse the direction of writing, halves of characters."""
INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What may stand only in strings."""

INSTEAD_OF_NAMES: Final = {
    "None": "write `null`",
    "nil": "write `null`",
    "NULL": "write `null`",
    "Null": "write `null`",
    "undefined": "write `null`",
    "True": "write `true`",
    "TRUE": "write `true`",
    "False": "write `false`",
    "FALSE": "write `false`",
    "NaN": "a number is always a number; write `null` for a missing one",
    "Infinity": "write a large number",
}
"""Names that other languages have for constants."""

INSTEAD_OF_MEMBERS: Final = {
    "length": "len({x})",
    "size": "len({x})",
    "count": "len({x})",
    "keys": "keys({x})",
    "values": "values({x})",
    "first": "{x}[0]",
    "last": "{x}[-1]",
}
"""Members that values have in other languages; `{x}` is the value."""

INSTEAD_OF_METHODS: Final = {
    **INSTEAD_OF_MEMBERS,
    **dict.fromkeys(("push", "append", "add"), "{x} = {x} + [value]"),
    **dict.fromkeys(("extend", "concat"), "{x} = {x} + more"),
    **dict.fromkeys(("map", "flatMap"), "collect item in {x} {{ ... }}"),
    **dict.fromkeys(("filter", "select"), "collect item in {x} where ... {{ item }}"),
    **dict.fromkeys(("forEach", "each"), "for item in {x} {{ ... }}"),
    **dict.fromkeys(("reduce", "some", "every"), "a `for` loop over {x}"),
    **dict.fromkeys(("includes", "include", "has", "contains", "has_key", "hasOwnProperty"), "value in {x}"),
    **dict.fromkeys(("indexOf", "index", "find"), "index_of({x}, value)"),
    **dict.fromkeys(("strip", "trim"), "trim({x})"),
    **dict.fromkeys(("lower", "toLowerCase", "lowercase"), "lower({x})"),
    **dict.fromkeys(("upper", "toUpperCase", "uppercase"), "upper({x})"),
    **dict.fromkeys(("startswith", "startsWith", "starts_with"), 'starts_with({x}, "...")'),
    **dict.fromkeys(("endswith", "endsWith", "ends_with"), 'ends_with({x}, "...")'),
    **dict.fromkeys(("items", "entries"), "entries({x})"),
    **dict.fromkeys(("slice", "substring", "substr"), "{x}[start:stop]"),
    **dict.fromkeys(("toString", "to_string", "str"), "string({x})"),
    **dict.fromkeys(("sort", "sorted", "sort_by"), "sort({x})"),
    **dict.fromkeys(("reverse", "reversed"), "reverse({x})"),
    **dict.fromkeys(("update", "merge", "assign"), "merge({x}, more)"),
    **dict.fromkeys(("pop", "shift"), "{x}[0:-1], a list without its last item"),
    "join": 'join({x}, ", ")',
    "split": 'split({x}, ",")',
    "replace": 'replace({x}, "old", "new")',
    "get": '{x}.key ?? default, or get({x}, "key", default)',
    "flat": "flatten({x})",
    "format": 'an insert, as in "... ${{{x}}} ..."',
    "json": "parse_json({x})",
    "trimEnd": "trim({x})",
}
"""Methods that values have in other languages; `{x}` is the value."""

_FUNCTIONS: Final = {
    "JSON.stringify": "json(value)",
    "JSON.parse": "parse_json(string)",
    "json.dumps": "json(value)",
    "json.loads": "parse_json(string)",
    "console.log": "print(value)",
    "Object.keys": "keys(value)",
    "Object.values": "values(value)",
    "Object.entries": "entries(value)",
    "Object.assign": "merge(a, b)",
    "Math.max": "max(a, b)",
    "Math.min": "min(a, b)",
    "Math.round": "round(number)",
    "Math.floor": "floor(number)",
    "Math.ceil": "ceil(number)",
    "Math.abs": "abs(number)",
    "Date.now": "now()",
    "datetime.now": "now()",
    "Array.isArray": 'type(value) == "list"',
    "Promise.all": "parallel { ... }",
    "asyncio.gather": "parallel { ... }",
}

_BIND: Final = "write `name := value`"
_NO_FUNCTIONS: Final = (
    "functions cannot be defined; repeat with `for` or `collect`, or make the part a workflow of its own"
)
_ELSE_IF: Final = "write `else if`"
_FAIL: Final = 'write `fail "message"`'
_CATCH: Final = "write `catch err { ... }`"
_WORDS: Final = {
    **dict.fromkeys(("let", "const", "var", "set", "local", "val"), _BIND),
    **dict.fromkeys(("def", "function", "func", "fn", "lambda", "class", "sub"), _NO_FUNCTIONS),
    **dict.fromkeys(
        ("import", "from", "require", "using", "include"), "there is nothing to import; tools are called with run"
    ),
    **dict.fromkeys(("elif", "elsif", "elseif", "elsif"), _ELSE_IF),
    **dict.fromkeys(("raise", "throw", "error", "assert"), _FAIL),
    **dict.fromkeys(("except", "rescue"), _CATCH),
    **dict.fromkeys(("foreach", "each"), "write `for x in xs { ... }`"),
    **dict.fromkeys(("switch", "case", "match", "when"), "write `if ... { } else if ... { } else { }`"),
    **dict.fromkeys(("loop", "repeat", "until", "forever"), "write `while condition limit 100 { ... }`"),
    **dict.fromkeys(
        ("await", "async"), "leave it out: run waits for its tool; use `parallel { ... }` for calls at once"
    ),
    **dict.fromkeys(("pass", "end", "begin", "fi", "done"), "leave it out: a block is what stands in braces"),
    **dict.fromkeys(("del", "delete"), 'write x = omit(x, ["key"])'),
    "then": "a block is what stands in braces: if condition { ... }",
    "finally": "write what is to be done in any case after the `try`",
    "unless": "write `if not ... { ... }`",
    "with": "write the statements one after the other",
    "new": "values are written as literals: {key: value} or [item]",
    "yield": "write `collect x in xs { ... }`; each round gives its last value",
    "echo": "write print(...)",
    "log": "write print(...)",
    "call": 'write run("ns:tool", {key: value})',
    "pipe": "write calls one after the other",
}
"""Words that begin something in other languages."""
_INFIX: Final = {
    "is": "write `==`",
    "eq": "write `==`",
    "equals": "write `==`",
    "isnt": "write `!=`",
    "AND": "write `and`",
    "OR": "write `or`",
    "NOT": "write `not`",
    "IN": "write `in`",
    "mod": "write `%`",
    "div": "write `/`",
    "of": "write `for x in xs`",
    "to": "write range(start, stop)",
    "as": "bind the value with `:=`",
    "xor": "write `!=`",
    "then": _WORDS["then"],
}
_OPERATORS: Final = {
    "===": "write `==`",
    "!==": "write `!=`",
    "<>": "write `!=`",
    "**": "multiply with `*`",
    "++": "write `x = x + 1`",
    "--": "write `x = x - 1`; a comment begins with `#`",
    "=>": _NO_FUNCTIONS,
    "->": _NO_FUNCTIONS,
    "|>": "write the call around the value: f(x)",
    "::": "write `.`",
    "/*": "a comment begins with `#` and ends with its line",
    "..": "write range(start, stop), or `...x` to spread a list",
    "<-": _BIND,
    "<<": "there are no operations on bits",
    ">>": "there are no operations on bits",
}
_CHARACTERS: Final = {
    **dict.fromkeys("“”„‟«»″", 'write "'),
    **dict.fromkeys("‘’‚‛′´", "write '"),
    **dict.fromkeys("‐‑‒–—−", "write -"),
    "×": "write *",
    "÷": "write /",
    "≤": "write <=",
    "≥": "write >=",
    "≠": "write !=",
    "…": "write ...",
    "→": _NO_FUNCTIONS,
    "&": "write `and`",
    "^": "there are no operations on bits",
    "~": "there are no operations on bits",
    "@": "names have no `@`",
    "\\": "a line goes on after an operator, a comma, or in parentheses",
    "$": "names have no `$`, and `${ }` stands only in strings with double quotes",
    "`": 'a string with inserts is written "... ${x} ..."',
}
_LOOKALIKES: Final = dict(
    zip(
        "аеорсухіјѕԁһӏԛԝвмтнкАВЕКМНОРСТХІЈЅɡαορνυικτΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
        "aeopcyxijsdhlqwbmthkABEKMHOPCTXIJSgaopvuiktABEZHIKMNOPTYX",
        strict=True,
    )
)
_BAD_NUMBER: Final = re.compile(r"[0-9][A-Za-z0-9_.]*")
_MARKDOWN: Final = "leave out the ``` of Markdown"


class MistakeError(Exception):
    """What is wrong with a workflow, and where; the parser makes an error of it that shows the line."""

    def __init__(
        self, message: str, line: int, column: int, *, expected: Sequence[str] = (), suggestion: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.expected = tuple(expected)
        self.suggestion = suggestion


# -- characters, numbers, operators -----------------------------------------------------------------------------


def bad_character(scan: Scan, offset: int) -> MistakeError:
    """Explain a character that cannot stand where it does."""
    found = scan.source[offset]
    if found.isascii() and found.isprintable():
        markdown = found == "`" and scan.source.startswith("```", offset)
        suggestion = _MARKDOWN if markdown else _CHARACTERS.get(found, "")
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
    instead = _LOOKALIKES.get(found) or ascii_only
    if found.isdecimal():
        instead = str(unicodedata.decimal(found))
    if found.isalpha():
        message = f"`{found}` ({code}, {name}) cannot be a part of a name"
        return scan.problem(offset, message, f"write {instead}" if instead else "names have a-z, A-Z, 0-9 and _")
    suggestion = _CHARACTERS.get(found) or (f"write {instead}" if instead else "in a string it would be fine")
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
    return scan.problem(offset, f"there is no operator `{text}`", _OPERATORS[text])


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
    if whole in _FUNCTIONS:
        return _methods(at.line, at.column, f"write {_FUNCTIONS[whole]}")
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


# -- tokens that the grammar does not expect --------------------------------------------------------------------

_VALUE: Final = frozenset({"NOT", "MINUS", "LSQB", "LBRACE", "LPAR", "RUN", "OPEN_STRING"}) | {
    "NAME",
    "NUMBER",
    "DURATION",
    "STRING",
    "NULL",
    "TRUE",
    "FALSE",
}
_BLOCKS: Final = frozenset(["DO", "IF", "FOR", "COLLECT", "WHILE", "PARALLEL", "RETRY", "TRY"])
_STATEMENTS: Final = frozenset(["PRINT", "RETURN", "FAIL", "BREAK", "CONTINUE"])
_AFTER_VALUE: Final = frozenset(
    ["DOT", "SAFE_DOT", "SAFE_BRACKET", "LSQB", "LPAR", "OPERATOR", "MINUS", "IN", "TIMEOUT", "QMARK"]
)
_VALUE_ENDS: Final = frozenset(
    ["NAME", "NUMBER", "DURATION", "STRING", "CLOSE_STRING", "RPAR", "RSQB", "RBRACE", "NULL", "TRUE", "FALSE"]
)
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
_SOON: Final = re.compile(r"[ \t]*(:=|=(?!=))")


def in_words(expected: set[str]) -> tuple[str, ...]:
    """Return what terminals are in words, the likeliest first."""
    left = expected - {"FRONT_MATTER"}
    words: list[str] = []
    if "DOT" in left or {"BIND", "EQUAL"} <= left:  # a value has ended
        left -= _AFTER_VALUE | {"BIND", "EQUAL"}
        words.append("an operator")
    if "BREAK" in left:
        left -= _VALUE | _BLOCKS | _STATEMENTS | {"INPUT"}
        words.insert(0, "a statement")
    elif {"NUMBER", "LBRACE", "RUN"} <= left:
        left -= _VALUE | _BLOCKS
        words.insert(0, "a value")
    others = [_IN_WORDS.get(name, f"`{name.lower()}`") for name in sorted(left)]
    return tuple(dict.fromkeys([*(word for word in others if word[0] == "`"), *words, *others]))[:6]


def unexpected(scan: Scan, token: Token | None, expected: set[str]) -> MistakeError:
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


def _after_end(seen: Sequence[Token], expected: set[str]) -> str:
    if "BLOCK" in expected or "BRANCHES" in expected:
        return "write `{` on the same line"
    if [token.type for token in seen[-2:]] == ["NUMBER", "DOT"]:
        return "a number is written 12, 1.5 or 1e6"
    if expected == {"CATCH"}:
        return "`try { ... }` needs `catch err { ... }`"
    return ""


def _habit(scan: Scan, seen: list[Token], token: Token, expected: set[str]) -> tuple[Token, str, str] | None:
    """Return where a known habit is, what is wrong with it, and what to write."""
    before = seen[-1] if seen else None
    begin = _head(seen)
    head = seen[begin] if begin < len(seen) else None
    if before is not None and before.type == "NAME":
        word = str(before.value)
        if word in ("await", "new", "lambda", "async", "function") or (before is head and word in _WORDS):
            return before, f"there is no `{word}`", _WORDS[word]
    found = _by_token(scan, seen, token, head) or _by_word(seen, token, expected)
    if found is not None:
        return found
    if head is not None and head is before and head.type == "NAME":
        meant = _keyword_near(str(head.value))
        if meant:
            return head, f"there is no statement `{str(head.value)[:40]}`", f"did you mean `{meant}`?"
    return None


def _by_word(seen: Sequence[Token], token: Token, expected: set[str]) -> tuple[Token, str, str] | None:
    """Explain a name or a keyword in the wrong place."""
    word = str(token.value)
    before = seen[-1].type if seen else ""
    if token.type == "NAME":
        if before in ("END_BLOCK", "") or word in ("elif", "elsif", "elseif", "finally", "except"):
            if word in _WORDS:
                return token, f"there is no `{word}`", _WORDS[word]
            meant = _keyword_near(word) if before == "END_BLOCK" else ""
            return (token, f"unexpected `{word[:40]}`", f"did you mean `{meant}`?") if meant else None
        return (token, f"unexpected `{word}`", _INFIX[word]) if word in _INFIX else None
    if not word.isidentifier() or token.type != word.upper():
        return None
    if expected == {"NAME"} or (expected >= {"NAME"} and "NUMBER" not in expected and before in ("FOR", "COLLECT")):
        return token, f"`{word}` is a word of the language", "choose another name"
    if token.type in _BLOCKS and "NUMBER" in expected:
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
    if kind == "IF" and before in _VALUE_ENDS:
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
    if head is not None and (head.type in _BLOCKS or head.type == "ELSE"):
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


def _missing(scan: Scan, seen: Sequence[Token], token: Token, expected: set[str]) -> str:
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
