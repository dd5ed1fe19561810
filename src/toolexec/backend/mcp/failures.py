"""Say in one line why a server could not be reached, without giving away its secrets, and what became of a call."""

from __future__ import annotations

import http
from pathlib import Path

import httpx2
import pydantic
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.tasks import LostTaskError
from toolexec.backend.mcp.transport import Delivery
from toolexec.errors import ConfigurationError, Outcome, SandboxError

_MAX_TEXT = 500
_REFUSED = (INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS)


def outcome_of_answer(error: Exception, sent: Delivery | None) -> Outcome:
    """Return what became of a call that ended with *error*, while the connection is well; *sent* is its HTTP request.

    A result was sent where it only cannot be read: the tool did its work. The codes of JSON-RPC for requests that are
    wrong refuse; a server uses all others also in mid-work. Of a response without JSON-RPC the status decides, but
    one that reports success says only that the request has arrived.
    """
    if isinstance(error, pydantic.ValidationError):
        return Outcome.DONE
    if isinstance(error, LostTaskError):
        return error.outcome
    if not isinstance(error, MCPError):
        return Outcome.UNKNOWN
    if sent is not None and sent.outcome is not None and not sent.is_rpc:
        return Outcome.UNKNOWN if sent.outcome is Outcome.DONE else sent.outcome
    return Outcome.REFUSED if error.code in _REFUSED else Outcome.UNKNOWN


def connection_closed(error: Exception) -> bool:
    """Return whether the SDK says that the answer can never come. Servers use the same code for errors of their own."""
    return (
        isinstance(error, MCPError)
        and error.code == CONNECTION_CLOSED
        and (error.message == "Connection closed" or error.message.startswith("SSE stream "))
    )


def is_lasting(error: BaseException) -> bool:
    """Return whether trying again soon cannot help: the command, or its sandbox, cannot be started, or a secret is
    missing."""
    cause = first_cause(error)
    if isinstance(cause, SandboxError):
        return not cause.retryable
    return isinstance(cause, FileNotFoundError | PermissionError | NotADirectoryError | ConfigurationError)


def first_cause(error: BaseException) -> BaseException:
    """Return the first exception inside of exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_failure(server: MCPServer, error: BaseException, *, status: int | None = None, diagnosis: str = "") -> str:
    """Return one line on why a connection failed: *status* is the last HTTP error, *diagnosis* how a process ended."""
    error = first_cause(error)
    if isinstance(error, Exception) and connection_closed(error) and diagnosis:
        return server.redact(diagnosis)
    text = _describe(server, error, status)
    return server.redact(f"{text}; {diagnosis}" if diagnosis else text)


def _describe(server: MCPServer, error: BaseException, status: int | None) -> str:
    text = server.redact(" ".join(str(error).split()))[:_MAX_TEXT]
    if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError) and server.command:
        return _describe_start(server, error)
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return f"nothing answers at {server.location} ({text or type(error).__name__}); is the server running?"
    if isinstance(error, MCPError | httpx2.HTTPStatusError) and status is not None:
        hint = "; check the headers" if status in (401, 403) else ""
        phrases = {code.value: f" {code.phrase}" for code in http.HTTPStatus}
        return f"{server.location} answered HTTP {status}{phrases.get(status, '')}{hint}"
    if isinstance(error, pydantic.ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"an answer does not follow MCP: {first['msg']} at {'.'.join(map(str, first['loc'])) or 'its root'}"
    plain = isinstance(error, MCPError | TimeoutError | ConfigurationError | SandboxError)
    return text if plain and text else f"{type(error).__name__}: {text}"


def _describe_start(server: MCPServer, error: OSError) -> str:
    if server.cwd is not None and not Path(server.cwd).is_dir():
        return f"cannot start it in {str(server.cwd)!r}: there is no such directory"
    if isinstance(error, FileNotFoundError):
        return f"the command {server.command!r} was not found; is it installed and on PATH?"
    return f"the command {server.command!r} cannot be run: {error.strerror}"
