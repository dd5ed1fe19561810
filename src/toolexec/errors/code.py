"""Errors about code that calls tools, and about the sandboxes where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolexec.errors.base import ToolExecError
from toolexec.errors.gate import PolicyError

__all__ = [
    "ChainStepLimitError",
    "CodeError",
    "CodeExecutionError",
    "CodeTimeoutError",
    "ConnectionClosedError",
    "GatewayError",
    "GatewayTimeoutError",
    "InvalidLimitsError",
    "InvalidRequestError",
    "LimitExceededError",
    "LimitNotEnforceableError",
    "ProtocolError",
    "SandboxDeniedError",
    "SandboxError",
    "SandboxFailedError",
    "SandboxUnavailableError",
    "SandboxViolationError",
    "ToolCallLimitError",
    "ToolNotAllowedError",
]


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
    default_never_began = True


class ChainStepLimitError(LimitExceededError):
    """A chain has more steps than one may have; none of them was run."""

    code = "chain_step_limit"
    default_never_began = True


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
    further_codes = ("invalid_module", "missing_code", "missing_gateway")
    default_never_began = True


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
    default_never_began = True


class SandboxDeniedError(SandboxError):
    """A rule forbids this sandbox for the request, or it needs an opt-in that is not there."""

    code = "sandbox_denied"
    default_never_began = True


class LimitNotEnforceableError(SandboxError):
    """The sandbox cannot enforce a limit that was asked for; `best_effort=True` runs the code all the same."""

    code = "limit_not_enforceable"
    default_never_began = True

    @property
    def limits(self) -> tuple[str, ...]:
        """The names of the limits."""
        return tuple(self.details.get("limits", ()))


class SandboxFailedError(SandboxError):
    """The sandbox died or could not run the program; what was captured until then is in the result."""

    code = "sandbox_failed"


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
