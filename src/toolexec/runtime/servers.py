"""The sandboxes that MCP servers can run in; see `backend/mcp/sandbox.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from toolexec.errors.extras import unix_needed

if TYPE_CHECKING:
    from toolexec.backend.mcp.sandbox import MakeServerSandbox, ServerSandbox, ServerSandboxSettings
    from toolexec.runtime.sandbox_settings import SandboxSettings

__all__ = ["server_sandboxes"]


def server_sandboxes(settings: SandboxSettings | None = None) -> MakeServerSandbox:
    """Return what makes sandboxes for servers: *settings* say where engines are, as they do for code."""

    def make(wanted: ServerSandboxSettings) -> ServerSandbox:
        from toolexec.runtime.sandbox_settings import SandboxSettings
        from toolexec.runtime.sandboxes import make_sandbox

        with unix_needed(f"the sandbox {wanted.engine}"):
            from toolexec.runtime.containers.backend import ContainerBackend
            from toolexec.runtime.containers.servers import ContainedServers

            own = settings or SandboxSettings()
            backend = make_sandbox(wanted.engine, replace(own, image=wanted.image) if wanted.image else own)
            assert isinstance(backend, ContainerBackend)
            return ContainedServers(wanted, backend.engine)

    return make
