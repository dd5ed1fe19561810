"""What the status line of an HTTP response says about the work of its request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from toolexec.errors.outcome import Outcome

MAY_PASS: Final = frozenset([408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524])
"""The statuses after which the same request may succeed later."""

_REFUSED: Final = frozenset([307, 308, 501, 505, *range(400, 500)])
_UNKNOWN: Final = frozenset([408, 444, 460, 499])
"""Those below 500 that a server or a proxy sends when it has lost its patience or the client, perhaps in mid-work."""
_SEE_OTHER: Final = 303
_UNAVAILABLE: Final = 503


def outcome_of_status(status: int, headers: Mapping[str, str]) -> Outcome:
    """Return what became of a request that was answered with *status*; *headers* have lower-case names.

    Every 2xx says that the work was done, and so does 303, which leads to its result. 307 and 308 ask to send the same
    request elsewhere, so nothing was done here; 301 and 302 are sent both before and after the work. A 4xx refuses.
    Of the 5xx only 501 and 505 do; 503 does where it says when to come back, as proxies send it, too, for requests that
    were under way. All else is unknown.
    """
    if 200 <= status < 300 or status == _SEE_OTHER:
        return Outcome.DONE
    if status in _UNKNOWN:
        return Outcome.UNKNOWN
    if status in _REFUSED or (status == _UNAVAILABLE and "retry-after" in headers):
        return Outcome.REFUSED
    return Outcome.UNKNOWN


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of the header `Retry-After`; None without a valid one. *headers* have lower-case names."""
    value = headers.get("retry-after", "")
    if value.isascii() and value.isdecimal() and len(value) < 10:
        return float(value)
    try:
        at = parsedate_to_datetime(value)
        return max((at - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
