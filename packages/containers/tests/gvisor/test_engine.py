"""Sandboxes of the real gVisor: what gets in and out, what holds, and what is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines.gvisor import TEST_IMAGE, require_runsc, what_is_left
from tests.engines.images import seen_at

from toolexec.containers import ImageStore, spec_for, this_owner
from toolexec.errors import ConfigurationError, InvalidRequestError, SandboxUnavailableError
from toolexec.machines import find_cgroups
from toolexec.sandbox import ChildContainer, ContainerSpec, ExecuteRequest, Exit, Limits
from toolexec.testing.gateway_testbed import GatewayTestbed
from toolexec_containers.gvisor.engine import GvisorBackend, GvisorConfig, GvisorEngine
from toolexec_containers.gvisor.runsc import PREFIX

pytestmark = [pytest.mark.full, pytest.mark.anyio]

MIB = 1 << 20
needs_cgroups = pytest.mark.skipif(find_cgroups() is None, reason="this user can make no control groups; run as root")


@pytest.fixture(autouse=True)
def runsc() -> Iterator[str]:
    """The program; and a look, after each test, for what it should not have left."""
    yield require_runsc()
    ends = time.monotonic() + 10
    while (left := what_is_left(this_owner())) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not left
    state = Path("/run/runsc"), Path("/var/run/runsc"), Path("/tmp/runsc")
    assert not [path for path in state if path.exists() and any(path.iterdir())]


@pytest.fixture
def engine() -> GvisorEngine:
    return GvisorEngine(GvisorConfig(image=TEST_IMAGE))


def spec(*command: str, limits: Limits | None = None, **more: Any) -> ContainerSpec:
    """A container with the limits of the backend, unless others are given."""
    config = GvisorConfig(image=TEST_IMAGE, **more)
    limits = limits or Limits()
    return spec_for(image=TEST_IMAGE, command=command, limits=limits, profile="standard", config=config, kind="gvisor")


def python(code: str, **more: Any) -> ContainerSpec:
    return spec("python3", "-I", "-c", code, **more)


@asynccontextmanager
async def running(engine: GvisorEngine, what: ContainerSpec) -> AsyncIterator[ChildContainer]:
    container = await engine.start(await engine.resolve(TEST_IMAGE), what)
    try:
        yield container
    finally:
        await container.aclose()


async def read_all(container: ChildContainer) -> bytes:
    found = b""
    while data := await container.stream.read():
        found += data
    return found


async def outcome(engine: GvisorEngine, what: ContainerSpec) -> tuple[str, Exit, str]:
    """Return a container's output to its end, and how it ended."""
    async with running(engine, what) as container:
        said = await read_all(container)
        ended = await container.wait()
        return said.decode(), ended, container.said()


class TestStreams:
    async def test_there_and_back(self, engine: GvisorEngine) -> None:
        """Bytes go in and come out, 16 MiB of them at once, and its own stderr is received."""
        echo = "import sys; sys.stderr.write('note\\n')\nwhile d := sys.stdin.buffer.raw.read(65536): sys.stdout.buffer.write(d)"
        data = os.urandom(16 * MIB)
        async with running(engine, python(echo)) as container:
            writing = asyncio.create_task(container.stream.write(data))
            got = b""
            while len(got) < len(data):
                got += await container.stream.read()
            await writing
            assert got == data
            assert "note" in container.said()
            assert container.id.startswith(PREFIX)
        assert (await container.wait()).code in (-9, 137)  # whichever dies first
        assert await container.stream.read() == b""

    @pytest.mark.parametrize("code", [0, 3])
    async def test_exit_codes(self, engine: GvisorEngine, code: int) -> None:
        """That of the program is that of the container."""
        said, ended, _ = await outcome(engine, python(f"print(1); raise SystemExit({code})"))
        assert (said, ended) == ("1\n", Exit(code=code))

    async def test_a_program_that_is_not_there(self, engine: GvisorEngine) -> None:
        """runsc says so, and the container ends."""
        _, ended, said = await outcome(engine, spec("no-such-program"))
        assert ended.code not in (0, None)
        assert "no-such-program" in said

    async def test_a_signal(self, engine: GvisorEngine) -> None:
        """A program that dies by one ends with 128 and its number."""
        _, ended, _ = await outcome(engine, python("import os, signal; os.kill(os.getpid(), signal.SIGABRT)"))
        assert ended == Exit(code=134)


