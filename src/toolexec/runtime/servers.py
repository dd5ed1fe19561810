"""The sandboxes that MCP servers can run in; see `backend/mcp/sandbox.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.errors.extras import unix_needed
from toolexec.errors.hints import did_you_mean

if TYPE_CHECKING:
    from toolexec.backend.mcp.sandbox import MakeServerSandbox, ServerSandbox, ServerSandboxSettings
    from toolexec.runtime.sandbox_settings import SandboxSettings


def server_sandboxes(settings: SandboxSettings | None = None) -> MakeServerSandbox:
    """Return what makes sandboxes for servers: *settings* say where engines are, as they do for code."""

    def make(wanted: ServerSandboxSettings) -> ServerSandbox:
        from toolexec.runtime.sandbox_settings import SandboxSettings
        from toolexec.runtime.sandboxes import make_sandbox

        _check(wanted)
        with unix_needed(f"the sandbox {wanted.engine}"):
            from toolexec.runtime.containers.backend import ContainerBackend
            from toolexec.runtime.containers.servers import ContainedServers

            own = settings or SandboxSettings()
            backend = make_sandbox(wanted.engine, replace(own, image=wanted.image) if wanted.image else own)
            assert isinstance(backend, ContainerBackend)
            return ContainedServers(wanted, backend.engine)

    return make


def _check(wanted: ServerSandboxSettings) -> None:
    """Raise ConfigurationError for a kind that runs no servers, or lacks an image, and MissingExtraError without its
    package."""
    from toolexec.runtime.kinds import plugin_of, present_plugins

    kind = wanted.engine
    usable = [plugin.kind for plugin in present_plugins() if plugin.runs_servers]
    otherwise = f"use {', '.join(usable)}"
    try:
        plugin = plugin_of(kind)
    except MissingExtraError:
        raise
    except ConfigurationError as error:
        hint = did_you_mean(kind, usable, otherwise=otherwise)
        raise ConfigurationError(f"sandbox: {error.message}; {hint}") from error
    if not plugin.runs_servers:
        raise ConfigurationError(f"sandbox: no MCP server runs in {kind}; {otherwise}")
    if not (wanted.image or wanted.is_over_host):
        raise ConfigurationError(f"sandbox: {kind} needs an image, which has the server in it")
