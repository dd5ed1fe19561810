"""Containers of a Docker or Podman daemon, here or on another machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import lazy_names

if TYPE_CHECKING:
    from toolexec_containers.docker.engine import DockerBackend, DockerConfig, DockerEngine
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec_containers.docker.engine": (
                "DockerBackend",
                "DockerConfig",
                "DockerEngine",
            ),
        },
        unix_for="the sandbox docker",
    )

__all__ = ["DockerBackend", "DockerConfig", "DockerEngine"]
