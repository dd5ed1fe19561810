"""A sandbox backend that has others do the work: each request is a Temporal workflow, which outlives its caller."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from secrets import token_hex
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import (
    ConfigurationError,
    InvalidRequestError,
    JournalError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolNotFoundError,
)
from toolexec.journal import JSONDict, outcome_of_error
from toolexec.sandbox import (
    Availability,
    BackendInfo,
    CodeResult,
    ExecuteRequest,
    LimitsEnforced,
    OwnRuns,
    SandboxBackend,
    SandboxSession,
    located,
)
from toolexec_temporal.messages import SANDBOX, Rules, SandboxInput
from toolexec_temporal.requests import read_result, request_to_json
from toolexec_temporal.settings import TemporalSettings

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle

    from toolexec.journal import CallSpec, Deliveries, Index, Queue, Registered, Runner, RunRecord, RunSpec

RUN_ID: Final = "run_id"
"""The key of a request's metadata that names its run: a second request of this name gets the result of the first."""
_CANCEL_PATIENCE: Final = 10.0


class TemporalBackend:
    """Runs each request as a Temporal workflow, in the sandbox *inner* of a worker.

    It reports and is judged by the isolation and the limits of *inner*, which it never uses in this process, unless
    *serve* is true: then this process is one of the workers. Otherwise they are started by `toolexec temporal worker`.
    The tools stay with the caller, who answers for them while the code runs.

    A request whose metadata has a `run_id` survives its caller: another caller with the same request and ID goes on
    with it, or gets its result. A request is run at most once; a worker that is lost fails it (SandboxFailedError).
    """

    kind: str = "temporal"

    def __init__(self, inner: SandboxBackend, settings: TemporalSettings | None = None, *, serve: bool = False) -> None:
        self.inner: SandboxBackend = inner
        self.settings: TemporalSettings = settings or TemporalSettings()
        self.isolation: str = inner.isolation
        self.languages: frozenset[str] = inner.languages
        self._serve = serve
        self._runs = OwnRuns()
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._client: Client | None = None
        self._requests: dict[str, ExecuteRequest] = {}
        self._gateway = f"{self.settings.task_queue}-caller-{token_hex(6)}"
        self._closed = False

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """Return what *inner* enforces."""
        return self.inner.enforces(request)

    async def check(self) -> Availability:
        """Return whether Temporal is there, and a worker that takes code of this isolation."""
        if self._serve:
            state = await self.inner.check()
            if not state.ok:
                return state
        try:
            client = await self._open()
            workers = self._serve or await self._workers(client)
        except JournalError as error:
            return Availability(ok=False, reason=error.message)
        queue = self.settings.queue_for(self.isolation)
        missing = f"no worker takes code from the task queue {queue}; start one: toolexec temporal worker"
        return Availability(ok=workers, reason="" if workers else missing)

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxBackend.execute`; see the class for what happens when the caller dies."""
        return await self._runs.run(self._execute(request))

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """Raise InvalidRequestError: each request is a run of its own, on whatever worker takes it."""
        raise located(
            InvalidRequestError(
                f"{self.kind} has no sessions: each request is a run of its own, which any worker may take; use "
                f"{self.inner.kind} here for them, or files to pass on what a run has made"
            ),
            self,
        )

    async def aclose(self) -> None:
        """Stop what runs, and the workers of this process."""
        self._closed = True
        await self._runs.aclose()
        await self._stack.aclose()
        await self.inner.aclose()

    # -- one request --------------------------------------------------------------------------------------------

    async def _execute(self, request: ExecuteRequest) -> CodeResult:
        if self._closed:
            raise located(SandboxUnavailableError("this backend is closed; make a new one"), self)
        language = request.language or "python"
        if language not in self.languages:
            known = ", ".join(sorted(self.languages))
            raise located(InvalidRequestError(f"{self.kind} does not run {language!r}; it runs {known}"), self)
        began = perf_counter()
        try:
            client = await self._open()
        except JournalError as error:
            raise SandboxUnavailableError(error.message, backend=self.kind) from error
        data = request_to_json(request)
        name = f"{self.settings.prefix}sandbox-{request.metadata.get(RUN_ID) or token_hex(12)}"
        self._requests[name] = request
        try:
            handle = await self._started(client, name, data, request.seconds)
            found = await self._outcome(handle)
        finally:
            del self._requests[name]
        return self._completed(found, request, perf_counter() - began)

    async def _started(self, client: Client, name: str, data: JSONDict, seconds: float) -> WorkflowHandle[Any, Any]:
        """Start the workflow of a request, or go on with the one of this name. Raises InvalidRequestError for another
        request of that name."""
        from temporalio.common import WorkflowIDReusePolicy
        from temporalio.exceptions import WorkflowAlreadyStartedError
        from temporalio.service import RPCError

        settings = self.settings
        rules = Rules(heartbeat_timeout=settings.heartbeat_timeout, attempts=settings.attempts)
        digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
        queue = settings.queue_for(self.isolation)
        given = SandboxInput(self.inner.kind, queue, self._gateway, data, seconds, rules)
        try:
            return await client.start_workflow(
                SANDBOX,
                given,
                id=name,
                task_queue=settings.task_queue,
                result_type=dict[str, Any],
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                memo={"digest": digest},
            )
        except RPCError as error:
            raise SandboxUnavailableError(f"Temporal failed: {error.message}", backend=self.kind) from error
        except WorkflowAlreadyStartedError:
            handle = client.get_workflow_handle(name, result_type=dict[str, Any])
            known = await handle.describe()
            if (await known.memo()).get("digest") != digest:
                raise InvalidRequestError(f"another request has the run ID of {name}", backend=self.kind) from None
            if known.status is not None and known.status.name == "RUNNING":
                await handle.execute_update("attend", self._gateway)
            return handle

    async def _outcome(self, handle: WorkflowHandle[Any, Any]) -> Mapping[str, Any]:
        """Wait for the end of a request; a caller that is cancelled has the sandbox stopped."""
        from temporalio.client import WorkflowFailureError
        from temporalio.service import RPCError

        try:
            return await handle.result()
        except asyncio.CancelledError:
            await asyncio.shield(self._stopped(handle))
            raise
        except WorkflowFailureError as error:
            reason = getattr(error.cause, "message", "") or str(error.cause)
            raise SandboxFailedError(f"the run was ended on Temporal: {reason}", backend=self.kind) from error
        except RPCError as error:
            raise SandboxFailedError(f"Temporal failed: {error.message}", backend=self.kind) from error

    async def _stopped(self, handle: WorkflowHandle[Any, Any]) -> None:
        """Cancel the workflow, and wait until the sandbox is gone, within reason."""
        try:
            async with asyncio.timeout(_CANCEL_PATIENCE):
                await handle.cancel()
                await handle.result()
        except Exception:
            return

    def _completed(self, data: Mapping[str, Any], request: ExecuteRequest, duration: float) -> CodeResult:
        try:
            result = read_result(data)
        except Exception as error:
            error.__dict__["backend"] = self.kind
            raise
        inner = result.backend
        details: JSONDict = {"inner": inner.to_dict()} if inner is not None else {"inner": {"kind": self.inner.kind}}
        isolation = inner.isolation if inner is not None else self.isolation
        result.backend = BackendInfo(kind=self.kind, isolation=isolation, details=details)
        result.duration = duration
        result.language = request.language or "python"
        if result.error is not None:
            result.error.backend = self.kind
        own = self.enforces(request)
        counts = {"tool_calls": own.tool_calls, "chain_steps": own.chain_steps}  # these are held by the caller
        result.limits_enforced = replace(result.limits_enforced, **counts) if inner is not None else own
        for stream in ("stdout", "stderr"):  # what was printed after the last request
            there, whole = request.output.text(stream), str(getattr(result, stream))
            if whole.startswith(there):
                request.output.write(whole[len(there) :], stream)
        return result

    # -- Temporal -----------------------------------------------------------------------------------------------

    async def _open(self) -> Client:
        """Connect, and begin to answer for the tools of the requests of this process."""
        async with self._opening:
            if self._client is None:
                from toolexec_temporal.caller import Caller
                from toolexec_temporal.client import connect

                client = await connect(self.settings)
                await self._stack.enter_async_context(Caller(client, self._gateway, self._requests, self.settings))
                if self._serve:
                    from toolexec_temporal.worker import TemporalWorker

                    host = _OnlySandbox(self.inner)
                    await self._stack.enter_async_context(TemporalWorker(host, self.settings, client=client))
                self._client = client
            return self._client

    async def _workers(self, client: Client) -> bool:
        from temporalio.service import RPCError

        from toolexec_temporal.pollers import known_pollers

        try:
            return bool(await known_pollers(client, self.settings.queue_for(self.isolation)))
        except RPCError as error:
            raise JournalError(f"Temporal failed: {error.message}") from error


class _OnlySandbox:
    """The host of a worker that has one sandbox and nothing else."""

    def __init__(self, backend: SandboxBackend) -> None:
        self._backend = backend

    @property
    def queues(self) -> Mapping[str, Queue]:
        """No queues."""
        return {}

    @property
    def index(self) -> Index:
        """No tools."""
        from toolexec import InMemoryIndex

        return InMemoryIndex()

    def sandboxes(self) -> Mapping[str, SandboxBackend]:
        """Return the one."""
        return {self._backend.kind: self._backend}

    async def start(self) -> None:
        """Do nothing."""

    def find(self, tool_id: str) -> Registered:
        """Raise ToolNotFoundError."""
        raise ToolNotFoundError(tool_id)

    async def call(self, spec: CallSpec) -> JSONDict:
        """Answer that there is no such tool."""
        return {"state": "done", "outcome": outcome_of_error(ToolNotFoundError(spec.tool))}

    async def settle(self, spec: CallSpec) -> JSONDict:
        """Answer that it is not known."""
        return {"state": "unknown"}

    async def record(self, spec: RunSpec) -> None:
        """Do nothing: this worker has no audit."""

    async def run(self, record: RunRecord, runner: Runner, deliveries: Deliveries | None) -> JSONDict:
        """Raise ConfigurationError: this worker is for sandboxes only."""
        raise ConfigurationError("this worker runs requests for sandboxes, and no durable runs")
