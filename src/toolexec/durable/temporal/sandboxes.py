"""The kind of sandbox `temporal`, as the settings of sandboxes name it."""

from __future__ import annotations

from toolexec.durable.temporal.backend import TemporalBackend
from toolexec.durable.temporal.settings import TemporalSettings
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.sandboxes import SANDBOXES, SandboxSettings, make_sandbox

__all__ = ["make"]


def make(settings: SandboxSettings) -> SandboxBackend:
    """Return the sandbox that *settings* describe: `temporal` there has the kind underneath, `inner`, and the fields of
    `TemporalSettings`.

    Raises ConfigurationError, and MissingExtraError without the `temporal` extra.
    """
    given: JSONDict = dict(settings.temporal)
    inner = str(given.pop("inner", "wasm"))
    if inner not in SANDBOXES:
        raise ConfigurationError(f"a sandbox on Temporal is one of {', '.join(SANDBOXES)}, not {inner!r}")
    return TemporalBackend(make_sandbox(inner, settings), TemporalSettings(**given))
