"""Errors about code that calls tools, and about the sandboxes where it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from toolexec.errors.base import ToolExecError
from toolexec.errors.gate import PolicyError
from toolexec.errors.outcome import Outcome

_EXCERPT = 100
"""How many characters of a long line an error shows."""


class WorkflowFinding(Protocol):
    """A mistake that the checker of workflows has found."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        ...


class ToolNotAllowedError(PolicyError):
    """The code may not call this tool: it is not on its list of allowed tools."""

    code = "tool_not_allowed"


class CodeExecutionError(ToolExecError):
    """Code was run and failed; its sandbox is fine."""

    code = "code_failed"


class CodeError(CodeExecutionError):
    """The program failed by itself: a syntax error, an exception that it did not catch, a value that is not JSON.

    `line` and `column` are those of the author's own text (1-based; 0 is unknown), `source` is that line, `kind` the
    name of the exception's class in the program and `traceback` the program's own, with nothing of the sandbox in it.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     error = ex.execute_code("x = 1\\nreturn x / 0").error
    >>> error.kind, error.line, error.source
    ('ZeroDivisionError', 2, 'return x / 0')
    """

    code = "code_error"

    def __init__(
        self,
        message: str,
        *,
        line: int = 0,
        column: int = 0,
        source: str = "",
        kind: str = "",
        traceback: str = "",
        tool_id: str | None = None,
        op: str | None = None,
        backend: str | None = None,
        retryable: bool | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self.line = line
        self.column = column
        self.source = source
        self.kind = kind
        self.traceback = traceback
        where = {"line": line, "column": column, "source": source, "kind": kind, "traceback": traceback}
        known = {key: value for key, value in where.items() if value}
        super().__init__(
            message, tool_id=tool_id, op=op, backend=backend, retryable=retryable, details={**known, **(details or {})}
        )

    def __str__(self) -> str:
        return f"{self.message} (line {self.line}, col {self.column})" if self.line > 0 else self.message


class WorkflowSyntaxError(CodeError):
    """The text of a workflow cannot be parsed; nothing has run.

    `line`, `column` and `source` say where, `expected` has what could stand there, in words, and `suggestion` what to
    write instead, if that is known. The message shows all of it.

    >>> from toolexec.workflow.parser import parse
    >>> try:
    ...     parse("n := [1, 2")
    ... except WorkflowSyntaxError as error:
    ...     print(error)
    line 1, column 6: this `[` is never closed
      1 | n := [1, 2
        |      ^
    close it with `]`
    """

    code = "workflow_syntax"
    default_outcome = Outcome.NOT_SENT

    def __init__(
        self,
        message: str,
        *,
        line: int = 0,
        column: int = 0,
        source: str = "",
        expected: Sequence[str] = (),
        suggestion: str = "",
        tool_id: str | None = None,
        op: str | None = None,
        backend: str | None = None,
        retryable: bool | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        known = {"expected": list(expected)} if expected else {}
        known |= {"suggestion": suggestion} if suggestion else {}
        super().__init__(
            _shown(message, line, column, source, suggestion),
            line=line,
            column=column,
            source=source,
            tool_id=tool_id,
            op=op,
            backend=backend,
            retryable=retryable,
            details={**known, **(details or {})},
        )

    @property
    def expected(self) -> tuple[str, ...]:
        """What could stand there, in words."""
        return tuple(self.details.get("expected", ()))

    @property
    def suggestion(self) -> str:
        """What to write instead; empty if that is not known."""
        return str(self.details.get("suggestion", ""))

    def __str__(self) -> str:
        return self.message


class WorkflowCheckError(CodeError):
    """A workflow has mistakes that were found before it ran; nothing has run.

    `findings` has all of them, and `details["findings"]` the same as data, which is all that is left of them where the
    error comes from another process. `line` and `column` are those of the first.
    """

    code = "workflow_check"
    default_outcome = Outcome.NOT_SENT
    findings: tuple[WorkflowFinding, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        findings: Sequence[WorkflowFinding] = (),
        line: int = 0,
        column: int = 0,
        tool_id: str | None = None,
        op: str | None = None,
        backend: str | None = None,
        retryable: bool | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self.findings = tuple(findings)
        known = {"findings": [finding.to_dict() for finding in findings]} if findings else {}
        super().__init__(
            message,
            line=line,
            column=column,
            tool_id=tool_id,
            op=op,
            backend=backend,
            retryable=retryable,
            details={**known, **(details or {})},
        )

    def __str__(self) -> str:
        return self.message


class SandboxViolationError(CodeExecutionError):
    """The code did what its sandbox forbids and was stopped for it."""

    code = "sandbox_violation"


class LimitExceededError(ToolExecError):
    """Code used up what it was granted, such as its memory (`details["resource"]`); the result has what it did.

    >>> from toolexec import Exec, Limits
    >>> with Exec().sync as ex:
    ...     result = ex.execute_code("while True: pass", limits=Limits(cpu_ms=50))
    >>> result.error.code, result.error.details["resource"]
    ('limit_exceeded', 'cpu')
    """

    code = "limit_exceeded"

    @property
    def resource(self) -> str:
        """What is used up, such as `memory`; empty where the class says it."""
        return str(self.details.get("resource", ""))


class ToolCallLimitError(LimitExceededError):
    """The code made as many tool calls as it may; the call was not made."""

    code = "tool_call_limit"
    default_outcome = Outcome.NOT_SENT


class ChainStepLimitError(LimitExceededError):
    """A chain has more steps than one may have; none of them was run."""

    code = "chain_step_limit"
    default_outcome = Outcome.NOT_SENT


class CodeTimeoutError(LimitExceededError, TimeoutError):
    """The code took longer than its time limit and was stopped."""

    code = "code_timeout"

    @property
    def timeout(self) -> float | None:
        """The time limit in seconds; None where it is unknown."""
        return self.details.get("timeout")


class SandboxError(ToolExecError):
    """Something about where code runs; `backend` is the kind of sandbox."""

    code = "sandbox"


class InvalidRequestError(SandboxError):
    """A request to run code makes no sense; nothing has run."""

    code = "invalid_request"
    further_codes: ClassVar[tuple[str, ...]] = (
        "invalid_module",
        "missing_code",
        "missing_gateway",
        "request_too_large",
        "run_id_taken",
    )
    default_outcome = Outcome.NOT_SENT


class InvalidLimitsError(InvalidRequestError):
    """A limit is negative or of the wrong type; the message names it."""

    code = "invalid_limits"


class SandboxUnavailableError(SandboxError):
    """No sandbox can take the request; the message says why and what to install or configure.

    >>> from toolexec import Exec
    >>> with Exec(runtime_backends={"hardened": []}).sync as ex:
    ...     try:
    ...         ex.execute_code("return 1", profile="hardened")
    ...     except SandboxUnavailableError as error:
    ...         error.code
    'sandbox_unavailable'
    """

    code = "sandbox_unavailable"
    further_codes: ClassVar[tuple[str, ...]] = (
        "queue_full",
        "quota_exceeded",
        "runtime_draining",
        "wrong_incarnation",
    )
    default_outcome = Outcome.NOT_SENT


class SandboxDeniedError(SandboxError):
    """A rule forbids this sandbox for the request, or it needs an opt-in that is not there."""

    code = "sandbox_denied"
    further_codes: ClassVar[tuple[str, ...]] = (
        "address_denied",
        "identity_unproven",
        "signature_invalid",
        "signature_replayed",
        "signature_stale",
        "unauthenticated",
    )
    default_outcome = Outcome.NOT_SENT


class LimitNotEnforceableError(SandboxError):
    """The sandbox cannot enforce a limit that was asked for; `best_effort=True` runs the code all the same."""

    code = "limit_not_enforceable"
    default_outcome = Outcome.NOT_SENT

    @property
    def limits(self) -> tuple[str, ...]:
        """The names of the limits."""
        return tuple(self.details.get("limits", ()))


class SandboxFailedError(SandboxError):
    """The sandbox died or could not run the program; what was captured until then is in the result."""

    code = "sandbox_failed"
    further_codes: ClassVar[tuple[str, ...]] = ("remote_run_lost",)


class GatewayError(ToolExecError):
    """Something about the way back from a sandbox to the tools."""

    code = "gateway"


class ConnectionClosedError(GatewayError):
    """The connection to the other side is closed or lost; nothing more can be asked of it."""

    code = "connection_closed"


class GatewayTimeoutError(GatewayError, TimeoutError):
    """The other side did not answer in time."""

    code = "gateway_timeout"
    default_retryable = True


class ProtocolError(GatewayError):
    """A message is malformed, too large, of an unknown type or version, or answers nothing."""

    code = "protocol"


def _shown(message: str, line: int, column: int, source: str, suggestion: str) -> str:
    """Join what is wrong with the line, a caret below the column, and the suggestion."""
    if line < 1:
        return message
    parts = [f"line {line}, column {column}: {message}"]
    if source.strip():
        start = max(0, min(column - 1 - _EXCERPT // 2, len(source) - _EXCERPT))
        excerpt = "".join(char if char.isprintable() else " " for char in source[start : start + _EXCERPT])
        gutter = " " * len(str(line))
        parts += [f"  {line} | {excerpt}", f"  {gutter} | {' ' * (column - 1 - start)}^"]
    return "\n".join([*parts, suggestion] if suggestion else parts)
