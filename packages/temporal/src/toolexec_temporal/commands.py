"""`toolexec temporal`: workers that run durable runs, and code in sandboxes, for Temporal."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from toolexec.errors import ConfigurationError
from toolexec.journal import AsJson, Config, perform_command

if TYPE_CHECKING:
    from toolexec.journal import Session

commands: typer.Typer = typer.Typer(no_args_is_help=True, help="Durable runs on many machines, by Temporal.")


@commands.callback()
def group() -> None:
    """Durable runs on many machines, by Temporal."""


@commands.command("worker")
def worker(
    context: typer.Context,
    isolation: Annotated[
        list[str] | None,
        typer.Option(
            "--isolation",
            metavar="NAME",
            help="Take code only for sandboxes of this isolation: wasm, container, gvisor, vm, none. May be repeated. "
            "Default: all that work here, but none.",
        ),
    ] = None,
    activities: Annotated[int, typer.Option(metavar="N", min=1, help="How much is done at once.")] = 200,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Work on durable runs until it is stopped: Ctrl-C or SIGTERM lets what runs end first.

    The settings [durable.temporal] say where Temporal is. Start as many workers as there is work for, with the same
    settings and the same tools.
    """
    perform_command(context, lambda session: work(session, isolation, activities), config, as_json)


async def work(session: Session, isolations: list[str] | None, activities: int) -> int:
    """Be a worker until the process is asked to end. Raises ConfigurationError without Temporal's settings."""
    from toolexec_temporal.engine import TemporalEngine

    if not isinstance(session.ex.options.journal, TemporalEngine) and session.ex.options.journal != "temporal":
        raise ConfigurationError(
            "a worker needs to know where Temporal is: the settings [durable.temporal] of toolexec.toml, or an Exec "
            "with journal=TemporalEngine()",
            details={"setting": "journal"},
        )

    stopped = asyncio.Event()
    with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, only in the main thread
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    from toolexec_temporal.worker import TemporalWorker

    async with session.ex.worker(isolations=isolations, max_activities=activities) as made:
        assert isinstance(made, TemporalWorker)
        if session.screen.as_json:
            session.screen.document({"address": made.settings.address, "queues": [*made.queues]})
            session.screen.flush()
        else:
            session.screen.note(f"working on {', '.join(made.queues)} at {made.settings.address}; Ctrl-C stops it")
        await stopped.wait()
    return 0
