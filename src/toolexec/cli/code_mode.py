"""The commands of code mode, as the command line has them: code, sandbox, doctor."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolexec.cli.options import AsJson, Config, perform_command
from toolexec.cli.plugin_commands import WithPlugins

if TYPE_CHECKING:
    from toolexec.cli.code_input import CodeOptions
    from toolexec.model.json_value import JSONDict, JSONObject

sandbox: typer.Typer = typer.Typer(
    cls=WithPlugins, no_args_is_help=True, help="Build, list, check and remove the sandboxes that code runs in."
)

Packages = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="PACKAGE", help="A pure-Python package from PyPI, such as rich; may be repeated."),
]
File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="The program; - for stdin. .py, .js, .wasm, .wat, .sh and .go say which language it is.",
        show_default=False,
    ),
]
Args = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGS", help="Arguments of the program; after -- also options such as -x.", show_default=False
    ),
]
Eval = Annotated[str | None, typer.Option("--eval", "-e", metavar="CODE", help="The program itself.")]
Language = Annotated[
    str, typer.Option("--language", "-l", help="python, workflow, javascript, wasm, python-science, bash or go.")
]
Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after this time (default: 30).")]
MaxToolCalls = Annotated[int | None, typer.Option("--max-tool-calls", metavar="N", min=1, help="Default: 100.")]
MaxChainSteps = Annotated[int | None, typer.Option("--max-chain-steps", metavar="N", min=1, help="Steps of one chain.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="TOOL", help="Only these tools can be called: an ID, or git:*; may be repeated."),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="An environment variable; NAME alone passes the current one. May be repeated."
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="PATH[=NAME]", help="A file for the program, under this name; may be repeated."),
]
OutDir = Annotated[
    Path | None,
    typer.Option(
        "--out-dir", "-o", metavar="DIRECTORY", help="Directory for files that the program creates or changes."
    ),
]
Profile = Annotated[
    Literal["dev", "standard", "hardened", "wasm"] | None,
    typer.Option(help="The security profile.", show_default=False),
]
Unsafe = Annotated[bool, typer.Option("--unsafe", help="Run it on this machine as you, WITHOUT A SANDBOX.")]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="Such as 64M.")]
Disk = Annotated[str, typer.Option(metavar="SIZE", help="Such as 10M, for its files.")]
CpuMs = Annotated[int | None, typer.Option("--cpu-ms", metavar="MS", min=1, help="CPU time in milliseconds.")]
Cpus = Annotated[float | None, typer.Option(metavar="N", help="CPU rate: 1.5 is one and a half cores.")]
Pids = Annotated[int | None, typer.Option(metavar="N", min=1, help="Processes.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed for random numbers, the same in every run.")]
Now = Annotated[float | None, typer.Option(metavar="TIME", help="Start time of its clock, in Unix time.")]
BestEffort = Annotated[
    bool, typer.Option("--best-effort", help="Run even if a limit cannot be enforced, instead of refusing.")
]
Stdin = Annotated[bool, typer.Option("--stdin", help="Pass stdin to the program.")]
Durable = Annotated[
    str | None, typer.Option(metavar="ID", help="Make it the durable run of this ID; see toolexec runs.")
]
Trace = Annotated[bool, typer.Option("--trace", "-t", help="Show every tool call on stderr, with its time.")]


def code(
    context: typer.Context,
    file: File = None,
    args: Args = None,
    eval: Eval = None,
    language: Language = "",
    packages: Packages = None,
    trace: Trace = False,
    allow: Allow = None,
    env: Env = None,
    files: Files = None,
    out_dir: OutDir = None,
    stdin: Stdin = False,
    timeout: Timeout = None,
    max_tool_calls: MaxToolCalls = None,
    max_chain_steps: MaxChainSteps = None,
    memory: Memory = "",
    disk: Disk = "",
    cpu_ms: CpuMs = None,
    cpus: Cpus = None,
    pids: Pids = None,
    best_effort: BestEffort = False,
    seed: Seed = None,
    now: Now = None,
    profile: Profile = None,
    unsafe: Unsafe = False,
    durable: Durable = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run code that calls tools, in a sandbox, and print its value.

    In Python: tools.git.git_log(max_count=3) calls a tool, and `return` or the last expression gives the value. What
    it prints comes as it is printed. A value of null is not shown; --json always has it.
    """
    options = _options(locals())
    from toolexec.cli import code as command

    perform_command(context, lambda session: command.run(session, options), config, as_json, tools_needed=False)


def _options(given: JSONObject) -> CodeOptions:
    """Return the options of a program: those of the command line by their names, which are the same."""
    from toolexec.cli.code_input import CodeOptions

    said: JSONDict = {each.name: given[each.name] for each in fields(CodeOptions) if given.get(each.name) is not None}
    first = [given["file"]] if given["file"] is not None and given["eval"] is not None else []  # after -e all are words
    said |= {"text": given["eval"], "args": [*first, *(given["args"] or [])]}
    return CodeOptions(**said)


def _perform_with_default(context: typer.Context, command: object, as_json: bool) -> None:
    """Perform a command that has to do with the sandboxes of this machine, and no tools."""
    from toolexec.exec import Exec

    perform_command(context, command, None, as_json, make=Exec)


@sandbox.command("build")
def sandbox_build(context: typer.Context, packages: Packages = None, as_json: AsJson = False) -> None:
    """Build the embedded sandbox before its first use; with packages, one more that has them."""
    from toolexec.cli import sandbox as command

    _perform_with_default(context, lambda session: command.build(session, packages or ()), as_json)


@sandbox.command("list")
def sandbox_list(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the sandboxes that were built: packages, Python, size, last use."""
    from toolexec.cli import sandbox as command

    _perform_with_default(context, command.list_sandboxes, as_json)


@sandbox.command("remove")
def sandbox_remove(
    context: typer.Context,
    packages: Packages = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every sandbox.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the plain sandbox, or the one that was built with these packages."""
    from toolexec.cli import sandbox as command

    _perform_with_default(context, lambda s: command.remove(s, packages or (), everything=everything), as_json)


@sandbox.command("check")
def sandbox_check(
    context: typer.Context,
    backend: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Only this sandbox. Default: all that sandboxes.use names, else the one that would run the code.",
            show_default=False,
        ),
    ] = "",
    language: Annotated[str, typer.Option("--language", "-l", help="python, javascript or bash.")] = "python",
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this program; may be repeated.")] = None,
    profile: Profile = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Run the programs even with NO SANDBOX around them.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run hostile programs in the configured sandboxes and show which promise each of them keeps.

    Exit code 1 when one is weaker than it promises, 3 when one was never measured here: it is not available, or has no
    such image. No other one takes its place.
    """
    from toolexec.cli import sandbox_check as command

    perform_command(
        context,
        lambda s: command.check(s, backend, language, only or (), profile=profile or "", unsafe=unsafe),
        config,
        as_json,
        tools_needed=False,
    )


def doctor(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="Only inspect; run nothing.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show what can run code on this machine, what is missing, and how to fix it.

    Every sandbox that is there runs a small program, and the times are those to its result: the first one from
    nothing, and the one after it. Exit code 1 when nothing serves the default profile.
    """
    from toolexec.cli import doctor as command

    perform_command(context, lambda session: command.doctor(session, quick=quick), config, as_json, tools_needed=False)
