"""Text that a command reads from a file or from stdin, and writes into a file."""

from __future__ import annotations

import sys
from pathlib import Path

from toolexec.errors import ConfigurationError


def read_stdin() -> str:
    """Return all of stdin as UTF-8 text; raises ConfigurationError when it is not."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except ValueError as error:
        raise ConfigurationError(f"stdin is not UTF-8 text: {error}") from error


def read_text(name: str) -> str:
    """Return the text of a file, or of stdin for `-`; raises ConfigurationError when it cannot be read."""
    return read_stdin() if name == "-" else read_file(name)


def read_file(path: str | Path) -> str:
    """Return the text of a file; raises ConfigurationError when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigurationError(f"cannot read {path}: it is not UTF-8 text") from error


def write_text(file: Path, text: str) -> None:
    """Write a file; raises ConfigurationError when that fails."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot write {file}: {error.strerror or error}") from error
