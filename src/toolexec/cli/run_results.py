"""What a durable run came to, as the commands of runs show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.errors import RunWaitingError

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.exec.run_results import RunResult


def show_result(session: Session, run_id: str, result: RunResult) -> None:
    """Print what a run came to, or what it waits for."""
    from toolexec.cli.code_output import Printed
    from toolexec.cli.tables import value_text
    from toolexec.code.types import CodeResult

    if isinstance(result, CodeResult):
        Printed(session.screen).finish(result)
    if isinstance(result.error, RunWaitingError):
        for wait in result.error.waits:
            session.screen.note(f"{run_id} waits for {wait.get('name') or wait['kind']}")
    elif result.error is not None:
        session.screen.error(result.error)
    else:
        session.screen.note(f"{run_id} is done")
        session.screen.value(value_text(result.value))
