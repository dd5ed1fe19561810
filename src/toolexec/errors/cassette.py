"""Errors of cassettes: files of recorded calls."""

from __future__ import annotations

from typing import Any, ClassVar

from toolexec.errors.base import ToolExecError
from toolexec.errors.outcome import Outcome


class CassetteError(ToolExecError):
    """A cassette cannot be read, used or written; no tool was called."""

    code = "cassette"
    further_codes: ClassVar[tuple[str, ...]] = ("cassette_busy", "cassette_secret")
    default_outcome = Outcome.NOT_SENT


class CassetteMissError(CassetteError):
    """No call like this one is recorded, or all that are were answered; `nearest` has those that are most like it."""

    code = "cassette_miss"

    @property
    def nearest(self) -> list[dict[str, Any]]:
        """Return the nearest recorded calls of the tool, each with its `number` in the file and what `differs`."""
        return list(self.details.get("nearest", ()))


class CassetteDriftError(CassetteError):
    """A tool does not have the schemas any more that it had when its calls were recorded."""

    code = "cassette_drift"
