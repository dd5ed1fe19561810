"""One request for a sandbox as a Temporal workflow: a worker runs it, and its caller answers for the tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from time import time
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as LostError

from toolexec.errors import SandboxFailedError, SandboxUnavailableError, ToolExecError
from toolexec.journal import Host, JSONDict, error_to_json
from toolexec.sandbox import GREETING, JSONCodec, Message, Output, ProxyGateway
from toolexec_temporal.activities import beating
from toolexec_temporal.dispatcher import Dispatcher
from toolexec_temporal.exchanges import Exchanges
from toolexec_temporal.messages import SANDBOX, VERSION, Exchange, SandboxInput
from toolexec_temporal.requests import read_request, result_to_json

_CALLS: Final = frozenset({"run_tool", "run_chain"})
_START_GRACE: Final = 60.0
"""How many seconds a sandbox may take to start, be built and report, beyond the time limit of the code."""
_PATIENCE: Final = 10.0
"""How many seconds a caller may take to pick up a question, before it counts as gone."""
_LOST: Final = "the worker that ran this code was lost; the code was stopped, and may have done a part of its work"


@workflow.defn(name=SANDBOX, sandboxed=False)
class SandboxWorkflow:
    """A request of a `TemporalBackend`. It is run once: what it did cannot be taken back."""

    @workflow.init
    def __init__(self, given: SandboxInput) -> None:
        if given.version > VERSION:
            raise ApplicationError(f"this worker knows version {VERSION} of runs, not {given.version}; update it")
        self._given = given
        self._gateway = given.gateway
        self._dispatcher = Dispatcher()
        self._answers: dict[str, JSONDict | None] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @workflow.run
    async def run(self, given: SandboxInput) -> dict[str, Any]:
        """Run the request, and return what came of it."""
        rules = given.rules
        try:
            return await workflow.execute_activity(
                "run_sandbox",
                given,
                result_type=dict[str, Any],
                task_queue=given.queue,
                start_to_close_timeout=timedelta(seconds=given.seconds + _START_GRACE),
                schedule_to_start_timeout=timedelta(seconds=_START_GRACE),
                heartbeat_timeout=timedelta(seconds=rules.heartbeat_timeout),
                retry_policy=RetryPolicy(maximum_attempts=1),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            if _is_unheard(error):
                missing = f"no worker takes code from {given.queue}; start one: toolexec temporal worker"
                return {"raised": error_to_json(SandboxUnavailableError(missing))}
            if isinstance(error.cause, ApplicationError):  # nothing was run
                return {"raised": error_to_json(SandboxUnavailableError(error.cause.message))}
            return {"error": error_to_json(SandboxFailedError(_LOST))}
        finally:
            for task in [*self._tasks.values()]:
                task.cancel()

    @workflow.update
    async def attend(self, gateway: str) -> None:
        """Have the caller at another task queue answer from now on."""
        self._gateway = gateway

    @workflow.update
    async def attach(self, attempt: int) -> None:
        """Let a sandbox begin."""
        self._dispatcher.attempt = attempt

    @workflow.update(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def exchange(self, exchange: Exchange) -> dict[str, Any]:
        """Pass questions on to the caller, and return the first answers."""
        for item in exchange.items:
            if item["id"] not in self._tasks:
                self._tasks[item["id"]] = asyncio.create_task(self._ask(item))
        for name in exchange.cancelled:
            if name in self._tasks:
                self._tasks[name].cancel()
        return await self._dispatcher.answers(exchange, self._answers.get)

    @exchange.validator
    def check_exchange(self, exchange: Exchange) -> None:
        """Refuse a sandbox that has lost the run."""
        self._dispatcher.check(exchange)

    async def _ask(self, item: JSONDict) -> None:
        """Ask the caller, or the one who comes in its place; a call whose caller was lost is not made again."""
        name = item["id"]
        while self._answers.get(name) is None:
            try:
                self._answers[name] = await workflow.execute_activity(
                    "answer",
                    args=[workflow.info().workflow_id, item],
                    result_type=dict[str, Any],
                    task_queue=self._gateway,
                    schedule_to_start_timeout=timedelta(seconds=_PATIENCE),
                    start_to_close_timeout=timedelta(seconds=self._given.seconds + _START_GRACE),
                    heartbeat_timeout=timedelta(seconds=self._given.rules.heartbeat_timeout),
                    retry_policy=RetryPolicy(maximum_attempts=1),
                    cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                )
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                if not _is_unheard(error) and item["type"] in _CALLS:
                    text = "the caller of this code was lost during the call, which may have been done"
                    self._answers[name] = {"type": "error", "payload": {"error": text, "code": "gateway"}}


def _is_unheard(error: ActivityError) -> bool:
    """Return whether no worker has begun an activity."""
    cause = error.cause
    return isinstance(cause, LostError) and cause.type is TimeoutType.SCHEDULE_TO_START


class SandboxActivities:
    """The activity of a worker that runs requests for sandboxes, in those of *host*."""

    def __init__(self, host: Host, client: Client) -> None:
        self._host = host
        self._client = client

    @activity.defn(name="run_sandbox")
    async def run_sandbox(self, given: SandboxInput) -> dict[str, Any]:
        """Run a request, once."""
        info = activity.info()
        backend = self._host.sandboxes().get(given.kind)
        if backend is None:
            raise ApplicationError(f"the worker of {given.queue} has no sandbox {given.kind}; give it one")
        handle = self._client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        number = int(time() * 1000)
        async with beating():
            await handle.execute_update("attach", number)
            async with _Channel(handle, number) as channel, ProxyGateway(channel) as gateway:
                output = Output(given.request["output_chars"], channel.note)
                request = read_request(given.request, gateway, output)
                try:
                    result = await backend.execute(request)
                except ToolExecError as error:
                    return {"raised": error_to_json(error)}
                return result_to_json(result)


class _Channel(Exchanges):
    """A connection to the gateway of the caller, by way of the workflow. What is printed goes along with requests."""

    def __init__(self, handle: WorkflowHandle[Any, Any], attempt: int) -> None:
        super().__init__(handle, attempt)
        self._codec = JSONCodec()
        self._printed: list[list[str]] = []
        self._answered: asyncio.Queue[bytes] = asyncio.Queue()
        self._asking: dict[str, asyncio.Task[None]] = {}

    def note(self, stream: str, text: str) -> None:
        """Keep what was printed for the next request."""
        self._printed.append([stream, text])

    async def send(self, frame: bytes) -> None:
        """Implement `Connection.send`."""
        for message in self._codec.decode(frame):
            if message.type == "hello":
                self._answer(message.id, "response", {**GREETING, "limits": {}})
            elif message.type == "cancel":
                if message.id in self._asking:
                    self._asking[message.id].cancel()
            elif message.type != "bye":
                self._asking[message.id] = asyncio.create_task(self._request(message))

    async def receive(self) -> bytes:
        """Implement `Connection.receive`."""
        return await self._answered.get()

    async def aclose(self) -> None:
        """Implement `Connection.aclose`."""
        for task in [*self._asking.values()]:
            task.cancel()

    async def _request(self, message: Message) -> None:
        printed, self._printed = self._printed, []
        item = {"id": message.id, "type": message.type, "payload": message.payload, "printed": printed}
        try:
            answer: Mapping[str, Any] = await self.ask(message.id, item)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            answer = {"type": "error", "payload": {"error": str(error), "code": "gateway"}}
        finally:
            self._asking.pop(message.id, None)
        self._answer(message.id, answer["type"], answer["payload"])

    def _answer(self, message_id: str, kind: str, payload: Any) -> None:
        self._answered.put_nowait(json.dumps({"type": kind, "id": message_id, "payload": payload}).encode())
