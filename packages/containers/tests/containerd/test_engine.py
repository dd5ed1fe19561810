"""Containers of a real containerd: what they can do, what they cannot, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from packages.containers.tests.engines import containerd as daemons
from packages.containers.tests.engines.containerd import NAMESPACE, ContainerdDaemon, engine_for, require_runsc
from tests.engines.images import test_image
from tests.held_out.running import escaped, unknown
from tests.waiting import reached, until

from toolexec import Exec, Tool
from toolexec.code import Tools
from toolexec.containers import OWNER_LABEL, WORK, spec_for, this_owner
from toolexec.errors import ConfigurationError, InvalidRequestError, SandboxFailedError, SandboxUnavailableError
from toolexec.sandbox import Container, ContainerEngine, ContainerSpec, ExecuteRequest, Exit, Image, Limits, Output
from toolexec_containers.containerd import removal, tasks
from toolexec_containers.containerd.api import containers_pb2, leases_pb2, snapshots_pb2
from toolexec_containers.containerd.client import Calls, Client
from toolexec_containers.containerd.engine import DEFAULT_ADDRESS, ContainerdBackend, ContainerdConfig, ContainerdEngine
from toolexec_containers.containerd.tasks import TaskContainer

MIB = 1 << 20
ECHO = """
import os
while data := os.read(0, 1 << 16):
    while data:
        data = data[os.write(1, data):]
os._exit(7)
"""
pytestmark = [pytest.mark.full, pytest.mark.anyio]
containerd_daemon = daemons.containerd_daemon
engine = daemons.engine


def spec_of(engine: ContainerdEngine, code: str, *, profile: str = "standard", **limits: Any) -> ContainerSpec:
    """A container that runs Python code."""
    bounds = {"memory_bytes": 256 * MIB, "pids": 64, "disk_bytes": 32 * MIB, **limits}
    return spec_for(
        image=engine.config.image,
        command=("python3", "-I", "-X", "utf8", "-c", textwrap.dedent(code)),
        limits=Limits(**bounds),
        profile=profile,
        config=engine.config,
        kind="containerd",
    )


async def start(engine: ContainerdEngine, code: str, **limits: Any) -> Container:
    """A container that runs Python code."""
    return await engine.start(await engine.resolve(engine.config.image), spec_of(engine, code, **limits))


def member_of(container: Container) -> psutil.Process:
    """A process of a container, found by its control group."""
    members = [*Path("/sys/fs/cgroup").glob(f"pids/{container.id}/cgroup.procs")]
    members += [*Path("/sys/fs/cgroup").glob(f"{container.id}/cgroup.procs")]
    return psutil.Process(int(members[0].read_text().split()[0]))


async def everything(container: Container) -> str:
    """All that a container writes to stdout until its end."""
    data = b""
    while part := await container.stream.read():
        data += part
    return data.decode()


async def run(engine: ContainerdEngine, code: str, **limits: Any) -> tuple[str, str, Exit]:
    """Return a program's stdout and stderr, and how it ended."""
    container = await start(engine, code, **limits)
    try:
        out = await everything(container)
        end = await container.wait()
        return out, container.said(), end
    finally:
        await container.aclose()


