"""The switches for faults, over HTTP: `/fixture/set`, `/fixture/pod`, `/fixture/left`."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from aiohttp import web
from packages.kubernetes.tests.kube.objects import ApiError, Object

if TYPE_CHECKING:
    from packages.kubernetes.tests.kube.server import Server

_NONE: dict[str, Any] = {
    "throttle": 0,
    "throttle_path": "",
    "retry_after": 1.0,
    "server_error": 0,
    "latency": 0.0,
    "deny": "",
    "policy": "enforce",
    "pull": "",
    "pods_stuck": False,
    "node_lost": False,
    "agent_sandbox": True,
}


class Faults:
    """What goes wrong now. One-off faults (`gone`, `drop_watches`, `drop_streams`) happen when they are set."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._now = dict(_NONE)

    @property
    def retry_after(self) -> float:
        """Return the seconds that a throttled client is to wait."""
        return self._now["retry_after"]

    async def before(self, request: web.Request) -> None:
        """Refuse, or delay, a request as the switches say; raises ApiError."""
        if self._now["latency"]:
            await asyncio.sleep(self._now["latency"])
        if self._now["throttle"] and re.search(self._now["throttle_path"], request.path):
            self._now["throttle"] -= 1
            raise ApiError(429, "the server has received too many requests and has asked us to try again later")
        if self._now["server_error"]:
            self._now["server_error"] -= 1
            raise ApiError(500, "etcdserver: request timed out")

    async def handle(self, path: str, body: Object) -> Object:
        """Answer a request to the switches; raises ApiError for an unknown one."""
        match path.removeprefix("/fixture/"):
            case "set":
                await self._set(body)
                return {}
            case "reset":
                await self._set({name: value for name, value in _NONE.items() if self._now[name] != value})
                return {}
            case "pod":
                await self._pod(body)
                return {}
            case "left":
                return {"left": await asyncio.to_thread(self._server.node.left)}
            case _:
                raise ApiError(404, path)

    async def _set(self, wanted: Object) -> None:
        server = self._server
        for name, value in wanted.items():
            if name in _NONE:
                self._now[name] = value
            match name:
                case "gone" | "drop_watches":
                    server.store.end_watches(gone=name == "gone")
                case "drop_streams":
                    server.streams.drop()
                case "deny":
                    server.registry.denied = value
                case "policy":
                    assert server.node.network is not None
                    server.node.network.is_enforcing = value == "enforce"
                    await server.node.network.refresh()
                case "pull":
                    seconds = float(value.partition(":")[2]) if value.startswith("slow:") else 0.0
                    server.node.pull = (seconds, value == "fail")
                case "pods_stuck":
                    server.scheduler.is_stuck = value
                    server.scheduler.again()
                case "node_lost":
                    await server.set_lost(lost=value)
                case "agent_sandbox":
                    server.offer_agent_sandbox(offered=value)
                case _ if name not in _NONE:
                    raise ApiError(400, f"there is not a switch {name}")

    async def _pod(self, body: Object) -> None:
        """Do something to a pod: `evict`, `preempt`, or `kill` the processes of its containers."""
        pod = self._server.pod(body["namespace"], body["name"])
        runner = self._server.node.runners.get(pod["metadata"]["uid"])
        match body["what"]:
            case "preempt":
                self._server.preempt(pod)
            case "evict" if runner is not None:
                runner.end("Evicted", "The node was low on resource: memory. ", condition="TerminationByKubelet")
            case "kill" if runner is not None:
                for slot in runner.slots:
                    if slot.running is not None:
                        await slot.running.kill(0)
            case _:
                raise ApiError(409, "the pod does not run")
