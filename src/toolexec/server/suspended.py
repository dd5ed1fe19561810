"""Calls that wait for answers between two requests of a client.

A client of the newer era cannot be asked while its request lasts. Its request ends with questions and a state; the work
goes on waiting, and the client repeats the request with answers and state.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Mapping
from typing import Any, TypeAlias, TypeVar

import anyio
from mcp_types import InputRequest, InputRequiredResult

from toolexec.errors import ApprovalRequiredError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Approver
from toolexec.server.durable import DurableCall
from toolexec.server.elicitation import answer_in, question
from toolexec.server.kept_calls import KeptCalls, about, refuse_state
from toolexec.server.logs import Line
from toolexec.server.rare_warnings import RareWarning

logger: logging.Logger = logging.getLogger(__name__)
Outcome: TypeAlias = JSONDict
_SETTLE_SECONDS = 0.005
_KEEP_SECONDS = 60.0
_STOP_SECONDS = 5.0
_REMEMBERED = 1000
T = TypeVar("T")


def digest_of(name: str, args: JSONObject) -> str:
    """Return what a call asks for, as a short text: the tool's name and its arguments."""
    return hashlib.blake2b(json.dumps([name, args], sort_keys=True).encode(), digest_size=16).hexdigest()


class SuspendedRun:
    """One call: its work, and what it waits for. `line` carries its messages; `ask` is how the work asks.

    One that has become a task has `patience`: how long, in seconds, each of its questions stays open. One that another
    server has left has `answers` already, by what they are about. `record` is what outlives this server. `tools` are
    those that its reply comes of, by ID.
    """

    def __init__(self, runs: SuspendedRuns, owner: str, digest: str, source: str = "") -> None:
        self.line: Line = Line()
        self.owner = owner
        self.source: str = source or owner
        self.digest = digest
        self.id: str = secrets.token_urlsafe(16)
        self.round = 0
        self.is_claimed = False
        self.task: asyncio.Task[Outcome] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.patience: float | None = None
        self.durable: DurableCall | None = None
        self.answers: dict[str, list[ApprovalAnswer]] = {}
        self.tools: set[str] = set()
        self._runs = runs
        self.record = runs.kept.call(self.id, owner, digest)
        self._asked = 0
        self._open: dict[str, tuple[ApprovalRequest, asyncio.Future[ApprovalAnswer]]] = {}
        self._inputs: dict[str, tuple[InputRequest, asyncio.Future[object]]] = {}
        self._changed = asyncio.Event()
        self._given_up: Exception | None = None

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Have *request* put before the person at the client, and wait for the answer; see `Approver`."""
        if self._given_up is not None:
            raise self._given_up
        question(request)  # what cannot be shown whole is refused here, where it fails the call
        if answers := self.answers.get(about(request)):
            return answers.pop(0)
        self._runs.admit(self)
        self._asked += 1
        key = f"approval-{self._asked}"
        answer: asyncio.Future[ApprovalAnswer] = asyncio.get_running_loop().create_future()
        self._open[key] = (request, answer)
        self._changed.set()
        try:
            async with asyncio.timeout(self.patience):
                return await answer
        finally:
            self._open.pop(key, None)

    async def ask_client(self, request: InputRequest) -> object:
        """Put what a server behind this one asks to the client, and wait for the response; None where the call has
        become a task, whose client cannot be asked that."""
        if self._given_up is not None:
            raise self._given_up
        if self.patience is not None:
            return None
        if (kept := self.record.begin()) is not None:
            await kept
        self._runs.admit(self)
        self._asked += 1
        key = f"input-{self._asked}"
        response: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._inputs[key] = (request, response)
        self._changed.set()
        try:
            return await response
        finally:
            self._inputs.pop(key, None)

    @property
    def over(self) -> bool:
        """Whether no answer counts any more."""
        return self._given_up is not None

    @property
    def asks(self) -> bool:
        """Whether a question is open."""
        return bool(self._open or self._inputs)

    def make_durable(self, durable: DurableCall) -> None:
        """Have the call be a durable run, which waits outside of any request."""
        self.durable = durable
        durable.changed = self._changed.set

    @property
    def waits(self) -> bool:
        """Whether it is a durable run that waits, for as long as that takes."""
        return self.durable is not None and bool(self.durable.waits)

    def begin(self, work: Awaitable[Outcome]) -> None:
        """Start the work, in a task of its own that outlives the request."""
        self.task = asyncio.ensure_future(work)
        self.task.add_done_callback(lambda _: self._changed.set())

    async def outcome(self) -> Outcome | dict[str, InputRequest] | None:
        """Wait for the work's reply, or for what must be asked before it can go on; `task.done()` says which. None is
        for a durable run that waits."""
        task = self.task
        assert task is not None
        while not task.done():
            if self.waits:
                return None
            if self.asks:
                # Calls that run at the same time ask at about the same time: one reply may carry all their questions.
                await asyncio.wait([task], timeout=_SETTLE_SECONDS)
                if self.asks and not task.done():
                    inputs = {key: request for key, (request, _) in self._inputs.items()}
                    return inputs | {key: question(request) for key, request in self.questions().items()}
                continue
            await self.stirred()
        return task.result()

    async def stirred(self) -> None:
        """Wait for a question, for the end of the work, or until a durable run waits."""
        assert self.task is not None
        while not (self.asks or self.task.done() or self.waits):
            self._changed.clear()
            await self._changed.wait()

    def questions(self) -> dict[str, ApprovalRequest]:
        """Return what is asked and not answered yet; a key never stands for another question."""
        return {key: request for key, (request, _) in self._open.items()}

    async def put(self, ask: Approver) -> None:
        """Have *ask* put each open question, and give the work its answers, until the work ends."""
        assert self.task is not None
        for key, (request, future) in list(self._open.items()):
            asking = asyncio.ensure_future(_answer_of(ask, request))
            try:
                await asyncio.wait([asking, self.task], return_when=asyncio.FIRST_COMPLETED)
            finally:
                asking.cancel()
            if self.task.done() or future.done():
                continue
            self._open.pop(key, None)
            if (error := asking.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(asking.result())

    def answer(self, replies: Mapping[str, object]) -> None:
        """Give the work the answers; replies to nothing that is open are ignored."""
        for key, reply in replies.items():
            if key in self._open:
                _settle(self._open.pop(key)[1], answer_in(reply))
            elif key in self._inputs:
                _settle(self._inputs.pop(key)[1], reply)

    def become_task(self, patience: float) -> None:
        """Have each question, those that are open too, end with TimeoutError after *patience* seconds."""
        self.patience = patience
        for _, response in self._inputs.values():
            _settle(response, None)
        for _, future in self._open.values():
            asyncio.get_running_loop().call_later(patience, _fail, future, TimeoutError())

    def give_up(self, why: Exception) -> None:
        """Stop waiting for answers: what is open, and whatever is asked from now on, ends with *why*."""
        self._given_up = why
        for _, future in (*self._open.values(), *self._inputs.values()):
            _fail(future, why)

    async def stop(self) -> None:
        """End the work, whatever it does."""
        if self.timer is not None:
            self.timer.cancel()
        task = self.task
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=_STOP_SECONDS)


class SuspendedRuns:
    """All calls that wait between requests: at most *limit*, each for at most *timeout* seconds per question.

    One caller cannot take all the room: once it is full, the caller with most calls that wait has none added, and loses
    the oldest of them to a caller that has fewer.

    A state is good for one request, of the same caller, with the same arguments. A request that comes too late for
    its answer to count still gets the call's reply, for a while.

    *kept* has records of them. By those, a call that another server has left is made from its beginning, unless
    something was done for it.
    """

    def __init__(self, limit: int, timeout: float, kept: KeptCalls | None = None) -> None:
        self.kept: KeptCalls = kept if kept is not None else KeptCalls(lambda: None)
        self._limit = limit
        self._timeout = timeout
        self._waiting: dict[str, SuspendedRun] = {}
        self._active: set[SuspendedRun] = set()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._refused, self._gave_way = RareWarning(logger), RareWarning(logger)
        self._closed = False

    def __len__(self) -> int:
        """How many calls wait for a client to come back."""
        return len(self._waiting)

    def admit(self, run: SuspendedRun) -> None:
        """Make sure that there is room for one more call that waits; raises ApprovalRequiredError if there is none."""
        if self._closed:
            raise ApprovalRequiredError("nobody was asked: the server is closing; call it again later", retryable=True)
        waiting = [one for one in self._waiting.values() if not one.over]
        waiting += (one for one in self._active if one.asks and not one.over)
        if run in waiting or len(waiting) < self._limit:
            return
        counts = Counter(other.source for other in waiting)
        most, number = counts.most_common(1)[0]
        own = counts[run.source]
        idle = (one for one in waiting if one.id in self._waiting or one.patience is not None)
        oldest = next((one for one in idle if one.source == most), None)
        if own + 1 >= number or oldest is None:
            self._refused.log("%d calls wait for approval already; one more was refused", len(waiting))
            raise ApprovalRequiredError(
                f"nobody was asked: {own} of your calls wait for approval already, and there is no room for more; have "
                "them answered, or wait, and call it again",
                retryable=True,
                details={"reason": "too many open approvals", "open": own},
            )
        self._gave_way.log("%d calls wait for approval; the oldest of the caller with most gives way", len(waiting))
        self._give_way(oldest)

    def _give_way(self, run: SuspendedRun) -> None:
        error = ApprovalRequiredError(
            f"nobody has answered: {self._limit} calls wait for approval, most of them yours, and this one gave way to "
            "another caller's; call it again when others are answered",
            retryable=True,
            details={"reason": "too many open approvals"},
        )
        if run.id in self._waiting:
            self._retire(run, error)
        else:
            run.give_up(error)

    async def resume(
        self, state: str, owner: str, digest: str, replies: Mapping[str, object], source: str = ""
    ) -> SuspendedRun:
        """Return the call that *state* belongs to, with *replies* given to it; one that another server has left has no
        work yet. Raises MCPError for a state that is used up, expired, or another caller's.
        """
        name, _, number = state.partition(".")
        used = "this requestState is not good any more: it was used before; nothing was run again"
        run = self._waiting.get(name)
        if run is None:
            if name in self._gone:
                refuse_state(used)
            answers = await self.kept.take(name, number, owner, digest, replies)
            run = SuspendedRun(self, owner, digest, source)
            run.answers = answers
            return run
        if run.owner != owner or run.digest != digest:
            refuse_state("this requestState belongs to another call")
        if number != str(run.round) or run.is_claimed:
            refuse_state(used)
        run.is_claimed = True
        try:
            is_ours = await run.record.claim()
        finally:
            run.is_claimed = False
        if not is_ours or self._waiting.pop(name, None) is None:
            refuse_state(used)
        self._active.add(run)
        if run.timer is not None:
            run.timer.cancel()
        run.answer(replies)
        return run

    async def advance(self, run: SuspendedRun, within: float | None = None) -> Outcome | InputRequiredResult | None:
        """Wait for the reply of *run*, or for its next questions; when that is cancelled, the work is stopped.

        None means that it still worked after *within* seconds, or is a durable run that waits, and goes on.
        """
        self._active.add(run)
        result: Outcome | dict[str, InputRequest] | None = None
        try:
            with anyio.move_on_after(within):
                result = await run.outcome()
            if result is not None and run.task is not None and not run.task.done():
                run.round += 1
                asked = {key: about(request) for key, request in run.questions().items() if key in result}
                await run.record.wait(run.round, asked, self._timeout)
                return self._suspend(run, result)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await run.stop()
            self._forget(run)
            run.task = None  # whose error leads back here: only a collection of garbage would free such a cycle
            raise
        finally:
            self._active.discard(run)
        assert run.task is not None
        if result is None:
            self.keep(run)
            return None
        if run.task.done():
            self._forget(run)
            return result
        raise AssertionError("questions of a call whose work has ended")

    def _suspend(self, run: SuspendedRun, asked: dict[str, InputRequest]) -> InputRequiredResult:
        self._waiting[run.id] = run
        run.timer = asyncio.get_running_loop().call_later(self._timeout, self._expire, run)
        return InputRequiredResult(input_requests=asked, request_state=f"{run.id}.{run.round}")

    def keep(self, run: SuspendedRun) -> None:
        """Count a run that has begun, and goes on without a request, until its work ends; `aclose` stops it."""
        assert run.task is not None
        self._active.add(run)
        run.task.add_done_callback(lambda _: self._active.discard(run))

    def _expire(self, run: SuspendedRun) -> None:
        self._retire(run, TimeoutError())

    def _retire(self, run: SuspendedRun, why: Exception) -> None:
        """Have the call end without an answer; its client can still get the reply for a while."""
        run.give_up(why)
        if run.timer is not None:
            run.timer.cancel()
        run.timer = asyncio.get_running_loop().call_later(_KEEP_SECONDS, self._drop, run)

    def _drop(self, run: SuspendedRun) -> None:
        self._waiting.pop(run.id, None)
        if run.task is not None:
            run.task.cancel()

    def _forget(self, run: SuspendedRun) -> None:
        self._waiting.pop(run.id, None)
        if run.round:
            self._gone[run.id] = None
            if len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)

    async def aclose(self) -> None:
        """Stop all calls, those that wait and those at work."""
        self._closed = True
        runs = [*self._waiting.values(), *self._active]
        self._waiting.clear()
        for run in runs:
            await run.stop()


async def _answer_of(ask: Approver, request: ApprovalRequest) -> ApprovalAnswer:
    answer = ask(request)
    return await answer if inspect.isawaitable(answer) else answer


def _settle(future: asyncio.Future[T], answer: T) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], why: Exception) -> None:
    if not future.done():
        future.set_exception(why)