class TestIsolation:
    async def test_what_the_code_sees(self, engine: GvisorEngine) -> None:
        """Another kernel, another root, no network, no rights, nothing of the host."""
        look = """
import json, os, socket, subprocess
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
try:
    socket.create_connection(("1.1.1.1", 80), 2); net = "open"
except OSError as error:
    net = str(error)
def write(path):
    try: open(path, "w"); return "written"
    except OSError as error: return error.strerror
def do(call):
    try: call(); return "done"
    except OSError as error: return error.strerror
print(json.dumps({
    "version": open("/proc/version").read(), "dmesg": subprocess.run(["dmesg"], capture_output=True, text=True).stdout,
    "ids": [os.getuid(), os.getgid(), os.getgroups()], "caps": [status[k].strip() for k in ("CapPrm", "CapEff", "CapBnd")],
    "new_privileges": status.get("NoNewPrivs", "").strip(), "seccomp": status["Seccomp"].strip(), "net": net,
    "links": sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else [],
    "writes": [write(path) for path in ("/usr/x", "/etc/passwd", "/x", "/var/tmp/x", "/work/x", "/tmp/x", "/dev/shm/x")],
    "pids": [int(name) for name in os.listdir("/proc") if name.isdecimal()],
    "env": dict(os.environ), "host": os.path.exists(%r), "name": socket.gethostname(), "cwd": os.getcwd(),
    "mount": subprocess.run(["mount", "-t", "tmpfs", "x", "/work"], capture_output=True).returncode,
    "fds": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:4],
}))
"""
        said, ended, noise = await outcome(engine, python(look % __file__))
        assert ended.code == 0, noise
        found = json.loads(said)
        assert Path("/proc/version").read_text() != found["version"]
        assert "gVisor" in found["dmesg"]
        assert found["ids"] == [65534, 65534, []]
        assert set(found["caps"]) == {"0000000000000000"}
        assert found["seccomp"] == "2"
        assert found["net"] != "open"
        assert found["links"] == []
        assert found["writes"][:3] == ["Permission denied"] * 3
        assert found["writes"][3] == "Read-only file system"
        assert found["writes"][4:] == ["written"] * 3
        assert len(found["pids"]) <= 2
        assert found["env"].keys() <= {"PATH", "HOME", "LC_CTYPE"}
        assert found["mount"] != 0
        assert (found["host"], found["cwd"]) == (False, "/work")

    async def test_no_new_namespaces(self, engine: GvisorEngine) -> None:
        """A namespace of its own would let code have more processes than it may."""
        look = """
import ctypes, os, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    ctypes.set_errno(0)
    got = libc.syscall(*[ctypes.c_long(n) if isinstance(n, int) else n for n in numbers])
    if got == 0: os._exit(0)
    return ctypes.get_errno() if got < 0 else "done"
clone, clone3, unshare, setns, ptrace = %s
flags = [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
print([call(clone, flag | 17, 0, 0, 0, 0) for flag in [*flags, sum(flags)]])
print([call(unshare, flag) for flag in flags], call(setns, 0, 0), call(ptrace, 0, 0, 0, 0))
args = lambda flag: ctypes.byref(ctypes.create_string_buffer(struct.pack("11Q", flag, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)))
print([call(clone3, args(flag), 88) for flag in (0, 0x10000000)])
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
"""
        numbers = (56, 435, 272, 308, 101) if os.uname().machine == "x86_64" else (220, 435, 97, 268, 117)
        said, ended, noise = await outcome(engine, python(look % (numbers,)))
        assert ended.code == 0, noise
        assert said.splitlines() == [str([1] * 8), f"{[1] * 7} 1 1", "[38, 38]", "thread"]

    async def test_a_profile_of_the_operator(self, engine: GvisorEngine, tmp_path: Path) -> None:
        """The operator's profile counts, and cannot take away our own rules."""
        profile = tmp_path / "profile.json"
        rules = [
            {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"},
            {"names": ["unshare"], "action": "SCMP_ACT_ALLOW"},
        ]
        profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}))
        look = """
import ctypes, os
try: os.mkdir("/work/x")
except OSError as error: print(error.errno)
print(ctypes.CDLL(None).unshare(0x10000000))
"""
        said, _, noise = await outcome(engine, python(look, seccomp=str(profile)))
        assert said.split() == ["1", "-1"], noise

    async def test_the_image_stays_as_it_is(self, engine: GvisorEngine) -> None:
        """No file of a sandbox is left in it, nor any change; also under the profile `dev`."""
        image = await engine.resolve(TEST_IMAGE)
        before = {path.name: path.stat().st_mtime_ns for path in Path(image.reference).iterdir()}
        config = GvisorConfig(image=TEST_IMAGE)
        code = "try: open('/var/tmp/x', 'w')\nexcept OSError as error: print(error.strerror)"
        dev = spec_for(
            image=TEST_IMAGE,
            command=("python3", "-c", code),
            limits=Limits(),
            profile="dev",
            config=config,
            kind="gvisor",
        )
        said, _, _ = await outcome(engine, dev)
        assert said == "Read-only file system\n"
        assert {path.name: path.stat().st_mtime_ns for path in Path(image.reference).iterdir()} == before


