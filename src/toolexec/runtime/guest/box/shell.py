"""Bash, with the command `tool`."""

from __future__ import annotations

import os
from typing import Any

from ..bash.broker import run_program
from ..python.values import to_text


class Shell:
    """Runs bash programs, each in a process of its own."""

    def __init__(self, line: Any, _: Any) -> None:
        self._line = line

    def prepare(self, warm: bool) -> None:
        """Be ready to run."""
        if warm:
            __import__("json")  # calls of tools need it

    def run(self, message: dict[str, Any]) -> str:
        """Return the payload of the result, as JSON."""
        return to_text(run_program(self._line, message["payload"], os.environ["TMPDIR"]))

    def finish(self) -> None:
        """Note that the result has been sent."""
