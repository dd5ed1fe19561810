"""One call of one tool on each path, and what its caller reads of the failure there."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from toolexec import Exec, Step, ToolExecError
from toolexec.errors import RunWaitingError
from toolexec.integrations.toolset import Toolset

PYTHON: Final = """
def go(seen):
    WAIT
    return seen

try:
    tools.run(TOOL, {})
except Exception as error:
    return go({"code": error.code, "retryable": error.retryable, "message": str(error), "details": error.details})
return go(None)
"""
JAVASCRIPT: Final = """
try {
  await tools.run(TOOL, {});
} catch (error) {
  return {code: error.code, retryable: error.retryable, message: error.message, details: error.details ?? {}};
}
return null;
"""
WORKFLOW: Final = """
try {
  run(TOOL)
} catch error {
  return {code: error.code, retryable: error.retryable, message: error.message, details: error.details}
}
return null
"""


@dataclass(frozen=True)
class Failure:
    """A failed call as its caller reads it; programs read no outcome, which is None there."""

    code: Any
    retryable: Any
    message: Any
    details: Any
    outcome: Any = None

    @classmethod
    def of(cls, error: ToolExecError | None) -> Failure | None:
        """Return what an error says; None where there is none."""
        if error is None:
            return None
        return cls(error.code, error.retryable, error.message, error.details, error.outcome)


async def direct(ex: Exec, tool: str) -> Failure | None:
    """Make the call alone."""
    return Failure.of((await ex.run_tool(tool)).error)


async def stream(ex: Exec, tool: str) -> Failure | None:
    """Make the call piece by piece."""
    events = [event async for event in ex.stream_tool(tool)]
    return Failure.of(events[-1].error)


async def chain(ex: Exec, tool: str) -> Failure | None:
    """Make the call as a step."""
    return Failure.of((await ex.run_chain([Step(tool)])).steps[0].error)


async def durable_chain(ex: Exec, tool: str) -> Failure | None:
    """Make the call as a step of a run that is suspended after it, and read it from the journal."""
    run_id = f"chain-{tool.replace(':', '-')}"
    steps = [Step(tool, stop_on_error=False), Step("run:signal", {"name": "go"})]
    suspended = await ex.run_chain(steps, durable=run_id)
    assert isinstance(suspended.error, RunWaitingError), suspended.error
    await ex.runs.signal(run_id, "go")
    return Failure.of((await ex.runs.resume(run_id)).steps[0].error)  # type: ignore[union-attr]


def _read(value: Any, error: Any) -> Failure | None:
    assert error is None, error
    return None if value is None else Failure(**value)


async def python(ex: Exec, tool: str) -> Failure | None:
    """Make the call from Python."""
    result = await ex.execute_code(f"TOOL = {tool!r}\n{PYTHON.replace('WAIT', 'pass')}")
    return _read(result.value, result.error)


async def durable_python(ex: Exec, tool: str) -> Failure | None:
    """Make the call from Python that is suspended after it, and replayed."""
    run_id = f"code-{tool.replace(':', '-')}"
    wait = "tools.run('run:signal', {'name': 'go'})"
    suspended = await ex.execute_code(f"TOOL = {tool!r}\n{PYTHON.replace('WAIT', wait)}", durable=run_id)
    assert isinstance(suspended.error, RunWaitingError), suspended.error
    await ex.runs.signal(run_id, "go")
    result: Any = await ex.runs.resume(run_id)
    return _read(result.value, result.error)


async def javascript(ex: Exec, tool: str) -> Failure | None:
    """Make the call from JavaScript."""
    result = await ex.execute_code(f"const TOOL = {json.dumps(tool)};\n{JAVASCRIPT}", language="javascript")
    return _read(result.value, result.error)


async def workflow(ex: Exec, tool: str) -> Failure | None:
    """Make the call from a workflow."""
    result = await ex.run_workflow(WORKFLOW.replace("TOOL", json.dumps(tool)))
    return _read(result.value, result.error)


async def toolset(ex: Exec, tool: str) -> Failure | None:
    """Make the call as the integrations of agent loops do."""
    tools = Toolset(ex)
    [face] = [face for face in tools.faces() if face.tool_id == tool]
    answer = await tools.call(face, {})
    json.dumps(answer.value)
    return Failure.of(answer.error)


PATHS: Final[dict[str, Callable[[Exec, str], Awaitable[Failure | None]]]] = {
    "direct": direct,
    "stream": stream,
    "chain": chain,
    "durable chain": durable_chain,
    "python": python,
    "durable python": durable_python,
    "javascript": javascript,
    "workflow": workflow,
    "toolset": toolset,
}
