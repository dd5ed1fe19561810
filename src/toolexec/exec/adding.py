"""What adding tools to an `Exec` needs to find out."""

from __future__ import annotations

import inspect
import shlex
import shutil
from pathlib import Path
from typing import Any

from toolexec.errors import ConfigurationError

__all__ = ["command_line", "names_around"]


def names_around() -> dict[str, Any]:
    """The local names where the method that asks for them was called; a function's annotations may need them."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return dict(frame.f_locals) if frame is not None else {}


def command_line(command: str) -> list[str]:
    """A command line's words; a program whose path has blanks in it is one word."""
    if shutil.which(command) or Path(command).exists():
        return [command]
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"cannot read the command line {command!r}: {error}") from error
