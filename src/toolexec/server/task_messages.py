"""What clients and servers send each other about tasks, in both eras of the protocol."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Final

from mcp_types import (
    InputResponses,
    RequestParams,
    ServerCapabilities,
    ServerTasksCapability,
    ServerTasksRequestsCapability,
    TasksCallCapability,
    TasksCancelCapability,
    TasksListCapability,
    TasksToolsCapability,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from toolexec.model.json_value import JSONDict
from toolexec.server.callers import TASKS_EXTENSION
from toolexec.server.tasks import StoredTask

MARK: Final = f"toolexec/task-{secrets.token_hex(8)}"
"""The key of `_meta` under which the announcement of a task passes the SDK; a tool cannot know it."""
_CAPABILITY: Final = ServerTasksCapability(
    list=TasksListCapability(),
    cancel=TasksCancelCapability(),
    requests=ServerTasksRequestsCapability(tools=TasksToolsCapability(call=TasksCallCapability())),
)
_POLL_MS: Final = 1000


class TaskParams(RequestParams):
    """The parameters of all requests about one task."""

    task_id: str


class UpdateTaskParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: InputResponses


def capabilities_with_tasks(found: ServerCapabilities, version: str | None) -> ServerCapabilities:
    """Return the capabilities of a server that makes tasks, for the protocol *version*; None means any older one."""
    if version in MODERN_PROTOCOL_VERSIONS:
        return found.model_copy(update={"extensions": {**(found.extensions or {}), TASKS_EXTENSION: {}}})
    return found.model_copy(update={"tasks": _CAPABILITY})


def on_wire(message: BaseModel) -> JSONDict:
    """Return a message as JSON has it."""
    return message.model_dump(by_alias=True, mode="json", exclude_none=True)


def to_wire(task: StoredTask) -> JSONDict:
    """Return a task as the newer era spells it."""
    data: JSONDict = {
        "taskId": task.id,
        "status": task.status,
        "createdAt": _timestamp(task.created),
        "lastUpdatedAt": _timestamp(task.updated),
        "ttlMs": round(task.ttl * 1000),
        "pollIntervalMs": _POLL_MS,
    }
    return data | {"statusMessage": task.message} if task.message else data


def to_handshake(data: JSONDict) -> JSONDict:
    """Return a task, or what announces it, as 2025-11-25 spells it."""
    names = {"ttlMs": "ttl", "pollIntervalMs": "pollInterval"}
    return {names.get(name, name): value for name, value in data.items() if name != "resultType"}


def announced(announcement: JSONDict) -> JSONDict:
    """Return the answer that announces a task to a client of 2025-11-25, as the SDK lets it pass."""
    return {"content": [], "_meta": {MARK: to_handshake(announcement)}}


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
