"""The API of Firecracker 1.8 to 1.12, as its description says: each request is checked in full.

Errors read as the real ones do, but for the column that those name; `test_firecracker_fixture.py` compares them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

VERSION = "1.12.1"
_AFTER = "The requested operation is not supported after starting the microVM."
_BEFORE = "The requested operation is not supported before starting the microVM."
_CPUS = (
    "Machine config error: The number of vCPUs must be greater than 0, less than 32 and must be 1 or an even number if "
    "SMT is enabled."
)
_MEMORY = "Machine config error: The memory size (MiB) is either 0, or not a multiple of the configured page size."


class BadRequestError(Exception):
    """A request that is refused, with the fault message."""


@dataclass(frozen=True)
class Field:
    """A field of a body: `kind` is a type, a list of variants, or the fields of an object."""

    kind: Any
    required: bool = False
    least: int | None = None


def _need(kind: Any, least: int | None = None) -> Field:
    return Field(kind, required=True, least=least)


_BUCKET = {"size": _need(int, 0), "refill_time": _need(int, 0), "one_time_burst": Field(int, least=0)}
_LIMITER = {"bandwidth": Field(_BUCKET), "ops": Field(_BUCKET)}
_DRIVE = {
    "drive_id": _need(str),
    "partuuid": Field(str),
    "is_root_device": _need(bool),
    "cache_type": Field(["Unsafe", "Writeback"]),
    "is_read_only": Field(bool),
    "path_on_host": Field(str),
    "rate_limiter": Field(_LIMITER),
    "io_engine": Field(["Async", "Sync"]),
    "socket": Field(str),
}
_BACKEND = {"backend_type": _need(["File", "Uffd"]), "backend_path": _need(str)}
_SIZE = {
    "vcpu_count": _need(int),
    "mem_size_mib": _need(int),
    "smt": Field(bool),
    "cpu_template": Field(["C3", "T2", "T2S", "T2CL", "T2A", "V1N1", "None"]),
    "track_dirty_pages": Field(bool),
    "huge_pages": Field(["None", "2M"]),
}
BODIES: dict[tuple[str, str], dict[str, Field]] = {
    ("PUT", "/actions"): {"action_type": _need(["FlushMetrics", "InstanceStart", "SendCtrlAltDel"])},
    ("PUT", "/balloon"): {
        "amount_mib": _need(int, 0),
        "deflate_on_oom": _need(bool),
        "stats_polling_interval_s": Field(int, least=0),
    },
    ("PATCH", "/balloon"): {"amount_mib": _need(int, 0)},
    ("PUT", "/boot-source"): {
        "kernel_image_path": _need(str),
        "initrd_path": Field(str),
        "boot_args": Field(str),
    },
    ("PUT", "/drives/rootfs"): _DRIVE,
    ("PATCH", "/drives/rootfs"): {
        "drive_id": _need(str),
        "path_on_host": Field(str),
        "rate_limiter": Field(_LIMITER),
    },
    ("PUT", "/entropy"): {"rate_limiter": Field(_LIMITER)},
    ("PUT", "/logger"): {
        "log_path": Field(str),
        "level": Field(["Error", "Warning", "Info", "Debug", "Trace", "Off"]),
        "show_level": Field(bool),
        "show_log_origin": Field(bool),
        "module": Field(str),
    },
    ("PUT", "/machine-config"): _SIZE,
    ("PATCH", "/machine-config"): {name: Field(each.kind) for name, each in _SIZE.items()},
    ("PUT", "/metrics"): {"metrics_path": _need(str)},
    ("PUT", "/snapshot/create"): {
        "snapshot_type": Field(["Diff", "Full"]),
        "snapshot_path": _need(str),
        "mem_file_path": _need(str),
    },
    ("PUT", "/snapshot/load"): {
        "snapshot_path": _need(str),
        "mem_file_path": Field(str),
        "mem_backend": Field(_BACKEND),
        "enable_diff_snapshots": Field(bool),
        "resume_vm": Field(bool),
    },
    ("PATCH", "/vm"): {"state": _need(["Paused", "Resumed"])},
    ("PUT", "/vsock"): {"guest_cid": _need(int, 3), "uds_path": _need(str), "vsock_id": Field(str)},
}
_PRE_BOOT = {"/balloon", "/boot-source", "/drives/rootfs", "/entropy", "/machine-config", "/vsock", "/snapshot/load"}


class Engine(Protocol):
    """Runs the guest. Raises BadRequestError."""

    async def boot(self, config: Mapping[str, Any]) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def save(self, state: Path, memory: Path) -> None: ...
    async def load(self, state: Path, memory: Path, *, resume: bool) -> None: ...


@dataclass
class API:
    """The state of one Firecracker whose root directory is *root*."""

    root: Path
    name: str
    engine: Engine
    state: str = "Not started"
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    failed: bool = False
    """A load has failed: Firecracker ends then, once it has answered."""

    async def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        try:
            return await self._answer(method, path, body)
        except BadRequestError as error:
            return 400, {"fault_message": str(error)}

    async def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if method == "GET":
            return 200, self._get(path)
        if method in ("PUT", "PATCH") and not body:
            raise BadRequestError(f"Empty {method} request.")
        named = "/drives/rootfs" if path.startswith("/drives/") else path
        fields = BODIES.get((method, named))
        if fields is None:
            raise BadRequestError(f"Invalid request method and/or path: {method} {path[1:]}.")
        content = _parse(body, fields)
        if named == "/drives/rootfs" and content["drive_id"] != path.removeprefix("/drives/"):
            raise BadRequestError("The id from the path does not match the id from the body!")
        before = self.state == "Not started"
        if method == "PUT" and named in _PRE_BOOT and not before:
            raise BadRequestError(_AFTER)
        if before and (method, named) in {("PATCH", "/vm"), ("PATCH", "/drives/rootfs"), ("PATCH", "/balloon")}:
            raise BadRequestError(_BEFORE)
        handler: Callable[[dict[str, Any]], Any] = getattr(self, f"_{method.lower()}_{_word(named)}")
        made = handler(content)
        if made is not None:
            await made
        return 204, None

    def _get(self, path: str) -> Any:
        if path == "/version":
            return {"firecracker_version": VERSION}
        if path == "/":
            return {"id": self.name, "state": self.state, "vmm_version": VERSION, "app_name": "Firecracker"}
        if path == "/machine-config":
            default = {"vcpu_count": 1, "mem_size_mib": 128, "smt": False, "track_dirty_pages": False}
            return {**default, "huge_pages": "None", **self.config.get("/machine-config", {})}
        if path == "/balloon":
            if "/balloon" not in self.config:
                raise BadRequestError("Balloon config error: No balloon device found.")
            return self.config["/balloon"]
        raise BadRequestError(f"Invalid request method and/or path: GET {path[1:]}.")

    def _file(self, path: str, what: str) -> Path:
        found = self.root / path.lstrip("/")
        if not found.is_file():
            raise BadRequestError(f"{what} No such file or directory (os error 2)")
        return found

    def _put_machine_config(self, body: dict[str, Any]) -> None:
        if not 1 <= body["vcpu_count"] <= 32 or (body.get("smt") and body["vcpu_count"] % 2 and body["vcpu_count"] > 1):
            raise BadRequestError(_CPUS)
        if body["mem_size_mib"] <= 0:
            raise BadRequestError(_MEMORY)
        self.config["/machine-config"] = body

    def _put_boot_source(self, body: dict[str, Any]) -> None:
        self._file(body["kernel_image_path"], "Boot source error: The kernel file cannot be opened:")
        if "initrd_path" in body:
            why = "The initrd file cannot be opened due to invalid path or invalid permissions."
            self._file(body["initrd_path"], f"Boot source error: {why}")
        self.config["/boot-source"] = body

    def _put_drives_rootfs(self, body: dict[str, Any]) -> None:
        error = "Drive config error: Unable to create the virtio block device:"
        if "path_on_host" not in body or "is_read_only" not in body or "socket" in body:
            raise BadRequestError(f"{error} Invalid block config.")
        if not (self.root / body["path_on_host"].lstrip("/")).is_file():
            why = "Virtio backend error: Error manipulating the backing file: No such file or directory (os error 2)"
            raise BadRequestError(f"{error} {why} {body['path_on_host']}")
        self.config.setdefault("drives", {})[body["drive_id"]] = body

    def _put_vsock(self, body: dict[str, Any]) -> None:
        self.config["/vsock"] = body

    def _put_entropy(self, body: dict[str, Any]) -> None:
        self.config["/entropy"] = body

    def _put_balloon(self, body: dict[str, Any]) -> None:
        if body["amount_mib"] > self._get("/machine-config")["mem_size_mib"]:
            raise BadRequestError("Balloon config error: Amount of pages requested is too large.")
        self.config["/balloon"] = {"stats_polling_interval_s": 0, **body}

    async def _put_actions(self, body: dict[str, Any]) -> None:
        started = self.state != "Not started"
        if body["action_type"] != "InstanceStart":
            if not started:
                raise BadRequestError(_BEFORE)
            return
        if started:
            raise BadRequestError(_AFTER)
        if "/boot-source" not in self.config:
            raise BadRequestError("Start microvm error: Cannot start microvm without kernel configuration.")
        await self.engine.boot(self.config)
        self.state = "Running"

    async def _patch_vm(self, body: dict[str, Any]) -> None:
        await (self.engine.pause() if body["state"] == "Paused" else self.engine.resume())
        self.state = "Paused" if body["state"] == "Paused" else "Running"

    async def _put_snapshot_create(self, body: dict[str, Any]) -> None:
        if self.state == "Not started":
            raise BadRequestError(_BEFORE)
        if self.state == "Running":
            why = "Operation not allowed: save/restore unavailable while running"
            raise BadRequestError(f"Create snapshot error: Cannot save the microVM state: {why}")
        if body.get("snapshot_type", "Full") == "Diff":
            why = "Diff snapshots are not allowed on uVMs with dirty page tracking disabled."
            raise BadRequestError(f"The requested operation is not supported: {why}")
        paths = {name: self.root / body[f"{name}_path"].lstrip("/") for name in ("snapshot", "mem_file")}
        for name, what in (("snapshot", "snapshot"), ("mem_file", "memory")):
            if not paths[name].parent.is_dir():
                why = f"Cannot perform open on the {what} backing file: No such file or directory (os error 2)"
                raise BadRequestError(f"Create snapshot error: {why}")
        await self.engine.save(paths["snapshot"], paths["mem_file"])

    async def _put_snapshot_load(self, body: dict[str, Any]) -> None:
        given = {"mem_file_path", "mem_backend"} & {*body}
        if not given:
            raise BadRequestError(_deserializing("missing field: either `mem_backend` or `mem_file_path` is required."))
        if len(given) > 1:
            raise BadRequestError(
                _deserializing("too many fields: either `mem_backend` or `mem_file_path` exclusively.")
            )
        if self.config:
            why = "Loading a microVM snapshot not allowed after configuring boot-specific resources."
            raise BadRequestError(f"Load snapshot error: {why}")
        self.failed = True
        error = "Load snapshot error: Failed to restore from snapshot:"
        state = self._file(
            body["snapshot_path"], f"{error} Failed to get snapshot state from file: Failed to open snapshot file:"
        )
        memory = self._file(
            body.get("mem_file_path") or body["mem_backend"]["backend_path"],
            f"{error} Failed to load guest memory: Error creating guest memory from file: Failed to load guest memory:",
        )
        await self.engine.load(state, memory, resume=bool(body.get("resume_vm")))
        self.failed = False
        self.state = "Running" if body.get("resume_vm") else "Paused"


def _word(path: str) -> str:
    return path[1:].replace("/", "_").replace("-", "_")


def _deserializing(why: str) -> str:
    return f"An error occurred when deserializing the json body of a request: {why}"


def _parse(body: bytes, fields: Mapping[str, Field]) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError as error:
        raise BadRequestError(_deserializing(f"{error}")) from error
    _check(content, fields)
    return content


def _check(content: Any, fields: Mapping[str, Field]) -> None:
    if not isinstance(content, dict):
        raise BadRequestError(_deserializing(f"invalid type: {json.dumps(content)}, expected struct"))
    for name in content:
        if name not in fields:
            raise BadRequestError(_deserializing(f"unknown field `{name}`"))
    for name, each in fields.items():
        if name not in content:
            if each.required:
                raise BadRequestError(_deserializing(f"missing field `{name}`"))
            continue
        _check_value(content[name], each)


def _check_value(value: Any, each: Field) -> None:
    if isinstance(each.kind, dict):
        _check(value, each.kind)
    elif isinstance(each.kind, list):
        if value not in each.kind:
            raise BadRequestError(_deserializing(f"unknown variant `{value}`"))
    elif type(value) is not each.kind:
        kind = {str: "string", int: "integer", bool: "boolean", float: "floating point"}.get(type(value), "sequence")
        raise BadRequestError(_deserializing(f"invalid type: {kind} {json.dumps(value)}"))
    elif each.least is not None and value < each.least:
        raise BadRequestError(_deserializing(f"invalid value: {value}"))
