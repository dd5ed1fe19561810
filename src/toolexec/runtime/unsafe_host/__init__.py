"""A sandbox that is none: code runs as a child process of the host, with limits and without isolation."""

from toolexec.errors.extras import unix_needed

with unix_needed("the sandbox unsafe_host"):
    from toolexec.runtime.unsafe_host.backend import UnsafeConfig, UnsafeHostBackend

__all__ = ["UnsafeConfig", "UnsafeHostBackend"]
