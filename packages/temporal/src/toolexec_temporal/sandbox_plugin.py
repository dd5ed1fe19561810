"""The kind of sandbox `temporal`: workers elsewhere, with a sandbox of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.errors import ConfigurationError
from toolexec.sandbox import SandboxBackend, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec_temporal.settings import TemporalSandbox


def _make(settings: TemporalSandbox, context: SandboxContext) -> SandboxBackend:
    from toolexec_temporal.backend import TemporalBackend

    if settings.inner == "temporal":
        raise ConfigurationError("inner of the sandbox temporal is what its workers run code in: another kind")
    return TemporalBackend(context.make(settings.inner), settings)


PLUGIN = SandboxPlugin(
    kind="temporal",
    api=1,
    settings="toolexec_temporal.settings:TemporalSandbox",
    make=_make,
    profiles={},
)
