"""The `toolexec` command.

Results go to stdout, everything else to stderr. Exit codes:

| code | meaning |
| ---: | --- |
| 0 | done |
| 1 | the tool or the code failed, a chain stopped early, or a check did not hold |
| 2 | usage or configuration error, or an extra is missing |
| 3 | not run: unknown tool, invalid arguments, server unavailable or no sandbox |
| 4 | a durable run waits; toolexec runs list says for what |
| 130 | interrupted with Ctrl-C (141: stdout is closed, 143: terminated) |

With `--json`, stdout has exactly one JSON document (`run --stream`: one event per line), also for an error:
`{"error": {"code": ..., "message": ..., ...}}`.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from typer.main import get_command_name
from typer.models import CommandInfo

from toolexec.cli.exit_codes import BROKEN_PIPE, TABLE, USAGE, give_up_stdout, open_closed_streams
from toolexec.cli.options import AsJson, Config, DryRun, Durable, OnError, perform_command
from toolexec.cli.plugin_commands import WithJournals
from toolexec.errors.moved import MOVED_COMMANDS

if TYPE_CHECKING:
    app: typer.Typer
    """The whole command line."""

__all__ = ["app", "main"]

_START: Final = 200_000
"""How many new objects there must be before garbage is looked for: imports make a hundred thousand and no garbage, and
looking for it among them took a tenth of the start."""
_SERVER = "One server over all tools"
_ELSEWHERE: Final = {
    "code": ("code_mode", "code", None),
    "sandbox": ("code_mode", "sandbox", None),
    "image": ("image", "image", None),
    "workflow": ("workflow", "workflow", None),
    "skill": ("skill", "skill", None),
    "test": ("program_tests", "check_programs", None),
    "runs": ("runs", "runs", None),
    "replay": ("replay", "replay", None),
    "schedules": ("schedules", "schedules", None),
    "doctor": ("code_mode", "doctor", None),
    "check": ("checking", "check", None),
    "serve": ("serve", "serve", _SERVER),
    "backend": ("backend", "backend", _SERVER),
    "reload": ("backend", "reload", _SERVER),
    "record": ("record", "record", _SERVER),
    "init": ("init", "init", _SERVER),
    "install": ("install", "install", _SERVER),
    "config": ("config_command", "config", _SERVER),
    "client-config": ("client_config", "client_config", _SERVER),
    "keys": ("keys", "keys", _SERVER),
    "audit": ("audit", "audit", _SERVER),
    "policy": ("policy", "policy", _SERVER),
    "login": ("login", "login", _SERVER),
    "logout": ("login", "logout", _SERVER),
    "trust": ("trust", "trust", _SERVER),
    "quarantine": ("quarantine", "quarantine", _SERVER),
    "tasks": ("tasks", "tasks", _SERVER),
    "context": ("context", "context", _SERVER),
    "runtime": ("runtime", "runtime", _SERVER),
    "bench": ("app", "bench", _SERVER),
    "demo": ("app", "demo", None),
}
"""The commands and groups that are imported when they are needed, in the order of the help: module, name, panel."""
_EPILOG = "[bold]Exit codes[/bold]\n" + "\n".join(f"[cyan]{code:>4}[/cyan]  {text}" for code, text in TABLE)


class _Group(WithJournals):
    """Mistakes on the command line come out as JSON, too, when `--json` is there."""

    panel = _SERVER

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        place = MOVED_COMMANDS.get(args[0])
        if place is not None:
            words = [*args[:1], *(word for word in args[1:2] if word.isidentifier())]
            ctx.fail(f"toolexec {' '.join(words)} is now toolexec {' '.join([place, *words[1:]])}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, whose help ends with an example."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            from toolexec.cli.examples import add_examples

            add_examples(found, cmd_name)
        return found

    def main(self, args: Sequence[str] | None = None, *others: Any, **extra: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if "--json" not in words[: words.index("--") if "--" in words else None]:
            return super().main(words, *others, **extra)
        try:
            code = super().main(words, *others, **{**extra, "standalone_mode": False})
        except Exception as error:
            if not hasattr(error, "format_message"):  # the base of the parser's own errors has no public name
                raise
            sys.exit(_tell_usage_error(error))
        sys.exit(code if isinstance(code, int) else 0)


def _tell_usage_error(error: Any) -> int:
    from toolexec.cli.terminal import to_json

    message = error.format_message() or "a command is missing; toolexec --help lists them"
    sys.stdout.write(f"{to_json({'error': {'code': 'usage', 'message': message, 'retryable': False}})}\n")
    return USAGE


_base: typer.Typer = typer.Typer(
    name="toolexec",
    cls=_Group,
    epilog=_EPILOG,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _complete_tool(ctx: typer.Context, incomplete: str) -> list[str]:
    from toolexec.cli.known_tools import complete_tool

    return complete_tool(ctx, incomplete)


ToolId = Annotated[
    str,
    typer.Argument(
        metavar="TOOL",
        help="The tool's ID, such as git:git_log.",
        show_default=False,
        autocompletion=_complete_tool,
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from toolexec.version import __version__

        typer.echo(f"toolexec {__version__}")
        raise typer.Exit


@_base.callback()
def _shared(
    context: typer.Context,
    config: Config = None,
    as_json: AsJson = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find, describe, run and chain tools, and call them from code: Python functions and MCP servers alike.

    Alone, it shows what is set up here, and what to do next. To see it at work: toolexec demo
    """
    context.obj = (tuple(config or ()), as_json)
    if context.invoked_subcommand is None:
        from toolexec.cli.overview import overview

        raise typer.Exit(overview(context.obj[0], as_json=as_json))


