"""The calls of one run that its event loop makes: each is a task. All of it is touched on the event loop only."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from toolexec.backend.failures import cancel_begun
from toolexec.code.tools import AdmittedCall
from toolexec.errors import ProtocolError
from toolexec.runtime.protocol.messages import Message
from toolexec.runtime.protocol.server import RequestServer

logger: logging.Logger = logging.getLogger(__name__)
_MOST_QUESTIONS: Final = 16
_CALLS: Final = frozenset({"run_tool", "run_chain"})
_GRACE_SECONDS: Final = 0.1


class LoopCalls:
    """Makes calls on the event loop that it is made on, in the context of that moment; *settle* gets each answer."""

    def __init__(self, server: RequestServer, settle: Callable[[str, str], None]) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.context: contextvars.Context = contextvars.copy_context()
        self.stopped: bool = False
        """Whether nothing more is begun. Set from any thread."""
        self._server = server
        self._deliveries = server.deliveries
        self._settle = settle
        self._questions: deque[Message] = deque()
        self._asking = 0
        self._tasks: dict[str, asyncio.Task[Any]] = {}  # by request

    def begin(self, requests: Sequence[tuple[Message, AdmittedCall | None]]) -> None:
        """Start the calls of a frame, all at the same time; questions about tools, a few at a time."""
        if self.stopped:
            return
        for message, admitted in requests:
            if message.type in _CALLS:
                self._begin_one(message, admitted)
            else:
                self._questions.append(message)
        self._ask_on()

    def _ask_on(self) -> None:
        while self._questions and self._asking < _MOST_QUESTIONS and not self.stopped:
            self._asking += 1
            self._begin_one(self._questions.popleft(), None)

    def _begin_one(self, message: Message, admitted: AdmittedCall | None) -> None:
        self.begin_task(message.id, self._answer(message, admitted))

    def begin_task(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Do *work* in a task; what need not wait is done at once where Python can, which saves a round of the loop."""
        context = self.context.copy()
        if sys.version_info >= (3, 12) and self.loop.get_task_factory() is None:
            task = asyncio.Task(work, loop=self.loop, context=context, eager_start=True)
        else:
            task = self.loop.create_task(work, context=context)
        if not task.done():
            self._tasks[key] = task

    def cancel_task(self, key: str) -> None:
        """Cancel one that is under way."""
        task = self._tasks.get(key)
        if task is not None:
            cancel_begun(task)

    async def _answer(self, message: Message, admitted: AdmittedCall | None) -> None:
        try:
            if admitted is None:
                text = await self._server.answer(message)
            else:
                text = await self._server.finish(message, admitted)
        except asyncio.CancelledError:
            text = self._server.refusal(message, ProtocolError("the call was cancelled"))
            self._settle(message.id, text)
            raise
        finally:
            self._tasks.pop(message.id, None)
            if message.type not in _CALLS:
                self._asking -= 1
                self._ask_on()
        self._settle(message.id, text)

    def cancel(self, message_id: str) -> None:
        """Cancel a call, unless a run that is made again knows its outcome."""
        if self._deliveries is not None:
            if self._deliveries.is_known(message_id):
                return  # when it is repeated the answer is there at once, and so it must count now
            self._deliveries.call_off(message_id)
        self.cancel_task(message_id)

    def forget(self, key: str) -> None:
        """Forget a task that is about to end."""
        self._tasks.pop(key, None)

    def cancel_all(self) -> None:
        """Cancel all that is under way, as the run is over; later answers are dropped."""
        for task in [*self._tasks.values()]:
            cancel_begun(task)
        self._settle = _dropped  # a cycle would keep what the run has until the next collection

    async def aclose(self) -> None:
        """Wait a moment until what was cancelled has ended; a tool may refuse to."""
        tasks = [*self._tasks.values()]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_GRACE_SECONDS)
            if left:
                logger.warning("%d tool calls go on though their run is over: they ignore cancellation", len(left))


def _dropped(_message_id: str, _answer: str) -> None:
    """Take an answer for which nothing waits any more."""
