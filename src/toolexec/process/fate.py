"""What an exception out of a handler means for its call: what became of it, and whether it may succeed later."""

from __future__ import annotations

from typing import Final, NamedTuple

from toolexec.errors import ExecutionError, RateLimitedError, ToolExecError
from toolexec.errors.outcome import Outcome
from toolexec.model.json_value import JSONDict, JSONObject

_TRANSIENT: Final = {
    "aiohttp": {
        "ClientConnectionError": True,
        "ClientConnectorCertificateError": False,
        "ClientPayloadError": True,
        "ServerTimeoutError": True,
    },
    "builtins": {
        "ConnectionError": True,
        "FileExistsError": False,
        "FileNotFoundError": False,
        "IsADirectoryError": False,
        "NotADirectoryError": False,
        "OSError": True,
        "PermissionError": False,
        "TimeoutError": True,
    },
    "http": {"IncompleteRead": True},
    "httpcore": {"NetworkError": True, "ProxyError": True, "RemoteProtocolError": True, "TimeoutException": True},
    "httpx": {"NetworkError": True, "ProxyError": True, "RemoteProtocolError": True, "TimeoutException": True},
    "requests": {"ChunkedEncodingError": True, "ConnectionError": True, "RequestException": False, "Timeout": True},
    "ssl": {"SSLCertVerificationError": False},
    "urllib": {"HTTPError": False, "URLError": True},
    "urllib3": {"NewConnectionError": True, "ProtocolError": True, "TimeoutError": True},
}
"""By package and name of a class: whether its exceptions may pass. Of a class and its bases the nearest counts."""


class Fate(NamedTuple):
    """What became of a call whose handler raised, and whether the same call may succeed later."""

    outcome: Outcome
    retryable: bool
    retry_after: float | None = None

    def to_dict(self) -> JSONDict:
        """Return it as JSON-able data."""
        return {"outcome": self.outcome.value, "retryable": self.retryable, "retry_after": self.retry_after}

    @classmethod
    def from_dict(cls, data: JSONObject) -> Fate:
        """Read what `to_dict` has returned."""
        return cls(Outcome(data["outcome"]), data["retryable"], data["retry_after"])


def fate_of(error: BaseException) -> Fate:
    """Return what an exception out of a handler means.

    It is the handler's no, with nothing done, but for these: one that is stopped, or loses the connection to what it
    uses, may have done its work, also when that connection was never made; and what a call of its own has ended with
    says what it says.
    """
    if isinstance(error, ToolExecError):
        return _fate_of_call(error)
    if not isinstance(error, Exception):
        return Fate(Outcome.UNKNOWN, retryable=False)
    is_passing = _is_transient(type(error))
    return Fate(Outcome.UNKNOWN if is_passing else Outcome.REFUSED, is_passing)


def _fate_of_call(error: ToolExecError) -> Fate:
    wait = error.details.get("retry_after")
    seconds = float(wait) if isinstance(wait, int | float) and not isinstance(wait, bool) else None
    if isinstance(error, RateLimitedError) or _says_nothing(error):
        return Fate(Outcome.REFUSED, error.retryable, seconds)
    if isinstance(error, ExecutionError) and error.outcome is not Outcome.NOT_SENT:
        return Fate(error.outcome, error.retryable, seconds)
    is_no = error.outcome.is_undone and not error.retryable  # of the inner call; the handler has begun
    return Fate(Outcome.REFUSED if is_no else Outcome.UNKNOWN, error.retryable, seconds)


def _says_nothing(error: ToolExecError) -> bool:
    """Return whether an error says nothing of what became of the call: a handler's own, which states no outcome."""
    is_own = error.tool_id is None and (
        type(error) in (ToolExecError, ExecutionError) or not type(error).__module__.startswith("toolexec.")
    )
    is_silent = not error.states_outcome and error.default_outcome is ToolExecError.default_outcome
    return is_own and is_silent and not error.retryable


def _is_transient(kind: type[BaseException]) -> bool:
    """Return whether exceptions of the class may pass; those of HTTP clients are known by name, and not imported."""
    for each in kind.__mro__:
        known = _TRANSIENT.get(each.__module__.partition(".")[0])
        if known is not None and each.__name__ in known:
            return known[each.__name__]
    return False
