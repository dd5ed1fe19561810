"""Build the tree of a workflow: one method for each rule of the grammar, called as the parser reduces it."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from toolexec.workflow.habits import INSTEAD_OF_NAMES
from toolexec.workflow.mistakes import MistakeError, wrong_call, wrong_type
from toolexec.workflow.nodes import (
    Assign,
    Binary,
    Bind,
    Block,
    Branch,
    Break,
    Call,
    Collect,
    Conditional,
    Constant,
    Continue,
    Do,
    Duration,
    Entry,
    Expression,
    ExpressionStatement,
    Fail,
    For,
    FrontMatter,
    If,
    Index,
    Input,
    Interpolation,
    ListLiteral,
    Member,
    Name,
    Node,
    ObjectLiteral,
    Parallel,
    ParallelFor,
    Position,
    Print,
    Retry,
    Return,
    Slice,
    Spread,
    Statement,
    ToolRun,
    Try,
    TypeName,
    Unary,
    While,
    Workflow,
)
from toolexec.workflow.strings import cook, dedent
from toolexec.workflow.tokens import Token

__all__ = ["COMPARISONS", "LEVELS", "PREFIX_LEVELS", "TYPES", "Builder"]

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
"""How tightly a binary operator binds."""
PREFIX_LEVELS: Final = {"not": 4, "-": 8}
COMPARISONS: Final = 5
"""The level whose operators do not chain."""
TYPES: Final = ("string", "integer", "number", "boolean", "object", "list", "any")

# What the parser hands to a rule: the tokens and nodes it is made of, in their order; None for an absent `[ ]`.
Parts: TypeAlias = "list[Any]"


def _problem(token: Token | Node, message: str, suggestion: str = "") -> MistakeError:
    at = token.at if isinstance(token, Node) else token
    return MistakeError(message, at.line, at.column, suggestion=suggestion)


def _span(first: Any, last: Any) -> Position:
    begin = first if type(first) is Token else first.at
    end = last if type(last) is Token else last.at
    return Position(begin.line, begin.column, end.end_line, end.end_column)


def _place(token: Token) -> Position:
    return Position(token.line, token.column, token.end_line, token.end_column)


def _nodes(parts: Parts) -> tuple[Any, ...]:
    """Drop the tokens."""
    return tuple([part for part in parts if type(part) is not Token])


class Builder:
    """Builds nodes; has no state, so that all parses may share it."""

    # -- the whole ----------------------------------------------------------------------------------------------

    def start(self, parts: Parts) -> Workflow:
        """Build the workflow."""
        front, *rest = parts
        nodes = _nodes(rest)
        count = sum(isinstance(node, Input) for node in nodes)
        for node in nodes[:count]:
            if not isinstance(node, Input):
                late = next(node for node in nodes[nodes.index(node) :] if isinstance(node, Input))
                raise _problem(late, "inputs stand at the top, before all statements", "move this line up")
        at = Position(1, 1, 1, 1)
        if front is not None or nodes:
            at = _span(nodes[0] if front is None else front, nodes[-1] if nodes else front)
        matter = None if front is None else FrontMatter(front.value, at=_place(front))
        return Workflow(nodes[:count], nodes[count:], matter, at=at)

    def input(self, parts: Parts) -> Input:
        """Build an input."""
        opening, name, _, kind, _, default, text = parts
        last = next(part for part in (text, default, kind) if part is not None)
        return Input(name.value, kind, default, "" if text is None else text.value, at=_span(opening, last))

    def named_type(self, parts: Parts) -> TypeName:
        """Build the type of an input."""
        name, _, items, closing, optional = parts
        if name.value not in TYPES:
            raise wrong_type(name, TYPES)
        if items is not None and name.value != "list":
            raise _problem(name, f"`{name.value}` has no items", "only a list has: list[string]")
        at = _span(name, optional or closing or name)
        return TypeName(name.value, items, nullable=optional is not None, at=at)

    def choice_type(self, parts: Parts) -> TypeName:
        """Build a type that is a choice of strings."""
        *choices, optional = parts
        at = _span(choices[0], optional or choices[-1])
        return TypeName("choice", None, tuple(part.value for part in choices[::2]), optional is not None, at=at)

    # -- statements ---------------------------------------------------------------------------------------------

    def bind(self, parts: Parts) -> Bind:
        """Build `name := value`."""
        target, _, value = parts
        if type(target) is not Name:
            raise _problem(target, "only a name can be bound with `:=`", "to change a part of a value write `=`")
        return Bind(target.name, value, at=_span(target, value))

    def assign(self, parts: Parts) -> Assign:
        """Build `target = value`."""
        target, _, value = parts
        root = target
        while isinstance(root, Member | Index):
            if root.safe:
                raise _problem(root, "a value cannot be assigned through `?`", "write it without the `?`")
            root = root.value
        if not isinstance(root, Name):
            raise _problem(target, "a value can be assigned only to a name, `name.member` or `name[index]`")
        return Assign(target, value, at=_span(target, value))

    def print_statement(self, parts: Parts) -> Print:
        """Build `print(...)`."""
        return Print(tuple(parts[2:-1:2]), at=_span(parts[0], parts[-1]))

    def return_statement(self, parts: Parts) -> Return:
        """Build `return value`."""
        return Return(parts[1], at=_span(parts[0], parts[1] or parts[0]))

    def fail_statement(self, parts: Parts) -> Fail:
        """Build `fail message`."""
        return Fail(parts[1], at=_span(parts[0], parts[1]))

    def break_statement(self, parts: Parts) -> Break:
        """Build `break`."""
        return Break(at=_place(parts[0]))

    def continue_statement(self, parts: Parts) -> Continue:
        """Build `continue`."""
        return Continue(at=_place(parts[0]))

    def expression_statement(self, parts: Parts) -> ExpressionStatement:
        """Build a value that stands by itself."""
        return ExpressionStatement(parts[0], at=parts[0].at)

    # -- blocks -------------------------------------------------------------------------------------------------

    def block(self, parts: Parts) -> Block:
        """Build a block."""
        statements: tuple[Statement, ...] = tuple(parts[1:-1:2])
        return Block(statements, at=_span(parts[0], parts[-1]))

    def do(self, parts: Parts) -> Do:
        """Build `do { }`."""
        return Do(parts[1], at=_span(parts[0], parts[1]))

    def if_(self, parts: Parts) -> If:
        """Build `if`, with all its `else if` and its `else`."""
        heads = [index for index, part in enumerate(parts) if type(part) is Token and part.type == "IF"]
        otherwise: Block | If | None = None
        if heads[-1] + 3 < len(parts):
            otherwise = parts[-1]
        for index in reversed(heads):
            otherwise = If(parts[index + 1], parts[index + 2], otherwise, at=_span(parts[index], parts[-1]))
        assert isinstance(otherwise, If)
        return otherwise

    def for_(self, parts: Parts) -> For:
        """Build `for`."""
        opening, first, _, second, _, values, _, where, body = parts
        return For(_pair(first, second), values, body, where, at=_span(opening, body))

    def collect(self, parts: Parts) -> Collect:
        """Build `collect`."""
        first, _, second, _, values, _, where, body = parts[-8:]
        return Collect(_pair(first, second), values, body, where, at=_span(parts[0], body))

    def while_(self, parts: Parts) -> While:
        """Build `while`."""
        opening, condition, _, limit, body = parts
        return While(condition, body, limit, at=_span(opening, body))

    def parallel(self, parts: Parts) -> Parallel:
        """Build `parallel { }`."""
        return Parallel(tuple(parts[4:-1:2]), parts[2], at=_span(parts[0], parts[-1]))

    def parallel_for(self, parts: Parts) -> ParallelFor:
        """Build `parallel for`."""
        opening, _, first, _, second, _, values, _, where, _, limit, body = parts
        return ParallelFor(_pair(first, second), values, body, where, limit, at=_span(opening, body))

    def retry(self, parts: Parts) -> Retry:
        """Build `retry`."""
        opening, attempts, _, delay, _, backoff, body = parts
        return Retry(attempts, body, delay, backoff, at=_span(opening, body))

    def short_retry(self, parts: Parts) -> Retry:
        """Build `retry 3 1s 2 { }`."""
        opening, attempts, delay, backoff, body = parts
        backoff = None if backoff is None else self._literal(backoff)
        return Retry(attempts, body, self._literal(delay), backoff, at=_span(opening, body))

    def called_retry(self, parts: Parts) -> Retry:
        """Build `retry(3, 1s, 2) { }`."""
        opening, _, attempts, _, delay, _, backoff, _, body = parts
        return Retry(attempts, body, delay, backoff, at=_span(opening, body))

    def try_(self, parts: Parts) -> Try:
        """Build `try`."""
        opening, body, _, name, handler = parts
        return Try(body, None if name is None else name.value, handler, at=_span(opening, handler))

    def named_branch(self, parts: Parts) -> Branch:
        """Build `name: value`."""
        return Branch(parts[0].value, parts[2], at=_span(parts[0], parts[2]))

    def bound_branch(self, parts: Parts) -> Branch:
        """Build `name := value`."""
        return Branch(parts[0].value, parts[2], True, at=_span(parts[0], parts[2]))

    def plain_branch(self, parts: Parts) -> Branch:
        """Build a branch without a name."""
        return Branch(None, parts[0], at=parts[0].at)

    # -- expressions --------------------------------------------------------------------------------------------

    def conditional(self, parts: Parts) -> Conditional:
        """Build `condition ? then : otherwise`."""
        condition, _, then, _, otherwise = parts
        return Conditional(condition, then, otherwise, at=_span(condition, otherwise))

    def operation(self, parts: Parts) -> Expression:
        """Build operations by the precedence of their operators."""
        values: list[Any] = []
        waiting: list[tuple[int, Token, bool]] = []  # level, operator, whether it is a prefix
        prefix = True
        for part in parts:
            if type(part) is not Token:
                values.append(part)
                prefix = False
                continue
            text: str = part.value  # pyright: ignore[reportAssignmentType]
            if prefix:
                level = PREFIX_LEVELS[text]
                if waiting and waiting[-1][0] > level:
                    raise _problem(part, f"`{text}` binds less than `{waiting[-1][1].value}`", "put it in parentheses")
            else:
                level = LEVELS[text]
                while waiting and waiting[-1][0] >= level:
                    if level == COMPARISONS == waiting[-1][0]:
                        raise _problem(part, "comparisons do not chain", "join them with `and`: a < b and b < c")
                    _apply(values, *waiting.pop())
            waiting.append((level, part, prefix))
            prefix = True
        while waiting:
            _apply(values, *waiting.pop())
        return values[0]

    def name(self, parts: Parts) -> Name:
        """Build a name."""
        token = parts[0]
        instead = INSTEAD_OF_NAMES.get(token.value)
        if instead is not None:
            raise _problem(token, f"there is no `{token.value}`", instead)
        return Name(token.value, at=_place(token))

    def number(self, parts: Parts) -> Constant:
        """Build a number, a string."""
        return Constant(parts[0].value, at=_place(parts[0]))

    string = number

    def duration(self, parts: Parts) -> Duration:
        """Build a duration."""
        seconds, text = parts[0].value
        return Duration(seconds, text, at=_place(parts[0]))

    def null(self, parts: Parts) -> Constant:
        """Build null."""
        return Constant(None, at=_place(parts[0]))

    def true(self, parts: Parts) -> Constant:
        """Build true."""
        return Constant(True, at=_place(parts[0]))

    def false(self, parts: Parts) -> Constant:
        """Build false."""
        return Constant(False, at=_place(parts[0]))

    def interpolation(self, parts: Parts) -> Interpolation:
        """Build a string with inserts."""
        strings: list[str] = [part.value for part in parts[1:-1:4]]
        if parts[0].value == '"""':
            strings = [cook(text) for text in dedent(strings)]
        pieces: list[str | Expression] = []
        for index, text in enumerate(strings):
            if text:
                pieces.append(text)
            if index + 1 < len(strings):
                pieces.append(parts[4 * index + 3])
        return Interpolation(tuple(pieces), at=_span(parts[0], parts[-1]))

    def list(self, parts: Parts) -> ListLiteral:
        """Build a list."""
        return ListLiteral(tuple(parts[1:-1:2]), at=_span(parts[0], parts[-1]))

    def object(self, parts: Parts) -> ObjectLiteral:
        """Build an object."""
        return ObjectLiteral(tuple(parts[1:-1:2]), at=_span(parts[0], parts[-1]))

    def entry(self, parts: Parts) -> Entry:
        """Build `key: value`."""
        return Entry(parts[0].value, parts[2], at=_span(parts[0], parts[2]))

    def short_entry(self, parts: Parts) -> Entry:
        """Build `name`, which stands for `name: name`."""
        return Entry(parts[0].value, self.name(parts), at=_place(parts[0]))

    def spread(self, parts: Parts) -> Spread:
        """Build `...value`."""
        return Spread(parts[1], at=_span(parts[0], parts[1]))

    def group(self, parts: Parts) -> Expression:
        """Return what is in parentheses; its place includes them."""
        inner = parts[1]
        object.__setattr__(inner, "at", _span(parts[0], parts[2]))  # it is new, and nothing else has it yet
        return inner

    def run(self, parts: Parts) -> ToolRun:
        """Build `run(tool, arguments)`."""
        given = parts[2:-1:2]
        if not 1 <= len(given) <= 2:
            raise _problem(parts[0], "run takes a tool and its arguments", 'write run("ns:tool", {key: value})')
        return ToolRun(given[0], given[1] if len(given) > 1 else None, at=_span(parts[0], parts[-1]))

    def call(self, parts: Parts) -> Call:
        """Build a call of a function."""
        function, *_, closing = parts
        if type(function) is not Name:
            raise wrong_call(function)
        return Call(function.name, tuple(parts[2:-1:2]), at=_span(function, closing))

    def member(self, parts: Parts) -> Member:
        """Build `value.name`."""
        return Member(parts[0], parts[2].value, at=_span(parts[0], parts[2]))

    def safe_member(self, parts: Parts) -> Member:
        """Build `value?.name`."""
        return Member(parts[0], parts[2].value, True, at=_span(parts[0], parts[2]))

    def index(self, parts: Parts) -> Index:
        """Build `value[index]`."""
        return Index(parts[0], parts[2], at=_span(parts[0], parts[3]))

    def safe_index(self, parts: Parts) -> Index:
        """Build `value?[index]`."""
        return Index(parts[0], parts[2], True, at=_span(parts[0], parts[3]))

    def slice(self, parts: Parts) -> Slice:
        """Build `value[start:stop]`."""
        value, _, start, _, stop, closing = parts
        return Slice(value, start, stop, at=_span(value, closing))

    def _literal(self, token: Token) -> Constant | Duration:
        return self.number([token]) if token.type == "NUMBER" else self.duration([token])


def _pair(first: Token, second: Token | None) -> tuple[str, ...]:
    return (str(first.value),) if second is None else (str(first.value), str(second.value))


def _apply(values: list[Any], level: int, operator: Token, prefix: bool) -> None:
    """Take operands from the end of *values*, and put the operation there."""
    right = values.pop()
    if prefix:
        values.append(Unary(operator.value, right, at=_span(operator, right)))  # pyright: ignore[reportArgumentType]
        return
    left = values.pop()
    at = _span(left, right)
    if operator.value == "timeout":
        if type(left) is not ToolRun or left.timeout is not None:
            raise _problem(operator, "`timeout` stands right after run(...)", 'write run("ns:tool", {}) timeout 5s')
        values.append(ToolRun(left.tool, left.arguments, right, at=at))
    else:
        values.append(Binary(operator.value, left, right, at=at))  # pyright: ignore[reportArgumentType]
