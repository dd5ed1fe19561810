"""`toolexec demo`: everything at work on the Git repository around you, with real MCP servers and a sandbox."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from toolexec.cli.demo.repository import some_repository
from toolexec.cli.demo.stage import Stage
from toolexec.cli.demo.steps import STEPS
from toolexec.cli.exit_codes import OK
from toolexec.cli.session import Session
from toolexec.errors import ConfigurationError
from toolexec.exec import Exec

__all__ = ["make_exec", "run"]

_RESULT_BYTES: Final = 16 << 20
_PATIENCE: Final = 120.0
"""Seconds for the servers to start: their first start on a machine compiles what they import, beside other work too."""


def make_exec() -> Exec:
    """Return the Exec of the demo: its code gets even the largest commit as it is, and its servers may be slow."""
    return Exec(result_bytes=_RESULT_BYTES, start_timeout=_PATIENCE)


async def run(session: Session, *, fast: bool = False) -> int:
    """Play the demo; *fast* leaves out the pauses for reading, which only a terminal has.

    Raises ConfigurationError when the servers or git are not installed, and whatever a step raises.
    """
    _check_servers()
    with some_repository() as repository:
        stage = Stage(session, repository, pause=not fast and session.screen.out.is_terminal)
        stage.welcome(len(STEPS))
        for number, (title, code, step) in enumerate(STEPS, 1):
            await stage.act(number, title, code, step)
        stage.farewell()
    return OK


def _check_servers() -> None:
    missing = [name for name in ("mcp", "mcp_server_git", "mcp_server_time") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            "the demo talks to two real MCP servers, which are not installed; install them with: "
            f"pip install {'mcp ' if 'mcp' in missing else ''}mcp-server-git mcp-server-time",
            details={"missing": missing},
        )
