"""Containers of a containerd daemon, without Docker around it."""

from toolexec.errors.extras import unix_needed

with unix_needed("the sandbox containerd"):
    from toolexec.runtime.containers.containerd.engine import ContainerdBackend, ContainerdConfig, ContainerdEngine

__all__ = ["ContainerdBackend", "ContainerdConfig", "ContainerdEngine"]
