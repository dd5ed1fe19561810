"""`toolexec config`: what is set, where each value comes from, and whether it is right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolexec.cli.exit_codes import FAILED, OK, exit_code
from toolexec.cli.options import AsJson, Config
from toolexec.cli.serve import Set
from toolexec.errors import ToolExecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolexec.cli.terminal import Screen
    from toolexec.config.loaded import LoadedConfig
    from toolexec.discovery.toolset import Toolset
    from toolexec.model.json_value import JSONDict

config: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Show the settings and where they come from, or check them."
)


@config.command()
def show(
    context: typer.Context,
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value comes from.")] = False,
    settings: Set = None,
    files: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print every setting, as toolexec serve would have it; secrets are left out."""
    _perform(context, files, as_json, settings, lambda screen, loaded: _show(screen, loaded, origin=origin))


@config.command()
def validate(
    context: typer.Context,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False,
    settings: Set = None,
    files: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check the settings, as toolexec serve would, and report all mistakes at once; exit code 2 if there are any.

    What the settings name and this environment does not have (variables, files of secrets) is a warning. No server is
    started, and no Python file is run.
    """
    _perform(context, files, as_json, settings, lambda screen, loaded: _valid(screen, loaded, strict=strict))


@config.command()
def keys(context: typer.Context, as_json: AsJson = False) -> None:
    """Print every setting with its type, default, variable and description."""
    from toolexec.config.blocks import KEYS
    from toolexec.config.journals import installed_keys
    from toolexec.config.template import toml_value

    every = [*KEYS.values(), *installed_keys()]

    def work(screen: Screen) -> None:
        if screen.as_json:
            screen.document(
                [
                    {
                        "key": key.path,
                        "kind": key.kind.name,
                        "default": key.default,
                        "variable": key.variable,
                        "help": key.help,
                    }
                    for key in every
                ]
            )
            return
        for key in every:
            screen.exact(f"{key.path} = {toml_value(key.default)}\n    {key.help} ({key.kind.name}; {key.variable})")

    _within_screen(context, as_json, work)


def _perform(
    context: typer.Context,
    files: list[Path] | None,
    as_json: bool,
    settings: list[str] | None,
    work: Callable[[Screen, LoadedConfig], int | None],
) -> None:
    shared, _ = context.obj

    def load(screen: Screen) -> int | None:
        from toolexec.cli.serve import load_for_serving

        return work(screen, load_for_serving((*shared, *(files or ())), {}, settings or [], tools_needed=False))

    _within_screen(context, as_json, load)


def _within_screen(context: typer.Context, as_json: bool, work: Callable[[Screen], int | None]) -> None:
    from toolexec.cli.terminal import Screen, only_results_on_stdout

    _, json_too = context.obj
    code = OK
    with only_results_on_stdout() as out:
        screen = Screen(out, as_json=as_json or json_too)
        try:
            code = work(screen) or OK
        except ToolExecError as error:
            _tell(screen, error)
            code = exit_code(error)
    raise typer.Exit(code)


def _tell(screen: Screen, error: Any) -> None:
    """The error; of several mistakes, each on a line of its own."""
    mistakes = error.details.get("mistakes", [])
    if screen.as_json or len(mistakes) < 2:
        screen.error(error)
        return
    for mistake in mistakes:
        screen.note(f"error: {mistake}", style="")
    screen.note(f"{error.details['count']} mistakes", style="")


def _valid(screen: Screen, loaded: LoadedConfig, *, strict: bool) -> int:
    from toolexec.config.build import GATE_BLOCKS
    from toolexec.config.references import missing_references

    missing = missing_references(loaded, os.environ)
    warnings = [*loaded.hints, *missing]
    code = FAILED if strict and warnings else OK

    facts: JSONDict = {
        "files": [str(path) for path in loaded.files],
        "servers": len(loaded.servers),
        "python": len(loaded.python),
        "rules": len(loaded.settings.policy.rules),
    }
    if loaded.providers:
        facts["providers"] = len(loaded.providers)
    if screen.as_json:
        blocks = [block for block in GATE_BLOCKS if loaded.has(block)]
        screen.document({"ok": code == OK, **facts, "blocks": blocks, "warnings": warnings})
        return code
    names = ", ".join(facts["files"]) or "no file"
    counts = ", ".join(
        f"{count} {word}{'' if count == 1 else 's'}"
        for word, count in (
            ("server", facts["servers"]),
            *([("provider", len(loaded.providers))] if loaded.providers else []),
            ("Python source", facts["python"]),
            ("policy rule", facts["rules"]),
        )
    )
    for warning in warnings:
        screen.note(f"warning: {warning}", style="yellow")
    items = "item is" if len(missing) == 1 else "items are"
    rest = f", but {len(missing)} referenced {items} missing" if missing else ""
    screen.exact(f"{names}: the settings are right ({counts}){rest}")
    return code


def _show(screen: Screen, loaded: LoadedConfig, *, origin: bool) -> None:
    from toolexec.config.blocks import BLOCKS, KEYS
    from toolexec.config.template import (
        render_endpoint,
        render_provider,
        render_queue,
        render_server,
        render_tool,
        render_toolset,
        render_transform,
        shown_endpoints,
        shown_providers,
        shown_servers,
        shown_settings,
        shown_tools,
        shown_transforms,
        toml_value,
    )

    settings, servers, providers = shown_settings(loaded), shown_servers(loaded), shown_providers(loaded)
    transforms, endpoints = shown_transforms(loaded), shown_endpoints(loaded)
    tools = shown_tools(loaded)
    toolsets = {name: _written(toolset) for name, toolset in loaded.toolsets.items()}
    queues = {name: queue.to_dict() for name, queue in loaded.queues.items()}
    if screen.as_json:
        document: JSONDict = {"settings": settings, "toolsets": toolsets, "mcpServers": servers}
        document |= {"tools": tools} if tools else {}
        document |= {"endpoints": endpoints} if endpoints else {}
        document |= {"queues": queues} if queues else {}
        document |= {"providers": providers} if providers else {}
        document |= {"transforms": transforms} if transforms else {}
        if origin:
            named = {f"mcpServers.{name}": place for name, place in loaded.server_origins.items()}
            named |= {f"toolsets.{name}": place for name, place in loaded.toolset_origins.items()}
            named |= {f"tools.{name}": composed.origin for name, composed in loaded.tools.items()}
            named |= {f"endpoints.{name}": endpoint.origin for name, endpoint in loaded.endpoints.items()}
            named |= {f"queues.{name}": place for name, place in loaded.queue_origins.items()}
            named |= {f"providers.{name}": provider.origin for name, provider in loaded.providers.items()}
            document["origins"] = {**loaded.origins, **named}
        screen.document(document)
        return
    for block in BLOCKS:
        screen.exact(f"[{block}]")
        for key in KEYS.values():
            if key.block == block:
                line = f"{key.name} = {toml_value(settings[key.path])}"
                screen.exact(f"{line}  # {loaded.origins[key.path]}" if origin else line)
        screen.exact("")
    for kind, values in loaded.journals.items():
        screen.exact(f"[durable.{kind}]")
        for name in values:
            path = f"durable.{kind}.{name}"
            line = f"{name} = {toml_value(settings[path])}"
            screen.exact(f"{line}  # {loaded.origins[path]}" if origin else line)
        screen.exact("")
    for name, entry in toolsets.items():
        screen.exact(render_toolset(name, entry, [loaded.toolset_origins[name]] if origin else []))
        screen.exact("")
    for name, entry in tools.items():
        screen.exact(render_tool(name, entry, [loaded.tools[name].origin] if origin else []))
        screen.exact("")
    for name, entry in endpoints.items():
        screen.exact(render_endpoint(name, entry, [loaded.endpoints[name].origin] if origin else []))
        screen.exact("")
    for name, entry in queues.items():
        screen.exact(render_queue(name, entry, [loaded.queue_origins[name]] if origin else []))
        screen.exact("")
    for name, entry in providers.items():
        notes = [loaded.providers[name].origin] if origin else []
        screen.exact(render_provider(name, _without_none(entry), notes))
        screen.exact("")
    for tool_id, entry in transforms.items():
        screen.exact(render_transform(tool_id, entry))
        screen.exact("")
    for name, entry in servers.items():
        screen.exact(render_server(name, _without_none(entry), [loaded.server_origins[name]] if origin else []))
        screen.exact("")


def _written(toolset: Toolset) -> JSONDict:
    """Return the toolset as its table says it; its name is that of the table."""
    return {key: value for key, value in toolset.to_dict().items() if key != "name"}


def _without_none(value: object) -> Any:
    """Return the value as TOML can have it: without null."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value if item is not None] if isinstance(value, list) else value
