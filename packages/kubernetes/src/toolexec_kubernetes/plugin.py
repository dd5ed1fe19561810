"""The kind of sandbox `kubernetes`: pods of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import SandboxBackend, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from typer import Typer

    from toolexec_kubernetes.config import KubernetesConfig


def _make(settings: KubernetesConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec_kubernetes.engine import KubernetesBackend

    return KubernetesBackend(settings)


def _commands() -> Typer:
    from toolexec_kubernetes.commands import commands

    return commands


PLUGIN = SandboxPlugin(
    kind="kubernetes",
    api=1,
    settings="toolexec_kubernetes.config:KubernetesConfig",
    make=_make,
    profiles={"standard": 50, "hardened": 40},
    isolation="container",
    cli=_commands,
)