class TestPrograms:
    async def test_output_is_kept_apart(self, engine: ContainerdEngine) -> None:
        """Stdout is the stream, stderr is what it said."""
        out, said, end = await run(engine, "import sys; print('out'); print('err', file=sys.stderr)")
        assert (out, said, end) == ("out\n", "err\n", Exit(code=0))

    async def test_exit_codes(self, engine: ContainerdEngine) -> None:
        """The exit code is that of the first process."""
        assert (await run(engine, "raise SystemExit(3)"))[2] == Exit(code=3)

    async def test_killed(self, engine: ContainerdEngine) -> None:
        """Death by a signal is 128 and its number; without a lack of memory no such reason is given."""
        container = await start(engine, ECHO)
        member_of(container).kill()
        assert await container.wait() == Exit(code=137)
        assert await container.stream.read() == b""
        await container.aclose()

    async def test_talk_until_stdin_is_closed(self, engine: ContainerdEngine) -> None:
        """Written lines come back, and a closed stream is the end of the input."""
        container = await start(engine, ECHO)
        for text in (b"one", b"two"):
            await container.stream.write(text)
            assert await container.stream.read() == text
        await container.stream.aclose()
        assert await asyncio.gather(container.wait(), container.wait()) == [Exit(code=7), Exit(code=7)]
        with pytest.raises(OSError, match="closed"):
            await container.stream.write(b"more")
        await container.aclose()
        await container.aclose()
        assert await container.wait() == Exit(code=7)

    async def test_much_at_once(self, engine: ContainerdEngine) -> None:
        """Fifty megabytes in and out at the same time arrive in full."""
        container = await start(engine, ECHO)
        size = 50 * MIB
        sending = asyncio.create_task(container.stream.write(b"x" * size))
        got = 0
        while got < size:
            got += len(await container.stream.read())
        await sending
        await container.aclose()
        assert got == size

    async def test_flood_that_nobody_reads(self, engine: ContainerdEngine) -> None:
        """A program that writes more than is read is ended all the same."""
        container = await start(
            engine, "import sys\nwhile True: sys.stdout.write('x' * 65536); sys.stderr.write('y' * 65536)"
        )
        await asyncio.sleep(0.3)
        assert len(container.said()) <= 4000
        await container.aclose()
        assert (await container.wait()).code == 137

    async def test_cpu_time(self, engine: ContainerdEngine) -> None:
        """The CPU time is that of all that runs in it."""
        container = await start(
            engine, "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ntime.sleep(60)"
        )
        await container.stream.read()
        assert 0.3 <= (await container.cpu_seconds() or 0) < 5
        await container.aclose()
        assert await container.cpu_seconds() is None

    async def test_many_at_once(self, engine: ContainerdEngine) -> None:
        """Twenty containers at the same time do not mix."""
        results = await asyncio.gather(*(run(engine, f"print({number})") for number in range(20)))
        assert [out for out, _, _ in results] == [f"{number}\n" for number in range(20)]
        assert {end for _, _, end in results} == {Exit(code=0)}


class TestLimits:
    async def test_memory(self, engine: ContainerdEngine) -> None:
        """A program that uses up its memory is killed, and the kernel's reason is passed on."""
        _, _, end = await run(engine, "b = bytearray(300 << 20); print(len(b))", memory_bytes=64 * MIB)
        assert end == Exit(code=137, oom=True)

    async def test_processes(self, engine: ContainerdEngine) -> None:
        """No more processes than allowed, and the surplus is noticed."""
        code = """
            import os, time
            made = 0
            try:
                while True:
                    if not os.fork(): time.sleep(60)
                    made += 1
            except BlockingIOError:
                print(made)
        """
        out, _, end = await run(engine, code, pids=10)
        assert out == "9\n"
        assert end == Exit(code=0, pids=True)

    async def test_disk(self, engine: ContainerdEngine) -> None:
        """The directories that can be written are full at their size; nothing else can be written."""
        code = """
            import errno
            for path in ('a', '/tmp/a', '/dev/shm/a', '/a', '/etc/a'):
                size = 0
                try:
                    with open(path, 'wb', buffering=0) as file:
                        while True: size += file.write(bytes(1 << 16))
                except OSError as error:
                    print(path, errno.errorcode[error.errno], size <= 16 << 20)
        """
        out, _, _ = await run(engine, code, disk_bytes=16 * MIB)
        assert out.splitlines() == [
            "a ENOSPC True",
            "/tmp/a ENOSPC True",
            "/dev/shm/a ENOSPC True",
            "/a EROFS True",
            "/etc/a EROFS True",
        ]

    async def test_cpus(self, engine: ContainerdEngine) -> None:
        """Half a core is what the kernel is told."""
        container = await start(engine, ECHO, cpus=0.5)
        quota = [
            path.read_text().split()[0]
            for path in (
                Path(f"/sys/fs/cgroup/cpu/{container.id}/cpu.cfs_quota_us"),
                Path(f"/sys/fs/cgroup/{container.id}/cpu.max"),
            )
            if path.exists()
        ]
        await container.aclose()
        assert quota == ["50000"]

    async def test_what_holds(self, engine: ContainerdEngine) -> None:
        """All of it is said to hold."""
        held = engine.enforces(Limits())
        assert (held.memory, held.cpu, held.cpus, held.pids, held.disk) == (True,) * 5
        assert engine.isolation == "container"


