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
from toolexec.workflow.mistakes import MistakeError, unexpected
from toolexec.workflow.nodes import Workflow

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


def parse(source: str) -> Workflow:
    """Return the tree of a workflow; raises WorkflowSyntaxError.

    >>> parse("n := 1 + 2").statements[0].value.operator
    '+'
    """
    if len(source) > MAX_SOURCE or (not source.isascii() and len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE):
        raise WorkflowSyntaxError(f"a workflow has at most {MAX_SOURCE} bytes", line=1, column=1)
    source = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    scan = Scan(source)
    try:
        workflow: Any = _parser().parse(scan)  # pyright: ignore[reportArgumentType]
    except UnexpectedToken as error:
        token: Any = error.token
        problem = unexpected(scan, None if token.type == "$END" else token, _expected(error))
    except MistakeError as error:
        problem = error
    else:
        return dataclasses.replace(workflow, comments=tuple(scan.comments)) if scan.comments else workflow
    raise _error(problem, source)


def _expected(error: UnexpectedToken) -> set[str]:
    """Return the terminals that could stand there; the parse table alone has more than really can."""
    parser: Any = error.interactive_parser
    return set(parser.accepts())


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
