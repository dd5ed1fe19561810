"""Programs as tools: `git`, `jq`, a script of your own; never through a shell."""

from __future__ import annotations

from toolexec.errors.extras import unix_needed

with unix_needed("the provider kind command"):
    from toolexec.backend.providers.command.source import command_source

__all__ = ["command_source"]
