"""Virtual machines as sandboxes: each program has a kernel of its own, restored from a snapshot with a guest in it."""

from toolexec.errors.extras import unix_needed

with unix_needed("sandboxes of virtual machines"):
    from toolexec.runtime.containers.microvm.config import MicrovmConfig
    from toolexec.runtime.containers.microvm.engine import MicrovmBackend, MicrovmEngine

__all__ = ["MicrovmBackend", "MicrovmConfig", "MicrovmEngine"]
