"""What the end of a call of an MCP server means, as the error that its caller gets."""

from __future__ import annotations

import copy
from typing import Final

import anyio
import pydantic
from mcp import MCPError
from mcp_types import REQUEST_TIMEOUT

from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.connection import MCPConnection
from toolexec.backend.mcp.failures import connection_closed, describe_failure, outcome_of_answer
from toolexec.backend.mcp.tasks import LostTaskError
from toolexec.backend.mcp.transport import Delivery, delivery
from toolexec.errors import (
    ConnectionLostError,
    ExecutionError,
    Outcome,
    RemoteToolError,
    ToolExecError,
    ToolTimeoutError,
)
from toolexec.model.json_value import JSONDict
from toolexec.net.outcomes import MAY_PASS

_NO_LOGIN: Final = (401, 403)


def failure_of(name: str, error: Exception, server: MCPServer, connection: MCPConnection) -> ToolExecError:
    """Return what an exception out of the SDK means for a call of *name*, if the connection is well."""
    label = f"{server.name}:{name}"
    sent, login = delivery.get(), connection.login
    if sent is not None and sent.status in _NO_LOGIN and login is not None and login.needed is not None:
        return copy.copy(login.needed)
    if isinstance(error, MCPError):
        if error.code == REQUEST_TIMEOUT:
            return ToolTimeoutError(f"{label} did not answer in time", backend=server.name)
        return _refusal(label, error, server.name)
    outcome = outcome_of_answer(error, delivery.get())
    reason = describe_failure(connection.target, error)
    if isinstance(error, pydantic.ValidationError):
        message = f"{label} sent a reply that does not follow MCP: {reason}"
        return RemoteToolError(message, backend=server.name, outcome=outcome)
    for address in filter(None, (server.url, server.location)):  # which is not for callers to know
        reason = reason.replace(address, server.name)
    return RemoteToolError(f"{label}: {reason}", backend=server.name, outcome=outcome)


def _refusal(label: str, error: MCPError, backend: str) -> RemoteToolError:
    """Return the error for one of JSON-RPC, or for an HTTP status in its place."""
    sent = delivery.get()
    details: JSONDict = {"code": error.code, **({"data": error.data} if error.data is not None else {})}
    if sent is not None and sent.status >= 300:
        details |= sent.details()
    return RemoteToolError(
        f"{label}: {error.message}",
        backend=backend,
        retryable=details.get("status") in MAY_PASS,
        details=details,
        outcome=outcome_of_answer(error, sent),
    )


def lost(name: str, cause: Exception, reason: str, backend: str, too_long: int) -> ExecutionError:
    """Return the error of a call of *name* whose connection is lost, for *reason*, which has no secrets; *too_long* is
    how many bytes a message may have, where it was a longer one."""
    if isinstance(cause, LostTaskError) and cause.outcome is Outcome.DONE:
        message = f"{backend}:{name} did its work, and its answer was lost: {reason}"
        return RemoteToolError(message, backend=backend, outcome=Outcome.DONE)
    if too_long and str(too_long) not in reason:  # which is known before how the process has ended
        reason = f"{reason}: it sent a message of more than {too_long} bytes"
    details: JSONDict = {"longest": too_long} if too_long else {}
    message = f"MCP server {backend} went away during the call: {reason}"
    return ConnectionLostError(message, backend=backend, details=details)


def undelivered(label: str, backend: str, error: ExecutionError, sent: Delivery) -> ExecutionError:
    """Return the error of a call that the server has not acted on: *error*, unless that only says that the connection
    is lost."""
    if not isinstance(error, ConnectionLostError):
        return error
    if sent.outcome is None:
        return RemoteToolError(f"{label} was not sent: {error.message}", backend=backend, outcome=Outcome.NOT_SENT)
    return RemoteToolError(
        f"{label}: the server refused it with HTTP {sent.status}",
        backend=backend,
        retryable=sent.status in MAY_PASS,
        details=sent.details(),
        outcome=sent.outcome,
    )


def is_loss(error: Exception) -> bool:
    """Return whether an exception out of the SDK says that the connection, or the stream of an answer, is lost."""
    return connection_closed(error) or isinstance(
        error, anyio.ClosedResourceError | anyio.BrokenResourceError | OSError
    )


def is_final(error: Exception) -> bool:
    """Return whether the connection is gone for all calls, and not only the stream that one answer came on."""
    return not isinstance(error, MCPError) or error.message == "Connection closed"
