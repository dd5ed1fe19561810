"""The kind of sandbox `remote`: sandboxes of other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.errors import ConfigurationError
from toolexec.sandbox import DoctorAdvice, SandboxBackend, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from typer import Typer

    from toolexec.remote import RemoteSettings, SandboxSettings


def _read(settings: SandboxSettings) -> RemoteSettings | None:
    return settings.remote


def _make(settings: RemoteSettings | None, _: SandboxContext) -> SandboxBackend:
    from toolexec_remote.backend import RemoteBackend

    if settings is None:
        raise ConfigurationError(
            "the sandbox remote needs to know where its servers are: set sandboxes.remote.endpoints"
        )
    return RemoteBackend(settings)


def _commands() -> Typer:
    from toolexec_remote.commands import commands

    return commands


PLUGIN = SandboxPlugin(
    kind="remote",
    api=1,
    settings="toolexec.remote:RemoteSettings",
    make=_make,
    profiles={"standard": 70},
    doctor=DoctorAdvice(set_up="set endpoints, key_id and token in [sandboxes.remote]"),
    cli=_commands,
    read=_read,
)