@_base.command()
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What you want to do, in your own words.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most tools to show.")] = 10,
    namespace: Annotated[str | None, typer.Option(help="Only tools of this namespace.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only tools with this tag; repeat for several.")] = None,
    backend: Annotated[str | None, typer.Option(help="Only tools of this backend or kind (local, mcp, ...).")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Only tools that change nothing.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show which words matched where.")] = False,
    facets: Annotated[bool, typer.Option("--facets", help="Also count the matches by kind.")] = False,
    produces: Annotated[
        str | None, typer.Option(help="Only tools that give a value for this argument: issue_id, or tool.argument.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find tools by words, best first."""
    from toolexec.cli import finding
    from toolexec.discovery import Filters

    filters = Filters(namespace=namespace, tags=tuple(tag or ()), backend=backend, read_only=read_only or None)
    asked = finding.Asked(query, limit, filters, explain=explain, facets=facets, produces=produces)
    perform_command(context, lambda session: finding.search(session, asked), config, as_json)


@_base.command()
def describe(
    context: typer.Context,
    tool: ToolId,
    level: Annotated[Literal["summary", "schema", "full"], typer.Option(help="Level of detail.")] = "full",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show what a tool takes and gives, with an example call."""
    from toolexec.cli import finding

    perform_command(context, lambda session: finding.describe(session, tool, level), config, as_json)


@_base.command()
def run(
    context: typer.Context,
    tool: ToolId,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS",
            help="key=value (read as the tool's schema says), key:=JSON, a JSON object, @file.json, or - for stdin.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop after this time (default: 30).")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print events as they arrive.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print text values as they are, others as compact JSON.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run a tool and print its value."""
    from toolexec.cli import running

    words = arguments or []
    if stream:
        perform_command(context, lambda s: running.stream(s, tool, words, timeout=timeout), config, as_json, lines=True)
    perform_command(context, lambda s: running.run(s, tool, words, timeout=timeout, raw=raw), config, as_json)


@_base.command()
def chain(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON or TOML; - for stdin.", show_default=False)],
    on_error: OnError = "stop",
    dry_run: DryRun = False,
    durable: Durable = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run tools in order, passing values from step to step.

    FILE has a list of steps, or an object with such a list as "steps". A step has tool, args, use_previous, name,
    stop_on_error, timeout, retries; {"$ref": "steps.0.items[0]"} in args stands for an earlier value.
    """
    from toolexec.cli import running

    how: dict[str, Any] = {"on_error": on_error, "dry_run": dry_run, "durable": durable}
    perform_command(context, lambda s: running.chain(s, file, **how), config, as_json)


@_base.command("list")
def list_tools(
    context: typer.Context,
    namespace: Annotated[str | None, typer.Option(help="Only this namespace.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Tools to show per namespace.")] = 20,
    every: Annotated[bool, typer.Option("--all", help="All tools, whatever --limit says.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List tools by namespace; --json lists all."""
    from toolexec.cli import finding

    most = None if every else limit
    perform_command(context, lambda session: finding.list_tools(session, namespace, most), config, as_json)


@_base.command()
def stubs(
    context: typer.Context,
    tools: Annotated[
        list[str] | None, typer.Argument(metavar="TOOLS", help="Tool IDs; none means all tools.", show_default=False)
    ] = None,
    namespace: Annotated[list[str] | None, typer.Option(help="All tools of this namespace; may be repeated.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file, such as tools.pyi.")
    ] = None,
    awaitable: Annotated[bool, typer.Option("--async", help="For code that awaits its calls.")] = False,
    language: Annotated[
        str, typer.Option("--language", "-l", help="python, javascript or typescript.", show_default=False)
    ] = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print typed stubs of the tools, in Python or TypeScript.

    In a file named __builtins__.pyi, or tools.d.ts, editors and type checkers know `tools` in the files beside it.
    """
    from toolexec.cli import stubs as command

    ids, spaces = tools or [], namespace or []
    perform_command(
        context,
        lambda s: command.stubs(s, ids, spaces, output, awaitable=awaitable, language=language),
        config,
        as_json,
    )


@_base.command()
def export(
    context: typer.Context,
    format: Annotated[
        Literal["openai", "openai-responses", "anthropic", "gemini", "mcp", "a2a"],
        typer.Option("--format", "-f", help="Vendor format."),
    ],
    namespace: Annotated[str | None, typer.Option(help="Only tools of this namespace.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only tools with this tag; repeat for several.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Use schemas that the vendor enforces, where possible.")
    ] = False,
    no_words: Annotated[
        bool, typer.Option("--no-words", help="Do not add to descriptions what the format cannot express.")
    ] = False,
    search: Annotated[
        Literal["client", "server", "regex"] | None,
        typer.Option(help="Let the model find tools: anthropic and openai-responses.", show_default=False),
    ] = None,
    output: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print the tools in a vendor's format: OpenAI, Anthropic, Gemini, MCP, A2A.

    What the format cannot express is reported on stderr; with --json, the names and the warnings are in the document.
    """
    from toolexec.cli import export as command
    from toolexec.discovery import Filters

    filters = Filters(namespace=namespace, tags=tuple(tag or ())) if namespace is not None or tag else None
    how: dict[str, Any] = {"strict": strict, "describe": not no_words, "search": search}
    perform_command(context, lambda s: command.export(s, format, filters, output, **how), config, as_json)


@_base.command()
def backends(
    context: typer.Context,
    action: Annotated[Literal["refresh"] | None, typer.Argument(help="Reload the tools.")] = None,
    name: Annotated[str | None, typer.Argument(help="Backend to refresh; default: all.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List backends with status, call statistics and last error.

    `toolexec backends refresh NAME` first reloads the tools of a server or provider.
    """
    from toolexec.cli import finding

    command = finding.backends if action is None else lambda session: finding.refresh(session, name)
    perform_command(context, command, config, as_json)


def bench(context: typer.Context, config: Config = None, as_json: AsJson = False) -> None:
    """Measure the tokens that the tools cost a model, and how much toolexec serve saves."""
    from toolexec.cli import bench as command

    perform_command(context, command.bench, config, as_json)


def demo(
    context: typer.Context,
    fast: Annotated[bool, typer.Option("--fast", help="Skip the pauses for reading.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a guided demo on the current Git repository; works offline."""
    from toolexec.cli import demo as show

    perform_command(context, lambda session: show.run(session, fast=fast), None, as_json, make=show.make_exec)


def _app_for(words: Sequence[str]) -> typer.Typer:
    """Return the app with the one command that *words* begin with, else with all.

    The parser inspects the parameters of each command that it has: of all 34 this takes a fifth of a short run, and
    their modules another one.
    """
    first = words[0] if words else ""
    commands = [each for each in _base.registered_commands if _name_of(each) == first]
    if not commands and first not in _ELSEWHERE:
        return _whole()
    only = copy.copy(_base)
    only.registered_commands, only.registered_groups = commands, []
    if not commands:
        _add(only, first)
    return only


@cache
def _whole() -> typer.Typer:
    """Return the app with all commands."""
    made = copy.copy(_base)
    made.registered_commands, made.registered_groups = [*_base.registered_commands], []
    for name in _ELSEWHERE:
        _add(made, name)
    return made


def _add(to: typer.Typer, name: str) -> None:
    """Add a command or a group that is elsewhere."""
    module, attribute, panel = _ELSEWHERE[name]
    found = getattr(import_module(f"toolexec.cli.{module}"), attribute)
    more: dict[str, Any] = {"rich_help_panel": panel} if panel else {}
    if isinstance(found, typer.Typer):
        to.add_typer(found, name=name, **more)
    else:
        to.command(name, **more)(found)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'toolexec.cli.app' has no attribute {name!r}")
    return _whole()


def _name_of(command: CommandInfo) -> str:
    """Return the name under which a command is called."""
    return command.name or get_command_name(command.callback.__name__ if command.callback is not None else "")


def main() -> None:
    """Run the command line and exit with its code.

    What every command has in common ends here: a reader that has gone (`toolexec list | head -1`) ends it quietly with
    141, an optional dependency that is not installed is named with its extra, and any other error is a bug report.
    """
    gc.set_threshold(_START)
    open_closed_streams()
    try:
        try:
            if "_TOOLEXEC_COMPLETE" in os.environ:
                from toolexec.cli.completing import complete

                complete(lambda: _whole()(prog_name="toolexec"))
            _app_for(sys.argv[1:])(prog_name="toolexec")
        finally:
            sys.stdout.flush()
            gc.freeze()  # the interpreter's end looks through all that is left: 110 of 560 ms after some code
    except SystemExit as end:
        # The parser and rich turn a closed pipe into exit code 1, in the handler of its error.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
    except BrokenPipeError:
        pass
    except Exception as error:
        from toolexec.cli.terminal import Screen

        code = Screen(sys.stdout, as_json="--json" in sys.argv).crash(error)
        if isinstance(error, OSError):
            give_up_stdout()  # what is left for it would fail again
        sys.exit(code)
    give_up_stdout()
    sys.exit(BROKEN_PIPE)
