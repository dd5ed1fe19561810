"""The kind of sandbox `temporal`: workers elsewhere, with a sandbox of another kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolexec.durable.temporal.settings import TemporalSettings
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.kinds import SANDBOXES
from toolexec.runtime.plugin import SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.runtime.sandboxes import SandboxSettings

__all__ = ["PLUGIN", "TemporalSandbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalSandbox:
    """What code runs in on Temporal: the kind of sandbox that its workers have (`inner`), and where Temporal is.

    Raises ConfigurationError for a kind that is not there.
    """

    inner: str = "wasm"
    temporal: TemporalSettings

    def __post_init__(self) -> None:
        if self.inner not in SANDBOXES:
            raise ConfigurationError(f"a sandbox on Temporal is one of {', '.join(SANDBOXES)}, not {self.inner!r}")


def _read(settings: SandboxSettings) -> TemporalSandbox:
    given: JSONDict = dict(settings.temporal)
    inner = str(given.pop("inner", "wasm"))
    return TemporalSandbox(inner=inner, temporal=TemporalSettings(**given))


def _make(settings: TemporalSandbox, context: SandboxContext) -> SandboxBackend:
    from toolexec.durable.temporal.backend import TemporalBackend

    return TemporalBackend(context.make(settings.inner), settings.temporal)


PLUGIN = SandboxPlugin(
    kind="temporal",
    api=1,
    settings=TemporalSandbox,
    make=_make,
    profiles={},
    read=_read,
)
