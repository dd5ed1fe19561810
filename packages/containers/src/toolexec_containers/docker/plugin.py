"""The kind of sandbox `docker`: containers of a Docker or Podman daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import SandboxBackend, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.machines import SandboxSettings
    from toolexec_containers.docker import DockerConfig


def _read(settings: SandboxSettings) -> DockerConfig:
    from toolexec_containers.docker import DockerConfig

    return DockerConfig(**settings.shared(), host=settings.docker_host, runtime=settings.docker_runtime)


def _make(settings: DockerConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec_containers.docker import DockerBackend

    return DockerBackend(settings)


PLUGIN = SandboxPlugin(
    kind="docker",
    api=1,
    settings="toolexec_containers.docker:DockerConfig",
    make=_make,
    profiles={"standard": 30, "hardened": 50},
    isolation="container",
    runs_servers=True,
    read=_read,
)
