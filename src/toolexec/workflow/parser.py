"""Parse the text of a workflow into its tree, or raise an error that shows what is wrong, where, and what to write."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Final

from toolexec.errors import WorkflowSyntaxError
from toolexec.workflow.lexer import Scan
from toolexec.workflow.mistakes import MistakeError
from toolexec.workflow.nodes import Workflow
from toolexec.workflow.parse_expressions import TooDeepError, UnexpectedTokenError
from toolexec.workflow.parse_statements import Statements
from toolexec.workflow.tokens import Token
from toolexec.workflow.unexpected import unexpected

__all__ = ["MAX_SOURCE", "parse"]

MAX_SOURCE: Final = 1024 * 1024
"""How many bytes a workflow may have."""


def parse(source: str) -> Workflow:
    """Return the tree of a workflow; raises WorkflowSyntaxError.

    >>> parse("n := 1 + 2").statements[0].value.operator
    '+'
    """
    if len(source) > MAX_SOURCE or (not source.isascii() and len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE):
        raise WorkflowSyntaxError(f"a workflow has at most {MAX_SOURCE} bytes", line=1, column=1)
    source = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    scan = Scan(source)
    tokens, mistake = _scanned(scan)
    try:
        workflow = Statements(tokens).workflow()
    except UnexpectedTokenError as error:
        is_last = error.index == len(tokens) - 1
        problem = mistake if mistake is not None and is_last else _unexpected(source, error)
    except TooDeepError as error:
        problem = mistake or error  # a bracket that is never closed comes first
    except MistakeError as error:
        problem = error
    else:
        return dataclasses.replace(workflow, comments=tuple(scan.comments)) if scan.comments else workflow
    raise _error(problem, source)


def _scanned(scan: Scan) -> tuple[list[Token], MistakeError | None]:
    """Return all tokens and one for the end, which stands in no rule where a mistake ends them.

    They are made before they are parsed: if the parser asked for each, it would take longer.
    """
    tokens: list[Token] = []
    mistake: MistakeError | None = None
    try:
        tokens.extend(scan.tokens())
    except MistakeError as error:
        mistake = error
    tokens.append(Token("$END" if mistake is None else "$MISTAKE", None, 0, 0, 0, 0))
    return tokens, mistake


def _unexpected(source: str, error: UnexpectedTokenError) -> MistakeError:
    """Return what is wrong with a token; the source is scanned again, up to there, for what is open at that place."""
    scan = Scan(source)
    token = next(itertools.islice(scan.tokens(), error.index, None), None)
    return unexpected(scan, token, error.expected)


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
