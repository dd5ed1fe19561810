"""`toolexec record`: run any agent with a gateway in front of its tools, which writes each call into a cassette."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolexec.cassette.modes import CassetteMode
from toolexec.cli.exit_codes import exit_code
from toolexec.cli.options import Config
from toolexec.cli.serve import Set, load_for_serving, logged, without_sources
from toolexec.errors import ConfigurationError, ToolExecError

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen
    from toolexec.config.build import Built
    from toolexec.config.loaded import LoadedConfig

_MANY: Final = 500
_SERVER: Final = "toolexec"


def record(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The agent and its arguments, after --.", show_default=False)
    ],
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The cassette to write.", show_default=False)],
    mode: Annotated[
        CassetteMode, typer.Option(help="What to do with an existing cassette; see docs/testing-agents.md.")
    ] = "record",
    settings: Set = None,
    config: Config = None,
) -> None:
    """Run an agent, and record its tool calls in a cassette.

    The agent gets one MCP server over HTTP, on this machine only: its address is in $TOOLEXEC_MCP_URL, the key to send
    as a bearer token in $TOOLEXEC_MCP_TOKEN, and $TOOLEXEC_MCP_CONFIG is the path of an mcpServers file with both. The
    exit code is the agent's.
    """
    from toolexec.cli.terminal import Screen

    screen = Screen(sys.stderr)
    shared, _ = context.obj
    try:
        if shutil.which(command[0]) is None:  # before anything is started for it
            raise ConfigurationError(f"{command[0]} cannot be started: there is no such program")
        given = {"transport": "http", "host": "127.0.0.1", "port": 0}
        files, replays = (*shared, *(config or ())), mode == "replay"
        loaded = load_for_serving(files, given, settings or [], screen, tools_needed=not replays)
        if replays:
            loaded = without_sources(loaded)
        with ExitStack() as stack:
            stack.enter_context(logged(loaded.settings.server.log_level))
            code = asyncio.run(_recorded(loaded, to, mode, command, screen, stack))
    except ToolExecError as error:
        screen.error(error)
        code = exit_code(error)
    raise typer.Exit(code)


async def _recorded(
    loaded: LoadedConfig, to: Path, mode: CassetteMode, command: list[str], screen: Screen, stack: ExitStack
) -> int:
    from toolexec.cassette.cassette import Cassette
    from toolexec.cli.approval_prompt import terminal_approver
    from toolexec.config.build import build

    to.parent.mkdir(parents=True, exist_ok=True)
    cassette = Cassette(to, mode, repeats=mode == "replay")
    try:
        built = build(loaded, serving=True, terminal=terminal_approver)
        stack.callback(built.close)
        built.ex.reconfigure(cassette=cassette)
        try:
            code = await _beside(built, command)
            if mode != "replay":
                _keep_tools(built, cassette, screen)
        finally:
            await built.ex.aclose()
    finally:
        cassette.close()
    screen.note(f"calls in {to}: {len(cassette.calls)}, tools: {len(cassette.tools)}")
    return code


async def _beside(built: Built, command: list[str]) -> int:
    """Serve the tools on loopback until the agent has ended; return its exit code."""
    from toolexec.server.app import ToolServer
    from toolexec.server.auth import ApiKey, AuthSettings
    from toolexec.server.auth.credentials import hash_key, new_key
    from toolexec.server.http import serve_http

    key = new_key()
    settings = built.serve
    auth = AuthSettings(api_keys=(ApiKey(id="recorded-agent", sha256=hash_key(key)),))
    http = replace(settings.http, host="127.0.0.1", port=0, tls_cert="", tls_key="", behind_proxy=False)
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = ToolServer(built.ex, replace(settings, http=http, auth=auth), results=built.results)
    async with server:
        serving = asyncio.ensure_future(serve_http(server, http, auth, ready=address.set_result, stop=stop))
        try:
            await asyncio.wait([serving, address], return_when=asyncio.FIRST_COMPLETED)
            if not address.done():
                await serving
            return await _run_agent(command, str(address.result()), key)
        finally:
            stop.set()
            await asyncio.wait([serving])


async def _run_agent(command: list[str], url: str, key: str) -> int:
    from toolexec.model.redaction import redactor

    redactor.add(key)  # an agent may pass on all of its environment
    entry = {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {key}"}}
    with tempfile.TemporaryDirectory(prefix="toolexec-record-") as directory:
        file = Path(directory) / "mcp.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps({"mcpServers": {_SERVER: entry}}, indent=2), "utf-8")
        found = {"TOOLEXEC_MCP_URL": url, "TOOLEXEC_MCP_TOKEN": key, "TOOLEXEC_MCP_CONFIG": str(file)}
        try:
            process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **found})
        except OSError as error:
            raise ConfigurationError(f"{command[0]} cannot be started: {error.strerror or error}") from error
        return await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait for the agent; Ctrl-C is for it, which then ends, and so are SIGTERM and a closed terminal's SIGHUP: what
    was recorded until then is written."""
    loop = asyncio.get_running_loop()
    passed: dict[int, Any] = {signal.SIGINT: lambda: None, signal.SIGTERM: process.terminate}
    if sys.platform != "win32":
        passed[signal.SIGHUP] = process.terminate
    for number, act in passed.items():
        with suppress(NotImplementedError, RuntimeError, ValueError):  # only in the main thread
            loop.add_signal_handler(number, act)
    try:
        code = await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    finally:
        for number in passed:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(number)
    return code if code >= 0 else 128 - code


def _keep_tools(built: Built, cassette: Any, screen: Screen) -> None:
    """Keep the tools that were not called, too, so that a replay finds and lists the same ones."""
    count = len(built.ex.index)
    if count > _MANY:
        screen.note(f"of {count} tools, those that were called are in the cassette")
        return
    for summary in built.ex.index.search("", count):
        entry = built.ex.index.find(summary.id)
        if entry is not None:
            cassette.see(entry)
