"""Reasons of failures, made fit to be shown to any caller."""

from __future__ import annotations

import re
from typing import Final

from toolexec.model.redaction import redactor
from toolexec.model.visible import visible_line

_STDERR: Final = re.compile(r"[;:,]?\s*the end of its stderr:.*", re.DOTALL)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)]+", re.IGNORECASE)
_MAX_REASON: Final = 200


def public_reason(reason: str | None) -> str:
    """Return why a backend is unavailable, as any caller may know it: no command lines and paths, nothing that a
    process printed, no addresses.
    """
    text = _URL.sub("its address", _STDERR.sub("", reason or "unavailable"))
    return redactor.text(visible_line(_QUOTED.sub("…", text), _MAX_REASON)) or "unavailable"
