"""What shares a fate: which circuits of a breaker a call goes through, and which of them its failure concerns."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Literal, TypeAlias

from toolexec.discovery.index import Registered
from toolexec.errors import (
    BackendError,
    HandlerError,
    InvalidResultError,
    Outcome,
    OutputValidationError,
    RateLimitedError,
    RemoteToolError,
    ToolExecError,
)

Blame: TypeAlias = Literal["backend", "operation", "caller", "unknown"]
"""Whom a failure blames: the `backend`, which could not be reached or did not answer; only the `operation`, which
answered that it failed; the `caller`, whom the operation refused; or the failure says nothing about either."""

_ANSWERS: Final = (RemoteToolError, HandlerError, InvalidResultError, OutputValidationError)
"""What reports an answer of the tool itself: its backend works."""
_TOO_MANY_CALLS: Final = (429, "RESOURCE_EXHAUSTED")
_VERDICTS: Final[dict[Blame, tuple[bool | None, bool | None]]] = {
    "backend": (True, None),
    "operation": (False, True),
    "caller": (False, False),
    "unknown": (None, None),
}


def circuit_key(entry: Registered) -> Hashable:
    """Return what shares a fate with the tool: its backend. Each local tool stands for itself."""
    binding = entry.binding
    return ("local", entry.tool.id) if binding.kind == "local" else (binding.kind, binding.backend)


def circuit_keys(entry: Registered) -> tuple[Hashable, ...]:
    """Return the circuits that calls of the tool go through: its backend's, and its own."""
    binding = entry.binding
    key = circuit_key(entry)
    return (key,) if binding.kind == "local" else (key, (binding.kind, binding.backend, entry.tool.id))


def blame(failure: BaseException) -> Blame:
    """Return whom a failure blames. Too many calls blame neither: they only make callers wait."""
    if not isinstance(failure, ToolExecError) or _is_rate_limited(failure):
        return "unknown"
    if failure.retryable:
        return "operation" if isinstance(failure, _ANSWERS) else "backend"
    if isinstance(failure, BackendError) or failure.outcome is Outcome.NOT_SENT:
        return "unknown"
    return "caller"


def verdicts(keys: tuple[Hashable, ...], failure: BaseException | None) -> tuple[bool | None, ...]:
    """Return for each of a call's circuits whether the call failed there; None where that is not known."""
    if failure is None:
        return (False,) * len(keys)
    found = _VERDICTS[blame(failure)]
    return found if len(keys) > 1 else (any(found) if None not in found or any(found) else None,)


def _is_rate_limited(failure: ToolExecError) -> bool:
    if isinstance(failure, RateLimitedError) or failure.details.get("type") == RateLimitedError.__name__:
        return True
    return failure.details.get("status") in _TOO_MANY_CALLS
