"""What the command's exit code says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from toolexec.errors import (
    ConfigurationError,
    ExecutionError,
    InvalidChainError,
    OutputValidationError,
    RunWaitingError,
    ToolExecError,
)

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_RUN: Final = 3
WAITING: Final = 4
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143

TABLE: Final = (
    (OK, "done"),
    (FAILED, "the tool or the code failed, a chain stopped early, or a check did not hold"),
    (USAGE, "usage or configuration error, or an extra is missing"),
    (NOT_RUN, "not run: unknown tool, invalid arguments, server unavailable or no sandbox"),
    (WAITING, "a durable run waits; toolexec runs list says for what"),
    (INTERRUPTED, "interrupted with Ctrl-C (141: stdout is closed, 143: terminated)"),
)
"""The codes and what they mean, as `--help` shows them."""


def exit_code(error: ToolExecError) -> int:
    """Return the exit code for an error that ended a command."""
    if isinstance(error, ExecutionError | OutputValidationError):
        return FAILED
    if isinstance(error, ConfigurationError | InvalidChainError):
        return USAGE
    return NOT_RUN


def code_of_run(error: ToolExecError | None) -> int:
    """Return the exit code for what a chain, a workflow or a durable run came to."""
    if error is None:
        return OK
    return WAITING if isinstance(error, RunWaitingError) else FAILED


def give_up_stdout(number: int | None = None) -> None:
    """Lead stdout nowhere: its reader has gone, and flushing it when the process ends would fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno() if number is None else number)
    os.close(nothing)


def open_closed_streams() -> None:
    """Lead the standard streams that are closed nowhere, as by `>&-`.

    Python has None for such a stream, which cannot be printed to; and the next file to be opened would get its
    number, and with that whatever a library prints.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
