"""Containers of bubblewrap: Linux namespaces around a child process. No daemon, no root, milliseconds to start."""

from toolexec.runtime.backend.bubblewrap.engine import BubblewrapBackend, BubblewrapConfig, BubblewrapEngine

__all__ = ["BubblewrapBackend", "BubblewrapConfig", "BubblewrapEngine"]
