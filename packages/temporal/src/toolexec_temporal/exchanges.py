"""The sandbox's half of the exchange with its workflow: many requests, few updates."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import uuid4

from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from toolexec.errors import RunError
from toolexec.journal import JSONDict, pauses
from toolexec_temporal.messages import Exchange
from toolexec_temporal.sizes import first_part

_PASSING: Final = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.UNKNOWN,
        RPCStatusCode.CANCELLED,
    }
)
"""What the server says, or the way to it, when it may answer a moment later."""
_FIRST_PAUSE: Final = 0.2
_LAST_PAUSE: Final = 5.0
_SHORTEST, _LONGEST = 0.02, 0.25
"""How many seconds there are between two looks at whether the code rests."""


@dataclass
class _Sent:
    """What went along with an exchange, until the workflow has it."""

    groups: list[list[str]]
    has_arrived: bool = False


class Exchanges:
    """Asks the workflow of a sandbox, as `async with`.

    Temporal takes ten updates at a time, so what is asked at one moment goes in one, and there are at most two: the
    next one ends the wait of the last.
    """

    def __init__(self, handle: WorkflowHandle[Any, Any], attempt: int) -> None:
        self.delivered: list[list[str]] = []
        """What goes along with the next exchange."""
        self.known: int = 0
        """How many groups the workflow had when this began."""
        self.broken: Exception | None = None
        """Why nothing can be asked any more, where that is the fault of neither the code nor another worker."""
        self._handle = handle
        self._attempt = attempt
        self._new: list[JSONDict] = []
        self._items: dict[str, int] = {}
        self._given_up: list[str] = []
        self._pending: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_due = False
        self._sent_groups: deque[_Sent] = deque()
        self._rests: bool | None = None
        self._moved = time.monotonic()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def ask(self, name: str, item: JSONDict) -> Mapping[str, Any]:
        """Return the workflow's answer to *item*, whose ID is *name*; cancelling has that cancelled too.

        Raises RunError with the code `run_lost` when another worker has the run.
        """
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._move()
        self._pending[name] = answer
        self._items[name] = id(item)
        self._new.append(item)
        self._soon()
        try:
            return await answer
        except asyncio.CancelledError:
            if self.is_given_up(name):
                self._given_up.append(name)
                self._soon()
            raise
        finally:
            del self._pending[name], self._items[name]

    def undelivered(self) -> tuple[int, list[list[str]]]:
        """Return the groups that the workflow may not have got, as it has not answered to all that were sent, and how
        many came before them."""
        sent = [group for each in self._sent_groups for group in each.groups]
        return self.known, sent + self.delivered

    def is_given_up(self, name: str) -> bool:
        """Return whether the code needs the answer no longer, whose wait was cancelled."""
        return True

    async def report_rest(self, is_at_rest: Callable[[], bool], linger: float) -> None:
        """Say in each exchange whether the code waits for answers and does nothing itself, which counts once it has
        been so for half of *linger* seconds; return never."""
        self._rests = False
        while True:
            await asyncio.sleep(min(max(linger / 4, _SHORTEST), _LONGEST))
            rests = is_at_rest() and time.monotonic() - self._moved >= linger / 2
            if rests != self._rests:
                self._rests = rests
                if self._pending:
                    self._soon()

    def _move(self) -> None:
        """Take note that the code asks for something, or goes on with an answer."""
        self._moved = time.monotonic()
        self._rests = None if self._rests is None else False

    def _soon(self) -> None:
        """Exchange once the requests of this moment are all there."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due = False
        items = [*first_part({str(number): item for number, item in enumerate(self._new)}).values()]
        self._new = self._new[len(items) :]
        later = {id(item) for item in self._new}
        wanted = [name for name in self._pending if self._items[name] not in later]
        exchange = Exchange(self._attempt, items, wanted, self._given_up, self.delivered, self._rests)
        sent = _Sent(self.delivered)
        self._sent_groups.append(sent)
        self._given_up, self.delivered = [], []
        if self._new:
            self._soon()
        task = asyncio.create_task(self._exchange(exchange, sent))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, exchange: Exchange, sent: _Sent) -> None:
        try:
            answers = await self._sent(exchange)
            self._arrived(sent)
        except WorkflowUpdateFailedError as error:
            is_lost = isinstance(error.cause, ApplicationError) and error.cause.type == "run_lost"
            self._fail(RunError("another worker runs this code by now", code="run_lost") if is_lost else error)
            return
        except Exception as error:
            self.broken = error
            self._fail(error)
            return
        if answers:
            self._move()
        for name, answer in answers.items():
            future = self._pending.get(name)
            if future is not None and not future.done():
                future.set_result(answer)
        is_last = len(self._tasks) == 1 and not self._is_due
        if is_last and any(not future.done() for future in self._pending.values()):
            self._soon()

    def _arrived(self, sent: _Sent) -> None:
        """Take note that the workflow has the groups of an exchange."""
        sent.has_arrived = True
        while self._sent_groups and self._sent_groups[0].has_arrived:
            self.known += len(self._sent_groups.popleft().groups)

    async def _sent(self, exchange: Exchange) -> JSONDict:
        """Return what the workflow answers; ask again, under the same ID, while the server cannot be reached."""
        update, waits = uuid4().hex, pauses(_FIRST_PAUSE, _LAST_PAUSE)
        while True:
            try:
                return await self._handle.execute_update("exchange", exchange, id=update, result_type=dict[str, Any])
            except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # the client library raises that as its own error
                    raise asyncio.CancelledError from None
                if isinstance(error, RPCError) and error.status not in _PASSING:
                    raise
            await asyncio.sleep(next(waits))  # for as long as this worker has the run: then its activity is cancelled

    def _fail(self, error: Exception) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)