class TestLimits:
    @needs_cgroups
    async def test_memory(self, engine: GvisorEngine) -> None:
        """The program has what it was promised, and not much more; its end is told from others."""
        code = """
parts = []
while True:
    parts.append(bytearray(b"x" * (1 << 20)))
    print(len(parts), flush=True)
"""
        said, ended, _ = await outcome(engine, python(code, limits=Limits(memory_bytes=128 * MIB)))
        assert ended.oom
        assert ended.code != 0
        assert 128 - 16 <= int(said.split()[-1]) <= 128 + 32  # Python itself, and the modules, are part of the program

    @needs_cgroups
    async def test_memory_of_a_child(self, engine: GvisorEngine) -> None:
        """One process of several is killed, and the rest goes on."""
        code = """
import os, time
if os.fork() == 0:
    parts = []
    while True: parts.append(bytearray(b"x" * (4 << 20)))
os.wait(); print("alive")
"""
        said, ended, _ = await outcome(engine, python(code, limits=Limits(memory_bytes=96 * MIB)))
        assert (said, ended) == ("alive\n", Exit(code=0, oom=True))

    @pytest.mark.parametrize(
        "how", ["os.fork() or time.sleep(60)", "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"]
    )
    async def test_processes(self, engine: GvisorEngine, how: str) -> None:
        """Allows so many processes and threads, and not one more; the program gets the error and goes on."""
        code = f"""
import os, threading, time
count = 1
try:
    while True:
        {how}
        count += 1
except (OSError, RuntimeError): print(count, flush=True)
os._exit(0)
"""
        said, ended, _ = await outcome(engine, python(code, limits=Limits(pids=24)))
        assert (said, ended) == ("24\n", Exit(code=0))

    async def test_a_fork_bomb(self, engine: GvisorEngine) -> None:
        """A fork bomb can be stopped without a trace; meanwhile another container works."""
        bomb = "import os\nprint('go', flush=True)\nwhile True:\n try: os.fork()\n except OSError: pass"
        async with running(engine, python(bomb, limits=Limits(pids=32, cpus=0.5))) as container:
            assert await container.stream.read() == b"go\n"
            await asyncio.sleep(1)
            assert (await outcome(engine, python("print('fine')")))[0] == "fine\n"
            assert len(psutil.Process(container.pid).children(recursive=True)) < 24 * 8 + 256

    async def test_disk(self, engine: GvisorEngine) -> None:
        """Disk space is bounded, all writable paths together."""
        code = """
total = 0
for place in ("/work", "/tmp", "/dev/shm"):
    try:
        with open(place + "/x", "wb", 0) as file:
            while True: total += file.write(b"x" * 65536)
    except OSError as error: print(error.errno, end=" ")
print(total)
"""
        said, _, noise = await outcome(engine, python(code, limits=Limits(disk_bytes=16 * MIB)))
        *errors, total = said.split()
        assert errors == ["28"] * 3, noise
        assert 15 * MIB <= int(total) <= 16 * MIB

    @needs_cgroups
    async def test_cpu(self, engine: GvisorEngine) -> None:
        """CPU time is counted, and its rate bounded."""
        code = """
import sys, time
for _ in range(2):
    sys.stdin.buffer.raw.read(1)
    until = time.time() + 1.5
    while time.time() < until: pass
    print("x", flush=True)
"""
        async with running(engine, python(code, limits=Limits(cpus=0.25))) as container:
            used: list[float] = []
            for _ in range(2):
                used.append(await container.cpu_seconds() or 0.0)
                await container.stream.write(b"x")
                await container.stream.read()
            used.append(await container.cpu_seconds() or 0.0)
            await container.stream.write(b"x")
        first, second = used[1] - used[0], used[2] - used[1]
        assert 0.1 < first < 1.2
        assert 0.1 < second < 1.2
        assert (await container.cpu_seconds() or 0) >= used[2]


