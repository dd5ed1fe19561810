"""The API server over HTTP: paths, verbs, watches, streams, and the switches for faults.

    python -m packages.kubernetes.tests.kube.server DIRECTORY

DIRECTORY has `settings.json` and the certificates; the file `ready` appears in it when the server is.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import signal
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from packages.kubernetes.tests.kube.access import Access, Attributes, User
from packages.kubernetes.tests.kube.agent_sandbox import AgentSandboxes
from packages.kubernetes.tests.kube.controllers import Jobs, Scheduler, disrupt, lose_node, node_object, run_namespaces
from packages.kubernetes.tests.kube.faults import Faults
from packages.kubernetes.tests.kube.network import Network
from packages.kubernetes.tests.kube.node import Node
from packages.kubernetes.tests.kube.objects import (
    ApiError,
    Object,
    field_matches,
    labels_match,
    merge,
    now,
    parse_selector,
    strategic,
)
from packages.kubernetes.tests.kube.registry import LocalApi, Registry
from packages.kubernetes.tests.kube.resources import AGENTS, EXTENSIONS, Resource, discovery, find_resource, group_list
from packages.kubernetes.tests.kube.schema import check_schema
from packages.kubernetes.tests.kube.store import Change, Gone, Store, Watch
from packages.kubernetes.tests.kube.streams import StreamOptions, Streams, serve_log

NODE = "fixture-node"
_VERSION = {"major": "1", "minor": "33", "gitVersion": "v1.33.0+fixture", "platform": "linux/amd64"}
_PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<part>[^/]+))?)?"
)
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BOOKMARKS = 5.0


@dataclass(frozen=True)
class _Target:
    """What a path is of."""

    resource: Resource
    namespace: str
    name: str
    part: str


class Server:
    """One API server with its node; `handle` answers everything."""

    def __init__(self, directory: Path, settings: Object) -> None:
        self.directory = directory
        self.store = Store()
        self.registry = Registry(self.store)
        self.access = Access(self.store, settings["token"])
        self.faults = Faults(self)
        ca = (directory / "tls" / "ca.pem").read_bytes()
        reachable = asyncio.Event()
        self.node = Node(NODE, directory, LocalApi(self.registry, self.access, reachable), ca)
        self.node.reachable = reachable
        reachable.set()
        self.node.network = Network(settings["network"], self._policies)
        self.streams = Streams(self.node)
        self.scheduler = Scheduler(self.registry, NODE)
        self.hidden: frozenset[str] = frozenset()

    async def open(self) -> None:
        """Make what a new cluster has, and start the node and the controllers."""
        await self.node.open()
        for name in ("default", "kube-system", "kube-node-lease"):
            self.registry.create("namespaces", "", {"metadata": {"name": name}})
        self.registry.put_status(node_object(NODE))
        loops = [
            run_namespaces(self.registry),
            self.scheduler.run(),
            Jobs(self.registry).run(),
            AgentSandboxes(self.registry).run(),
            self.node.run(),
            self._follow_policies(),
        ]
        for each in loops:
            self.node.start(each)

    async def _policies(self, namespace: str) -> list[Object]:
        return self.store.all("networkpolicies.networking.k8s.io", namespace)

    async def _follow_policies(self) -> None:
        assert self.node.network is not None
        async for _ in self.store.follow("networkpolicies.networking.k8s.io"):
            await self.node.network.refresh()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request; errors are objects of the kind Status."""
        try:
            return await self._handle(request)
        except ApiError as error:
            headers = {"Retry-After": str(math.ceil(self.faults.retry_after))} if error.code == 429 else {}
            return web.json_response(error.status(), status=error.code, headers=headers)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        if path in ("/healthz", "/readyz", "/livez"):
            return web.Response(text="ok")
        user = self.access.user_of(request.headers.get("Authorization", ""))
        if path.startswith("/fixture/"):
            self.access.check(user, Attributes("update", "fixture", "faults"))
            return web.json_response(await self.faults.handle(path, await request.json()))
        await self.faults.before(request)
        if path == "/version":
            return web.json_response(_VERSION)
        found = self._discover(path)
        if found is not None:
            return web.json_response(found)
        target = self._target(path)
        verb = self._verb(request, target)
        namespace = target.namespace or (target.name if target.resource.kind == "Namespace" else "")
        asked = Attributes(verb, target.resource.group, target.resource.plural, target.part, namespace, target.name)
        if not target.resource.create_only:
            self.access.check(user, asked)
        if target.part:
            return await self._subresource(request, target)
        match verb:
            case "watch":
                return await self._watch(request, target)
            case "list":
                return self._list(request, target)
            case "get":
                return web.json_response(self.store.get(target.resource, target.namespace, target.name))
            case "create":
                return await self._create(request, target, user)
            case "update" | "patch":
                return web.json_response(await self._change(request, target))
            case "delete":
                return await self._delete(request, target)
            case _:
                return await self._delete_all(request, target)

    def _discover(self, path: str) -> Object | None:
        """Return a discovery document, or None where the path is not of one."""
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        if path == "/apis":
            return group_list(self.hidden)
        parts = path.split("/")[1:]
        if parts == ["api", "v1"]:
            return discovery("", "v1")
        if parts[0] == "apis" and len(parts) in (2, 3) and parts[1] not in self.hidden:
            if len(parts) == 3:
                return discovery(parts[1], parts[2])
            groups = group_list(self.hidden)["groups"]
            return next(
                ({"kind": "APIGroup", "apiVersion": "v1", **each} for each in groups if each["name"] == parts[1]), None
            )
        return None

    def _target(self, path: str) -> _Target:
        found = _PATH.fullmatch(path)
        if found is None:
            raise ApiError(404, "the server could not find the requested resource")
        group, version = found["group"] or "", found["core"] or found["version"]
        resource = None if group in self.hidden else find_resource(group, version, found["plural"])
        if resource is None or (found["part"] and found["part"] not in resource.subresources):
            raise ApiError(404, "the server could not find the requested resource")
        return _Target(resource, found["namespace"] or "", found["name"] or "", found["part"] or "")

    @staticmethod
    def _verb(request: web.Request, target: _Target) -> str:
        verb = _VERBS.get(request.method, "")
        if not verb or (target.resource.create_only and verb != "create"):
            raise ApiError(405, "the server does not allow this method on the requested resource")
        if verb == "get" and not target.name:
            return "watch" if request.query.get("watch") in ("1", "true", "True") else "list"
        if verb == "delete" and not target.name:
            return "deletecollection"
        return verb

    def _fits(self, request: web.Request, target: _Target) -> Callable[[Object], bool]:
        terms = parse_selector(request.query.get("labelSelector", ""))
        fields = request.query.get("fieldSelector", "")
        return lambda item: labels_match(terms, item["metadata"].get("labels")) and field_matches(fields, item)

    def _list(self, request: web.Request, target: _Target) -> web.Response:
        fits = self._fits(request, target)
        found = self.store.all(target.resource.key, target.namespace or None)
        items = [each for each in sorted(found, key=lambda each: each["metadata"]["name"]) if fits(each)]
        start = int(request.query.get("continue") or 0)
        limit = int(request.query.get("limit") or 0)
        metadata: Object = {"resourceVersion": str(self.store.version)}
        if limit and len(items) > start + limit:
            metadata |= {"continue": str(start + limit), "remainingItemCount": len(items) - start - limit}
        items = items[start : start + limit] if limit else items[start:]
        kind, version = f"{target.resource.kind}List", target.resource.api_version
        return web.json_response({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, target: _Target) -> web.StreamResponse:
        fits = self._fits(request, target)
        since = request.query.get("resourceVersion", "")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)

        async def send(type: str, item: Object) -> None:
            await response.write(json.dumps({"type": type, "object": item}).encode() + b"\n")

        key, namespace = target.resource.key, target.namespace or None
        try:
            watch = self.store.open_watch(key, namespace, int(since) if since not in ("", "0") else None)
        except Gone:
            await send("ERROR", _expired(since, self.store.version))
            return response
        try:
            if since in ("", "0"):
                for item in self.store.all(key, namespace):
                    if fits(item):
                        await send("ADDED", item)
            with suppress(ConnectionError):
                seconds = float(request.query.get("timeoutSeconds") or 1800)
                await self._copy_changes(watch, send, fits, seconds, bookmarks="allowWatchBookmarks" in request.query)
        finally:
            self.store.close_watch(watch)
        return response

    async def _copy_changes(
        self,
        watch: Watch,
        send: Callable[[str, Object], Any],
        fits: Callable[[Object], bool],
        seconds: float,
        *,
        bookmarks: bool,
    ) -> None:
        """Send changes until the watch is closed, or its time is over."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        resource = self.registry.resource(watch.key)
        while True:
            try:
                async with asyncio.timeout_at(min(ends, loop.time() + _BOOKMARKS)):
                    change = await watch.changes.get()
            except TimeoutError:
                if bookmarks:
                    metadata = {"resourceVersion": str(self.store.version)}
                    await send(
                        "BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
                    )
                if loop.time() >= ends:
                    return
                continue
            if change is None:
                return
            if isinstance(change, Gone):
                await send("ERROR", _expired("", self.store.version))
                return
            kind = _seen(change, fits)
            if kind:
                await send(kind, change.item)

    async def _create(self, request: web.Request, target: _Target, user: User) -> web.Response:
        item = await _body(request)
        resource = target.resource
        if resource.create_only:
            check_schema(resource, item)
            return web.json_response(self._review(item, user), status=201)
        stated = (item.get("apiVersion"), item.get("kind"))
        if stated not in ((None, None), (resource.api_version, resource.kind)):
            what = f"the object provided is unrecognized: {stated} is not {resource.api_version}, {resource.kind}"
            raise ApiError(400, what)
        dry = request.query.get("dryRun") == "All"
        return web.json_response(self.registry.create(resource.key, target.namespace, item, dry_run=dry), status=201)

    def _review(self, item: Object, user: User) -> Object:
        asked = item["spec"].get("resourceAttributes")
        if asked is None:
            return {**item, "status": {"allowed": True}}
        names = ("verb", "group", "resource", "subresource", "namespace", "name")
        allowed = self.access.allows(user, Attributes(*(asked.get(name, "") for name in names)))
        return {**item, "status": {"allowed": allowed}}

    async def _change(self, request: web.Request, target: _Target) -> Object:
        body = await _body(request)
        kind = request.content_type
        if request.method == "PATCH" and kind == "application/apply-patch+yaml":
            found = self.store.find(target.resource.key, target.namespace, target.name)
            if found is None:
                return self.registry.create(target.resource.key, target.namespace, body)
        if request.method == "PUT":
            return self.registry.replace(target.resource, target.namespace, target.name, lambda _: body, target.part)
        if kind == "application/json-patch+json":
            raise ApiError(415, "the fixture takes merge patches")
        apply = merge if kind == "application/merge-patch+json" else strategic
        return self.registry.replace(
            target.resource, target.namespace, target.name, lambda item: apply(item, body), target.part
        )

    async def _delete(self, request: web.Request, target: _Target) -> web.Response:
        options = await _body(request, needed=False)
        if options:
            check_schema(target.resource, options, model="V1DeleteOptions")
        grace = options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
        wanted: Object = options.get("preconditions") or {}
        item = self.store.get(target.resource, target.namespace, target.name)
        for name, value in wanted.items():
            if item["metadata"].get(name) != value:
                raise ApiError(409, f"Precondition failed: {name} in precondition: {value}")
        seconds = None if grace is None else int(grace)
        orphan = options.get("propagationPolicy") == "Orphan"
        item, is_gone = self.store.delete(target.resource, target.namespace, target.name, seconds, orphan=orphan)
        if not is_gone or target.resource.kind == "Pod":
            return web.json_response(item)
        details = {"name": target.name, "kind": target.resource.plural, "uid": item["metadata"]["uid"]}
        return web.json_response(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        )

    async def _delete_all(self, request: web.Request, target: _Target) -> web.Response:
        options = await _body(request, needed=False)
        fits = self._fits(request, target)
        for item in self.store.all(target.resource.key, target.namespace or None):
            if fits(item):
                self.registry.delete(target.resource.key, item, options.get("gracePeriodSeconds"))
        return self._list(request, target)

    async def _subresource(self, request: web.Request, target: _Target) -> web.StreamResponse:
        item = self.store.get(target.resource, target.namespace, target.name)
        match target.part:
            case "status" | "finalize" | "scale" if request.method == "GET":
                return web.json_response(item)
            case "status":
                return web.json_response(await self._change(request, target))
            case "token":
                token = self.access.token_for(target.namespace, target.name)
                return web.json_response(
                    {**await _body(request), "status": {"token": token, "expirationTimestamp": now()}}, status=201
                )
            case "eviction":
                self.store.delete(target.resource, target.namespace, target.name)
                return web.json_response(
                    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, status=201
                )
            case "log" | "attach" | "exec":
                return await self._stream(request, target, item)
            case _:
                raise ApiError(404, "the server could not find the requested resource")

    async def _stream(self, request: web.Request, target: _Target, pod: Object) -> web.StreamResponse:
        uid, name = pod["metadata"]["uid"], request.query.get("container", "")
        spec = next((each for each in pod["spec"]["containers"] if each["name"] == name), pod["spec"]["containers"][0])
        if not self.node.reachable.is_set():
            raise ApiError(500, "error dialing backend: dial tcp 127.0.0.1:10250: i/o timeout")
        if target.part == "log":
            runner = self.node.runners.get(uid)
            slot = runner.slot(name) if runner is not None else None
            if slot is None or "waiting" in slot.state:
                why = "waiting to start: ContainerCreating"
                raise ApiError(400, f'container "{name or spec["name"]}" in pod "{target.name}" is {why}')
            return await serve_log(request, slot.log)
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            what = f"cannot {target.part} {'' if target.part == 'exec' else 'to '}a container in a completed pod; current phase is"
            raise ApiError(400, f"{what} {pod['status']['phase']}")
        options = StreamOptions.of(request)
        container = self.streams.container(uid, target.name, options.container)
        if target.part == "exec":
            return await self.streams.exec(request, container, options)
        return await self.streams.attach(request, container, options, once=bool(spec.get("stdinOnce")))

    def pod(self, namespace: str, name: str) -> Object:
        """Return a pod; raises ApiError."""
        return self.store.get(self.registry.resource("pods"), namespace, name)

    def preempt(self, pod: Object) -> None:
        """Do as the scheduler does when a pod has to make room."""
        disrupt(
            self.registry,
            pod,
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod",
        )

    async def set_lost(self, *, lost: bool) -> None:
        """Cut the node off, or bring it back."""
        if lost:
            self.node.reachable.clear()
            self.registry.start(lose_node(self.registry, NODE))
        else:
            self.registry.put_status(node_object(NODE))
            self.node.reachable.set()
            self.scheduler.again()

    def offer_agent_sandbox(self, *, offered: bool) -> None:
        """Have the resources of agent-sandbox, or not."""
        self.hidden = frozenset() if offered else frozenset({AGENTS, EXTENSIONS})


def _expired(since: str, version: int) -> Object:
    return ApiError(410, f"too old resource version: {since} ({version})").status()


def _seen(change: Change, fits: Callable[[Object], bool]) -> str:
    """Return what a watch with a selector calls a change; "" for one that it does not see."""
    was = change.before is not None and fits(change.before)
    if change.type == "DELETED":
        return "DELETED" if was else ""
    if fits(change.item):
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else ""


async def _body(request: web.Request, *, needed: bool = True) -> Object:
    raw = await request.read()
    if not raw and not needed:
        return {}
    if request.content_type == "application/vnd.kubernetes.protobuf":
        raise ApiError(415, "the body of the request was in an unknown format - accepted media types: application/json")
    try:
        data = yaml.safe_load(raw) if request.content_type.endswith("yaml") else json.loads(raw)
    except (ValueError, yaml.YAMLError) as error:
        raise ApiError(400, f"the object provided is unrecognized: {error}") from error
    if not isinstance(data, dict):
        raise ApiError(400, "the object provided is unrecognized (must be of type object)")
    return data


async def main(directory: Path) -> None:
    """Serve until SIGTERM."""
    settings = json.loads((directory / "settings.json").read_text())
    server = Server(directory, settings)
    assert server.node.network is not None
    await server.open()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(directory / "tls" / "server-cert.pem", directory / "tls" / "server-key.pem")
    app = web.Application(client_max_size=4 << 20)
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    port = int(settings["port"])
    for host in ("127.0.0.1", server.node.network.address):
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    server.node.service = (server.node.network.address, port)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    (directory / "ready").write_text("ready")
    await stop.wait()
    server.store.end_watches(gone=False)
    server.streams.drop()
    server.node.reachable.set()
    await runner.cleanup()
    await server.node.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
