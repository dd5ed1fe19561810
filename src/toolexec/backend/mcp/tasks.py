"""Call tools that answer later: a task is made, watched, and asked for its result (MCP of 2025-11-25)."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
from mcp import Client, MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
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

from toolexec.model.json_value import JSONDict

__all__ = ["LostTaskError", "call_as_task", "wrap_task"]

_TASK_KEY = "toolexec/task"
_SHORTEST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
_CANCEL_PATIENCE = 2.0


class LostTaskError(MCPError):
    """The server has begun a task, and then did not say what became of it."""


def wrap_task(result: JSONDict) -> None:
    """Make the answer that announces a task one that the SDK accepts for `tools/call`: it knows no tasks there."""
    if "content" not in result and isinstance(result.get("task"), dict):
        result["_meta"] = {**(result.get("_meta") or {}), _TASK_KEY: result.pop("task")}
        result["content"] = []


async def call_as_task(
    client: Client, name: str, args: JSONDict, report: ProgressFnT | None = None, meta: Any = None
) -> CallToolResult:
    """Return the result of a tool that only runs as a task. Each change of its status is reported as progress;
    cancelling cancels the task on the server.
    """
    params = CallToolRequestParams(name=name, arguments=args, task=TaskMetadata(), _meta=meta)
    request = CallToolRequest(params=params)
    answer = await client.session.send_request(request, CallToolResult, progress_callback=report)
    announced = (answer.meta or {}).get(_TASK_KEY)
    if announced is None:
        return answer
    task = Task.model_validate(announced, by_name=False)
    try:
        await _watch(client, task, report)
        payload = GetTaskPayloadRequest(params=GetTaskPayloadRequestParams(task_id=task.task_id))
        return await client.session.send_request(payload, CallToolResult)
    except MCPError as error:
        raise LostTaskError(error.code, error.message, error.data) from error
    except asyncio.CancelledError:
        with anyio.move_on_after(_CANCEL_PATIENCE, shield=True):
            cancel = CancelTaskRequest(params=CancelTaskRequestParams(task_id=task.task_id))
            await client.session.send_request(cancel, CancelTaskResult)
        raise


async def _watch(client: Client, task: Task, report: ProgressFnT | None) -> None:
    """Wait while the task works; what it needs input for is asked for by `tasks/result`."""
    changes, said = 0, ""
    while task.status == "working":
        if report is not None and task.status_message and task.status_message != said:
            changes, said = changes + 1, task.status_message
            await report(float(changes), None, said)
        pause = (task.poll_interval or 0) / 1000
        await asyncio.sleep(min(max(pause, _SHORTEST_PAUSE), _LONGEST_PAUSE))
        request = GetTaskRequest(params=GetTaskRequestParams(task_id=task.task_id))
        task = await client.session.send_request(request, GetTaskResult)
