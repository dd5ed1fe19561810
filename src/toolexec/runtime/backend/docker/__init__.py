"""Containers of a Docker or Podman daemon, here or on another machine."""

from toolexec.runtime.backend.docker.engine import DockerBackend, DockerConfig, DockerEngine

__all__ = ["DockerBackend", "DockerConfig", "DockerEngine"]
