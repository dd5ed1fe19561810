"""`toolexec sandbox KIND`, and `toolexec KIND`: the commands that plugins for sandboxes and for journals bring."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from toolexec.cli.exit_codes import OK, exit_code
from toolexec.errors import ConfigurationError, MissingExtraError, ToolExecError

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen

_LENDER: Final = "remote"
"""The kind of sandbox whose commands have a place of their own: `toolexec runtime`."""


class PluginGroup(TyperGroup):
    """A group with the commands of plugins, each under its kind. A plugin is imported when its kind is asked for, and
    when help lists the commands; then one that cannot be used is left out."""

    what = ""
    """What the kinds are of."""
    panel = ""
    """The heading above them in the help; empty: that of all others."""

    def kinds(self) -> list[str]:
        """Return the kinds of plugins that are installed, or could be."""
        raise NotImplementedError

    def maker(self, kind: str) -> Callable[[], typer.Typer] | None:
        """Return what makes the commands of a kind; None for none. Raises ConfigurationError."""
        raise NotImplementedError

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name; a usage error says what is wrong with the plugin that has it, and an error
        what to install for a kind whose package is absent."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in self.kinds():
            return own
        try:
            return self._commands_of(cmd_name)
        except MissingExtraError as error:
            if ctx.resilient_parsing:  # a shell asks what could follow
                return None
            _end(ctx, error)
        except ConfigurationError as error:
            ctx.fail(error.message)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of plugins last."""
        own = super().list_commands(ctx)
        return [*own, *(kind for kind in self.kinds() if kind not in own and self._has_commands(kind))]

    def _has_commands(self, kind: str) -> bool:
        try:
            return self._commands_of(kind) is not None
        except ConfigurationError:
            return False

    def _commands_of(self, kind: str) -> Any:
        make = self.maker(kind)
        if make is None:
            return None
        try:
            made: Any = typer.main.get_command(make())
        except Exception as error:
            raise ConfigurationError(
                f"the commands of the {self.what} {kind} cannot be made: {type(error).__name__}: {error}"
            ) from error
        made.name = kind
        if self.panel:
            made.rich_help_panel = self.panel
        return made


class WithPlugins(PluginGroup):
    """The group `toolexec sandbox`; `toolexec doctor` says why a plugin cannot be used."""

    what = "sandbox"

    def kinds(self) -> list[str]:
        """Return the kinds of sandboxes of packages and plugins."""
        from toolexec.runtime.kinds import PACKAGED, installed_kinds

        return [kind for kind in (*PACKAGED, *installed_kinds()) if kind != _LENDER]

    def maker(self, kind: str) -> Callable[[], typer.Typer] | None:
        """Return what makes the commands of a kind of sandbox."""
        from toolexec.runtime.kinds import plugin_of

        return plugin_of(kind).cli


class Lender(TyperGroup):
    """The group `toolexec runtime`, whose commands are those of the sandbox `remote`: that is imported for one of them,
    and for their list."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name; an error says what to install where the package is absent."""
        try:
            return self._commands().get_command(ctx, cmd_name)
        except MissingExtraError as error:
            if ctx.resilient_parsing:  # a shell asks what could follow
                return None
            _end(ctx, error)
        except ConfigurationError as error:
            ctx.fail(error.message)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands; none where the package is absent, or broken."""
        try:
            return self._commands().list_commands(ctx)
        except ConfigurationError:
            return []

    def _commands(self) -> Any:
        from toolexec.runtime.kinds import plugin_of

        make = plugin_of(_LENDER).cli
        return typer.main.get_command(make() if make is not None else typer.Typer())


class WithJournals(PluginGroup):
    """The group of all commands, with those of journals."""

    what = "journal"

    def kinds(self) -> list[str]:
        """Return the kinds of journals of packages and plugins."""
        from toolexec.backend.plugins import JOURNALS, known_plugins

        return known_plugins(JOURNALS)

    def maker(self, kind: str) -> Callable[[], typer.Typer] | None:
        """Return what makes the commands of a kind of journal."""
        from toolexec.durable.journals import journal_plugin

        return journal_plugin(kind).cli


def with_settings(
    context: typer.Context, kind: str, work: Callable[[Any, Screen], None], *, config: list[Path] | None, as_json: bool
) -> None:
    """Call *work* for a command of the plugin of *kind*, with the settings of that sandbox and what it prints on.

    They come from the files and the environment, with the options before the command's name and those after it
    together; no tool is loaded. Ends the command with its exit code, after printing an error of toolexec.
    """
    from toolexec.cli.serve import load_for_serving
    from toolexec.cli.terminal import Screen, only_results_on_stdout
    from toolexec.config.parts import sandbox_settings
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
    from toolexec.cli.terminal import Screen, only_results_on_stdout

    # The options of all commands are taken over only once the command is known: `obj` is that of a group within.
    as_json = context.obj[1] if context.obj else context.params.get("as_json") or "--json" in sys.argv
    with only_results_on_stdout() as out:
        Screen(out, as_json=as_json).error(error)
    raise typer.Exit(exit_code(error))
