"""The syntax tree of a workflow: frozen values that record what was written, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Final, Literal, NamedTuple, TypeAlias


class Position(NamedTuple):
    """Where a node begins and ends: lines and columns from 1; the end is the column after its last character."""

    line: int
    column: int
    end_line: int
    end_column: int


NOWHERE: Final = Position(0, 0, 0, 0)
"""The position of a node that was not parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of a workflow; two of them are equal wherever they stand."""

    at: Position = field(default=NOWHERE, compare=False, repr=False)


# -- expressions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """null, true, false, a number, or a string without interpolation."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """`500ms`, `2s`, `5m`, `1h`: a number of seconds, and how it was written."""

    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Interpolation(Node):
    """A string with values in it, `"issue ${issue.number}"`: strings and expressions in their order."""

    parts: tuple[str | Expression, ...]


@dataclass(frozen=True, slots=True)
class Name(Node):
    """The value that a name is bound to."""

    name: str


@dataclass(frozen=True, slots=True)
class Member(Node):
    """`value.name`, or `value?.name`, which is null where there is no such member or the value is null."""

    value: Expression
    name: str
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`value[index]` of a list (negative: from its end), a string or an object; `value?[index]` may be null."""

    value: Expression
    index: Expression
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """`value[start:stop]` of a list or a string."""

    value: Expression
    start: Expression | None
    stop: Expression | None


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """`not value` or `-value`."""

    operator: Literal["not", "-"]
    value: Expression


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Two values and the operator between them; `and`, `or` and `??` evaluate the right one only when needed."""

    operator: Literal["or", "and", "??", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "+", "-", "*", "/", "%"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """`condition ? then : otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Spread(Node):
    """`...value` in a list or an object: all that the value holds."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Entry(Node):
    """`key: value` of an object."""

    key: str
    value: Expression


Item: TypeAlias = "Expression | Spread"


@dataclass(frozen=True, slots=True)
class ListLiteral(Node):
    """`[a, b, ...more]`."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class ObjectLiteral(Node):
    """`{key: value, "a key": value, short, ...more}`; `short` stands for `short: short`."""

    entries: tuple[Entry | Spread, ...]


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A call of a pure function of the standard library: `len(xs)`."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ToolRun(Node):
    """A call of a tool: `run("ns:tool", {key: value}) timeout 5s`. `tool` is nearly always a string."""

    tool: Expression
    arguments: Expression | None = None
    timeout: Expression | None = None


# -- blocks, and what has one -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block(Node):
    """Statements in braces. Names bound in it end with it; its value is that of its last statement if that is an
    expression, else null."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Do(Node):
    """`do { ... }`: the value of the block."""

    body: Block


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if condition { ... } else if ... { ... } else { ... }`; `otherwise` of an `else if` is a block with one If."""

    condition: Expression
    then: Block
    otherwise: Block | If | None = None


@dataclass(frozen=True, slots=True)
class For(Node):
    """`for x in xs where condition { ... }`, or `for i, x in xs`; over an object it goes over its keys (with two
    names: key and value). Its value is null."""

    names: tuple[str, ...]
    values: Expression
    body: Block
    where: Expression | None = None


@dataclass(frozen=True, slots=True)
class Collect(Node):
    """`collect x in xs where condition { ... }`: a list with the value of each round; `continue` leaves one out."""

    names: tuple[str, ...]
    values: Expression
    body: Block
    where: Expression | None = None


@dataclass(frozen=True, slots=True)
class While(Node):
    """`while condition limit 20 { ... }`: at most that many rounds; the one after fails. The limit is required by the
    checker."""

    condition: Expression
    body: Block
    limit: Expression | None = None


@dataclass(frozen=True, slots=True)
class Branch(Node):
    """One branch of `parallel`: `name: value`, `name := value` (which binds the name after it) or just a value."""

    name: str | None
    value: Value
    binds: bool = False


@dataclass(frozen=True, slots=True)
class Parallel(Node):
    """`parallel limit n { ... }`: all branches at once; an object of their values when they have names, else a list.

    The first failure cancels the others.
    """

    branches: tuple[Branch, ...]
    limit: Expression | None = None


@dataclass(frozen=True, slots=True)
class ParallelFor(Node):
    """`parallel for x in xs where condition limit 10 { ... }`: a list of the rounds' values, in the order of *xs*."""

    names: tuple[str, ...]
    values: Expression
    body: Block
    where: Expression | None = None
    limit: Expression | None = None


