"""The node of the tests for a real API server: registered as a kubelet is, and asked for streams as one.

python -m packages.kubernetes.tests.kube.kubelet DIRECTORY
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from packages.kubernetes.tests.kube.controllers import node_object
from packages.kubernetes.tests.kube.network import Network
from packages.kubernetes.tests.kube.node import Node
from packages.kubernetes.tests.kube.objects import ApiError, Object, now, now_micro
from packages.kubernetes.tests.kube.store import Change
from packages.kubernetes.tests.kube.streams import StreamOptions, Streams, serve_log

_NAME = "runc-node"
_HEARTBEAT = 5.0
_STRATEGIC = "application/strategic-merge-patch+json"


class RemoteApi:
    """The API server as a node sees it over HTTP."""

    def __init__(self, url: str, token: str, ca: Path) -> None:
        tls = ssl.create_default_context(cafile=str(ca))
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        headers = {"Authorization": f"Bearer {token}"}
        self._session = aiohttp.ClientSession(url, connector=connector, headers=headers)

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        """Make a request; raises ApiError."""
        data = None if body is None else json.dumps(body)
        async with self._session.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
            found = await answer.json()
            if answer.status >= 300:
                raise ApiError(answer.status, str(found.get("message")))
            return found

    async def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        plural, _, group = resource.partition(".")
        place = f"namespaces/{namespace}/" if namespace else ""
        path = f"/apis/{group}/v1/{plural}/{name}" if group else f"/api/v1/{place}{plural}/{name}"
        try:
            return await self.ask("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def token(self, namespace: str, account: str) -> str:
        """Return a token of a service account."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        found = await self.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body)
        return found["status"]["token"]

    async def set_status(self, pod: Object, status: Object) -> None:
        """Write the status of a pod; one that is gone is fine."""
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        with suppress(ApiError):
            await self.ask("PATCH", f"{_path(pod)}/status", body, _STRATEGIC)

    async def remove(self, pod: Object) -> None:
        """Remove a pod that has ended after its deletion."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        with suppress(ApiError):
            await self.ask("DELETE", _path(pod), body)

    async def event(self, pod: Object, type: str, reason: str, message: str) -> None:
        """Record an event about a pod."""
        metadata = pod["metadata"]
        event = {
            "metadata": {
                "name": f"{metadata['name'][:200]}.{secrets.token_hex(8)}",
                "namespace": metadata["namespace"],
            },
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": type,
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": _NAME},
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
        }
        with suppress(ApiError):
            await self.ask("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", event)

    async def follow(self) -> AsyncIterator[Change]:
        """Yield all pods of this node, then their changes; from the beginning again after each break."""
        selector = f"fieldSelector=spec.nodeName%3D{_NAME}"
        known: dict[str, Object] = {}
        while True:
            with suppress(aiohttp.ClientError, ApiError, ValueError):
                listed = await self.ask("GET", f"/api/v1/pods?{selector}")
                present = {each["metadata"]["uid"]: each for each in listed["items"]}
                for uid in [uid for uid in known if uid not in present]:
                    yield Change(0, "pods", "DELETED", known.pop(uid))
                for item in present.values():
                    yield Change(0, "pods", "MODIFIED", item)
                known.update(present)
                version = listed["metadata"]["resourceVersion"]
                async for change in self._watch(f"/api/v1/pods?{selector}&watch=1&resourceVersion={version}"):
                    known[change.item["metadata"]["uid"]] = change.item
                    if change.type == "DELETED":
                        known.pop(change.item["metadata"]["uid"])
                    yield change
            await asyncio.sleep(0.2)

    async def _watch(self, path: str) -> AsyncIterator[Change]:
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(path, timeout=timeout, read_bufsize=4 << 20) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield Change(0, "pods", event["type"], event["object"])

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


class Kubelet:
    """The node, its registration, and what an API server asks it for."""

    def __init__(self, directory: Path, settings: Object) -> None:
        ca = directory / "tls" / "ca.pem"
        self.api = RemoteApi(settings["url"], settings["token"], ca)
        self.node = Node(_NAME, directory, self.api, ca.read_bytes())
        self.node.network = Network(settings["network"], self._policies)
        self.streams = Streams(self.node)
        self._port = int(settings["kubelet_port"])
        self._server_port = int(settings["port"])

    async def open(self) -> None:
        """Start the node and register it."""
        assert self.node.network is not None
        await self.node.open()
        self.node.service = (self.node.network.address, self._server_port)
        forwarder = await asyncio.start_server(self._forward, self.node.network.address, self._server_port)
        self.node.start(forwarder.serve_forever())
        await self._register()
        for each in (self.node.run(), self._beat(), self._refresh()):
            self.node.start(each)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a pod to the API server, which listens on the loopback only."""
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._server_port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    def _status(self) -> Object:
        status = node_object(_NAME)["status"]
        return status | {"daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}}}

    async def _register(self) -> None:
        node = node_object(_NAME)
        with suppress(ApiError):
            await self.api.ask("POST", "/api/v1/nodes", {key: node[key] for key in ("apiVersion", "kind", "metadata")})
        await self.api.ask("PATCH", f"/api/v1/nodes/{_NAME}/status", {"status": self._status()}, _STRATEGIC)
        # A new node is tainted until it has reported; that is what its own kubelet waits for.
        await self.api.ask(
            "PATCH", f"/api/v1/nodes/{_NAME}", {"spec": {"taints": None}}, "application/merge-patch+json"
        )

    async def _beat(self) -> None:
        lease = {"holderIdentity": _NAME, "leaseDurationSeconds": 40}
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        while True:
            with suppress(ApiError, aiohttp.ClientError):
                body = {"metadata": {"name": _NAME}, "spec": {**lease, "renewTime": now_micro()}}
                try:
                    await self.api.ask("PATCH", f"{path}/{_NAME}", body, "application/merge-patch+json")
                except ApiError:
                    await self.api.ask("POST", path, body)
            await asyncio.sleep(_HEARTBEAT)

    async def _policies(self, namespace: str) -> list[Object]:
        found = await self.api.ask("GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")
        return found["items"]

    async def _refresh(self) -> None:
        """Look at the policies of the pods that run, five times a second: there are few of them."""
        assert self.node.network is not None
        while True:
            await asyncio.sleep(0.2)
            with suppress(ApiError, aiohttp.ClientError):
                await self.node.network.refresh()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer the API server: `/exec`, `/attach` and `/containerLogs`, each with namespace, pod and container."""
        try:
            return await self._handle(request)
        except ApiError as error:
            return web.Response(text=error.message, status=error.code)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        what, namespace, name, container = (request.path.strip("/").split("/") + [""] * 4)[:4]
        if what == "left":
            return web.json_response({"left": await asyncio.to_thread(self.node.left)})
        metadata = ((each, each.pod["metadata"]) for each in self.node.runners.values())
        runner = next(
            (each for each, known in metadata if (known["namespace"], known["name"]) == (namespace, name)), None
        )
        slot = runner.slot(container) if runner is not None else None
        if runner is None or slot is None:
            raise ApiError(404, f"pod {name} or its container {container} does not exist")
        if what == "containerLogs":
            return await serve_log(request, slot.log)
        options = StreamOptions.of(request, kubelet=True)
        running = self.streams.container(runner.uid, name, container)
        if what == "exec":
            return await self.streams.exec(request, running, options)
        return await self.streams.attach(request, running, options, once=bool(slot.spec.get("stdinOnce")))


async def main(directory: Path) -> None:
    """Run the node until SIGTERM."""
    settings = json.loads((directory / "settings.json").read_text())
    kubelet = Kubelet(directory, settings)
    await kubelet.open()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(directory / "tls" / "server-cert.pem", directory / "tls" / "server-key.pem")
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", kubelet.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(settings["kubelet_port"]), ssl_context=tls).start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    (directory / "ready").write_text("ready")
    await stop.wait()
    kubelet.streams.drop()
    await runner.cleanup()
    await kubelet.node.close()
    await kubelet.api.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
