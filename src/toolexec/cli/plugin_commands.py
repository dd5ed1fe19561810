"""`toolexec sandbox KIND`: the commands that plugins for sandboxes bring."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from toolexec.errors import ConfigurationError

__all__ = ["WithPlugins"]


class WithPlugins(TyperGroup):
    """A group with the commands of plugins, each under its kind. A plugin is imported when its kind is asked for, and
    when help lists the commands; then one that cannot be used is left out, as `toolexec doctor` says why."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name; a usage error says what is wrong with the plugin that has it."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in _kinds():
            return own
        try:
            return _commands_of(cmd_name)
        except ConfigurationError as error:
            ctx.fail(error.message)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of plugins last."""
        own = super().list_commands(ctx)
        return [*own, *(kind for kind in _kinds() if kind not in own and _has_commands(kind))]


def _kinds() -> list[str]:
    from toolexec.runtime.kinds import KINDS, installed_kinds

    return [kind for kind in installed_kinds() if kind not in KINDS]


def _has_commands(kind: str) -> bool:
    try:
        return _commands_of(kind) is not None
    except ConfigurationError:
        return False


def _commands_of(kind: str) -> Any:
    """Return the commands that the plugin of a kind brings; None for none. Raises ConfigurationError."""
    from toolexec.runtime.kinds import plugin_of

    make = plugin_of(kind).cli
    if make is None:
        return None
    try:
        made = typer.main.get_command(make())
    except Exception as error:
        raise ConfigurationError(
            f"the commands of the sandbox {kind} cannot be made: {type(error).__name__}: {error}"
        ) from error
    made.name = kind
    return made
