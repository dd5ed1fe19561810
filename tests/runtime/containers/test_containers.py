"""What holds for each container sandbox: faults that it survives, room, warm guests, sessions, egress, and no traces."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from tests.engines.backends import (  # noqa: F401 - fixtures
    KINDS,
    Make,
    containerd_daemon,
    kube_cluster,
    kube_namespace,
    maker,
)
from tests.engines.docker import DockerDaemon, docker_daemon  # noqa: F401 - a fixture
from tests.engines.images import TEST_IMAGE, test_image
from tests.engines.microvm import TEST_VM_IMAGE
from tests.waiting import reached, until

from toolexec import Exec
from toolexec.code import CodeResult, Limits
from toolexec.errors import (
    InvalidRequestError,
    LimitNotEnforceableError,
    SandboxFailedError,
    SandboxUnavailableError,
)
from toolexec.process.owner import this_owner
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.egress import Egress, Secret

pytestmark = [pytest.mark.full, pytest.mark.anyio]
NOT_HELD = {"kubernetes": ("cpu",)}
"""By kind: limits that it cannot hold, and says so."""
SLOW = ("qemu",)
"""Kinds whose processor may be software."""
SHARED = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.soak] if kind in SLOW else []) for kind in KINDS], indirect=True
)
"""For what the pool of warm guests does alike for all kinds: slow ones have it in the soak tier, and the death of a waiting
machine also in the tests of their engine."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(kind: str, request: pytest.FixtureRequest) -> Make:
    return maker(kind, request)


@asynccontextmanager
async def opened(make: Make, **settings: Any) -> AsyncIterator[tuple[Exec, ContainerBackend, asyncio.Event]]:
    """An Exec with one sandbox, and tools: one adds, one waits until it is let go; the event says that it waits."""
    backend = make(**settings)
    waits = asyncio.Event()

    async def wait() -> None:
        waits.set()
        await asyncio.Event().wait()

    async with Exec(runtime_backends={"standard": [backend]}) as ex:
        ex.add(lambda a, b: a + b, "math:add")
        ex.add(wait, "test:wait")
        yield ex, backend, waits


async def adds(ex: Exec) -> None:
    """A program that runs as it should."""
    result = await ex.execute_code("print('hi')\nreturn tools.math.add(a=1, b=2)")
    assert (result.error, result.value, result.stdout) == (None, 3, "hi\n")


def traces(kind: str) -> dict[str, set[str]]:
    """Return all traces of containers of a kind on this machine: processes of ours, groups, mounts, directories."""
    owner = this_owner()
    children = {str(child.pid) for child in psutil.Process().children(recursive=True)}
    groups = {path for path, _, _ in os.walk("/sys/fs/cgroup") if f"/toolexec/{owner}-" in path}  # others come and go
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if "/rootfs" in line}
    if kind != "kubernetes":  # of a cluster that tests in another process have
        mounts = {path for path in mounts if "/pods/" not in path}
    directories = {str(path) for path in Path(tempfile.gettempdir()).glob("toolexec-*")}
    return {"processes": children, "control groups": groups, "mounts": mounts, "directories": directories}


# -- faults -----------------------------------------------------------------------------------------------------


async def test_a_guest_that_is_killed_in_the_middle(make: Make) -> None:
    code = (
        "print('begun', flush=True)\ntools.math.add(a=1, b=2)\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    async with opened(make) as (ex, _, _):
        result = await ex.execute_code(code)
        assert result.error is not None
        assert result.error.code in ("sandbox_failed", "limit_exceeded")
        assert result.stdout == "begun\n"
        assert [call.tool_id for call in result.tool_calls] == ["math:add"]
        await adds(ex)


@pytest.mark.parametrize("limits", [Limits(disk_bytes=16 << 20), Limits()], ids=["asked for", "as configured"])
async def test_a_disk_that_is_full(make: Make, limits: Limits) -> None:
    code = "with open('large', 'wb') as file:\n    while True:\n        file.write(bytes(1 << 20))"
    async with opened(make) as (ex, _, _):
        result = await ex.execute_code(code, limits=limits)
        assert result.error is not None
        assert result.error.code == "limit_exceeded"
        assert result.error.details["resource"] == "disk"
        await adds(ex)


async def test_files_that_do_not_fit(make: Make) -> None:
    async with opened(make) as (ex, _, _):
        with pytest.raises(InvalidRequestError, match="space"):
            await ex.execute_code("1", files={"large": bytes(32 << 20)}, limits=Limits(disk_bytes=16 << 20))
        await adds(ex)


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.03, 0.1])
async def test_a_host_that_gives_up_while_the_container_starts(make: Make, kind: str, delay: float) -> None:
    async with opened(make) as (ex, backend, _):
        await adds(ex)
        running = asyncio.create_task(ex.execute_code("return 1"))
        await asyncio.sleep(delay)
        running.cancel()
        outcome = await asyncio.gather(running, return_exceptions=True)
        assert isinstance(outcome[0], asyncio.CancelledError | CodeResult)
        await backend.aclose()
    assert not traces(kind)["control groups"]


