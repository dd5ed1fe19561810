"""Containers of bubblewrap: Linux namespaces around a child process. No daemon, no root, milliseconds to start."""

from toolexec.errors.extras import unix_needed

with unix_needed("the sandbox bubblewrap"):
    from toolexec.runtime.containers.bubblewrap.engine import BubblewrapBackend, BubblewrapConfig, BubblewrapEngine

__all__ = ["BubblewrapBackend", "BubblewrapConfig", "BubblewrapEngine"]
