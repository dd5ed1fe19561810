"""Undo a run to the end, also when it is cancelled: in a bounded time, and with a report in the cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from toolexec.errors import ClosedError
from toolexec.run.types import UndoneStep

UNDO_SECONDS: Final = 30.0
"""How many seconds a run that is cancelled has to undo what it has done."""

logger: logging.Logger = logging.getLogger(__name__)


async def to_the_end(
    work: Coroutine[Any, Any, None],
    undone: Sequence[UndoneStep],
    cut_off: asyncio.CancelledError | ClosedError | None = None,
) -> None:
    """Await *work*, which undoes a run and writes down in *undone* what became of its steps.

    A cancellation of the run, which was *cut_off* by it before or is now, leaves it `UNDO_SECONDS` to end, and is then
    raised, with a note of what became of the steps. Another cancellation changes nothing. A run that was cut off by
    closing has as long, and returns.
    """
    task = asyncio.create_task(work)
    if cut_off is None:
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cut_off = error
        else:
            return task.result()
    await _bounded(task)
    is_closed = isinstance(cut_off, ClosedError)
    if undone:
        report = _report(undone)
        cut_off.add_note(report)
        logger.warning("a run was %s: %s", "stopped by closing" if is_closed else "cancelled", report)
    if not is_closed:
        raise cut_off
    return None


async def _bounded(task: asyncio.Task[None]) -> None:
    """Wait for *task* until its time is over, whatever is cancelled meanwhile; then cancel it."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + UNDO_SECONDS
    while not task.done() and (left := ends - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            continue  # the caller gets its cancellation when this is over
    task.cancel()
    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
        logger.error("undoing a run that was cut off failed: %s: %s", type(error).__name__, error)


def _report(undone: Sequence[UndoneStep]) -> str:
    """Return what became of the steps, for people."""
    done = [f"step {each.index} {each.tool_id} by {each.undo_id}" for each in undone if each.ok]
    left = [f"step {each.index} {each.tool_id} ({each.reason})" for each in undone if not each.ok]
    parts = (("undone: ", done), ("not undone: ", left))
    return "; ".join(f"{head}{', '.join(steps)}" for head, steps in parts if steps)