@SHARED
async def test_a_guest_that_dies_while_it_waits_for_work(make: Make, kind: str) -> None:
    async with opened(make, warm=1) as (ex, backend, _):
        await adds(ex)
        await until(lambda: backend.warm_stats.idle == 1)
        [guest] = backend.idle_guests
        await guest.container.aclose()  # it is gone behind the pool's back
        await until(lambda: backend.warm_stats.died == 1)
        await adds(ex)
        await until(lambda: backend.warm_stats.idle == 1)
        result = await ex.execute_code("return 1")
        assert result.backend.details["warm"] is True


async def test_an_image_that_is_not_there(make: Make) -> None:
    async with opened(make, image="toolexec-no-such-image") as (ex, _, _):
        with pytest.raises(SandboxUnavailableError, match="toolexec-no-such-image"):
            await ex.execute_code("1")


async def test_fifty_runs_and_room_for_ten(make: Make, kind: str) -> None:
    number, room = (50, 10) if kind not in SLOW else (8, 3)
    async with opened(make, max_running=room) as (ex, backend, _):
        most = 0

        async def look() -> None:
            nonlocal most
            while True:
                most = max(most, backend.running)
                await asyncio.sleep(0.001)

        looking = asyncio.create_task(look())
        results = await asyncio.gather(*(ex.execute_code(f"return {n}", timeout=80) for n in range(number)))
        looking.cancel()
        assert [result.value for result in results] == [*range(number)]
        assert most == room


