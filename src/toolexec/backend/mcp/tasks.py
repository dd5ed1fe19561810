"""Call tools that answer later: a task is made, watched, and asked for its result (MCP of 2025-11-25)."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pydantic
from mcp import Client, MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CancelTaskRequest,
    CancelTaskRequestParams,
    CancelTaskResult,
    GetTaskPayloadRequest,
    GetTaskPayloadRequestParams,
    GetTaskRequest,
    GetTaskRequestParams,
    GetTaskResult,
    Task,
    TaskMetadata,
)

from toolexec.errors.outcome import Outcome
from toolexec.model.json_value import JSONDict

_TASK_KEY = "toolexec/task"
_SHORTEST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
_CANCEL_PATIENCE = 2.0


class LostTaskError(MCPError):
    """The server has begun a task, and then did not say what came of it.

    `outcome` is DONE where it had said before that the task was completed, and else UNKNOWN.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, outcome: Outcome = Outcome.UNKNOWN) -> None:
        super().__init__(code, message, data)
        self.outcome = outcome


def wrap_task(result: JSONDict) -> None:
    """Make the answer that announces a task one that the SDK accepts for `tools/call`: it knows no tasks there."""
    if "content" not in result and isinstance(result.get("task"), dict):
        result["_meta"] = {**(result.get("_meta") or {}), _TASK_KEY: result.pop("task")}
        result["content"] = []


async def call_as_task(
    client: Client, name: str, args: JSONDict, report: ProgressFnT | None = None, meta: Any = None
) -> CallToolResult:
    """Return the result of a tool that only runs as a task. Each change of its status is reported as progress;
    cancelling cancels the task on the server. Raises LostTaskError for one that is begun, and whose result never comes.
    """
    params = CallToolRequestParams(name=name, arguments=args, task=TaskMetadata(), _meta=meta)
    request = CallToolRequest(params=params)
    answer = await client.session.send_request(request, CallToolResult, progress_callback=report)
    announced = (answer.meta or {}).get(_TASK_KEY)
    if announced is None:
        return answer
    try:
        task = Task.model_validate(announced, by_name=False)
    except pydantic.ValidationError as error:
        raise _unreadable(error) from error
    outcome = Outcome.UNKNOWN
    try:
        ended = await _watch(client, task, report)
        if ended.status == "cancelled":
            raise MCPError(INTERNAL_ERROR, f"the task was cancelled{_words(ended)}")
        outcome = Outcome.DONE if ended.status == "completed" else Outcome.UNKNOWN
        payload = GetTaskPayloadRequest(params=GetTaskPayloadRequestParams(task_id=task.task_id))
        return await client.session.send_request(payload, CallToolResult)
    except LostTaskError:
        raise
    except MCPError as error:
        raise LostTaskError(error.code, error.message, error.data, outcome=outcome) from error
    except asyncio.CancelledError:
        with anyio.move_on_after(_CANCEL_PATIENCE, shield=True):
            cancel = CancelTaskRequest(params=CancelTaskRequestParams(task_id=task.task_id))
            await client.session.send_request(cancel, CancelTaskResult)
        raise


async def _watch(client: Client, task: Task, report: ProgressFnT | None) -> Task:
    """Wait while the task works, and return what it is then; what it needs input for is asked for by `tasks/result`."""
    changes, said = 0, ""
    while task.status == "working":
        if report is not None and task.status_message and task.status_message != said:
            changes, said = changes + 1, task.status_message
            await report(float(changes), None, said)
        pause = (task.poll_interval or 0) / 1000
        await asyncio.sleep(min(max(pause, _SHORTEST_PAUSE), _LONGEST_PAUSE))
        request = GetTaskRequest(params=GetTaskRequestParams(task_id=task.task_id))
        try:
            task = await client.session.send_request(request, GetTaskResult)
        except pydantic.ValidationError as error:
            raise _unreadable(error) from error
    return task


def _unreadable(error: pydantic.ValidationError) -> LostTaskError:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "its root"
    return LostTaskError(
        INTERNAL_ERROR, f"a task was begun, and what came of it cannot be read: {first['msg']} at {where}"
    )


def _words(task: Task) -> str:
    return f": {task.status_message}" if task.status_message else ""
