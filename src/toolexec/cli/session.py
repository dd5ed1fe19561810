"""One command from start to end: load the tools, run it on an event loop, stop everything, say how it went."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from toolexec.cli.exit_codes import BROKEN_PIPE, INTERRUPTED, TERMINATED, exit_code, give_up_stdout
from toolexec.cli.sources import build_from, find_sources
from toolexec.cli.terminal import Screen, only_results_on_stdout
from toolexec.errors import ToolExecError

if TYPE_CHECKING:
    from toolexec.exec import Exec


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a command works with; `config` are the files that were named on the command line, `files` those that the
    tools come from, and `list_all` is the setting of the server."""

    ex: Exec
    screen: Screen
    config: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    list_all: bool = False


Command: TypeAlias = Callable[[Session], Awaitable[int]]
"""Does the work of a command and returns the exit code; a ToolExecError that it raises is shown and gives its own."""


class _InterruptedError(ToolExecError):
    code = "interrupted"


def perform(
    command: Command,
    *,
    config: Sequence[Path] = (),
    as_json: bool = False,
    lines: bool = False,
    make: Callable[[], Exec] | None = None,
) -> int:
    """Run *command* and return its exit code; when this returns, every server and task of it has ended.

    Tools come from *make*, or else from the files that `find_sources` finds for *config*. With *lines*, errors in JSON
    take one line, as the command's own output does.
    """
    with only_results_on_stdout() as out:
        screen = Screen(out, as_json=as_json)
        try:
            code = _perform(command, screen, config, make)
            screen.flush()
        except ToolExecError as error:
            screen.error(error, single_line=lines)
            code = exit_code(error)
        except KeyboardInterrupt:
            if as_json:
                screen.error(_InterruptedError("interrupted"), single_line=lines)
            else:
                screen.note("interrupted")
            code = INTERRUPTED
        except BrokenPipeError:
            give_up_stdout(out.fileno())
            code = BROKEN_PIPE
        except Exception as error:
            code = screen.crash(error)
    return code


def _perform(command: Command, screen: Screen, config: Sequence[Path], make: Callable[[], Exec] | None) -> int:
    if make is not None:
        return asyncio.run(_within(Session(ex=make(), screen=screen, config=tuple(config)), command))
    sources = find_sources(config)
    if sources.implied and not screen.as_json:
        screen.note(f"using {sources.files[0]} (override with -c)")
    built = build_from(sources.files)
    try:
        list_all = built.loaded.settings.get("server.list_all") is True
        session = Session(ex=built.ex, screen=screen, config=tuple(config), files=sources.files, list_all=list_all)
        return asyncio.run(_within(session, command))
    finally:
        built.close()


async def _within(session: Session, command: Command) -> int:
    """Run the command with its Exec, and close that whatever happens; SIGTERM ends it as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, only in the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await command(session)
    except asyncio.CancelledError:
        if terminated and task.uncancel() == 0:
            return TERMINATED
        raise
    finally:
        try:
            await session.ex.aclose()
        except ExceptionGroup as group:
            for error in group.exceptions:
                session.screen.note(f"warning: a backend did not stop cleanly: {error}")
