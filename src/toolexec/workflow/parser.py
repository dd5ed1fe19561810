"""Parse the text of a workflow into its tree, or raise an error that shows what is wrong, where, and what to write."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lark import Lark, UnexpectedToken
from lark.lexer import Lexer

from toolexec.errors import WorkflowSyntaxError
from toolexec.workflow.builder import Builder
from toolexec.workflow.lexer import Scan
from toolexec.workflow.mistakes import MistakeError
from toolexec.workflow.nodes import Workflow
from toolexec.workflow.table import END, Table, UnexpectedTokenError
from toolexec.workflow.tokens import Token
from toolexec.workflow.unexpected import unexpected

__all__ = ["MAX_SOURCE", "parse"]

MAX_SOURCE: Final = 1024 * 1024
"""How many bytes a workflow may have."""
_GRAMMAR: Final = Path(__file__).with_name("grammar.lark")


class _Tokens(Lexer):
    """Gives lark the tokens of a Scan."""

    def __init__(self, lexer_conf: Any) -> None:
        pass

    def lex(self, data: Any) -> Iterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return data.tokens()


class _Inlined:
    """The parts of a rule that does not make a node; lark joins them into the rule around."""

    __slots__ = ("children",)

    def __init__(self, rule: str, children: list[Any]) -> None:
        self.children = children


@functools.cache
def _parser() -> Lark:
    """Return the parser; building it takes a while, so there is one for the process."""
    return Lark(
        _GRAMMAR.read_text("utf-8"),
        parser="lalr",
        lexer=_Tokens,
        transformer=Builder(),
        keep_all_tokens=True,
        maybe_placeholders=True,
        propagate_positions=False,  # the builder takes them from the tokens
        tree_class=_Inlined,
    )


@functools.cache
def _table() -> Table:
    return Table(_parser())


def parse(source: str) -> Workflow:
    """Return the tree of a workflow; raises WorkflowSyntaxError.

    >>> parse("n := 1 + 2").statements[0].value.operator
    '+'
    """
    if len(source) > MAX_SOURCE or (not source.isascii() and len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE):
        raise WorkflowSyntaxError(f"a workflow has at most {MAX_SOURCE} bytes", line=1, column=1)
    source = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    scan = Scan(source)
    tokens, last = _scanned(scan)
    try:
        workflow: Any = _table().parse(tokens, last)
    except UnexpectedTokenError:
        problem = _unexpected(source)
    except MistakeError as error:
        problem = error
    else:
        return dataclasses.replace(workflow, comments=tuple(scan.comments)) if scan.comments else workflow
    raise _error(problem, source)


def _scanned(scan: Scan) -> tuple[list[Token], Token | MistakeError]:
    """Return all tokens, and the end or what stands in its place: the mistake that ends them.

    They are made before they are parsed, as it takes a fifth longer to do both in turns.
    """
    tokens: list[Token] = []
    try:
        tokens.extend(scan.tokens())
    except MistakeError as error:
        return tokens, error
    return tokens, END


def _unexpected(source: str) -> MistakeError:
    """Return what is wrong with a source that the table does not take: lark knows what could stand there."""
    scan = Scan(source)
    try:
        _parser().parse(scan)  # pyright: ignore[reportArgumentType]
    except UnexpectedToken as error:
        token: Any = error.token
        parser: Any = error.interactive_parser
        expected: set[str] = set(parser.accepts())  # the parse table alone has more than really can
        return unexpected(scan, None if token.type == "$END" else token, expected)
    raise AssertionError("the table refuses what lark takes")


def _error(problem: MistakeError, source: str) -> WorkflowSyntaxError:
    lines = source.split("\n", problem.line)
    return WorkflowSyntaxError(
        problem.message,
        line=problem.line,
        column=problem.column,
        source=lines[problem.line - 1] if problem.line <= len(lines) else "",
        expected=problem.expected,
        suggestion=problem.suggestion,
    )
