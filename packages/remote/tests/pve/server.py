"""The API of Proxmox VE 8 as a process: `python -m packages.remote.tests.pve.server DIRECTORY`.

Paths, parameters, privileges, locks, messages and statuses are those of pve-container 5 and 6 (`PVE/API2/LXC.pm`,
`LXC/Config.pm`, `LXC/Status.pm`, `LXC/Snapshot.pm`; `PVE/LXC.pm` for `check_ct_modify_config_perm` and
`check_bridge_access`), pve-guest-common 5 (`PVE/GuestHelpers.pm`, `check_vnet_access`), pve-manager 8
(`PVE/API2/Cluster.pm`, `PVE/API2/Tasks.pm`), libpve-access-control 8 and pve-http-server. What is particular there:

- Privileges are checked before it is looked whether a container is there: one that was removed, with its place in a
  pool and its access control lists, is answered by 403.
- `clone_vm` names no path where VM.Allocate is missing, and it makes the clone a member of its pool only at the end of
  the task, after its volumes. `destroy_vm` takes that from it before the container is gone.
- A bridge without a zone of its own is in the zone `localnetwork`, each VLAN of it below.
- Everyone may ask `/cluster/nextid` whether a number is in use.

One node, `pve`, is there; `pve2` is a member of the cluster that does not answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiohttp import web
from packages.remote.tests.pve.access import Access, ApiError
from packages.remote.tests.pve.faults import Faults
from packages.remote.tests.pve.lxc import Container, LxcError, LxcNode
from packages.remote.tests.pve.pveum import pveum
from packages.remote.tests.pve.rights import Denied, Rights
from packages.remote.tests.pve.tasks import Tasks

_NODE: Final = "pve"
_DOWN: Final = "pve2"
_CONFIG: Final = ("Disk", "CPU", "Memory", "Network", "Options")
_TYPES: Final[Mapping[str, str]] = {
    "vmid": r"[1-9][0-9]{2,8}",
    "boolean": r"0|1",
    "integer": r"[0-9]+",
    "name": r"[A-Za-z][A-Za-z0-9_-]+",
    "dns-name": r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*",
    "string": r"(?s:.*)",
}
Fields = dict[str, str]
Handler = Callable[["_Call"], Awaitable[Any]]


class _Route(NamedTuple):
    method: str
    path: re.Pattern[str]
    needed: Mapping[str, str]
    optional: Mapping[str, str]
    handler: Handler


class _Call(NamedTuple):
    user: str
    parts: Mapping[str, str]
    fields: Fields

    @property
    def vmid(self) -> int:
        return int(self.parts["vmid"])


class Api:
    """The API in front of a node with containers."""

    def __init__(self, node: LxcNode) -> None:
        self.access = Access()
        self.faults = Faults()
        self.node = node
        self.tasks = Tasks(_NODE, self.faults)
        self.log: list[str] = []
        self._routes = self._made_routes()

    @property
    def rights(self) -> Rights:
        """Who may do what."""
        return self.access.rights

    def _made_routes(self) -> list[_Route]:
        lxc = r"/nodes/(?P<node>[^/]+)/lxc"
        one = lxc + r"/(?P<vmid>[^/]+)"
        clone = {
            "hostname": "dns-name",
            "description": "string",
            "pool": "name",
            "snapname": "name",
            "storage": "name",
            "full": "boolean",
            "target": "name",
            "bwlimit": "integer",
        }
        config = {"description": "string", "tags": "string", "hostname": "dns-name", "digest": "string"}
        snap = r"/snapshot/(?P<snapname>[^/]+)"
        made: list[tuple[str, str, Mapping[str, str], Mapping[str, str], Handler]] = [
            ("GET", "/version", {}, {}, self._version),
            ("GET", "/access/permissions", {"path": "string"}, {}, self._permissions),
            ("GET", "/cluster/nextid", {}, {"vmid": "vmid"}, self._next_id),
            ("GET", lxc, {}, {}, self._list),
            ("GET", f"{one}/status/current", {}, {}, self._status),
            ("POST", f"{one}/status/start", {}, {"skiplock": "boolean", "debug": "boolean"}, self._start),
            ("POST", f"{one}/status/stop", {}, {"skiplock": "boolean", "overrule-shutdown": "boolean"}, self._stop),
            ("POST", f"{one}/status/shutdown", {}, {"timeout": "integer", "forceStop": "boolean"}, self._shutdown),
            ("GET", f"{one}/config", {}, {"current": "boolean", "snapshot": "name"}, self._config),
            ("PUT", f"{one}/config", {}, config, self._set_config),
            ("GET", f"{one}/interfaces", {}, {}, self._interfaces),
            ("POST", f"{one}/clone", {"newid": "vmid"}, clone, self._clone),
            ("GET", f"{one}/snapshot", {}, {}, self._snapshots),
            ("POST", f"{one}/snapshot", {"snapname": "name"}, {"description": "string"}, self._snapshot),
            ("POST", f"{one}{snap}/rollback", {}, {"start": "boolean"}, self._rollback),
            (
                "DELETE",
                one,
                {},
                {"force": "boolean", "purge": "boolean", "destroy-unreferenced-disks": "boolean"},
                self._destroy,
            ),
            ("GET", r"/nodes/(?P<node>[^/]+)/tasks/(?P<upid>[^/]+)/status", {}, {}, self._task),
            (
                "GET",
                r"/nodes/(?P<node>[^/]+)/tasks/(?P<upid>[^/]+)/log",
                {},
                {"start": "integer", "limit": "integer"},
                self._task_log,
            ),
        ]
        return [_Route(method, re.compile(path), *rest) for method, path, *rest in made]  # type: ignore[arg-type]

    # -- requests -----------------------------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request as pveproxy does."""
        what = f"{request.method} {request.path.removeprefix('/api2/json')}"
        self.log.append(what)
        try:
            refused = await self.faults.before(what)
            if refused is not None:
                raise ApiError(*refused)
            data = await self._dispatch(request)
        except ApiError as error:
            return self._refusal(error)
        except Denied as error:
            return self._refusal(ApiError(403, str(error)))
        except LxcError as error:
            return self._refusal(ApiError(500, str(error)))
        if self.faults.cuts(what):
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"data": data}, headers={"Server": "pve-api-daemon/3.0"})

    def _refusal(self, error: ApiError) -> web.Response:
        body: dict[str, Any] = {"data": None}
        if not self.faults.old:
            body["message"] = f"{error.message}\n"
        if error.errors:
            body["errors"] = error.errors
        return web.json_response(body, status=error.status, reason=error.message.strip().replace("\n", " "))

    async def _dispatch(self, request: web.Request) -> Any:
        path = request.path.removeprefix("/api2/json")
        in_body = request.method in ("POST", "PUT")
        fields = {str(key): str(value) for key, value in (await request.post() if in_body else request.query).items()}
        if in_body and (await request.read()) and request.content_type != "application/x-www-form-urlencoded":
            raise ApiError(400, "Parameter verification failed.")
        if (request.method, path) == ("POST", "/access/ticket"):
            _check_fields(fields, {"username": "string", "password": "string"}, {"realm": "name", "otp": "string"})
            return self.access.log_in(fields)
        user = self.access.user_of(request)
        for route in self._routes:
            found = route.path.fullmatch(path)
            if found is not None and route.method == request.method:
                parts = found.groupdict()
                _check_node(parts.get("node", _NODE))
                _check_fields({key: parts[key] for key in ("vmid",) if key in parts}, {}, {"vmid": "vmid"})
                _check_fields(fields, route.needed, route.optional)
                return await route.handler(_Call(user, parts, fields))
        raise ApiError(501, f"Method '{request.method} {path}' not implemented")

    def _container(self, vmid: int) -> Container:
        found = self.node.containers.get(vmid)
        if found is None:
            raise ApiError(500, f"Configuration file 'nodes/{_NODE}/lxc/{vmid}.conf' does not exist")
        return found

    def _unlocked(self, container: Container) -> Container:
        if container.lock:
            raise LxcError(f"CT is locked ({container.lock})")
        return container

    # -- what there is ------------------------------------------------------------------------------------------

    async def _version(self, _: _Call) -> Any:
        return {"version": "8.2.4", "release": "8.2", "repoid": "faa83925c9641325"}

    async def _permissions(self, call: _Call) -> Any:
        path = call.fields["path"]
        return {path: {each: int(on) for each, on in self.rights.privileges(call.user, path).items()}}

    async def _next_id(self, call: _Call) -> Any:
        wanted = call.fields.get("vmid")
        if wanted is not None:
            if int(wanted) in self.node.containers:
                raise ApiError(400, "Parameter verification failed.", {"vmid": f"VM {wanted} already exists"})
            return wanted
        return str(next(vmid for vmid in range(100, 10_000) if vmid not in self.node.containers))

    async def _list(self, call: _Call) -> Any:
        there = [*self.node.containers.values()]
        return [
            await self._shown(each) for each in there if self.rights.has(call.user, f"/vms/{each.vmid}", "VM.Audit")
        ]

    async def _shown(self, container: Container) -> dict[str, Any]:
        pid = await self.node.pid(container.vmid)
        shown: dict[str, Any] = {
            "vmid": container.vmid,
            "name": container.config["hostname"],
            "status": "running" if pid else "stopped",
            "type": "lxc",
            "cpus": 2,
            "maxmem": container.config["memory"] << 20,
            "maxdisk": 2 << 30,
            "uptime": 1 if pid else 0,
        }
        shown |= {"pid": pid} if pid else {}
        shown |= {"lock": container.lock} if container.lock else {}
        return shown | ({"template": 1} if container.is_template else {})

    async def _status(self, call: _Call) -> Any:
        self.rights.check(call.user, f"/vms/{call.vmid}", "VM.Audit")
        return {**await self._shown(self._container(call.vmid)), "ha": {"managed": 0}}

    async def _config(self, call: _Call) -> Any:
        self.rights.check(call.user, f"/vms/{call.vmid}", "VM.Audit")
        container = self._container(call.vmid)
        shown = {**container.config, "digest": "0" * 40}
        return shown | ({"lock": container.lock} if container.lock else {})

    async def _set_config(self, call: _Call) -> Any:
        path = f"/vms/{call.vmid}"
        self.rights.check_any(call.user, path, *(f"VM.Config.{each}" for each in _CONFIG))
        container = self._unlocked(self._container(call.vmid))
        if not call.fields:
            raise ApiError(400, "no options specified")
        for name in call.fields.keys() - {"digest"}:
            self.rights.check(call.user, path, "VM.Config.Network" if name == "hostname" else "VM.Config.Options")
        container.config |= {key: value for key, value in call.fields.items() if key != "digest"}

    async def _interfaces(self, call: _Call) -> Any:
        self.rights.check(call.user, f"/vms/{call.vmid}", "VM.Audit")
        self._container(call.vmid)
        found = await self.node.interfaces(call.vmid)
        if found is not None and self.faults.no_address:
            found = [{key: value for key, value in each.items() if key != "inet"} for each in found]
        return found

    async def _task(self, call: _Call) -> Any:
        state = self.tasks.status(call.parts["upid"])
        if state is None:
            raise ApiError(500, f"no such task '{call.parts['upid']}'")
        if state["user"] != call.user:
            self.rights.check(call.user, f"/nodes/{_NODE}", "Sys.Audit")
        return state

    async def _task_log(self, call: _Call) -> Any:
        state = self.tasks.status(call.parts["upid"])
        if state is not None and state["user"] != call.user:
            self.rights.check(call.user, f"/nodes/{_NODE}", "Sys.Audit")
        return self.tasks.log(call.parts["upid"])

    # -- what is done -------------------------------------------------------------------------------------------

    async def _start(self, call: _Call) -> Any:
        self.rights.check(call.user, f"/vms/{call.vmid}", "VM.PowerMgmt")
        container = self._container(call.vmid)
        if await self.node.pid(call.vmid):
            raise LxcError(f"CT {call.vmid} already running")

        async def work() -> None:
            if container.is_template:
                raise LxcError("you can't start a CT if it's a template")
            await self.node.start(self._unlocked(container))

        return self.tasks.begin("vzstart", call.vmid, call.user, work)

    async def _stop(self, call: _Call) -> Any:
        container = await self._stoppable(call)

        async def work() -> None:
            await self.node.stop(self._unlocked(container).vmid)

        return self.tasks.begin("vzstop", call.vmid, call.user, work)

    async def _shutdown(self, call: _Call) -> Any:
        container = await self._stoppable(call)
        seconds, force = int(call.fields.get("timeout", "60")), call.fields.get("forceStop") == "1"

        async def work() -> None:
            await self.node.shutdown(self._unlocked(container).vmid, seconds, force=force)

        return self.tasks.begin("vzshutdown", call.vmid, call.user, work)

    async def _stoppable(self, call: _Call) -> Container:
        self.rights.check(call.user, f"/vms/{call.vmid}", "VM.PowerMgmt")
        container = self._container(call.vmid)
        if not await self.node.pid(call.vmid):
            raise LxcError(f"CT {call.vmid} not running")
        return container

    async def _clone(self, call: _Call) -> Any:
        new, fields, pool = int(call.fields["newid"]), call.fields, call.fields.get("pool", "")
        self.rights.check(call.user, f"/vms/{call.vmid}", "VM.Clone")
        if not any(
            self.rights.has(call.user, path, "VM.Allocate")
            for path in (f"/vms/{new}", *((f"/pool/{pool}",) if pool else ()))
        ):
            raise Denied
        if pool and pool not in self.rights.pools:
            raise Denied(f"pool '{pool}' does not exist")
        source = self._unlocked(self._container(call.vmid))
        if new in self.node.containers:
            raise LxcError(f"CT {new} already exists on node '{_NODE}'")
        full = fields.get("full", "0" if source.is_template else "1") == "1"
        if "storage" in fields and not full:
            raise LxcError("parameter 'storage' not allowed for linked clones")
        if fields.get("storage", "local") != "local":
            raise LxcError(f"storage '{fields['storage']}' does not exist")
        self.rights.check(call.user, "/storage/local", "Datastore.AllocateSpace")
        if not full and not source.is_template:
            raise LxcError(f"Linked clone feature for '{source.config['rootfs']}' is not available")
        if full and await self.node.pid(source.vmid):
            raise LxcError("Full clone of a running container is only possible from a snapshot")
        self._check_bridge(call.user, source.config["net0"])
        kept = {key: fields[key] for key in ("hostname", "description") if key in fields}
        made = self.node.reserve(source, new, kept, full=full)
        source.lock = "disk"

        async def work() -> None:
            try:
                await self.node.copy(source, made)
                if pool:
                    self.rights.join(new, pool)
            finally:
                source.lock = ""
            made.lock = ""

        def undo() -> None:
            source.lock = ""
            self.node.containers.pop(new, None)

        return self.tasks.begin("vzclone", call.vmid, call.user, work, undo)

    def _check_bridge(self, user: str, net: str) -> None:
        """Raise Denied unless *user* may use the bridge, or the VLAN, of a network interface."""
        parts = dict(each.split("=", 1) for each in net.split(","))
        tag = f"/{parts['tag']}" if "tag" in parts else ""
        self.rights.check(user, f"/sdn/zones/localnetwork/{parts['bridge']}{tag}", "SDN.Use")

    async def _snapshots(self, call: _Call) -> Any:
        self.rights.check(call.user, f"/vms/{call.vmid}", "VM.Audit")
        container = self._container(call.vmid)
        running = 1 if await self.node.pid(call.vmid) else 0
        return [*container.snapshots.values(), {"name": "current", "running": running, "description": "You are here!"}]

    async def _snapshot(self, call: _Call) -> Any:
        self.rights.check(call.user, f"/vms/{call.vmid}", "VM.Snapshot")
        container, name = self._container(call.vmid), call.fields["snapname"]

        async def work() -> None:
            if name in self._unlocked(container).snapshots:
                raise LxcError(f"snapshot name '{name}' already used")
            container.lock = "snapshot"
            try:
                await self.node.snapshot(container, name)
            finally:
                container.lock = ""
            container.snapshots[name] = {"name": name, "snaptime": 1, "description": ""}

        return self.tasks.begin("vzsnapshot", call.vmid, call.user, work)

    async def _rollback(self, call: _Call) -> Any:
        self.rights.check_any(call.user, f"/vms/{call.vmid}", "VM.Snapshot", "VM.Snapshot.Rollback")
        container, name = self._container(call.vmid), call.parts["snapname"]

        async def work() -> None:
            if name not in self._unlocked(container).snapshots:
                raise LxcError(f"snapshot '{name}' does not exist")
            container.lock = "rollback"
            try:
                await self.node.rollback(container, name)
            finally:
                container.lock = ""

        return self.tasks.begin("vzrollback", call.vmid, call.user, work)

    async def _destroy(self, call: _Call) -> Any:
        self.rights.check(call.user, f"/vms/{call.vmid}", "VM.Allocate")
        container = self._unlocked(self._container(call.vmid))
        users = self.node.users_of(container)
        if users:
            raise LxcError(f"base volume '{container.config['rootfs']}' is still in use by linked clones")
        if await self.node.pid(call.vmid) and call.fields.get("force") != "1":
            raise LxcError(f"CT {call.vmid} is running - destroy failed!")

        async def work() -> None:
            if self.node.containers.get(call.vmid) is not self._unlocked(container):
                raise LxcError(f"Configuration file 'nodes/{_NODE}/lxc/{call.vmid}.conf' does not exist")
            container.lock = "destroyed"
            await self.node.stop(call.vmid)
            self.rights.forget(call.vmid)
            await self.node.destroy(container)

        return self.tasks.begin("vzdestroy", call.vmid, call.user, work)

    # -- the tests ----------------------------------------------------------------------------------------------

    async def control(self, request: web.Request) -> web.Response:
        """Answer what tests ask behind the back of a client: switches, containers, the log."""
        given = await request.json()
        match request.match_info["what"]:
            case "fault":
                for name, value in given.items():
                    setattr(self.faults, name, value)
            case "access":
                self.rights.denied = set(given.pop("denied", ()))
                for name, value in given.items():
                    setattr(self.access, name, value)
            case "pveum":
                if given.get("afresh"):
                    self.access.rights = Rights()
                for command in given["commands"]:
                    pveum(self.rights, command)
            case "reset":
                self.faults.__init__()
                self.access.__init__()
                self.log.clear()
            case "make":
                self.node.create(**given)
            case "move":
                self.node.move(self._container(given["vmid"]))
            case "lock":
                self._container(given["vmid"]).lock = given["lock"]
            case "log":
                return web.json_response(self.log)
            case "processes":
                return web.json_response({"1": await self.node.pid(given["vmid"])})
            case what:
                raise web.HTTPNotFound(text=what)
        return web.json_response({})


