"""`toolexec sandbox KIND`: the commands that plugins for sandboxes bring."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from toolexec.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen

__all__ = ["WithPlugins", "with_settings"]


class WithPlugins(TyperGroup):
    """A group with the commands of plugins, each under its kind. A plugin is imported when its kind is asked for, and
    when help lists the commands; then one that cannot be used is left out, as `toolexec doctor` says why."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name; a usage error says what is wrong with the plugin that has it, and an error
        what to install for a kind whose package is absent."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in _kinds():
            return own
        try:
            return _commands_of(cmd_name)
        except MissingExtraError as error:
            if ctx.resilient_parsing:  # a shell asks what could follow
                return None
            _end(ctx, error)
        except ConfigurationError as error:
            ctx.fail(error.message)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of plugins last."""
        own = super().list_commands(ctx)
        return [*own, *(kind for kind in _kinds() if kind not in own and _has_commands(kind))]


def with_settings(
    context: typer.Context, kind: str, work: Callable[[Any, Screen], None], *, config: list[Path] | None, as_json: bool
) -> None:
    """Call *work* for a command of the plugin of *kind*, with the settings of that sandbox and what it prints on.

    They come from the files and the environment, with the options before the command's name and those after it
    together; no tool is loaded. Ends the command with its exit code, after printing an error of toolexec.
    """
    from toolexec.cli.exit_codes import OK, exit_code
    from toolexec.cli.serve import load_for_serving
    from toolexec.cli.terminal import Screen, only_results_on_stdout
    from toolexec.config.parts import sandbox_settings
    from toolexec.errors import ToolExecError
    from toolexec.runtime.sandboxes import settings_of

    shared, json_too = context.obj
    code = OK
    with only_results_on_stdout() as out:
        screen = Screen(out, as_json=as_json or json_too)
        try:
            loaded = load_for_serving((*shared, *(config or ())), {}, [], tools_needed=False)
            work(settings_of(kind, sandbox_settings(loaded)), screen)
        except ToolExecError as error:
            screen.error(error)
            code = exit_code(error)
    raise typer.Exit(code)


def _end(context: Any, error: MissingExtraError) -> NoReturn:
    """Print the error as commands do, and end with its exit code."""
    from toolexec.cli.exit_codes import exit_code
    from toolexec.cli.terminal import Screen, only_results_on_stdout

    _, as_json = context.obj or ((), False)
    with only_results_on_stdout() as out:
        Screen(out, as_json=as_json).error(error)
    raise typer.Exit(exit_code(error))


def _kinds() -> list[str]:
    from toolexec.runtime.kinds import PACKAGED, installed_kinds

    return [*PACKAGED, *installed_kinds()]


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
