"""Sandboxes of gVisor: the code talks to a kernel of its own, written in Go, and not to the host's."""

from toolexec.errors.extras import unix_needed

with unix_needed("the sandbox gvisor"):
    from toolexec.runtime.containers.gvisor.engine import GvisorBackend, GvisorConfig, GvisorEngine

__all__ = ["GvisorBackend", "GvisorConfig", "GvisorEngine"]