async def test_a_clock_that_jumps(make: Make, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    async with opened(make) as (ex, _, waits):
        limit, began = 20.0 if kind in SLOW else 6.0, time.monotonic()
        running = asyncio.create_task(ex.execute_code("tools.test.wait()", timeout=limit))
        await reached(waits, running)
        for jump in (86_400, -86_400):
            with monkeypatch.context() as patch:
                patch.setattr(time, "time", lambda jump=jump: real() + jump)
                await asyncio.sleep(0.3)
            await adds(ex)
        result = await running
        assert result.error is not None
        assert result.error.code == "code_timeout"
        assert time.monotonic() - began >= limit


@pytest.mark.parametrize("kind", [kind for kind in ("docker", "containerd") if kind in KINDS], indirect=True)
async def test_a_daemon_that_is_killed_in_the_middle(kind: str, request: pytest.FixtureRequest) -> None:
    from packages.containers.tests.engines.containerd import ContainerdDaemon

    image = test_image().name
    daemon: Any = DockerDaemon() if kind == "docker" else ContainerdDaemon()
    try:
        daemon.start()
        if kind == "docker":
            from toolexec_containers import DockerBackend, DockerConfig

            backend: ContainerBackend = DockerBackend(DockerConfig(image=image, host=daemon.host))
        else:
            from toolexec_containers import ContainerdBackend, ContainerdConfig

            backend = ContainerdBackend(
                ContainerdConfig(image=image, address=daemon.socket, snapshotter=daemon.snapshotter)
            )
        async with opened(lambda **_: backend) as (ex, _, waits):
            code = "print('begun')\ntools.math.add(a=1, b=2)\ntools.test.wait()"
            running = asyncio.create_task(ex.execute_code(code, timeout=60 if kind == "docker" else 20))
            await reached(waits, running)
            daemon.kill()
            result = await running
            assert result.error is not None
            assert result.stdout == "begun\n"
            assert [call.tool_id for call in result.tool_calls] == ["math:add", "test:wait"]
            if (
                kind == "docker"
            ):  # containerd's containers live on without it, so that there the time limit ends the run
                assert isinstance(result.error, SandboxFailedError)
                assert "when it does" in result.backend.details["cleanup"]
                with pytest.raises(SandboxUnavailableError, match=r"[Dd]ocker"):
                    await ex.execute_code("1")
            await asyncio.to_thread(daemon.restart if kind == "docker" else daemon.start)
            backend.forget_check()

            async def back() -> bool:
                return (await backend.check()).ok

            await until(back, 0.1)
            await adds(ex)
    finally:
        daemon.stop()


# -- warm guests ------------------------------------------------------------------------------------------------


async def test_a_warm_guest_is_used_once(make: Make) -> None:
    async with opened(make, warm=1) as (ex, backend, _):
        await adds(ex)
        for _ in range(2):
            await until(lambda: backend.warm_stats.idle == 1)
            result = await ex.execute_code("import builtins\nold = hasattr(builtins, 'x')\nbuiltins.x = 1\nreturn old")
            assert result.value is False
            assert result.backend.details["warm"] is True
        stats = backend.warm_stats
        assert (stats.hits, stats.misses) == (2, 1)
    assert backend.warm_stats.idle == 0


@SHARED
async def test_guests_with_other_limits_are_others(make: Make, kind: str) -> None:
    async with opened(make, warm=1) as (ex, backend, _):
        await adds(ex)
        await until(lambda: backend.warm_stats.idle == 1)
        result = await ex.execute_code("return 1", limits=Limits(memory_bytes=300 << 20))
        assert result.backend.details["warm"] is False


# -- what programs can have -------------------------------------------------------------------------------------


async def test_a_session_keeps_its_state(make: Make) -> None:
    async with opened(make) as (ex, _, _):
        async with ex.session() as session:
            await session.execute_code("x = 20")
            result = await session.execute_code("open('kept', 'w').write('y')\nreturn x + tools.math.add(a=1, b=1)")
            assert (result.value, result.files) == (22, {"kept": b"y"})
            result = await session.execute_code("return open('kept').read()")
            assert (result.value, result.files) == ("y", {})
            result = await session.execute_code("while True: pass", timeout=0.5)
            assert result.error is not None
            assert result.error.details["session"] == "kept"
            assert (await session.execute_code("return x")).value == 20
            result = await session.execute_code(
                "while True:\n try:\n  while True:\n   len('')\n except: pass", timeout=0.5
            )
            assert result.error is not None
            assert result.error.details["session"] == "ended"
            with pytest.raises(SandboxFailedError, match="its last run was stopped"):
                await session.execute_code("1")
        with pytest.raises(InvalidRequestError, match="sessions for python only"):
            async with ex.session(language="bash"):
                pass


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("bash", 'echo out; echo err >&2; tool return "$(tool run math:add \'{"a": 1, "b": 2}\')"'),
        ("javascript", "console.log('out'); console.error('err'); return await tools.math.add({a: 1, b: 2})"),
    ],
)
async def test_other_languages_call_tools(make: Make, language: str, code: str) -> None:
    async with opened(make) as (ex, _, _):
        result = await ex.execute_code(code, language=language)
        assert (result.error, result.value, result.stdout, result.stderr) == (None, 3, "out\n", "err\n")


async def test_a_language_that_the_image_lacks(make: Make) -> None:
    async with opened(make) as (ex, backend, _):
        with pytest.raises(SandboxUnavailableError, match="cannot run go, only bash, javascript, python"):
            await ex.execute_code("return 1", language="go")
        state = await backend.check_language("go")
        assert not state.ok
        assert (await backend.check_language("python")).version.startswith("3.")


async def test_packages_of_the_image_are_there(make: Make) -> None:
    async with opened(make) as (ex, _, _):
        result = await ex.execute_code("import humanize\nreturn humanize.intcomma(1234567)")
        assert (result.error, result.value) == (None, "1,234,567")


async def test_what_cannot_be_replayed_is_refused(make: Make) -> None:
    async with opened(make) as (ex, _, _):
        with pytest.raises(InvalidRequestError, match="cannot replay the clock"):
            await ex.execute_code("1", now=0.0)
        result = [await ex.execute_code("import random\nreturn random.random()", seed=7) for _ in range(2)]
        assert result[0].value == result[1].value


# -- limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "limits", "code"),
    [
        ("memory", Limits(memory_bytes=96 << 20), "x = []\nwhile True: x.append(bytearray(1 << 20))"),
        ("cpu", Limits(cpu_ms=1500), "while True: pass"),
        ("pids", Limits(pids=24), "import os, time\nwhile True:\n    if not os.fork():\n        time.sleep(60)"),
    ],
)
async def test_limits_hold_and_say_which(make: Make, kind: str, resource: str, limits: Limits, code: str) -> None:
    async with opened(make) as (ex, _, _):
        if resource in NOT_HELD.get(kind, ()):
            with pytest.raises(LimitNotEnforceableError, match=resource):
                await ex.execute_code(code, limits=limits, timeout=40)
            return
        result = await ex.execute_code(code, limits=limits, timeout=40)
        assert result.error is not None
        assert result.error.code == "limit_exceeded", result.error
        assert result.error.details["resource"] == resource
        assert result.limits_enforced.to_dict()[resource]
        await adds(ex)


