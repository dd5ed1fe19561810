"""Parse expressions: one method for each rule of the grammar, and a loop for operators by how tightly they bind.

The docstring of a method has its rule: words in quotes and TOKENS as the lexer makes them, `[ ]` around what may be
absent, `*` after what may be repeated.

The lexer decides what depends on the context, so that the grammar need not:
- END is a line break or a `;` that ends a statement. Line breaks inside ( ), [ ], an object and `${ }`, after an
  operator and before `.`, `?.`, `else`, `catch` and a closing brace never reach the grammar, nor do comments.
- `{` opens an object where a value is expected, else a block (BLOCK, or BRANCHES after `parallel`).
- A keyword is a NAME after `.`, as the key of an object and as the name of a branch.
- OPERATOR is any binary operator but `-` and `in`.
- A string with `${ }` is OPEN_STRING, pieces of TEXT with an INSERT between, CLOSE_STRING; any other is STRING.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from toolexec.model.json_document import twice
from toolexec.workflow import nodes as n
from toolexec.workflow.habits import INSTEAD_OF_NAMES
from toolexec.workflow.mistakes import MistakeError, wrong_call
from toolexec.workflow.nodes import Expression, Position
from toolexec.workflow.strings import cook, dedent
from toolexec.workflow.tokens import AFTER_VALUE, MAX_DEPTH, MAX_OPERATORS, VALUES, Token

LEVELS: Final = {
    "or": 1,
    "and": 2,
    "??": 3,
    "==": 5,
    "!=": 5,
    "<": 5,
    "<=": 5,
    ">": 5,
    ">=": 5,
    "in": 5,
    "not in": 5,
    "+": 6,
    "-": 6,
    "*": 7,
    "/": 7,
    "%": 7,
    "timeout": 9,
}
"""How tightly a binary operator binds; `? :` binds least of all."""
PREFIX_LEVELS: Final = {"not": 4, "-": 8}
COMPARISONS: Final = 5
"""The level whose operators do not chain."""

_PREFIXES: Final = frozenset(["NOT", "MINUS"])
_INFIXES: Final = frozenset(["OPERATOR", "MINUS", "IN", "TIMEOUT"])
_POSTFIXES: Final = frozenset(["DOT", "SAFE_DOT", "LPAR", "LSQB", "SAFE_BRACKET"])
_ENDS: Final = frozenset(["END", "$END", "END_BLOCK", "END_INSERT", "BLOCK", "BRANCHES", "BIND", "EQUAL"]) | {
    *("RPAR", "RSQB", "RBRACE", "COMMA", "COLON", "WHERE", "LIMIT", "DELAY", "BACKOFF", "NUMBER", "DURATION", "STRING")
}
_ITEMS: Final = VALUES | {"SPREAD"}
_ENTRIES: Final = frozenset(["NAME", "STRING", "SPREAD"])
_COLON: Final = frozenset(["COLON"])
_CONSTANTS: Final = {"NULL": None, "TRUE": True, "FALSE": False}


class UnexpectedTokenError(Exception):
    """The token at *index* cannot stand where it is; those of *expected* could."""

    def __init__(self, index: int, expected: frozenset[str]) -> None:
        super().__init__(index, expected)
        self.index = index
        self.expected = expected


class TooDeepError(MistakeError):
    """An expression is nested too deep."""


def problem(at: Token | Position, message: str, suggestion: str = "") -> MistakeError:
    """Make the problem of what is at a place."""
    return MistakeError(message, at.line, at.column, suggestion=suggestion)


def span(first: Token | Position, last: Token | Position) -> Position:
    """Return the place from the beginning of one to the end of the other."""
    return Position(first.line, first.column, last.end_line, last.end_column)


class Expressions:
    """Parses the expressions in a list of tokens, the last of which stands in no rule.

    Depth is counted in two ways: by what is open at a place, so that this class calls itself to a bound only, and by
    what an expression has in it, so that all who walk through its nodes may do so too. Operators side by side, as in
    `a + b - c`, do not add up: all walk along them in a loop.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0  # the index of the next token
        self._more: frozenset[str] = frozenset()  # what could go on the part that was parsed last
        self._open = 0  # brackets and `?` around this place
        self._height = 0  # how deep the expression is that was parsed last
        self._starts: dict[str, Callable[[Token], Expression]] = {
            "NAME": self._name,
            "NUMBER": self._constant,
            "STRING": self._constant,
            "DURATION": self._duration,
            "OPEN_STRING": self._interpolation,
            **dict.fromkeys(_CONSTANTS, self._word),
            "LSQB": self._list,
            "LBRACE": self._object,
            "LPAR": self._group,
            "RUN": self._run,
        }

    # -- tokens -------------------------------------------------------------------------------------------------

    def _unexpected(self, expected: frozenset[str]) -> UnexpectedTokenError:
        return UnexpectedTokenError(self._at, expected)

    def _unexpected_after(self, expected: frozenset[str]) -> UnexpectedTokenError:
        """Make the error of a token after a part that could have gone on; one that ends expressions has ended it."""
        more = self._more - AFTER_VALUE if self._tokens[self._at].type in _ENDS and "DOT" in self._more else self._more
        return self._unexpected(expected | more)

    def _take(self, *types: str) -> Token:
        """Take a token of one of these types."""
        token = self._tokens[self._at]
        if token.type not in types:
            raise self._unexpected(frozenset(types))
        self._at += 1
        return token

    def _take_next(self, *types: str) -> Token:
        """Take a token of one of these types after a part that could also have gone on."""
        token = self._tokens[self._at]
        if token.type not in types:
            raise self._unexpected_after(frozenset(types))
        self._at += 1
        return token

    def _take_if(self, type: str) -> Token | None:
        """Take the next token if it is of this type."""
        token = self._tokens[self._at]
        if token.type != type:
            return None
        self._at += 1
        return token

    def _has_next(self, count: int, starts: frozenset[str], separator: str, closer: str) -> bool:
        """Return whether another part follows the *count* before, and take its separator; else take the closer.

        A comma may stand before the closer as well.
        """
        type = self._tokens[self._at].type
        if count and type == separator:
            self._at += 1
            type = self._tokens[self._at].type
            if separator == "END" and type not in starts:
                raise self._unexpected(starts)
        elif count and type != closer:
            raise self._unexpected_after(frozenset([separator, closer]))
        if type == closer:
            self._at += 1
            return False
        if type not in starts:
            raise self._unexpected(starts | {closer})
        return True

    # -- depth --------------------------------------------------------------------------------------------------

    def _enter(self, opening: Token) -> int:
        """Begin what is in brackets; returns the depth of what is in them so far."""
        self._open += 1
        if self._open > MAX_DEPTH:
            raise _too_deep(opening)
        return 0

    def _leave(self, opening: Token, height: int) -> Position:
        """End what is in brackets, where the last token has closed them; returns the place of the whole."""
        closing = self._tokens[self._at - 1]
        self._open -= 1
        self._grow(height + 1, closing)
        return span(opening, closing)

    def _grow(self, height: int, token: Token) -> None:
        self._height = height
        if height > MAX_DEPTH:
            raise _too_deep(token)

    # -- operators ----------------------------------------------------------------------------------------------

    def expression(self) -> Expression:
        """operation ["?" expression ":" expression]"""
        first = None if self._tokens[self._at].type in _PREFIXES else self._operand()
        if first is None or self._tokens[self._at].type in _INFIXES:
            first = self._operation(first)
        if self._tokens[self._at].type == "QMARK":
            first = self._conditional(first)
        self._more = AFTER_VALUE
        return first

    def _conditional(self, condition: Expression) -> n.Conditional:
        height = self._height
        opening = self._take("QMARK")
        self._enter(opening)
        then = self.expression()
        height = max(height, self._height)
        self._take_next("COLON")
        otherwise = self.expression()
        self._open -= 1
        self._grow(max(height, self._height) + 1, opening)
        return n.Conditional(condition, then, otherwise, at=span(condition.at, otherwise.at))

    def _operation(self, first: Expression | None) -> Expression:
        """("not" | "-")* operand ((OPERATOR | "-" | "in" | "timeout") ("not" | "-")* operand)*"""
        values: list[tuple[Expression, int]] = []
        waiting: list[_Operator] = []
        count = 0
        while True:
            if first is None:
                while (token := self._tokens[self._at]).type in _PREFIXES:
                    self._prefix(token, waiting)
                first = self._operand()
            values.append((first, self._height))
            first = None
            token = self._tokens[self._at]
            if token.type not in _INFIXES:
                break
            self._at += 1
            count += 1
            if count > MAX_OPERATORS:
                message = f"more than {MAX_OPERATORS} operators stand side by side here"
                raise problem(token, message, "bind parts of the expression to names")
            level = LEVELS[str(token.value)]
            while waiting and waiting[-1].level >= level:
                if level == COMPARISONS == waiting[-1].level:
                    raise problem(token, "comparisons do not chain", "join them with `and`: a < b and b < c")
                self._apply(values, waiting.pop())
            waiting.append(_Operator(level, token, False))
        while waiting:
            self._apply(values, waiting.pop())
        return values[0][0]

    def _prefix(self, token: Token, waiting: list[_Operator]) -> None:
        level = PREFIX_LEVELS[str(token.value)]
        if waiting and waiting[-1].level > level:
            raise problem(
                token, f"`{token.value}` binds less than `{waiting[-1].token.value}`", "put it in parentheses"
            )
        if self._open + len(waiting) >= MAX_DEPTH:
            raise _too_deep(token)
        self._at += 1
        waiting.append(_Operator(level, token, True))

    def _apply(self, values: list[tuple[Expression, int]], operator: _Operator) -> None:
        """Take operands from the end of *values*, and put the operation there."""
        token: Any = operator.token
        right, height = values.pop()
        if operator.is_prefix:
            made: Expression = n.Unary(token.value, right, at=span(token, right.at))
            height += 1
        else:
            left, height_of_left = values.pop()
            at = span(left.at, right.at)
            height = max(height_of_left + (type(left) is not n.Binary), height + 1)
            if token.value != "timeout":
                made = n.Binary(token.value, left, right, at=at)
            elif type(left) is n.ToolRun and left.timeout is None:
                made = n.ToolRun(left.tool, left.arguments, right, at=at)
            else:
                message = "`timeout` stands right after run(...)"
                raise problem(token, message, 'write run("ns:tool", {}) timeout 5s')
        self._grow(height, token)
        values.append((made, height))

    # -- operands -----------------------------------------------------------------------------------------------

    def _operand(self) -> Expression:
        """(NAME | NUMBER | DURATION | STRING | interpolation | "null" | "true" | "false" | list | object | group | run)
        (call | member | index | slice)*"""
        token = self._tokens[self._at]
        start = self._starts.get(token.type)
        if start is None:
            raise self._unexpected(VALUES)
        self._at += 1
        self._height = 0
        value = start(token)
        while self._tokens[self._at].type in _POSTFIXES:
            value = self._postfix(value)
        return value

    def _postfix(self, value: Expression) -> Expression:
        """("." | "?.") NAME, "(" arguments, or "[" part"""
        height = self._height
        opening = self._tokens[self._at]
        self._at += 1
        if opening.type == "LPAR":
            arguments = self._arguments(opening)
            if type(value) is not n.Name:
                raise wrong_call(value)
            made: Expression = n.Call(value.name, arguments, at=self._to_here(value))
        elif opening.type == "LSQB":
            made = self._index_or_slice(value, opening)
        elif opening.type == "SAFE_BRACKET":
            self._enter(opening)
            index = self.expression()
            self._take_next("RSQB")
            self._leave(opening, self._height)
            made = n.Index(value, index, True, at=self._to_here(value))
        else:
            name = self._take("NAME")
            self._height = 0
            made = n.Member(value, str(name.value), opening.type == "SAFE_DOT", at=span(value.at, name))
        self._grow(max(height, self._height) + 1, opening)
        return made

    def _to_here(self, value: Expression) -> Position:
        return span(value.at, self._tokens[self._at - 1])

    def _index_or_slice(self, value: Expression, opening: Token) -> n.Index | n.Slice:
        """(expression | [expression] ":" [expression]) "]" """
        height = self._enter(opening)
        start: Expression | None = None
        stop: Expression | None = None
        colon = self._take_if("COLON")
        if colon is None:
            if self._tokens[self._at].type not in VALUES:
                raise self._unexpected(VALUES | {"COLON"})
            start = self.expression()
            height = self._height
            if self._take_next("COLON", "RSQB").type == "RSQB":
                self._leave(opening, height)
                return n.Index(value, start, at=self._to_here(value))
        if self._take_if("RSQB") is None:
            if self._tokens[self._at].type not in VALUES:
                raise self._unexpected(VALUES | {"RSQB"})
            stop = self.expression()
            height = max(height, self._height)
            self._take_next("RSQB")
        self._leave(opening, height)
        return n.Slice(value, start, stop, at=self._to_here(value))

    def _arguments(self, opening: Token) -> tuple[Expression, ...]:
        """[expression ("," expression)* [","]] ")" """
        height = self._enter(opening)
        values: list[Expression] = []
        while self._has_next(len(values), VALUES, "COMMA", "RPAR"):
            values.append(self.expression())
            height = max(height, self._height)
        self._leave(opening, height)
        return tuple(values)

    def _run(self, word: Token) -> n.ToolRun:
        """ "run" "(" arguments"""
        given = self._arguments(self._take("LPAR"))
        if not 1 <= len(given) <= 2:
            raise problem(word, "run takes a tool and its arguments", 'write run("ns:tool", {key: value})')
        return n.ToolRun(given[0], given[1] if len(given) > 1 else None, at=span(word, self._tokens[self._at - 1]))

    def _group(self, opening: Token) -> Expression:
        """ "(" expression ")"; its place includes the parentheses."""
        self._enter(opening)
        inner = self.expression()
        self._take_next("RPAR")
        object.__setattr__(inner, "at", self._leave(opening, self._height))  # it is new, and nothing else has it yet
        return inner

    def _list(self, opening: Token) -> n.ListLiteral:
        """ "[" [["..."] expression ("," ["..."] expression)* [","]] "]" """
        height = self._enter(opening)
        items: list[n.Item] = []
        while self._has_next(len(items), _ITEMS, "COMMA", "RSQB"):
            spread = self._take_if("SPREAD")
            value = self.expression()
            items.append(value if spread is None else n.Spread(value, at=span(spread, value.at)))
            height = max(height, self._height)
        return n.ListLiteral(tuple(items), at=self._leave(opening, height))

    def _object(self, opening: Token) -> n.ObjectLiteral:
        """ "{" [entry ("," entry)* [","]] "}", where an entry is (NAME | STRING) ":" expression, NAME,
        or "..." expression"""
        height = self._enter(opening)
        entries: list[n.Entry | n.Spread] = []
        keys: set[str] = set()
        while self._has_next(len(entries), _ENTRIES, "COMMA", "RBRACE"):
            key = self._take(*_ENTRIES)
            if key.type != "SPREAD":
                if (name := str(key.value)) in keys:
                    raise problem(key, twice(name), "keep one of them: an object has each key once")
                keys.add(name)
            if key.type == "NAME" and self._tokens[self._at].type != "COLON":
                entries.append(n.Entry(str(key.value), self._name(key), at=span(key, key)))
                self._more = _COLON
                continue
            if key.type != "SPREAD":
                self._take("COLON")
            value = self.expression()
            at = span(key, value.at)
            entries.append(n.Spread(value, at=at) if key.type == "SPREAD" else n.Entry(str(key.value), value, at=at))
            height = max(height, self._height)
        return n.ObjectLiteral(tuple(entries), at=self._leave(opening, height))

    # -- names and literals -------------------------------------------------------------------------------------

    def _name(self, token: Token) -> n.Name:
        name = str(token.value)
        instead = INSTEAD_OF_NAMES.get(name)
        if instead is not None:
            raise problem(token, f"there is no `{name}`", instead)
        return n.Name(name, at=span(token, token))

    def _constant(self, token: Token) -> n.Constant:
        value: Any = token.value
        return n.Constant(value, at=span(token, token))

    def _word(self, token: Token) -> n.Constant:
        return n.Constant(_CONSTANTS[token.type], at=span(token, token))

    def _duration(self, token: Token) -> n.Duration:
        value: Any = token.value
        return n.Duration(*value, at=span(token, token))

    def _interpolation(self, opening: Token) -> n.Interpolation:
        """OPEN_STRING TEXT (INSERT expression END_INSERT TEXT)* CLOSE_STRING"""
        height = self._enter(opening)
        strings = [str(self._take("TEXT").value)]
        inserts: list[Expression] = []
        while self._take("INSERT", "CLOSE_STRING").type == "INSERT":
            inserts.append(self.expression())
            height = max(height, self._height)
            self._take_next("END_INSERT")
            strings.append(str(self._take("TEXT").value))
        if opening.value == '"""':
            strings = [cook(text) for text in dedent(strings)]
        pieces: list[str | Expression] = [strings[0]]
        for insert, text in zip(inserts, strings[1:], strict=True):
            pieces += [insert, text]
        return n.Interpolation(tuple([piece for piece in pieces if piece != ""]), at=self._leave(opening, height))


class _Operator(NamedTuple):
    """An operator whose right side is not complete."""

    level: int
    token: Token
    is_prefix: bool


def _too_deep(token: Token) -> TooDeepError:
    message = f"this expression is nested more than {MAX_DEPTH} deep here"
    return TooDeepError(message, token.line, token.column, suggestion="bind parts of it to names")