class TestEnds:
    async def test_the_sandbox_is_killed(self, engine: GvisorEngine) -> None:
        """From outside, in the middle of it: the container has ended, and nothing hangs."""
        async with running(engine, python("print('go', flush=True); import time; time.sleep(600)")) as container:
            assert await container.stream.read() == b"go\n"
            [sandbox] = [
                child
                for child in psutil.Process(container.pid).children()
                if "runsc-sandbox" in " ".join(child.cmdline())
            ]
            sandbox.kill()
            ended = await asyncio.wait_for(container.wait(), 30)
            assert ended.code not in (0, None)
            assert await read_all(container) == b""

    async def test_runsc_is_killed(self, engine: GvisorEngine) -> None:
        """The sandbox goes with it."""
        async with running(engine, python("print('go', flush=True); import time; time.sleep(600)")) as container:
            assert await container.stream.read() == b"go\n"
            children = psutil.Process(container.pid).children(recursive=True)
            os.kill(container.pid, signal.SIGKILL)
            assert await asyncio.wait_for(container.wait(), 30) == Exit(code=-9)
            _, alive = await asyncio.to_thread(psutil.wait_procs, children, timeout=30)
            assert not alive

    @pytest.mark.parametrize("delay", [0, 0.001, 0.005, 0.02, 0.1])
    async def test_cancelled_while_it_starts(self, engine: GvisorEngine, delay: float) -> None:
        """At any moment; the fixtures look for what is left."""
        image = await engine.resolve(TEST_IMAGE)
        what = python("print('go', flush=True); import time; time.sleep(600)")

        async def start() -> None:
            container = await engine.start(image, what)
            try:
                await container.stream.read()
            finally:
                await container.aclose()

        task = asyncio.create_task(start())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_closed_twice_and_cancelled(self, engine: GvisorEngine) -> None:
        """A cancelled close is a whole one."""
        container = await engine.start(await engine.resolve(TEST_IMAGE), python("import time; time.sleep(600)"))
        closing = asyncio.create_task(container.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert what_is_left(this_owner()) == set()
        await container.aclose()
        assert (await container.wait()).code is not None

    async def test_eight_at_once(self, engine: GvisorEngine) -> None:
        """Each has its own."""
        got = await asyncio.gather(*(outcome(engine, python(f"print({n})")) for n in range(8)))
        assert [said for said, _, _ in got] == [f"{n}\n" for n in range(8)]

    async def test_the_host_is_killed(self, engine: GvisorEngine, tmp_path: Path) -> None:
        """No sandbox outlives it, and the next host removes what it has left."""
        code = f"""
import asyncio, sys
from toolexec_containers.gvisor import *
from toolexec.sandbox import ExecuteRequest
from toolexec.containers import spec_for
from toolexec.containers import this_owner
from toolexec.sandbox import Limits
async def main():
    config = GvisorConfig(image={TEST_IMAGE!r})
    engine = GvisorEngine(config)
    spec = spec_for(image={TEST_IMAGE!r}, command=("sh", "-c", "echo go; sleep 600"), limits=Limits(), profile="standard", config=config, kind="gvisor")
    container = await engine.start(await engine.resolve({TEST_IMAGE!r}), spec)
    print((await container.stream.read()).decode().strip(), container.id, this_owner(), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
        environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
        process = await asyncio.to_thread(
            subprocess.Popen, [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None
        try:
            line = await asyncio.to_thread(process.stdout.readline)
            go, name, owner = line.split()
            assert go == "go"
            assert len(what_is_left(owner)) > 1
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)
            process.stdout.close()
        directory = Path(tempfile.gettempdir()) / name
        ends = time.monotonic() + 20
        while any("sys/fs" not in left for left in what_is_left(owner)) and time.monotonic() < ends:
            await asyncio.sleep(0.02)
        assert not [left for left in what_is_left(owner) if "sys/fs" not in left]
        assert directory.exists()
        await engine.sweep()
        assert what_is_left(owner) == set()
        assert not directory.exists()

    async def test_sweeping_leaves_what_lives(self, engine: GvisorEngine) -> None:
        """Directories and groups of this process, and directories that are only named alike, stay."""
        odd = Path(tempfile.gettempdir()) / f"{PREFIX}not-ours-1"
        odd.mkdir()
        try:
            async with running(engine, python("print('go', flush=True); input(); print('on')")) as container:
                assert await container.stream.read() == b"go\n"
                await engine.sweep()
                await container.stream.write(b"\n")
                assert await read_all(container) == b"on\n"
            assert odd.exists()
        finally:
            odd.rmdir()


class TestCheck:
    async def test_it_works_here(self, engine: GvisorEngine, runsc: str) -> None:
        """A sandbox has really been started; and what is enforced is known."""
        found = await engine.check()
        assert (found.ok, found.reason, found.version[:4]) == (True, "", "0.0~")
        held = engine.enforces(Limits())
        assert held.pids
        assert held.disk
        assert held.memory == held.cpus == held.cpu == (find_cgroups() is not None)
        assert (await GvisorEngine(GvisorConfig(image=TEST_IMAGE, runsc=runsc, platform="ptrace")).check()).ok
        await engine.aclose()

    async def test_without_control_groups(self) -> None:
        """Then memory and CPU are said not to hold; processes and disk do."""
        engine = GvisorEngine(GvisorConfig(image=TEST_IMAGE, cgroups=False))
        assert (await engine.check()).ok
        held = engine.enforces(Limits())
        assert (held.memory, held.cpu, held.cpus, held.pids, held.disk) == (False, False, False, True, True)
        async with running(engine, python("print(1)")) as container:
            assert await container.cpu_seconds() is not None  # that of the processes that are seen
            assert await read_all(container) == b"1\n"
            assert await container.wait() == Exit(code=0)

    async def test_control_groups_that_cannot_be_had(
        self, engine: GvisorEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error says how to get them."""
        monkeypatch.setattr("toolexec_containers.gvisor.engine.find_cgroups", lambda: None)
        found = await GvisorEngine(GvisorConfig(image=TEST_IMAGE, cgroups=True)).check()
        assert not found.ok
        assert "control groups" in found.reason
        assert "systemd-run" in found.remedy
        assert (await engine.check()).ok

    async def test_a_runsc_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The command that mends it is named."""
        engine = GvisorEngine(GvisorConfig(image=TEST_IMAGE, runsc="/no/runsc"))
        found = await engine.check()
        assert (found.ok, "apt-get install" in found.remedy) == (False, True)
        assert "/no/runsc" in found.reason
        with pytest.raises(SandboxUnavailableError, match="/no/runsc"):
            await engine.start(await engine.resolve(TEST_IMAGE), python("1"))
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr("toolexec_containers.gvisor.checks._PATH", str(tmp_path))
        assert "not on the PATH" in (await GvisorEngine(GvisorConfig(image=TEST_IMAGE)).check()).reason

    @pytest.mark.parametrize(
        ("script", "reason"),
        [
            ("exit 3", "does not work"),
            ("echo nonsense", "does not work"),
            (
                "test $1 = --version && echo runsc version 1 && exit; echo unknown platform: systrap >&2; exit 128",
                "too old",
            ),
            ("test $1 = --version && echo runsc version 1 && exit; echo broken >&2; exit 128", "broken"),
        ],
    )
    async def test_a_runsc_that_does_not_work(self, tmp_path: Path, script: str, reason: str) -> None:
        """Passes on the error message of runsc."""
        program = tmp_path / "runsc"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        found = await GvisorEngine(GvisorConfig(image=TEST_IMAGE, runsc=str(program))).check()
        assert not found.ok
        assert reason in found.reason
        assert found.remedy

    async def test_a_runsc_that_cannot_be_run(self, engine: GvisorEngine, tmp_path: Path) -> None:
        """A file that is no program fails the start, and leaves nothing."""
        program = tmp_path / "runsc"
        program.write_bytes(b"\x7fELF")
        program.chmod(0o755)
        broken = GvisorEngine(GvisorConfig(image=TEST_IMAGE, runsc=str(program), cgroups=False))
        assert not (await broken.check()).ok
        with pytest.raises(SandboxUnavailableError, match="cannot be started"):
            await broken.start(await broken.resolve(TEST_IMAGE), python("1"))

    async def test_images(self, engine: GvisorEngine, tmp_path: Path) -> None:
        """Names of the store and paths are found; the host's own directories, and what is no root, are refused."""
        known = await engine.resolve(TEST_IMAGE)
        assert known.digest.startswith("sha256:")
        assert await engine.resolve(known.reference) == type(known)(name=known.reference, reference=known.reference)
        with pytest.raises(SandboxUnavailableError, match="toolexec image build --name no-such"):
            await engine.resolve("no-such")
        missing = await GvisorEngine(GvisorConfig(image="no-such")).check()
        assert (missing.ok, missing.remedy) == (False, "toolexec image build --name no-such")
        link = tmp_path / "link"
        link.symlink_to("/")
        for path in ("/", "/usr", "/usr/..", "/proc/self/root", "/var", "/tmp", str(link), "/home"):
            if os.path.exists(path):
                with pytest.raises(SandboxUnavailableError, match="part of this system"):
                    await engine.resolve(path)
        with pytest.raises(SandboxUnavailableError, match="no root file system"):
            await engine.resolve(str(tmp_path / "missing"))
        with pytest.raises(SandboxUnavailableError, match="no root file system"):
            await engine.resolve(str(tmp_path))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "python3").touch()
        with pytest.raises(SandboxUnavailableError, match="mkdir -m 755"):
            await engine.resolve(str(tmp_path))

    async def test_an_image_that_goes_away(self, tmp_path: Path) -> None:
        """Between its look-up and its start: that is said, and nothing is left."""
        root = tmp_path / "root" / "bin"
        root.mkdir(parents=True)
        (root / "python3").touch()
        (root.parent / "work").mkdir()
        engine = GvisorEngine(GvisorConfig(image=str(root.parent)))
        image = await engine.resolve(str(root.parent))
        (root / "python3").unlink()
        shutil.rmtree(root.parent)
        with pytest.raises(SandboxUnavailableError, match="is gone"):
            await engine.start(image, python("1"))

    async def test_what_cannot_be_prepared(self, engine: GvisorEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        """A container that a bundle cannot describe, and a temp directory that is not there."""
        image = await engine.resolve(TEST_IMAGE)
        from dataclasses import replace

        what = python("1")
        with pytest.raises(InvalidRequestError):
            await engine.start(image, replace(what, security=replace(what.security, network="bridge")))
        monkeypatch.setattr(tempfile, "tempdir", "/no/such")
        with pytest.raises(SandboxUnavailableError, match="cannot be prepared"):
            await engine.start(image, what)

    async def test_a_deep_temp_directory(
        self, engine: GvisorEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """One whose path is longer than that of a socket may be works as well."""
        deep = tmp_path / ("x" * 120)
        deep.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(deep))
        said, ended, noise = await outcome(engine, python("print(1)"))
        assert (said, ended) == ("1\n", Exit(code=0)), noise
        assert [*deep.iterdir()] == []

    def test_settings(self) -> None:
        """Refuses invalid settings."""
        for wrong in (
            {"network": "host"},
            {"network": "sandbox"},
            {"platform": "x"},
            {"image": ""},
            {"max_running": 0},
        ):
            with pytest.raises(ConfigurationError):
                GvisorConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_an_ordinary_user() -> None:
    """Runs without root: processes and disk space are bounded, memory is reported as unbounded, CPU time is known."""
    image = ImageStore().find(TEST_IMAGE)
    assert image is not None
    code = """
import asyncio, os, sys
from toolexec_containers.gvisor import GvisorConfig, GvisorEngine
from toolexec.sandbox import ExecuteRequest
from toolexec.containers import spec_for
from toolexec.sandbox import Limits
asyncio.run(GvisorEngine(GvisorConfig(image=sys.argv[1])).check())  # imports what an ordinary user cannot read here
os.setgroups([]); os.setgid(65534); os.setuid(65534)
look = "import os, time\\nn = 1\\ntry:\\n  while True:\\n    os.fork() or time.sleep(60)\\n    n += 1\\nexcept OSError: print(n, flush=True)\\nos._exit(0)"
async def main():
    config = GvisorConfig(image=sys.argv[1])
    engine = GvisorEngine(config)
    found, held = await engine.check(), engine.enforces(Limits())
    print(engine.rootless, found.ok, found.reason, held.memory, held.pids, held.disk)
    spec = spec_for(image="x", command=("python3", "-c", look), limits=Limits(pids=20), profile="standard", config=config, kind="gvisor")
    container = await engine.start(await engine.resolve(sys.argv[1]), spec)
    used = await container.cpu_seconds()
    print((await container.stream.read()).decode(), await container.wait(), container.said(), used is not None)
    await container.aclose()
asyncio.run(main())
"""
    directory = Path(tempfile.mkdtemp(prefix="tx-gvisor-", dir="/var/tmp"))  # of which all above can be looked into
    try:
        directory.chmod(0o755)
        (directory / "temp").mkdir()
        (directory / "temp").chmod(0o777)
        runsc = shutil.copy(shutil.which("runsc") or "", directory)  # root's cache directory is closed to others
        with ImageStore().hold(image):
            done = await asyncio.to_thread(
                subprocess.run,
                [*seen_at(directory / "root", image), sys.executable, "-c", code, str(directory / "root")],
                capture_output=True,
                text=True,
                env={"PATH": f"{Path(runsc).parent}:{os.environ['PATH']}", "TMPDIR": str(directory / "temp")},
            )
        first, *rest = done.stdout.splitlines()
        assert first == "True True  False True True", done.stdout + done.stderr
        assert rest[0] == "20", done.stdout + done.stderr
        assert rest[-1].endswith(" True"), done.stdout + done.stderr
        assert [*(directory / "temp").iterdir()] == []
    finally:
        await asyncio.to_thread(shutil.rmtree, directory)


async def test_the_backend() -> None:
    """Code runs in it, with a tool, cold and warm."""
    testbed = GatewayTestbed(lambda parts: nullcontext(parts.direct()))
    backend = GvisorBackend(GvisorConfig(image=TEST_IMAGE, warm=1))
    try:
        for warm in (False, True):
            async with testbed.gateway() as gateway:
                request = ExecuteRequest(code="return tools.suite.add(a=1, b=2)", gateway=gateway, profile="hardened")
                if warm:
                    await backend.prepare(request)
                result = await backend.execute(request)
                assert (result.value, result.error) == (3, None)
                assert (result.backend.kind, result.backend.isolation) == ("gvisor", "gvisor")
                assert result.backend.details["warm"] is warm
    finally:
        await backend.aclose()
