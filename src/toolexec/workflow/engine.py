"""The workflow language as an engine of code: parsed, checked against the tools, compiled, and run in this process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias, cast

from toolexec.code.limits import LimitsEnforced
from toolexec.code.tools import Tools
from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest
from toolexec.discovery.index import Index
from toolexec.errors import (
    CodeError,
    CodeTimeoutError,
    ConfigurationError,
    InvalidChainError,
    ToolExecError,
    WorkflowSyntaxError,
)
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.process.threads import WorkerThreads
from toolexec.run.checks import check_first
from toolexec.run.large import ON_LOOP
from toolexec.run.program_limits import ProgramLimit, program_limit
from toolexec.run.undo import tried_by
from toolexec.workflow.checker import check
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.driver import run_workflow
from toolexec.workflow.findings import Finding, check_error
from toolexec.workflow.machine import MAX_STEPS, Budget
from toolexec.workflow.mistakes import with_tool
from toolexec.workflow.nodes import Constant, ToolRun, Workflow, walk
from toolexec.workflow.parser import parse
from toolexec.workflow.program import Program

_KEPT: Final = 64
_SHORT: Final = 4000
"""How many characters are parsed, checked and compiled on the event loop: in some 20 ms."""
_threads: Final = WorkerThreads(2, spare=2)
_Known: TypeAlias = tuple[Workflow, Program]
_BACKEND: Final = BackendInfo(kind="workflow", isolation="interpreter")
_ENFORCED: Final = LimitsEnforced(timeout=True, tool_calls=True, chain_steps=True)


class WorkflowEngine:
    """Runs the workflow language, which has nothing but tools, and so needs no sandbox.

    `request.metadata["inputs"]` are the arguments of a workflow with `input` declarations, `max_steps` there lowers the
    number of steps that it may take. The last 64 workflows are kept compiled.
    """

    languages: frozenset[str] = frozenset({"workflow"})
    keeps_deadline = True

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def execute(self, request: ExecuteRequest, tools: Tools) -> CodeResult:
        """Run a workflow. It is checked first, against the tools that it may call: one with mistakes is not begun.

        Its deadline stops it and its calls; what it had printed and called until then is kept. Raises
        ConfigurationError for metadata of the wrong type.
        """
        inputs, budget = _asked(request.metadata)
        limit: ProgramLimit | None = None
        result = CodeResult(language="workflow", backend=_BACKEND, limits_enforced=_ENFORCED)
        try:
            limit = program_limit(request.seconds)
            async with limit:
                program = await self._compiled(request.code, tools)
                result.value = await run_workflow(program, inputs, tools, now=request.now, budget=budget)
        except ToolExecError as error:
            result.error = _with_source(error, request.code)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            message = f"limit exceeded: timeout after {request.seconds:g} s"
            result.error = CodeTimeoutError(message, op="execute", details={"timeout": request.seconds})
        return result

    async def _compiled(self, source: str, tools: Tools) -> Program:
        """Return the program; that of a long source is made in a thread, as each step of it takes seconds."""
        known = self._known.pop(source, None)
        if len(source) <= _SHORT or ON_LOOP.get():
            workflow, program = _prepared(source, tools, known)
        else:
            workflow, program = await _threads.run(_prepared, source, tools, known)
        self._known[source] = workflow, program
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return program


def _prepared(source: str, tools: Tools, known: _Known | None) -> _Known:
    """Return a workflow and its program; the check comes first, as it knows of more mistakes than the compiler."""
    if known is not None:
        workflow = known[0]
    else:
        try:
            workflow = parse(source)
        except WorkflowSyntaxError as error:
            raise with_tool(error, tools.index, tools.allows) from None
    check_first(partial(_check, workflow, tools))
    return known or (workflow, compile_workflow(workflow))


def _asked(metadata: JSONObject) -> tuple[Mapping[str, object], Budget]:
    """Return the inputs and the budget that the metadata of a request ask for."""
    inputs, steps = metadata.get("inputs") or {}, metadata.get("max_steps") or MAX_STEPS
    if not isinstance(inputs, Mapping):
        raise ConfigurationError(f"the inputs of a workflow map names to values; this is a {type(inputs).__name__}")
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
        raise ConfigurationError(f"max_steps must be 0 (no bound of its own) or more, not {steps!r}")
    return cast("Mapping[str, object]", inputs), Budget(min(steps, MAX_STEPS))


def _check(workflow: Workflow, tools: Tools) -> None:
    """Raise WorkflowCheckError for a workflow that would certainly fail."""
    findings = [found for found in check(workflow, tools.index, allowed=tools.allows) if found.severity == "error"]
    if tools.is_dry and not findings:
        findings = list(_not_triable(workflow, tools.index))
    if findings:
        raise check_error(findings)


def _not_triable(workflow: Workflow, index: Index) -> Iterator[Finding]:
    """Yield a finding for each named tool that a dry run cannot try."""
    for node in walk(workflow):
        if isinstance(node, ToolRun) and isinstance(node.tool, Constant):
            try:
                tried_by(index, str(node.tool.value))
            except InvalidChainError as error:
                yield Finding("not-triable", "error", str(error), node.at)


def _with_source(error: ToolExecError, source: str) -> ToolExecError:
    """Put the line that it is about into the error."""
    if isinstance(error, CodeError) and error.line > 0 and not error.source:
        lines = source.split("\n", error.line)
        error.source = lines[error.line - 1] if len(lines) >= error.line else ""
        details: JSONDict = error.details
        details["source"] = error.source
    return error