class TestRights:
    async def test_nobody_with_nothing(self, engine: ContainerdEngine) -> None:
        """The code is unprivileged, has no capability, gains none, is filtered, and sees its own processes only."""
        code = """
            import json, os, socket
            status = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())
            try:
                socket.create_connection(('1.1.1.1', 53), 1)
                network = True
            except OSError:
                network = False
            found = {key: status[key] for key in ('CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')}
            names = [name for _, name in socket.if_nameindex()]
            pids = [int(name) for name in os.listdir('/proc') if name.isdecimal()]
            print(json.dumps([os.getuid(), os.getgid(), os.getgroups(), found, network, names, pids, os.getcwd()]))
        """
        out, said, _ = await run(engine, code)
        assert not said
        none = "0" * 16
        rights = {"CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2"}
        uid, gid, groups, found, network, names, pids, directory = json.loads(out)
        assert (uid, gid, found, network, pids, directory) == (65534, 65534, rights, False, [1], WORK)
        assert set(groups) <= {65534}
        assert set(names) <= {"lo"}

    async def test_its_own_output_can_be_opened(self, engine: ContainerdEngine) -> None:
        """/dev/stdout and /dev/stderr are the code's own, whichever user made the pipes."""
        out, said, _ = await run(engine, "open('/dev/stdout', 'w').write('a'); open('/dev/stderr', 'w').write('b')")
        assert (out, said) == ("a", "b")

    async def test_root_can_be_written_for_development(self, engine: ContainerdEngine) -> None:
        """Under dev a root that can be written is the container's own."""
        image = await engine.resolve(engine.config.image)
        for _ in range(2):
            code = "import os; print(os.access('/', os.W_OK), os.path.exists('/var/tmp/x')); open('/var/tmp/x', 'w')"
            container = await engine.start(image, spec_of(engine, code, profile="dev"))
            assert await everything(container) == "False False\n"
            assert (await container.wait()).code == 0
            await container.aclose()

    async def test_networks_are_refused(self, engine: ContainerdEngine) -> None:
        """containerd has no network to give."""
        spec = spec_of(engine, "")
        spec = replace(spec, security=replace(spec.security, network="bridge"))
        with pytest.raises(InvalidRequestError, match="network"):
            await engine.start(await engine.resolve(engine.config.image), spec)


