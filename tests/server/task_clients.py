"""Clients that take tasks: the official one, with what it lacks for tasks, in either era."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, Result
from pydantic import ConfigDict, TypeAdapter
from tests.waiting import until

from toolexec.server.callers import TASKS_EXTENSION

OVER = ("completed", "failed", "cancelled")
_ANY: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class Created(Result):
    """The answer that announces a task in the newer era, as it is."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"]


class TasksExtension(ClientExtension):
    identifier = TASKS_EXTENSION

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self._resolve)]

    async def _resolve(self, created: Created, context: ClaimContext) -> CallToolResult:
        raise NotImplementedError  # the tests follow tasks themselves


class _TaskRequest(Request[dict[str, Any], str]):
    name_param = "taskId"


class _ListRequest(Request[dict[str, Any], str]):
    pass


class TaskClient:
    """The official client, and requests about tasks as it sends them; answers are mappings, as on the wire."""

    def __init__(self, client: Client, era: str) -> None:
        self.client = client
        self.modern = era != "legacy"

    async def call(self, name: str, args: dict[str, Any], ttl: int | None = None) -> dict[str, Any]:
        """Return the task that a call becomes, or its result."""
        if self.modern:
            answer = await self.client.session.call_tool(name, args, allow_claimed=True, allow_input_required=True)
            return answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        params = {"name": name, "arguments": args, "task": {} if ttl is None else {"ttl": ttl}}
        answer = await self.client.session._dispatcher.send_raw_request("tools/call", params, {})
        return answer.get("task", answer)

    async def ask(self, method: str, task_id: str, **params: Any) -> dict[str, Any]:
        request = _TaskRequest(method=method, params={"taskId": task_id, **params})
        return await self.client.session.send_request(request, _ANY)

    async def get(self, task_id: str) -> dict[str, Any]:
        return await self.ask("tasks/get", task_id)

    async def cancel(self, task_id: str) -> dict[str, Any]:
        return await self.ask("tasks/cancel", task_id)

    async def list(self, **params: Any) -> dict[str, Any]:
        return await self.client.session.send_request(_ListRequest(method="tasks/list", params=params), _ANY)

    async def until(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """Ask until the task has one of these statuses."""

        async def reached() -> dict[str, Any] | None:
            task = await self.get(task_id)
            return task if task["status"] in statuses else None

        found = await until(reached, pause=0.05)
        assert found is not None
        return found

    async def result(self, task_id: str) -> dict[str, Any]:
        """Return the result of a task that completes."""
        if not self.modern:
            return await self.ask("tasks/result", task_id)
        task = await self.until(task_id, *OVER)
        assert task["status"] == "completed", task
        return task["result"]


@asynccontextmanager
async def taking_tasks(target: Any, era: str, **options: Any) -> AsyncIterator[TaskClient]:
    """Connect a client that takes tasks to a transport or an address."""
    async with Client(target, mode=era, extensions=[TasksExtension()], **options) as client:
        yield TaskClient(client, era)