@dataclass(frozen=True, slots=True)
class Retry(Node):
    """`retry 3 delay 1s backoff 2 { ... }`: at most that many attempts in all; the pause grows by the factor."""

    attempts: Expression
    body: Block
    delay: Expression | None = None
    backoff: Expression | None = None


@dataclass(frozen=True, slots=True)
class Try(Node):
    """`try { ... } catch err { ... }`; the value is that of the block which ended last."""

    body: Block
    name: str | None
    handler: Block


Expression: TypeAlias = (
    Constant
    | Duration
    | Interpolation
    | Name
    | Member
    | Index
    | Slice
    | Unary
    | Binary
    | Conditional
    | ListLiteral
    | ObjectLiteral
    | Call
    | ToolRun
)
BlockExpression: TypeAlias = Do | If | For | Collect | While | Parallel | ParallelFor | Retry | Try
Value: TypeAlias = Expression | BlockExpression
"""What may stand right of `:=`, `=` and `return`, and by itself: block expressions cannot be parts of others."""


# -- statements -------------------------------------------------------------------------------------------------


Target: TypeAlias = Name | Member | Index


@dataclass(frozen=True, slots=True)
class Bind(Node):
    """`name := value`: a new name, in this block."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """`name = value`, `name.member = value`, `name[index] = value`: another value for a name that is there."""

    target: Target
    value: Value


@dataclass(frozen=True, slots=True)
class ExpressionStatement(Node):
    """A value by itself: for its effect, or as the value of its block."""

    value: Value


@dataclass(frozen=True, slots=True)
class Print(Node):
    """`print(a, b)`: strings as they are, other values as JSON, one space between."""

    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Return(Node):
    """`return value`: ends the workflow."""

    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Fail(Node):
    """`fail "message"`: ends the workflow, or what `try` and `retry` surround, with an error."""

    message: Expression


@dataclass(frozen=True, slots=True)
class Break(Node):
    """`break`: ends the innermost loop."""


@dataclass(frozen=True, slots=True)
class Continue(Node):
    """`continue`: ends this round of the innermost loop."""


Statement: TypeAlias = Bind | Assign | ExpressionStatement | Print | Return | Fail | Break | Continue


# -- the whole --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeName(Node):
    """The type of an input: `string`, `integer`, `number`, `boolean`, `object`, `list`, `any`, `list[string]`,
    `"open" | "closed"` (`choices`), each with `?` where null will do (`nullable`)."""

    name: Literal["string", "integer", "number", "boolean", "object", "list", "any", "choice"]
    items: TypeName | None = None
    choices: tuple[str, ...] = ()
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Input(Node):
    """`input name: type = default "description"`; one without a default is required."""

    name: str
    type: TypeName
    default: Expression | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class FrontMatter(Node):
    """The TOML between two lines `+++` at the top, as it was written."""

    text: str


@dataclass(frozen=True, slots=True)
class Workflow(Node):
    """A whole workflow."""

    inputs: tuple[Input, ...]
    statements: tuple[Statement, ...]
    front_matter: FrontMatter | None = None
    comments: tuple[tuple[Position, str], ...] = field(default=(), compare=False, repr=False)
    """All comments, for the formatter and for `# test:` blocks: where each is, and its text with its `#`."""


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes that *node* is made of, in the order of the source."""
    for part in fields(node):
        value: object = getattr(node, part.name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            for item in value:  # pyright: ignore[reportUnknownVariableType]
                if isinstance(item, Node):
                    yield item


def walk(node: Node) -> Iterator[Node]:
    """Yield *node* and all nodes below it, each before what it is made of; without recursion."""
    left = [node]
    while left:
        found = left.pop()
        yield found
        left.extend(reversed([*children(found)]))