# -- egress -----------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """An HTTP server on this machine, and what it was told in the header Authorization; it says it back."""
    told: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(self.headers["Authorization"])
            body = f"you said {told[-1]}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"localhost:{listening.server_address[1]}", told
        finally:
            listening.shutdown()
            thread.join()


async def test_code_reaches_allowed_hosts_and_never_sees_secrets(
    make: Make, server: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, told = server
    monkeypatch.setenv("TEST_API_TOKEN", "a-secret-that-nobody-sees")
    secret = Secret(ref="env:TEST_API_TOKEN", hosts=(host,), plain_http=True)
    egress = Egress(hosts=(host,), secrets={"TOKEN_PLACEHOLDER": secret}, allow_private=True)
    code = f"""
import os, urllib.request
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
request = urllib.request.Request("http://{host}/path", headers={{"Authorization": "Bearer TOKEN_PLACEHOLDER"}})
print(urllib.request.urlopen(request).read().decode())
try:
    urllib.request.urlopen("http://127.0.0.2:9/")
except OSError as error:
    print(error)
"""
    async with opened(make, egress=egress) as (ex, _, _):
        result = await ex.execute_code(code)
        assert result.error is None
        assert told == ["Bearer a-secret-that-nobody-sees"]
        assert result.stdout == "you said Bearer *************************\nHTTP Error 403: \n"
        requests = [(each["host"], each["path"], each["allowed"]) for each in result.backend.details["egress"]]
        assert requests == [("localhost", "/path", True), ("127.0.0.2", "/", False)]
        assert result.files == {}


# -- no traces --------------------------------------------------------------------------------------------------


async def test_many_runs_leave_nothing(make: Make, kind: str) -> None:
    rounds = 4 if kind not in SLOW else 2
    async with opened(make) as (ex, backend, _):
        await adds(ex)
        await asyncio.gather(*(adds(ex) for _ in range(5)))  # connections to a daemon are kept for a while
        await until(lambda: backend.running == 0)
        before, descriptors = traces(kind), len(os.listdir("/proc/self/fd"))
        for _ in range(rounds):
            await asyncio.gather(*(adds(ex) for _ in range(5)))
        await until(lambda: backend.running == 0)
        assert traces(kind) == before
        # A daemon may have some more connections, which are kept for a while; a leak would be one for each run.
        assert len(os.listdir("/proc/self/fd")) < descriptors + 5 * rounds


async def test_a_host_that_is_killed_leaves_nothing_that_runs(kind: str, request: pytest.FixtureRequest) -> None:
    if kind in ("docker", "containerd", "kubernetes"):
        pytest.skip("what daemons keep running is swept up, which the tests of their engines show")
    maker(kind, request)
    module, name, settings = {
        "bubblewrap": ("toolexec.runtime.containers.bubblewrap", "Bubblewrap", {}),
        "gvisor": ("toolexec_containers", "Gvisor", {}),
        "qemu": ("toolexec_microvms", "Microvm", {"vmm": "qemu", "image": TEST_VM_IMAGE}),
    }[kind]
    settings = {"image": TEST_IMAGE, **settings}
    program = f"""
import asyncio
from toolexec import Exec
from {module} import {name}Backend, {name}Config

async def main():
    backend = {name}Backend({name}Config(**{settings!r}, warm=1))
    async with Exec(runtime_backends={{"standard": [backend]}}) as ex:
        ex.add(lambda: print("waits", flush=True), "test:tell")
        done = await ex.execute_code("tools.test.tell()\\nimport time\\ntime.sleep(300)", timeout=300)
        print(done.error)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(os.sys.executable, "-c", program, stdout=-1, start_new_session=True)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"waits\n"  # a machine that is emulated boots for long on a busy host
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, 10)
    assert alive == []
    backend = maker(kind, request)()
    await backend.engine.sweep()
    await backend.aclose()
    left = [path for path in Path("/sys/fs/cgroup").glob("**/toolexec/*") if f"-{process.pid}-" in path.name]
    assert left == []
    assert not list(Path(tempfile.gettempdir()).glob(f"toolexec-*-{process.pid}-*"))
