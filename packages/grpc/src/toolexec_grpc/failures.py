"""What a status of gRPC means for a call: whose failure it is, what became of the work, and whether to try again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from toolexec.errors import (
    BackendUnavailableError,
    ConnectionLostError,
    ExecutionError,
    Outcome,
    RemoteToolError,
    ToolTimeoutError,
)
from toolexec.provider import JSONDict
from toolexec_grpc.wire import RetryInfo, Status

_MAY_PASS: Final = frozenset({"ABORTED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"})
_MOST_TEXT: Final = 2000
_REFUSED: Final = frozenset(
    {
        "ALREADY_EXISTS",
        "FAILED_PRECONDITION",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "OUT_OF_RANGE",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "UNIMPLEMENTED",
    }
)
"""The statuses with which a server refuses; after any other one the work may be done."""
_TOO_LARGE: Final = re.compile(r"(Sent|Received) message larger than max(?: \((\d+) vs\. \d+\))?")
"""What gRPC says, here or in the server, of a message above a limit, with its size."""
_NEVER_SENT: Final = "failed to connect to all addresses"
"""What gRPC itself says when it had no connection to send a call over."""
_LOST: Final = ("stream removed", "socket closed", "connection reset", "broken pipe")
"""What gRPC itself says when the connection ended during a call; its state says so a moment later."""
_RETRY_INFO: Final = "type.googleapis.com/google.rpc.RetryInfo"
_DETAILS: Final = "grpc-status-details-bin"


def call_failure(
    name: str, target: str, error: Any, *, lost: bool, timeout: float | None, limit: int, clean: Callable[[str], str]
) -> ExecutionError | BackendUnavailableError:
    """Return the error of a call that was given to a connection and ended with *error*, an AioRpcError.

    *lost* says that there is no connection any more, *limit* how large messages may be here. `details` have `status`,
    such as "NOT_FOUND", and `retry_after` in seconds where the server says so. *clean* takes secrets out of what the
    server says.
    """
    status = str(error.code().name)
    said = clean(" ".join(str(error.details() or "").split()))[:_MOST_TEXT]
    details: JSONDict = {"status": status, **({"said": said} if said else {})}
    retry_after = _retry_after(error)
    if retry_after is not None:
        details["retry_after"] = retry_after
    if status == "DEADLINE_EXCEEDED":
        within = f" within {timeout:g} s" if timeout is not None else " in time"
        return ToolTimeoutError(f"{name} did not answer{within}", details={**details, "timeout": timeout})
    if status == "UNAVAILABLE" and (lost or any(sign in said.lower() for sign in _LOST)):
        # A server may say the same of a server behind it: only without a connection it is about this call.
        if lost and said.startswith(_NEVER_SENT):
            return BackendUnavailableError(f"cannot connect to {target}", details=details)
        return ConnectionLostError(
            f"the connection to {target} was lost during a call of {name}: {said}", details=details
        )
    oversized = _outcome_of_oversized(said, limit) if status == "RESOURCE_EXHAUSTED" else None
    return RemoteToolError(
        f"{name} failed with {status}: {said or 'no reason given'}",
        retryable=status in _MAY_PASS and oversized is None,
        details=details,
        outcome=oversized or (Outcome.REFUSED if status in _REFUSED else Outcome.UNKNOWN),
    )


def outcome_of_unended(outcome: Outcome, *, has_answered: bool) -> Outcome:
    """Return what became of a call whose stream of answers failed with *outcome*: only its end says that the work is
    done, and after an answer no status says that nothing is.
    """
    return Outcome.UNKNOWN if has_answered or outcome is Outcome.DONE else outcome


def _outcome_of_oversized(said: str, limit: int) -> Outcome | None:
    """Return what became of a call whose request or answer is too large; None where *said* is of something else.

    A server that received too much refuses. One that could not send its answer has done its work, and so it has where
    the answer was too large for this side: it is larger than a request can be.
    """
    found = _TOO_LARGE.search(said)
    if found is None:
        return None
    if found[1] == "Sent":
        return Outcome.DONE
    if found[2] is None:
        return Outcome.UNKNOWN
    return Outcome.DONE if int(found[2]) > limit else Outcome.REFUSED


def _retry_after(error: Any) -> float | None:
    """Return how long the server asks to wait, in seconds."""
    for name, value in error.trailing_metadata() or ():
        if name != _DETAILS or not isinstance(value, bytes):
            continue
        try:
            for detail in Status.FromString(value).details:
                if detail.type_url == _RETRY_INFO:
                    delay = RetryInfo.FromString(detail.value).retry_delay
                    return max(0.0, delay.seconds + delay.nanos / 1e9)
        except DecodeError:
            return None
    return None
