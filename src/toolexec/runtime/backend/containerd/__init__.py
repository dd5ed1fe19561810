"""Containers of a containerd daemon, without Docker around it."""

from toolexec.runtime.backend.containerd.engine import ContainerdBackend, ContainerdConfig, ContainerdEngine

__all__ = ["ContainerdBackend", "ContainerdConfig", "ContainerdEngine"]