def _check_node(node: str) -> None:
    if node == _DOWN:
        raise ApiError(595, "No route to host")
    if node != _NODE:
        raise ApiError(
            500, f"hostname lookup '{node}' failed - failed to get address info for: {node}: Name or service not known"
        )


def _check_fields(fields: Fields, needed: Mapping[str, str], optional: Mapping[str, str]) -> None:
    """Raise ApiError as PVE::JSONSchema does."""
    errors: dict[str, str] = {}
    for name, value in fields.items():
        kind = needed.get(name) or optional.get(name)
        if kind is None:
            errors[name] = "property is not defined in schema and the schema does not allow additional properties"
        elif not re.fullmatch(_TYPES[kind], value):
            errors[name] = f"type check ('{kind}') failed - got '{value}'"
    errors |= {name: "property is missing and it is not optional" for name in needed if name not in fields}
    if errors:
        raise ApiError(400, "Parameter verification failed.", errors)


async def _serve(directory: Path) -> None:
    settings = json.loads((directory / "settings.json").read_text())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    api = Api(LxcNode(directory, settings["network"], settings["tokens"]))
    async with answering(api, directory / "tls", settings["port"]):
        (directory / "ready").touch()
        await stop.wait()


@asynccontextmanager
async def answering(api: Api, tls_directory: Path, port: int = 0) -> AsyncGenerator[int]:
    """Have the API answer at a *port* of localhost, 0 for a free one; give the port. Its node is closed at the end."""
    app = web.Application()
    app.router.add_post("/fixture/{what}", api.control)
    app.router.add_route("*", "/{path:.*}", api.answer)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tls_directory / "server-cert.pem", tls_directory / "server-key.pem")
    await api.node.open()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
        await api.tasks.close()
        await api.node.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
