"""What a person sees of a run of code: what it prints, its tool calls, where it failed, the files it made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.panel import Panel
from rich.text import Text

from toolexec.cli.tables import duration_text
from toolexec.cli.terminal import Screen, to_json
from toolexec.errors import CodeError, ConfigurationError, SandboxViolationError, ToolExecError
from toolexec.model.visible import visible, visible_line

if TYPE_CHECKING:
    from toolexec.code.types import CodeEvent, CodeResult, ToolCallRecord

_MOST_ARGS: Final = 120
_MOST_ERROR: Final = 200
_MOST_SOURCE: Final = 200


class Printed:
    """Hands on what code prints, at once, each stream to its own; counts what has been shown."""

    def __init__(self, screen: Screen) -> None:
        self._files = {"stdout": screen.out, "stderr": screen.err}
        self._shown = {"stdout": 0, "stderr": 0}
        self._last = {"stdout": "\n", "stderr": "\n"}

    def event(self, event: CodeEvent) -> None:
        """Show a print."""
        self._write(event.stream, event.text)

    def finish(self, result: CodeResult) -> None:
        """Show what the result has beyond the events, such as a mark that output was dropped, and end open lines."""
        for stream, text in (("stdout", result.stdout), ("stderr", result.stderr)):
            self._write(stream, text[self._shown[stream] :])
            if not self._last[stream].endswith("\n"):
                self._write(stream, "\n")

    def _write(self, stream: str, text: str) -> None:
        if not text:
            return
        self._shown[stream] += len(text)
        self._last[stream] = text
        console = self._files[stream]
        console.file.write(visible(text) if console.is_terminal else text)
        console.file.flush()


def call_line(call: ToolCallRecord) -> Text:
    """Return one tool call on one line: how it went, its arguments, how long it took."""
    arguments = to_json(dict(call.args), indent=None, ascii_only=False) if call.args else ""
    mark, style = ("✓", "green") if call.error is None else ("✗", "red")
    text = Text.assemble((f"{mark} ", style), (visible_line(call.tool_id), "cyan"))
    text.append(f" {visible_line(arguments, _MOST_ARGS)}" if arguments else "", style="dim")
    if call.error is not None:
        text.append(f" · {visible_line(str(call.error), _MOST_ERROR)}", style="red")
    return text.append(f" · {duration_text(call.duration)}", style="dim")


def show_failure(screen: Screen, error: ToolExecError) -> None:
    """Print why code failed, on stderr: for a mistake of its own with the line, a mark under it, and its traceback."""
    if not isinstance(error, CodeError):
        screen.error(error)
    elif screen.err.is_terminal:
        screen.err.print(Panel(failure_text(error), title=Text("code failed"), title_align="left", border_style="red"))
    else:
        screen.err.print(Text("error: ").append_text(failure_text(error)), soft_wrap=True)


def failure_text(error: CodeError) -> Text:
    """Return the message, the offending line with a caret under the column, and the traceback."""
    text = Text(visible(str(error)))
    if error.source and error.line:
        gutter = f"  {error.line} │ "
        source = visible(error.source.rstrip("\n")).expandtabs(4)
        text.append(f"\n\n{gutter}", style="dim").append(source[:_MOST_SOURCE])
        before = visible(error.source[: error.column - 1]).expandtabs(4) if error.column > 0 else None
        if before is not None and len(before) < _MOST_SOURCE:
            text.append(f"\n{' ' * (len(gutter) - 2)}│ ", style="dim")
            text.append(f"{' ' * cell_len(before)}^", style="bold red")
    if error.traceback:
        text.append(f"\n\n{visible(error.traceback.rstrip())}", style="dim")
    return text


def write_files(directory: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write *files* (by relative path) into *directory*, which is made if need be; gives their paths.

    Files of these names are replaced. Raises SandboxViolationError when a name, or a link that is in the directory,
    leads out of it, and ConfigurationError when one cannot be written. All names are checked before anything is
    written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        root = directory.resolve()
        targets = {name: _inside(root, name) for name in files}
        for name, target in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files[name])
    except OSError as error:
        raise ConfigurationError(f"cannot write to {directory}: {error.strerror or error}") from error
    return [directory / name for name in files]


def _inside(root: Path, name: str) -> Path:
    """Return where *name* goes, links followed."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or PurePath(name).anchor or ".." in path.parts or "\0" in name or "\\" in name:
        raise SandboxViolationError(f"the code made a file named {name!r}, which is no place in the output directory")
    target = root.joinpath(*path.parts).resolve()
    if target == root or not target.is_relative_to(root):
        raise SandboxViolationError(f"the file {name!r} would be written outside of {root}: a link there leads out")
    return target
