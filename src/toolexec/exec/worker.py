"""What a worker for durable runs has of an `Exec`: its tools, its rules and its sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolexec.backend.plugins import JOURNALS, known_plugins
from toolexec.code.deliveries import Deliveries
from toolexec.discovery.index import Index, Registered
from toolexec.durable.host import CallSpec, RunSpec, WorkedEngine, Worker, read_args
from toolexec.durable.journal import RunRecord
from toolexec.durable.outcomes import error_from_json, error_to_json, outcome_of, outcome_of_error
from toolexec.durable.queues import Queue
from toolexec.durable.runner import DurableRunner
from toolexec.errors import (
    ApprovalRequiredError,
    ClosedError,
    ConfigurationError,
    InvalidResultError,
    Outcome,
    ToolExecError,
)
from toolexec.exec.chain import ChainResult
from toolexec.exec.run_data import chain_to_json, code_to_json, origin_from_json
from toolexec.model.approval_text import approval_details, argument_lines
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Approver, Caller, CallPath, Origin, acting
from toolexec.model.settings import check_ranges
from toolexec.run.admission import admit_durable
from toolexec.run.gate import RECORDED
from toolexec.run.large import ON_LOOP
from toolexec.run.reconcile import check_outcome
from toolexec.run.repeating import is_repeatable
from toolexec.run.run_request import RUN_KINDS, RunRequest
from toolexec.run.runner import Runner
from toolexec.run.types import Result
from toolexec.runtime.base import SandboxBackend
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.parser import parse

if TYPE_CHECKING:
    from toolexec.exec.parts import Parts


def worker_of(parts: Parts, *, isolations: Sequence[str] | None, max_activities: int, patience: float) -> Worker:
    """Return a worker; see `Exec.worker`."""
    check_ranges("worker", above={"max_activities": max_activities}, least={"patience": patience})
    engine = parts.durable.engine
    if not isinstance(engine, WorkedEngine):
        kind = next(iter(known_plugins(JOURNALS)), "KIND")
        raise ConfigurationError(
            f"a worker needs to know whose runs it works on: Exec(journal={kind!r}), or the settings [durable.{kind}] "
            "of toolexec.toml",
            details={"setting": "journal"},
        )
    return engine.worker(ExecHost(parts), isolations=isolations, max_activities=max_activities, patience=patience)


class ExecHost:
    """Makes the calls of durable runs with the tools of an `Exec`, and runs their programs. Implements `Host`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def index(self) -> Index:
        """The tools."""
        return self._parts.scope.index

    @property
    def queues(self) -> Mapping[str, Queue]:
        """Implement `Host.queues`: those of the options."""
        return self._parts.options.queues

    def find(self, tool_id: str) -> Registered:
        """Implement `Host.find`."""
        return self._parts.scope.resolver.resolve(tool_id)

    def sandboxes(self) -> Mapping[str, SandboxBackend]:
        """Implement `Host.sandboxes`: those of the Exec; of one that has another do the work, that other."""
        if not self._parts.options.enable_code_execution:
            return {}
        backends = self._parts.code.runtime.backends
        local = [getattr(backend, "inner", None) or backend for backend in backends]
        return {backend.kind: backend for backend in local}

    async def start(self) -> None:
        """Implement `Host.start`."""
        if self._parts.sources.pending:
            await self._parts.sources.start()
        await asyncio.to_thread(self._prepare)

    def _prepare(self) -> None:
        """Load what the programs of runs need: an engine that repeats one may give it little time for each step, and
        imports are slow."""
        compile_workflow(parse("return 1"))
        _ = (self._parts.durable, self._parts.chains, self._parts.code.executor)
        import_module("toolexec.workflow.engine")

    async def call(self, spec: CallSpec) -> JSONDict:
        """Implement `Host.call`."""
        asked: list[ApprovalRequest] = []

        def ask(request: ApprovalRequest) -> ApprovalAnswer:
            if spec.answer is None:
                argument_lines(request)  # what cannot be shown whole is refused, and waits for nothing
                asked.append(request)
                raise ApprovalRequiredError("the run waits for the approval")
            return spec.answer

        call = self._call(spec)
        call.origin = _origin(spec, ask)
        try:
            await self._admit(spec)
            result = await self._parts.calls.make(call)
            return {"state": "done", "outcome": _outcome(result)}
        except ToolExecError as error:
            if asked and error.outcome is Outcome.NOT_SENT:
                return {"state": "waits", "details": approval_details(asked[-1])}
            return {"state": "done", "outcome": outcome_of_error(error)}

    async def _admit(self, spec: CallSpec) -> None:
        """Decide on the whole run again before each of its calls: days may have passed since it began, on a machine
        with other rules. Code is decided on where it runs."""
        gate = self._parts.options.own_gate
        if gate is not None and spec.run in RUN_KINDS:
            kind: Any = spec.run
            details: JSONDict = {"language": "workflow"} if kind != "chain" else {}
            run = RunRequest(kind=kind, origin=replace(_origin(spec, None), path="direct", parent=""), details=details)
            await admit_durable(gate, run, asks=not spec.approved)

    async def settle(self, spec: CallSpec) -> JSONDict:
        """Implement `Host.settle`."""
        try:
            entry = self.find(spec.tool)
        except ToolExecError:
            return {"state": "unknown"}
        if spec.excess or is_repeatable(entry.tool):
            return {"state": "again"}

        async def make(check: Registered, args: JSONDict) -> Result:
            return await self._parts.calls.make(ToolCall(check.tool.id, args, origin=_origin(spec, None)))

        found = await check_outcome(entry, spec.args, f"{spec.run_id}/{spec.step}", self.find, make)
        if found is None:
            return {"state": "unknown"}
        if not found.done:
            return {"state": "again"}
        return {"state": "done", "outcome": _outcome(Result(entry.tool.id, found.value, None, 0.0, entry.binding))}

    async def run(self, record: RunRecord, runner: Runner, deliveries: Deliveries | None) -> JSONDict:
        """Implement `Host.run`. Raises ConfigurationError once the Exec is closed: another one can go on."""
        assert isinstance(runner, DurableRunner)
        self._parts.sources.check_open()
        if ON_LOOP.get():  # where the engine repeats it: `record` is called once
            RECORDED.set(record.id)
        try:
            with acting(origin_from_json(record.settings.get("origin") or {})):
                result = await self._parts.durable.work(record, runner)
        except ToolExecError as error:  # nothing was run, or the run cannot go on
            return {"state": "failed", "result": {"raised": error_to_json(error)}}
        if isinstance(result.error, ClosedError) and not ON_LOOP.get():  # of this process, and no end of the run
            raise result.error
        data = chain_to_json(result) if isinstance(result, ChainResult) else code_to_json(result)
        return {"state": "done" if result.error is None else "failed", "result": data}

    async def record(self, spec: RunSpec) -> None:
        """Implement `Host.record`."""
        gate = self._parts.options.own_gate
        if gate is None:
            return
        details: JSONDict = {"run": spec.kind, "seconds": round(spec.seconds, 3)}
        if spec.kind == "chain":
            details["steps"] = spec.steps
        kind = "chain" if spec.kind == "chain" else "code"
        with gate.group(kind, origin_from_json(spec.origin), details, run_id=spec.run_id) as scope:
            scope.failure = error_from_json(spec.failure) if spec.failure else None

    def _call(self, spec: CallSpec) -> ToolCall:
        key = f"{spec.run_id}/{spec.step}"
        return ToolCall(spec.tool, read_args(spec), spec.timeout, idempotency_key=key, step=spec.step)


def _origin(spec: CallSpec, ask: Approver | None) -> Origin:
    path: CallPath = "chain" if spec.path == "chain" else "code"
    origin = origin_from_json(spec.origin) if spec.origin is not None else Origin(caller=Caller(id=spec.caller))
    return replace(origin, path=path, parent=spec.run_id, ask=ask)


def _outcome(result: Result) -> JSONDict:
    """Return a result as it is recorded; one that cannot be recorded is a failure."""
    try:
        return outcome_of(result)
    except InvalidResultError as error:
        return outcome_of(Result(result.tool_id, None, error, result.duration, result.binding))
