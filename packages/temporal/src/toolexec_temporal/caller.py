"""The caller's half of a request for a sandbox on Temporal: it answers for the tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Self

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from toolexec.journal import JSONDict
from toolexec.sandbox import ExecuteRequest, Message, RequestServer
from toolexec_temporal.activities import beating
from toolexec_temporal.settings import TemporalSettings


class Caller:
    """Answers what code asks on Temporal, with the gateways of *requests*, by the names of their workflows."""

    def __init__(
        self, client: Client, queue: str, requests: Mapping[str, ExecuteRequest], settings: TemporalSettings
    ) -> None:
        self._requests = requests
        self._servers: dict[str, tuple[ExecuteRequest, RequestServer]] = {}
        self._stack = AsyncExitStack()
        beat = timedelta(seconds=settings.heartbeat_timeout / 4)
        self._worker = Worker(
            client,
            task_queue=queue,
            activities=[self.answer],
            max_heartbeat_throttle_interval=beat,
            default_heartbeat_throttle_interval=beat,
        )

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._worker)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @activity.defn(name="answer")
    async def answer(self, name: str, item: JSONDict) -> dict[str, Any]:
        """Return the answer to a question of the code that runs in the workflow *name*."""
        request = self._requests.get(name)
        if request is None:
            return {"type": "error", "payload": {"error": "the run is over", "code": "connection_closed"}}
        for stream, text in item["printed"]:
            request.output.write(text, "stderr" if stream == "stderr" else "stdout")
        async with beating():
            answer = json.loads(
                await self._server(name, request).answer(Message(item["type"], item["id"], item["payload"]))
            )
        return {"type": answer["type"], "payload": answer["payload"]}

    def _server(self, name: str, request: ExecuteRequest) -> RequestServer:
        known = self._servers.get(name)
        if known is None or known[0] is not request:
            assert request.gateway is not None
            known = self._servers[name] = request, RequestServer(request.gateway)
            for gone in self._servers.keys() - self._requests.keys():
                del self._servers[gone]
        return known[1]
