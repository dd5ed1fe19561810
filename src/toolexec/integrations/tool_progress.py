"""Pass what a tool reports on to the callers of LangChain and LangGraph."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final

from langchain_core.callbacks.manager import adispatch_custom_event, dispatch_custom_event
from langchain_core.runnables.config import ensure_config

from toolexec.model.call import Progress
from toolexec.model.json_value import JSONDict

EVENT: Final = "tool_progress"
CALL_ID: ContextVar[str] = ContextVar("toolexec_langchain_call", default="")
"""The ID of the call that the model made, where there is one."""

_STARTED: Final = Progress(done=0, total=1, message="started")
_ENDED: Final = tuple(Progress(done=1, total=1, message=message) for message in ("completed", "error"))


class Reports:
    """Passes on the progress of one call: to the custom stream of its graph, and to callback handlers as the custom
    event `tool_progress`, which `astream_events` shows. Make it where the call is made, as that sets who receives it.

    The data are `tool`, `tool_call_id` where it is known, `progress`, and `total` and `message` where the tool says so.
    """

    def __init__(self, tool: str) -> None:
        call_id = CALL_ID.get()
        self._about: JSONDict = {"tool": tool} | ({"tool_call_id": call_id} if call_id else {})
        self._config = ensure_config()
        self._observed = bool(getattr(self._config.get("callbacks"), "handlers", self._config.get("callbacks")))
        self._write = _stream_writer()
        self._context = copy_context()  # the writer looks there for the node of the graph
        self._events: asyncio.Queue[JSONDict | None] | None = None

    def __call__(self, progress: Progress) -> None:
        """Pass on what the tool itself reports; LangChain has events of its own for the start and the end."""
        if progress in (_STARTED, *_ENDED):
            return
        data = self._about | progress.to_dict()
        self._context.run(self._write, data)
        if self._events is not None:
            self._events.put_nowait(data)
        elif self._observed:
            dispatch_custom_event(EVENT, data, config=self._config)

    @asynccontextmanager
    async def awaited(self) -> AsyncGenerator[None, None]:
        """Have handlers called by this event loop; all of them have been when the block ends."""
        if not self._observed:
            yield
            return
        events = self._events = asyncio.Queue[JSONDict | None]()
        passing = asyncio.create_task(self._pass_on(events))
        try:
            yield
        except BaseException:
            passing.cancel()
            raise
        events.put_nowait(None)
        await passing

    async def _pass_on(self, events: asyncio.Queue[JSONDict | None]) -> None:
        while (data := await events.get()) is not None:
            await adispatch_custom_event(EVENT, data, config=self._config)


def _stream_writer() -> Callable[[Any], None]:
    """Return what writes into the custom stream of the graph in which this runs; outside of one it does nothing."""
    try:  # it comes with LangGraph, and not with this extra
        from langgraph.config import get_stream_writer

        return get_stream_writer()
    except (ImportError, RuntimeError, KeyError):
        return lambda data: None