class TestNothingStays:
    @pytest.mark.parametrize("moment", ["before", "during", "after"])
    @pytest.mark.parametrize("name", ["Containers.Create", "Snapshots.Prepare", "Tasks.Create", "Tasks.Start"])
    async def test_cancelled_start(
        self,
        engine: ContainerdEngine,
        containerd_daemon: ContainerdDaemon,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        moment: str,
    ) -> None:
        """Whenever a start is cancelled, nothing of it is left when that is done."""
        image = await engine.resolve(engine.config.image)
        original = Client.call
        task: asyncio.Task[Any] | None = None
        seen: list[str] = []

        async def call(self: Client, call: Any, *arguments: Any, **settings: Any) -> Any:
            this = f"{call.service}.{call.name}" == name
            assert task is not None
            if this:
                seen.append(name)
            if this and moment == "before":
                task.cancel()
                await asyncio.sleep(0)
            if this and moment == "during":
                asyncio.get_running_loop().call_later(0.001, task.cancel)
            answer = await original(self, call, *arguments, **settings)
            if this and moment == "after":
                task.cancel()
            return answer

        monkeypatch.setattr(Client, "call", call)
        task = asyncio.create_task(engine.start(image, spec_of(engine, ECHO)))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == [name]
        containerd_daemon.check_left()

    async def test_cancelled_close(self, engine: ContainerdEngine, containerd_daemon: ContainerdDaemon) -> None:
        """A close that is cancelled is done first."""
        container = await start(engine, ECHO)
        task = asyncio.create_task(container.aclose())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        containerd_daemon.check_left()

    async def test_nothing_is_left_of_runs(self, engine: ContainerdEngine, containerd_daemon: ContainerdDaemon) -> None:
        """Neither in containerd, nor in the kernel, nor in the directory of the engine."""
        container = await start(engine, ECHO)
        assert len(containerd_daemon.left()) >= 4
        assert [*Path("/sys/fs/cgroup").rglob(f"{container.id}")]
        await container.aclose()
        containerd_daemon.check_left()
        assert not [*Path("/sys/fs/cgroup").rglob(f"{container.id}")]
        assert engine._runtimes._directory is not None
        assert not [*engine._runtimes._directory.iterdir()]

    async def test_dead_host(
        self, engine: ContainerdEngine, containerd_daemon: ContainerdDaemon, tmp_path: Path
    ) -> None:
        """The next host sweeps up after a killed one; what a living one uses stays."""
        container = await start(engine, ECHO)
        mine = containerd_daemon.left()
        dead = _host(containerd_daemon, tmp_path, engine.config.image, "runc")
        assert len(containerd_daemon.left()) > len(mine)
        await engine.sweep()
        assert sorted(containerd_daemon.left()) == sorted(mine)
        assert not Path(dead).exists()
        await container.stream.write(b"still here")
        assert await container.stream.read() == b"still here"
        await container.aclose()

    async def test_parts_of_a_dead_host(self, engine: ContainerdEngine, containerd_daemon: ContainerdDaemon) -> None:
        """A snapshot, a lease, and a task without a record, are swept up as well; those of the living stay."""
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        assert process.stdin is not None
        with open(f"/proc/{process.pid}/stat", "rb") as file:
            started = file.read().rpartition(b") ")[2].split()[19].decode()
        owner = f"{this_owner().partition('-')[0]}-{process.pid}-{started}"
        client = Client(containerd_daemon.socket, NAMESPACE)
        labels = {OWNER_LABEL: owner}
        lease = leases_pb2.CreateRequest(id="toolexec-lease", labels=labels)
        await client.call(Calls.create_lease, lease)
        snapshot = snapshots_pb2.PrepareSnapshotRequest(
            snapshotter=containerd_daemon.snapshotter, key="toolexec-snapshot", labels=labels
        )
        await client.call(Calls.prepare_snapshot, snapshot, lease=lease.id)
        connection = await engine._connect()
        plan = replace(
            await engine._plan(connection, await engine.resolve(engine.config.image), spec_of(engine, ECHO)),
            id=f"toolexec-{owner}-0",
            cgroup=f"/toolexec-{owner}-0",
        )
        container = TaskContainer(client, plan, set())
        await container.open()
        await client.call(Calls.delete_container, containers_pb2.DeleteContainerRequest(id=plan.id))
        directory = Path(tempfile.gettempdir()) / f"toolexec-containerd-{owner}-x"
        directory.mkdir(0o700)
        others = Path(tempfile.gettempdir()) / f"toolexec-containerd-{owner}-y"
        others.mkdir(0o777)
        others.chmod(0o777)
        await engine.sweep()
        assert {f"task {plan.id}", "lease toolexec-lease"} <= {*containerd_daemon.left()}
        assert directory.exists()
        process.communicate(b"\n")
        await engine.sweep()
        containerd_daemon.check_left()
        assert not directory.exists()
        assert others.exists()
        others.rmdir()
        assert (await container.wait()).code == 137
        await container.aclose()
        client.close()

    async def test_what_cannot_be_removed(
        self, engine: ContainerdEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Such a resource is logged, and does not keep the rest from being removed."""
        monkeypatch.setattr(removal, "is_orphan", lambda owner: True)
        container = await start(engine, ECHO)
        original = Client.call

        async def call(self: Client, call: Any, *arguments: Any, **settings: Any) -> Any:
            if (call.service, call.name) in (("Tasks", "Delete"), ("Snapshots", "Remove"), ("Leases", "Delete")):
                raise SandboxUnavailableError("no", details={"status": "UNAVAILABLE"})
            return await original(self, call, *arguments, **settings)

        connection = await engine._connect()
        lease = leases_pb2.CreateRequest(id="toolexec-stays", labels={OWNER_LABEL: "x"})
        await connection.client.call(Calls.create_lease, lease)
        with monkeypatch.context() as patched:
            patched.setattr(Client, "call", call)
            await engine.sweep()
        assert f"the container {container.id} of a dead host cannot be removed: no" in caplog.text
        assert f"{container.id} of a dead host cannot be removed" in caplog.text
        assert "toolexec-stays of a dead host cannot be removed" in caplog.text
        await connection.client.call(Calls.delete_lease, leases_pb2.DeleteRequest(id=lease.id))
        await container.aclose()


def _host(daemon: ContainerdDaemon, directory: Path, image: str, runtime: str) -> str:
    """A host that is killed while it runs a container; gives the private directory that it leaves."""
    program = directory / "host.py"
    program.write_text(
        textwrap.dedent(f"""
        import asyncio
        from toolexec_containers.containerd import ContainerdConfig, ContainerdEngine
        from toolexec.containers import spec_for
        from toolexec.sandbox import Limits

        async def main():
            config = ContainerdConfig(
                address={daemon.socket!r}, snapshotter={daemon.snapshotter!r}, image={image!r}, runtime={runtime!r}
            )
            engine = ContainerdEngine(config)
            spec = spec_for(
                image={image!r}, command=("python3", "-c", "import time; time.sleep(600)"), limits=Limits(),
                profile="standard", config=config, kind="containerd",
            )
            await engine.start(await engine.resolve({image!r}), spec)
            print(engine._runtimes._directory, flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
        """)
    )
    process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = process.stdout.readline().strip()
        assert found
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    return found


class TestDaemonLost:
    async def test_restarted_daemon(
        self, engine: ContainerdEngine, containerd_daemon: ContainerdDaemon, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A container does not notice that the daemon is killed and started again, and its end is received of."""
        monkeypatch.setattr(tasks, "_BACK", 600.0)  # how long it takes is up to the machine
        container = await start(engine, ECHO)
        waiting = asyncio.create_task(container.wait())
        try:
            await asyncio.to_thread(containerd_daemon.kill)
            await container.stream.write(b"are you there?")
            assert await container.stream.read() == b"are you there?"
        finally:
            await asyncio.to_thread(containerd_daemon.start)
        await _back(engine)
        await container.stream.aclose()
        assert await waiting == Exit(code=7)
        await container.aclose()
        containerd_daemon.check_left()

    async def test_lost_daemon(
        self,
        engine: ContainerdEngine,
        containerd_daemon: ContainerdDaemon,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A program whose daemon does not come back is ended, and its run lost, though no caller asks for it; what is left
        is removed once there is a daemon again."""
        container = await start(
            engine, f"import os, signal\nfor each in (1, 2, 15): signal.signal(each, signal.SIG_IGN)\n{ECHO}"
        )
        await container.stream.write(b"x")
        assert await container.stream.read() == b"x"
        program = member_of(container)
        try:
            await asyncio.to_thread(containerd_daemon.kill)
            end = await container.wait()
            assert not program.is_running() or program.status() == psutil.STATUS_ZOMBIE
            assert await container.stream.read() == b""
            assert not (await engine.check()).ok
            await container.aclose()
            assert end.code is None
            assert "cannot be reached" in end.lost
            assert "could not be removed in full" in caplog.text
            with pytest.raises(SandboxUnavailableError, match="does not answer"):
                await start(engine, ECHO)
        finally:
            await asyncio.to_thread(containerd_daemon.start)
        await _back(engine)
        assert containerd_daemon.left()
        await engine.sweep()
        containerd_daemon.check_left()
        assert (await run(engine, "print(1)"))[0] == "1\n"

    async def test_a_run_without_its_daemon(
        self, engine: ContainerdEngine, containerd_daemon: ContainerdDaemon, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A run ends at once with an error that says whose fault that is, though its limit is an hour away."""
        monkeypatch.setattr(tasks, "_BACK", 0.0)
        begun = asyncio.Event()
        backend = ContainerdBackend(engine.config)
        async with Exec(runtime_backends={"standard": [backend]}) as ex:
            ex.add(begun.set, "test:begun")
            running = asyncio.create_task(
                ex.execute_code("tools.test.begun()\nimport time\ntime.sleep(3600)", timeout=3600)
            )
            await reached(begun, running)
            try:
                await asyncio.to_thread(containerd_daemon.kill)
                with pytest.raises(SandboxFailedError, match="cannot be reached"):
                    (await running).raise_for_error()
            finally:
                await asyncio.to_thread(containerd_daemon.start)
            await _back(backend.engine)  # which removes what it could not remove before when it is closed

    async def test_killed_shim(self, engine: ContainerdEngine, containerd_daemon: ContainerdDaemon) -> None:
        """A container whose shim is killed ends, and does not stay."""
        container = await start(engine, ECHO)
        shims = subprocess.run(["pgrep", "-f", "--", f"-id {container.id}"], capture_output=True, text=True, check=True)
        os.kill(int(shims.stdout.split()[0]), signal.SIGKILL)
        end = await asyncio.wait_for(container.wait(), 30)
        assert end.lost or end.code == 137
        await container.aclose()
        containerd_daemon.check_left()


async def _back(engine: ContainerEngine) -> None:
    """Wait until the connection to a daemon that was started again is there."""

    async def back() -> bool:
        return (await engine.check()).ok

    await until(back, 0.1)


class TestGvisor:
    @pytest.fixture
    async def gvisor(self, containerd_daemon: ContainerdDaemon) -> Any:
        """An engine that runs gVisor."""
        require_runsc()
        engine = engine_for(containerd_daemon, runtime="runsc")
        yield engine
        await engine.aclose()
        containerd_daemon.check_left()

    async def test_really_is_gvisor(self, gvisor: ContainerdEngine) -> None:
        """The kernel that the code sees is gVisor's, and it has no rights there either."""
        assert gvisor.isolation == "gvisor"
        assert (await gvisor.check()).ok
        code = """
            import os, socket
            try:
                socket.create_connection(('1.1.1.1', 53), 1)
                network = True
            except OSError:
                network = False
            print(open('/proc/version').read().split()[2], os.getuid(), network, [n for _, n in socket.if_nameindex()])
            raise SystemExit(5)
        """
        out, _, end = await run(gvisor, code)
        assert out.startswith("4.4.0 65534 False ")
        assert end == Exit(code=5)

    async def test_talk(self, gvisor: ContainerdEngine) -> None:
        """Stdin and stdout go through, and CPU time is counted."""
        container = await start(gvisor, ECHO)
        await container.stream.write(b"x" * MIB)
        got = 0
        while got < MIB:
            got += len(await container.stream.read())
        assert (await container.cpu_seconds() or 0) > 0
        await container.stream.aclose()
        assert (await container.wait()).code == 7
        await container.aclose()

    async def test_limits(self, gvisor: ContainerdEngine) -> None:
        """Memory is bounded by the host, processes by gVisor itself."""
        assert gvisor.enforces(Limits()).pids
        _, _, end = await run(gvisor, "b = bytearray(400 << 20); print(len(b))", memory_bytes=128 * MIB)
        assert end == Exit(code=137, oom=True)
        code = "import os, time\nn = 0\ntry:\n  while True:\n    if not os.fork(): time.sleep(60)\n    n += 1\nexcept BlockingIOError:\n  print(n)"
        out, _, _ = await run(gvisor, code, pids=10)
        assert 5 <= int(out) <= 10

    async def test_dead_host(
        self, gvisor: ContainerdEngine, containerd_daemon: ContainerdDaemon, tmp_path: Path
    ) -> None:
        """Sweeps up even when the script that ran the host has been deleted."""
        directory = Path(_host(containerd_daemon, tmp_path, gvisor.config.image, "runsc"))
        (directory / "runsc").unlink()
        assert containerd_daemon.left()
        await gvisor.sweep()
        containerd_daemon.check_left()
        assert not directory.exists()

    async def test_not_installed(self, containerd_daemon: ContainerdDaemon) -> None:
        """Without the program it says what to install."""
        engine = engine_for(containerd_daemon, image="x", runtime="runsc", runsc="/nowhere/runsc")
        found = await engine.check()
        assert not found.ok
        assert "no /nowhere/runsc" in found.reason
        assert "gvisor.dev" in found.remedy
        await engine.aclose()


class TestImages:
    async def test_removed_meanwhile(self, engine: ContainerdEngine, containerd_daemon: ContainerdDaemon) -> None:
        """A removed image is a clear error once, and then it is taken from the store again."""
        image = await engine.resolve(engine.config.image)
        containerd_daemon.ctr("images", "rm", "--sync", image.reference)
        with pytest.raises(SandboxUnavailableError, match="was removed from containerd"):
            await engine.start(image, spec_of(engine, "print(1)"))
        containerd_daemon.check_left()
        assert (await run(engine, "print(1)"))[0] == "1\n"

    async def test_removed_while_in_use(self, engine: ContainerdEngine, containerd_daemon: ContainerdDaemon) -> None:
        """A container runs on when its image is removed."""
        container = await start(engine, ECHO)
        containerd_daemon.ctr("images", "rm", "--sync", (await engine.resolve(engine.config.image)).reference)
        await container.stream.write(b"x")
        assert await container.stream.read() == b"x"
        await container.aclose()

    async def test_no_python(self, engine: ContainerdEngine) -> None:
        """A command that the image does not have is named."""
        spec = replace(spec_of(engine, ""), command=("no-such-program",))
        with pytest.raises(SandboxUnavailableError, match="no-such-program"):
            await engine.start(await engine.resolve(engine.config.image), spec)

    async def test_image_of_another_engine(self, engine: ContainerdEngine) -> None:
        """An image that was resolved by another engine is found by its name."""
        image = await engine.resolve(engine.config.image)
        engine._connection = None  # type: ignore[assignment]  # another engine knows nothing of what this one has found
        container = await engine.start(Image(name=image.name, reference=image.reference), spec_of(engine, "print(1)"))
        assert await everything(container) == "1\n"
        await container.aclose()


class TestConfig:
    def test_defaults(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The usual socket, that of CONTAINERD_ADDRESS, or the one given."""
        monkeypatch.delenv("CONTAINERD_ADDRESS", raising=False)
        assert ContainerdConfig().socket == DEFAULT_ADDRESS
        monkeypatch.setenv("CONTAINERD_ADDRESS", "unix:///somewhere.sock")
        assert ContainerdConfig().socket == "/somewhere.sock"
        assert ContainerdConfig(address="/given").socket == "/given"

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"pull": "always"}, "images pull"),
            ({"pull": "sometimes"}, "pull must be one of never, missing, always"),
            ({"image": "No Name"}, "not a name of an image"),
            ({"namespace": ""}, "needs a namespace"),
            ({"warm": -1}, "warm must be 0"),
        ],
    )
    def test_refused(self, settings: dict[str, Any], says: str) -> None:
        """Refuses an unworkable configuration when it is made."""
        with pytest.raises(ConfigurationError, match=says):
            ContainerdConfig(**settings)

    async def test_profile_that_cannot_be_read(self, containerd_daemon: ContainerdDaemon) -> None:
        """A seccomp profile that is not there keeps a container from starting."""
        engine = engine_for(containerd_daemon, seccomp="/nowhere.json")
        with pytest.raises(SandboxUnavailableError, match="nowhere"):
            await start(engine, "print(1)")
        await engine.aclose()


class TestBackend:
    @pytest.mark.parametrize("warm", [0, 1])
    async def test_code_with_a_tool(self, containerd_daemon: ContainerdDaemon, warm: int) -> None:
        """A program in a container calls a tool of the host, cold or in a guest that was started before."""
        ex = Exec(default_timeout=60)

        async def add(args: dict[str, Any]) -> Any:
            return args["a"] + args["b"]

        ex.add(Tool(name="add", namespace="math", input_schema={"type": "object"}), handler=add)
        config = ContainerdConfig(
            address=containerd_daemon.socket,
            snapshotter=containerd_daemon.snapshotter,
            image=test_image().name,
            warm=warm,
        )
        backend = ContainerdBackend(config)
        assert (backend.kind, backend.isolation) == ("containerd", "container")
        assert (await backend.check()).ok
        tools = Tools(ex.index, ex.docs, ex.runner, limits=Limits(), output=Output())
        request = ExecuteRequest(
            code="print('hi')\nreturn await tools.math.add(a=1, b=2)",
            gateway=tools,
            output=tools.output,
            profile="standard",
            language="python",
        )
        if warm:
            await backend.prepare(request)
        result = await backend.execute(request)
        await backend.aclose()
        await ex.aclose()
        assert result.error is None
        assert (result.value, result.stdout) == (3, "hi\n")
        assert result.backend.details["warm"] is bool(warm)
        containerd_daemon.check_left()


async def test_no_attack_of_others_gets_out(containerd_daemon: ContainerdDaemon) -> None:
    """Attacks that are not of the battery get nothing out."""
    place = {"address": containerd_daemon.socket, "snapshotter": containerd_daemon.snapshotter}
    backend = ContainerdBackend(ContainerdConfig(image=test_image().name, **place))
    assert unknown("containerd", await escaped(backend)) == {}
