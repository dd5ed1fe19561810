"""One call of a tool, as every layer passes it on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import HERE, Origin, new_run_id

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a call has come: `done` of `total` (None when unknown), and a word on what is going on.

    >>> from toolexec import Exec, ToolContext
    >>> def work(context: ToolContext) -> str:
    ...     context.report(1, 2, "half")
    ...     return "done"
    >>> with Exec().sync as ex:
    ...     _ = ex.add(work, "job:work")
    ...     next(event.data for event in ex.stream_tool("job:work"))
    {'progress': 1, 'total': 2, 'message': 'half'}
    """

    done: float
    total: float | None = None
    message: str = ""

    def to_dict(self) -> JSONDict:
        """Return the progress as JSON-able data, without what is unknown."""
        data: JSONDict = {"progress": self.done}
        if self.total is not None:
            data["total"] = self.total
        if self.message:
            data["message"] = self.message
        return data


ProgressCallback: TypeAlias = Callable[[Progress], None]
"""Called in order, on the event loop; what it raises is logged and does not disturb the call."""


def tell(callback: ProgressCallback, progress: Progress) -> None:
    """Call *callback*; what it raises is logged."""
    try:
        callback(progress)
    except (Exception, asyncio.CancelledError, GeneratorExit):  # the call must not take them for its own end
        logger.exception("a progress callback failed")


class CallNotes:
    """What a backend notes about a call, for the records of it: `login` says whose login it was made with."""

    __slots__ = ("login",)

    def __init__(self) -> None:
        self.login = ""


@dataclass(slots=True)
class ToolCall:
    """What is asked of a runner: this tool, these arguments, under these conditions.

    Treat it as a value: a layer that wants another call makes one with `dataclasses.replace`. (It is not frozen only
    because that would triple the cost of making one.) No `args` means `{}`. `timeout` is in seconds; None leaves it to
    the runner. `fallback` lets `stream` answer for a tool that cannot stream with a single `done` event. `origin` says
    who makes the call and on which path. `run_id` is empty until it is needed; see `identify`. A backend sets
    `waiting` as long as the call certainly has not begun; it names what the call waits for. `idempotency_key` is the
    same for all attempts at one effect: a backend whose service takes such keys passes it on. `fresh` has the tool
    called although a cache may know the answer. `step` names the call within its run, and is the same when the run is
    made again from its beginning; empty where the run has no need of it. `at` is the line and column of the call in the
    source of its run, where they are known.
    """

    tool_id: str
    args: JSONObject | None = None
    timeout: float | None = None
    on_progress: ProgressCallback | None = None
    fallback: bool = False
    origin: Origin = HERE
    run_id: str = ""
    waiting: str = ""
    idempotency_key: str = ""
    fresh: bool = False
    step: str = ""
    at: tuple[int, int] | None = None
    resolution: object = field(default=None, init=False, repr=False, compare=False)
    """What the rules around this very call have found out about it; a copy of the call begins without it."""

    def identify(self) -> str:
        """Return the ID of this call in audit and traces, made when it is first asked for."""
        if not self.run_id:
            self.run_id = new_run_id()
        return self.run_id


def note_login(call: ToolCall, whose: str) -> None:
    """Have the records of *call* say whose login it was made with."""
    notes = getattr(call.resolution, "trail", None)
    if isinstance(notes, CallNotes):
        notes.login = whose
