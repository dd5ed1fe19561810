"""The whole of a sandbox over Firecracker's API: the stand-in answers as the real program does, and QEMU runs the guest."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from packages.microvms.tests.engines.firecracker import boot_files, make_stand_in, require_firecracker, what_is_left
from packages.microvms.tests.engines.firecracker_api import API, BODIES
from tests.engines.microvm import require_qemu
from tests.waiting import until

from toolexec import Limits
from toolexec.containers import ImageStore, spec_for
from toolexec.machines import ProcessTree
from toolexec.sandbox import Child, ContainerBackend, ExecuteRequest
from toolexec.testing.gateway_testbed import GatewayTestbed
from toolexec_microvms import MicrovmBackend, MicrovmConfig, MicrovmEngine
from toolexec_microvms.container import MachineContainer
from toolexec_microvms.firecracker import vmm as vmm_module
from toolexec_microvms.firecracker.api import connect_inside
from toolexec_microvms.firecracker.machine import FirecrackerMachine
from toolexec_microvms.jail import Jails
from toolexec_microvms.snapshots import SnapshotCache

pytestmark = pytest.mark.anyio

DISK = {"drive_id": "rootfs", "path_on_host": "disk", "is_root_device": False, "is_read_only": True}
SIZE = {"vcpu_count": 1, "mem_size_mib": 16}
KERNEL = {"kernel_image_path": "kernel"}
VSOCK = {"guest_cid": 3, "uds_path": "v.sock"}
BALLOON = {"amount_mib": 0, "deflate_on_oom": True}
LOAD = {"snapshot_path": "state", "mem_backend": {"backend_type": "File", "backend_path": "memory"}}
SAVE = {"snapshot_path": "state", "mem_file_path": "memory"}
START = ("PUT", "/actions", {"action_type": "InstanceStart"})
CONFIGURE = [
    ("PUT", "/machine-config", SIZE),
    ("PUT", "/boot-source", KERNEL),
    ("PUT", "/drives/rootfs", {**DISK, "rate_limiter": {"bandwidth": {"size": 1, "refill_time": 1}}}),
    ("PUT", "/vsock", VSOCK),
    ("PUT", "/entropy", {}),
    ("PUT", "/balloon", BALLOON),
]
CONVERSATIONS: dict[str, list[tuple[str, str, Any]]] = {
    "fields": [
        ("PUT", "/machine-config", {"vcpu_count": 1}),
        ("PUT", "/machine-config", {**SIZE, "x": 1}),
        ("PUT", "/machine-config", {**SIZE, "vcpu_count": "1"}),
        ("PUT", "/machine-config", {**SIZE, "vcpu_count": 0}),
        ("PUT", "/machine-config", {**SIZE, "vcpu_count": 33}),
        ("PUT", "/machine-config", {**SIZE, "mem_size_mib": 0}),
        ("PUT", "/machine-config", None),
        ("PUT", "/boot-source", {"boot_args": ""}),
        ("PUT", "/boot-source", {"kernel_image_path": "missing"}),
        ("PUT", "/boot-source", {**KERNEL, "initrd_path": "missing"}),
        ("PUT", "/drives/other", DISK),
        ("PUT", "/drives/rootfs", {**DISK, "path_on_host": "missing"}),
        ("PUT", "/drives/rootfs", {**DISK, "io_engine": "x"}),
        ("PUT", "/drives/rootfs", {"drive_id": "rootfs", "is_root_device": False}),
        ("PUT", "/drives/rootfs", {**DISK, "rate_limiter": {"ops": {"size": 1}}}),
        ("PUT", "/vsock", {"guest_cid": 3}),
        ("PUT", "/balloon", {"amount_mib": 0}),
        ("PUT", "/balloon", {**BALLOON, "amount_mib": 1000}),
        ("PUT", "/entropy", {"x": 1}),
        ("PUT", "/actions", {"action_type": "x"}),
        ("PATCH", "/vm", {"state": "x"}),
        ("PUT", "/metrics", {}),
        ("GET", "/x", None),
        ("GET", "/actions", None),
        ("PUT", "/snapshot/load", {"snapshot_path": "state"}),
        ("PUT", "/snapshot/load", {**LOAD, "mem_backend": {"backend_type": "x", "backend_path": "memory"}}),
    ],
    "not started": [
        ("GET", "/version", None),
        ("GET", "/machine-config", None),
        ("GET", "/balloon", None),
        START,
        ("PUT", "/actions", {"action_type": "FlushMetrics"}),
        ("PATCH", "/vm", {"state": "Paused"}),
        ("PATCH", "/balloon", {"amount_mib": 1}),
        ("PATCH", "/drives/rootfs", {"drive_id": "rootfs"}),
        ("PUT", "/snapshot/create", SAVE),
    ],
    "configured": [
        *CONFIGURE,
        ("GET", "/machine-config", None),
        ("GET", "/balloon", None),
        ("PUT", "/snapshot/load", LOAD),
    ],
    "running": [
        *CONFIGURE,
        START,
        START,
        *CONFIGURE,
        ("PUT", "/snapshot/create", SAVE),
        ("PUT", "/snapshot/load", LOAD),
        ("PATCH", "/vm", {"state": "Resumed"}),
        ("PATCH", "/vm", {"state": "Paused"}),
        ("PATCH", "/vm", {"state": "Paused"}),
        ("PUT", "/snapshot/create", {**SAVE, "snapshot_path": "none/state"}),
        ("PUT", "/snapshot/create", {**SAVE, "mem_file_path": "none/memory"}),
        ("PUT", "/snapshot/create", {**SAVE, "snapshot_type": "Diff"}),
        ("PUT", "/snapshot/create", {"snapshot_path": "state"}),
        ("PUT", "/snapshot/create", SAVE),
        ("GET", "/balloon", None),
    ],
    "no state": [("PUT", "/snapshot/load", LOAD)],
}


class _NoGuest:
    """Runs nothing."""

    async def boot(self, config: Any) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def save(self, state: Path, memory: Path) -> None: ...
    async def load(self, state: Path, memory: Path, *, resume: bool) -> None: ...


async def ask_the_real_one(directory: Path, asked: Sequence[tuple[str, str, Any]]) -> list[tuple[int, Any]]:
    """Ask the real Firecracker, unjailed, and return its answers."""
    program, _ = require_firecracker()
    child = Child([program, "--api-sock", "api.sock"], env={}, cwd=directory, on_output=lambda *_: None)
    answers: list[tuple[int, Any]] = []
    try:
        await until(lambda: (directory / "api.sock").exists())
        reader, writer = await asyncio.open_unix_connection(sock=await until_connected(directory))
        for method, path, body in asked:
            content = json.dumps(body).encode() if body is not None else b""
            more = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n" if content else ""
            writer.write(f"{method} {path} HTTP/1.1\r\nAccept: application/json\r\n{more}\r\n".encode() + content)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"(?i)content-length: *(\d+)", head)
            text = await reader.readexactly(int(length.group(1))) if length else b""
            answers.append((int(head.split()[1]), json.loads(text) if text else None))
        writer.close()
        await writer.wait_closed()
    finally:
        await child.aclose()
    return answers


async def until_connected(directory: Path) -> Any:
    """Return a connection to the socket, once something listens there."""

    async def attempt() -> Any:
        try:
            return await connect_inside(directory, "api.sock")
        except OSError:
            return None

    return await until(attempt)


def comparable(answer: tuple[int, Any]) -> tuple[int, Any]:
    """Return an answer without what a parser says of columns and of what it expected."""
    status, body = answer
    if isinstance(body, dict) and "fault_message" in body:
        text = re.sub(r",? expected .*| at line 1 column \d+\.?", "", body["fault_message"]).rstrip(".")
        return status, text
    return status, body


class TestAPI:
    @pytest.mark.parametrize("name", CONVERSATIONS)
    async def test_answers_as_the_real_one(self, tmp_path: Path, name: str) -> None:
        """The stand-in's model of the API and the real Firecracker answer the same to the same requests."""
        boot_files(tmp_path)
        asked = CONVERSATIONS[name]
        api = API(tmp_path, "anonymous-instance", _NoGuest())
        mine = [
            await api.answer(method, path, b"" if body is None else json.dumps(body).encode())
            for method, path, body in asked
        ]
        real = await ask_the_real_one(tmp_path, asked)
        for request, one, other in zip(asked, mine, real, strict=True):
            assert (request, comparable(one)) == (request, comparable(other))

    def test_no_network_in_the_model(self) -> None:
        """The stand-in refuses what must never be configured: networks and the metadata service."""
        assert not [path for _, path in BODIES if "mmds" in path or "network" in path]


