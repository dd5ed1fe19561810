"""What commands that lend sandboxes to other machines are made of: their settings, and how they run until they stop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import typer

from toolexec.cli.exit_codes import INTERRUPTED, NOT_RUN, TERMINATED, exit_code
from toolexec.errors import ToolExecError

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen
    from toolexec.code.limits import Limits
    from toolexec.config.loaded import LoadedConfig
    from toolexec.runtime.remote.server_settings import RuntimeServerSettings
    from toolexec.runtime.sandbox_settings import SandboxSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Lending:
    """What the settings say of lending sandboxes.

    `server` is how the server works, `sandboxes` which sandboxes it has, and `limits` what code may use, whatever a
    request asks for (None: as usual). `state` is the directory where what lasts is kept.
    """

    server: RuntimeServerSettings
    sandboxes: SandboxSettings
    limits: Limits | None
    state: Path


Reload: TypeAlias = "Callable[[], RuntimeServerSettings]"
"""Reads the settings of the server again; raises ConfigurationError."""


def check_lending(
    context: typer.Context,
    work: Callable[[Lending, Screen], Coroutine[Any, Any, int]],
    *,
    config: list[Path] | None,
    settings: Sequence[str],
    as_json: bool,
) -> NoReturn:
    """Do *work* with the settings and what it prints on, and end the command with the exit code that it returns; an
    error of toolexec is printed, and has its own. *settings* are words such as `runtime_server.port=0`."""
    from toolexec.cli.terminal import Screen

    shared, json_too = context.obj
    screen = Screen(sys.stdout, as_json=as_json or json_too)
    try:
        code = asyncio.run(work(_read(_load((*shared, *(config or ())), settings)), screen))
        screen.flush()
    except ToolExecError as error:
        screen.error(error)
        code = exit_code(error)
    raise typer.Exit(code)


def lend(
    context: typer.Context,
    work: Callable[[Lending, Reload, Screen], Coroutine[Any, Any, int]],
    *,
    config: list[Path] | None,
    settings: Sequence[str],
) -> NoReturn:
    """Do *work*, which serves until it is over, and end the command with the exit code that it returns.

    All that is said goes to stderr: what is logged, what *work* shows, and errors. Spans go to a collector where the
    settings want that.
    """
    shared, _ = context.obj
    raise typer.Exit(_served(work, (*shared, *(config or ())), settings))


def _served(
    work: Callable[[Lending, Reload, Screen], Coroutine[Any, Any, int]], files: tuple[Path, ...], words: Sequence[str]
) -> int:
    from toolexec.cli.serve import logged
    from toolexec.cli.terminal import Screen
    from toolexec.config.parts import runtime_server_settings

    screen = Screen(sys.stderr)
    try:
        loaded = _load(files, words)
        with ExitStack() as stack:
            stack.enter_context(logged(loaded.settings.server.log_level))
            _export(loaded, stack)
            return asyncio.run(work(_read(loaded), lambda: runtime_server_settings(_load(files, words)), screen))
    except ToolExecError as error:
        screen.error(error)
        return exit_code(error)
    except asyncio.CancelledError:  # by the second signal
        return TERMINATED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return NOT_RUN
    except Exception as error:
        return screen.crash(error)


def _load(files: tuple[Path, ...], words: Sequence[str]) -> LoadedConfig:
    from toolexec.cli.serve import load_for_serving

    return load_for_serving(files, {}, [*words], tools_needed=False)


def _read(loaded: LoadedConfig) -> Lending:
    from toolexec.config.build import state_directory
    from toolexec.config.parts import code_limits, runtime_server_settings, sandbox_settings

    return Lending(
        server=runtime_server_settings(loaded),
        sandboxes=sandbox_settings(loaded),
        limits=code_limits(loaded),
        state=state_directory(),
    )


def _export(loaded: LoadedConfig, stack: ExitStack) -> None:
    """Send spans to a collector, where the settings want that."""
    if loaded.settings.telemetry.enabled:
        from toolexec.config.exporting import start_exporting

        stop = start_exporting("toolexec-runtime", os.environ)
        if stop is not None:
            stack.callback(stop)
