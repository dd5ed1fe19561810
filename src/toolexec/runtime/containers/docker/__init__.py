"""Containers of a Docker or Podman daemon, here or on another machine."""

from toolexec.errors.extras import unix_needed

with unix_needed("the sandbox docker"):
    from toolexec.runtime.containers.docker.engine import DockerBackend, DockerConfig, DockerEngine

__all__ = ["DockerBackend", "DockerConfig", "DockerEngine"]
