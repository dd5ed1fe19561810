"""The journal of commands for durable runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolexec.cli.options import perform_command

if TYPE_CHECKING:
    import typer

    from toolexec.cli.session import Session
    from toolexec.exec import Exec


def perform_with_journal(context: typer.Context, command: Any, config: Any, as_json: bool, **more: Any) -> None:
    """Run a command with a journal, also where there are no tools."""

    async def with_journal(session: Session) -> int:
        use_journal(session.ex)
        code: int = await command(session)
        return code

    perform_command(context, with_journal, config, as_json, tools_needed=False, **more)


def use_journal(ex: Exec) -> None:
    """Give an Exec without a journal the one in the state directory, and have it go on with runs of a server's callers
    by the rights that these have now."""
    from toolexec.config.build import RUNS_FILE, state_directory
    from toolexec.run.default_gate import DefaultGate
    from toolexec.run.live_gate import LiveGate

    gate = ex.options.gate
    if gate is not None and not isinstance(gate, LiveGate):
        ex.reconfigure(gate=LiveGate(gate.full() if isinstance(gate, DefaultGate) else gate))
    if ex.options.journal is None:
        ex.reconfigure(journal=state_directory() / RUNS_FILE)
