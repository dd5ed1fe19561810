"""What a person sees while a call runs: nothing at first, then a spinner, or a bar if the tool says how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from toolexec.cli.terminal import Screen
from toolexec.model.call import Progress as Report
from toolexec.model.call import ProgressCallback
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_PATIENCE: Final = 0.4
_MAX_TEXT: Final = 50


class _Watch:
    """A progress bar that appears when the work takes longer than `_PATIENCE` seconds, or reports something."""

    def __init__(self, console: Console, label: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns: tuple[object, ...] = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._quiet = Progress(columns[0], columns[1], columns[4], console=console, transient=True)
        self._bar = Progress(*columns, console=console, transient=True)
        self._label = visible_line(label, _MAX_TEXT)
        self._quiet.add_task(self._label, total=None)
        self._task = self._bar.add_task(self._label, total=None)
        self._shown: Progress | None = None
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE, self._show, self._quiet)

    def report(self, progress: Report) -> None:
        """Take a report of the tool."""
        if _is_frame(progress):
            return  # the bar shows how far the tool itself is
        text = f"{self._label}  {visible_line(progress.message, _MAX_TEXT)}" if progress.message else self._label
        self._bar.update(self._task, completed=progress.done, total=progress.total, description=text)
        if self._shown is not self._bar:
            self._show(self._bar)

    def _show(self, progress: Progress) -> None:
        self.stop()
        progress.start()
        self._shown = progress

    def stop(self) -> None:
        """Take the bar off the screen."""
        self._timer.cancel()
        if self._shown is not None:
            self._shown.stop()
            self._shown = None


def _is_frame(progress: Report) -> bool:
    """Return whether a report only says that the one call has begun or ended."""
    return progress.total == 1 and progress.message in ("started", "completed", "error")


@contextmanager
def watch(screen: Screen, label: str) -> Generator[ProgressCallback | None, None, None]:
    """Show that *label* is under way; gives a callback for progress, or None where the screen shows none."""
    console = screen.live
    if console is None:
        yield None
        return
    shown = _Watch(console, label)
    try:
        yield shown.report
    finally:
        shown.stop()
