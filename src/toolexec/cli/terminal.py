"""What may reach a terminal, and where it goes: results to stdout, everything else to stderr.

Names, descriptions and values come from tools and servers, and are not trusted. On a terminal and in JSON control and
invisible characters are escaped (see `model/visible.py`), and nothing is read as markup.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, Final, TextIO

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.text import Text

from toolexec.cli.exit_codes import NOT_RUN, USAGE
from toolexec.errors import InputValidationError, OutputValidationError, ToolExecError
from toolexec.errors.extras import explained
from toolexec.model.visible import visible, visible_line

UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""What is wrong where output cannot be written: its device is full, or broken."""
_LOGGERS: Final = ("toolexec", "mcp")
_TITLES: Final = {"validation_input": "arguments not valid", "validation_output": "result not valid"}
_HINTS: Final = {
    "tool_not_found": "toolexec list shows what there is",
    "backend_unavailable": "toolexec backends shows how every server is",
    "validation_input": "toolexec describe {tool_id} shows its parameters",
}


def to_json(data: object, *, indent: int | None = 2, ascii_only: bool = True) -> str:
    """*data* as JSON in plain ASCII: everything that a terminal could take for an order is escaped.

    Without *ascii_only* it is for `visible`.
    """
    return json.dumps(data, indent=indent, ensure_ascii=ascii_only, default=_plain)


def _plain(value: object) -> object:
    from toolexec.model.json_value import to_json_lossy  # not earlier: help and versions need none of it

    return to_json_lossy(value)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - called while it is handled; rich would end the process here


class Screen:
    """Where a command writes: `out` is stdout and has results only, `err` is stderr. With *as_json* set, `out` gets
    JSON and nothing else."""

    def __init__(self, out: TextIO, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._file = out
        plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
        self.out: _Console = _Console(file=out, **plain)
        self.err: _Console = _Console(stderr=True, **plain)

    @property
    def live(self) -> Console | None:
        """Where a progress bar can be shown: a terminal, of the two the one that results also go to; None: nowhere."""
        if self.as_json:
            return None
        return next((console for console in (self.out, self.err) if console.is_terminal), None)

    def show(self, *parts: RenderableType) -> None:
        """Print tables and the like on stdout; a text that is not to be wrapped is not cut either."""
        self.out.print(*parts, sep="\n", crop=False)

    def value(self, text: Text) -> None:
        """Print a value on stdout, lines as long as they are."""
        self.out.print(text, soft_wrap=True)

    def exact(self, text: str) -> None:
        """Print text on stdout as it is (`visible` if that is a terminal), with a newline at its end."""
        if self.out.is_terminal:
            text = visible(text)
        self._file.write(text if text.endswith("\n") else f"{text}\n")
        self._file.flush()

    def document(self, data: object) -> None:
        """Print *data* as the one JSON document on stdout."""
        self._file.write(f"{to_json(data)}\n")
        self._file.flush()

    def json_line(self, data: object) -> None:
        """Print *data* as one line of JSON on stdout, at once."""
        self._file.write(f"{to_json(data, indent=None)}\n")
        self._file.flush()

    def note(self, text: str, style: str = "dim") -> None:
        """Print one line on stderr."""
        self.err.print(Text(visible_line(text), style=style), soft_wrap=True)

    def error(self, error: ToolExecError, *, single_line: bool = False) -> None:
        """Print an error: as JSON on stdout (on one line if *single_line*), else on stderr, as one line or a panel."""
        if self.as_json:
            (self.json_line if single_line else self.document)({"error": error.to_dict()})
        elif self.err.is_terminal:
            self.err.print(_panel(error))
        else:
            self.note(f"error: {error}", style="")

    def crash(self, error: Exception) -> int:
        """Print an unexpected error, with what a bug report needs, or with what is missing here; returns the exit
        code."""
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            self.as_json = False  # there is no room for a document either
            self.note(f"error: the output cannot be written: {error.strerror}", style="")
            return NOT_RUN
        known = explained(error)
        if known is not None:
            self.error(known)
            return USAGE
        if not self.as_json:
            self.err.print(Text(visible("".join(traceback.format_exception(error))), style="dim"), soft_wrap=True)
        self.error(ToolExecError(f"{type(error).__name__}: {error}; this is a bug of toolexec, please report it"))
        return NOT_RUN

    def flush(self) -> None:
        """Hand out everything now, so that a closed pipe shows here and not when the process ends."""
        self._file.flush()


def error_body(error: ToolExecError) -> Text:
    """Return the error in full, every violation on a line of its own."""
    body = Text()
    if isinstance(error, InputValidationError | OutputValidationError):
        body.append(_subject(error))
        for violation in error.violations:
            body.append("\n  • ").append(f"{visible_line(violation.path) or '(root)'}: ", style="bold")
            body.append(visible_line(violation.message))
    else:
        body.append(visible(error.message))
    place = _raised_at(error)
    if place:
        body.append(f"\nraised at {place}", style="dim")
    hint = _HINTS.get(error.code, "").format(tool_id=visible_line(error.tool_id or ""))
    if hint:
        body.append(f"\n{hint}", style="dim")
    return body


def _panel(error: ToolExecError) -> Panel:
    title = _TITLES.get(error.code, error.code.replace("_", " "))
    return Panel(error_body(error), title=Text(title), title_align="left", border_style="red")


def _subject(error: InputValidationError | OutputValidationError) -> str:
    what, are = ("arguments", "are") if isinstance(error, InputValidationError) else ("result", "is")
    return f"The {what} of {visible_line(error.tool_id or 'the tool', 200)} {are} not valid:"


def _raised_at(error: ToolExecError) -> str:
    """Return the line of a handler's own code that raised, or nothing."""
    cause = error.__cause__
    if cause is None or error.code != "handler_failed":
        return ""
    frames = traceback.extract_tb(cause.__traceback__)
    return visible_line(f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}") if frames else ""


class _CleanLog(logging.Handler):
    """Log records as cleaned lines on stderr: they may quote what a server sent."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:  # else the user's own file has set up logging
            sys.stderr.write(f"{record.levelname.lower()}: {visible_line(record.getMessage())}\n")


@contextmanager
def only_results_on_stdout() -> Generator[TextIO, None, None]:
    """Send what tools and configuration files print to stderr, and log records with it; gives the real stdout.

    That holds for child processes, too, where stdout is a file descriptor.
    """
    real = sys.stdout
    log = _CleanLog(logging.WARNING)
    silent = [logger for name in _LOGGERS if not (logger := logging.getLogger(name)).handlers]  # others write already
    for logger in silent:
        logger.addHandler(log)
    try:
        with redirect_stdout(sys.stderr), _moved(real) as out:
            yield out
    finally:
        for logger in silent:
            logger.removeHandler(log)


@contextmanager
def _moved(stream: TextIO) -> Generator[TextIO, None, None]:
    """The stream on a file descriptor of its own, while the old one leads to stderr."""
    try:
        number, errors = stream.fileno(), sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        yield stream  # not a real file: a test's, or a notebook's
        return
    stream.flush()
    own = os.dup(number)
    out = os.fdopen(own, "w", encoding=stream.encoding, errors="replace")
    os.dup2(errors, number)
    try:
        yield out
    finally:
        with suppress(OSError):  # its reader has gone, or its device is full: the writer was notified of that
            out.flush()
        os.dup2(own, number)
        with suppress(OSError):
            out.close()