class Backend(MicrovmBackend):
    """A backend over *engine*."""

    def __init__(self, engine: MicrovmEngine) -> None:
        ContainerBackend.__init__(self, engine, engine.config, kind="firecracker", isolation="vm")


@pytest.fixture(scope="module")
def saved_machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the saved machine is that all these tests go on from."""
    return tmp_path_factory.mktemp("machines")


@pytest.fixture
def jails(tmp_path: Path) -> Jails:
    """Make jails of this test."""
    return Jails(tmp_path / "jails")


@pytest.fixture
async def engine(
    jails: Jails, tmp_path: Path, saved_machines: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[MicrovmEngine]:
    """Make an engine over the stand-in, whose jails have room for a QEMU and a Python."""
    require_firecracker()
    monkeypatch.setattr(vmm_module, "_OVERHEAD", 900 << 20)
    image = ImageStore().find(require_qemu())
    assert image is not None
    vmm = make_stand_in(tmp_path, ImageStore().vm_files(image).kernel.parent, jails)
    config = MicrovmConfig(vmm="firecracker", image=image.name)
    engine = MicrovmEngine(config, vmm=vmm, snapshots=SnapshotCache(saved_machines))
    yield engine
    await engine.aclose()
    assert what_is_left(jails) == set()


async def start(engine: MicrovmEngine, *command: str) -> MachineContainer:
    """Start a machine in which *command* runs."""
    spec = spec_for(
        image=engine.config.image,
        command=command,
        limits=Limits(),
        profile="hardened",
        config=engine.config,
        kind="firecracker",
    )
    return await engine.start(await engine.resolve(engine.config.image), spec)


async def pids_of(container: MachineContainer) -> dict[str, int]:
    """Return what runs in the jail of a machine, by the name of its program."""
    machine = container.machine
    assert isinstance(machine, FirecrackerMachine)
    members = [member.pid for member in ProcessTree(machine.pid).members()]
    return {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in members}


class TestSandbox:
    async def test_running_code(self, engine: MicrovmEngine) -> None:
        """Programs run in restored machines, with output, files, and calls of tools."""
        testbed = GatewayTestbed(lambda parts: nullcontext(parts.direct()))
        backend = Backend(engine)
        await (await start(engine, "true")).aclose()  # the first one boots
        for number in range(3):
            code = f"print('hello'); return await tools.suite.add(a={number}, b=40)"
            async with testbed.gateway() as gateway:
                result = await backend.execute(ExecuteRequest(code=code, gateway=gateway, profile="hardened"))
            assert (result.value, result.error, result.stdout) == (number + 40, None, "hello\n")
            assert result.backend is not None
            assert (result.backend.kind, result.backend.details["vmm"]) == ("firecracker", "firecracker")
            assert result.backend.details["restored"] is True
        await backend.aclose()

    async def test_randomness_differs(self, engine: MicrovmEngine) -> None:
        """Machines that go on from the same state draw other random numbers."""
        outputs: set[bytes] = set()
        for _ in range(2):
            container = await start(engine, "python3", "-c", "import os, random; print(os.urandom(8), random.random())")
            outputs.add(await read_all(container))
            await container.aclose()
        assert len(outputs) == 2

    @pytest.mark.parametrize("which", ["python", "qemu", "outermost"])
    async def test_killed(self, engine: MicrovmEngine, which: str) -> None:
        """A machine whose VMM, whose guest's own VMM or whose outermost process is killed has ended within a second."""
        container = await start(engine, "sh", "-c", "echo go; sleep 1000")
        try:
            assert await container.stream.read() == b"go\n"
            machine = container.machine
            assert isinstance(machine, FirecrackerMachine)
            pids = await pids_of(container)
            pid = machine.pid if which == "outermost" else next(pids[name] for name in pids if name.startswith(which))
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(1):
                end = await container.wait()
            assert end.lost
            assert end.retryable
        finally:
            await container.aclose()

    async def test_corrupt_machine_is_made_again(
        self, engine: MicrovmEngine, saved_machines: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A saved machine that was changed on the disk is removed, made again, and reported."""
        container = await start(engine, "true")
        await container.aclose()
        await engine.aclose()
        for state in saved_machines.glob("*/state"):
            state.chmod(0o600)
            state.write_bytes(state.read_bytes()[:-1] + b"x")
        again = MicrovmEngine(engine.config, vmm=engine.vmm, snapshots=SnapshotCache(saved_machines))
        try:
            container = await start(again, "echo", "hello")
            assert await read_all(container) == b"hello\n"
            await container.aclose()
        finally:
            await again.aclose()
        assert "state is damaged" in caplog.text


async def read_all(container: MachineContainer) -> bytes:
    """Return all that it writes."""
    found = b""
    while data := await container.stream.read():
        found += data
    return found
