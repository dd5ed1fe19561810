"""Containers of bubblewrap, on the real one: what goes in and out, what holds, what is hidden, and what stays."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.bubblewrap import (
    engine_of,
    groups_of,
    make_spec,
    read_all,
    require_bwrap,
    require_cgroups,
    started,
    wheel_bwrap,
)
from tests.engines.images import test_image as image_of_tests
from tests.engines.programs import has_ended
from tests.servers import server_environment

from toolexec import Exec
from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.errors import (
    ConfigurationError,
    InvalidRequestError,
    LimitNotEnforceableError,
    SandboxUnavailableError,
)
from toolexec.process import child as child_module
from toolexec.process.cgroup import Cgroups
from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig, BubblewrapEngine, checks
from toolexec.runtime.containers.bubblewrap import engine as module
from toolexec.runtime.containers.bubblewrap.host_user import HostUsers
from toolexec.runtime.containers.engine import ContainerEngine, Exit, Image
from toolexec.runtime.containers.spec import Mount, Security
from toolexec.runtime.images.store import ImageStore
from toolexec.testing.scripted_sandbox import ScriptedSandbox

LONG = 60
SLEEP = "import time; print('up', flush=True); time.sleep(1000)"
MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No control group and no mount may be left after a test."""
    yield
    assert not groups_of(os.getpid())
    assert "newroot" not in Path("/proc/self/mountinfo").read_text()


@pytest.fixture(params=["auto", "never"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[BubblewrapEngine]:
    """With control groups, and without."""
    require_bwrap()
    if request.param == "auto":
        require_cgroups()
    engine = engine_of(cgroups=request.param)
    yield engine
    await engine.aclose()


@pytest.fixture
async def plain() -> AsyncIterator[BubblewrapEngine]:
    """The way it is best here."""
    require_bwrap()
    engine = engine_of()
    yield engine
    await engine.aclose()


async def output(engine: BubblewrapEngine, code: str, **settings: Any) -> str:
    """Return the output of Python code in a container of its own."""
    async with started(engine, make_spec(code, **settings)) as container:
        text = await asyncio.wait_for(read_all(container), LONG)
        end = await asyncio.wait_for(container.wait(), LONG)
        assert end == Exit(code=0), container.said()
        return text


async def end_of(engine: BubblewrapEngine, code: str, **settings: Any) -> tuple[Exit, str]:
    """Return how Python code ends, and its output."""
    async with started(engine, make_spec(code, **settings)) as container:
        text = await asyncio.wait_for(read_all(container), LONG)
        return await asyncio.wait_for(container.wait(), LONG), text + container.said()


def gone(pids: Iterable[int]) -> bool:
    """Return whether they are all gone in the end; a killed process takes a moment."""
    until = time.monotonic() + LONG
    while not all(has_ended(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.005)
    return all(has_ended(pid) for pid in pids)


def settled(fds: int) -> bool:
    """Return whether there are no more descriptors than before: a thread that looks at processes may still hold some."""
    until = time.monotonic() + LONG
    while len(os.listdir("/proc/self/fd")) > fds:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def tree_of(pid: int) -> list[int]:
    found = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *(deep for child in found for deep in tree_of(child))]


# -- in and out -------------------------------------------------------------------------------------------------------


async def test_it_talks_through_its_stdio(engine: BubblewrapEngine) -> None:
    """Back and forth, small and large; and it ends by itself with its exit code."""
    code = """if 1:
        import os, sys
        while True:
            data = os.read(0, 1 << 20)
            if data == b"end": sys.stderr.write("bye"); sys.exit(3)
            os.write(1, data)
    """
    async with started(engine, make_spec(code)) as container:
        for number in range(20):
            await container.stream.write(b"%d" % number)
            assert await container.stream.read() == b"%d" % number
        data = os.urandom(4 * MEGABYTE)
        writing = asyncio.create_task(container.stream.write(data))
        got = b""
        while len(got) < len(data):
            got += await container.stream.read()
        assert got == data
        await writing
        await container.stream.write(b"end")
        assert await asyncio.wait_for(container.wait(), LONG) == Exit(code=3)
        assert container.said() == "bye"
        assert container.id.isdecimal()


async def test_its_environment_and_place_are_what_was_asked_for(engine: BubblewrapEngine) -> None:
    """The environment holds nothing of ours, whatever the program looks at."""
    code = """if 1:
        import json, os
        first = os.listdir("/proc/1")
        here = [os.getcwd(), os.getuid(), os.getgid(), os.uname().nodename, os.getpid() < 5, os.listdir("/proc/self/fd")]
        print(json.dumps([dict(os.environ), here, first]))
    """
    os.environ["HOST_SECRET"] = "x"
    try:
        env, here, first = json.loads(await output(engine, code))
    finally:
        del os.environ["HOST_SECRET"]
    assert {*env} - {"PWD", "OLDPWD", "LC_CTYPE", "_", "SHLVL"} == {"PATH", "HOME"}
    assert here == ["/work", 65534, 65534, "sandbox", True, ["0", "1", "2", "3"]]
    assert first == [], "what the first process was started with has paths of the host"


async def test_a_killed_container_says_so(engine: BubblewrapEngine) -> None:
    """Whoever killed it."""
    async with started(engine, make_spec(SLEEP)) as container:
        await container.stream.read()
        os.kill(tree_of(int(container.id))[-1], signal.SIGKILL)
        assert (await asyncio.wait_for(container.wait(), LONG)).code == 137


# -- whose it is -------------------------------------------------------------------------------------------------------


def uids_of(pid: int) -> set[int]:
    """The real, effective, saved and file system user of a process and of all below it, to the kernel."""
    lines = [line for one in tree_of(pid) for line in Path(f"/proc/{one}/status").read_text().splitlines()]
    return {int(number) for line in lines if line.startswith("Uid:") for number in line.split()[1:]}


def owner(path: Path) -> int | None:
    """Return the user that owns *path*, None if it is gone: a process may end while its like are listed."""
    try:
        return path.stat().st_uid
    except FileNotFoundError:
        return None


async def test_no_process_of_it_is_root(engine: BubblewrapEngine) -> None:
    """Started by root, each container is a user of its own that nothing else on the machine is."""
    if os.geteuid() != 0:
        pytest.skip("only root has another user to become")
    code = "print(open('/proc/self/uid_map').read(), end='', flush=True); import time; time.sleep(1000)"
    async with started(engine, make_spec(code)) as one, started(engine, make_spec(code)) as two:
        maps = [(await container.stream.read()).split() for container in (one, two)]
        first, second = (uids_of(int(container.id)) for container in (one, two))
        assert len(first) == len(second) == 1
        assert 0 not in first | second
        assert 65534 not in first | second
        assert first != second
        assert {map_[0] for map_ in maps} == {b"65534"}
        for pid in (*tree_of(int(one.id)), *tree_of(int(two.id))):
            groups = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "Groups" in line)
            assert {int(group) for group in groups.split()[1:]} <= first | second
        for uid in first | second:
            others = [pid for pid in Path("/proc").glob("[0-9]*") if owner(pid) == uid]
            mine = {*tree_of(int(one.id)), *tree_of(int(two.id))}
            assert {int(pid.name) for pid in others} <= mine


async def test_a_file_of_root_cannot_be_read(engine: BubblewrapEngine, tmp_path: Path) -> None:
    """Though it is there to be seen: in the image, or in a directory that was given."""
    if os.geteuid() != 0:
        pytest.skip("an ordinary user has no files of root's to show")
    tmp_path.chmod(0o755)
    for name, mode in (("open", 0o644), ("canary", 0o600)):
        (tmp_path / name).write_text("seen")
        (tmp_path / name).chmod(mode)
    code = """if 1:
        import os
        for name in ("open", "canary"):
            try:
                print(name, open("/in/" + name).read())
            except OSError as error:
                print(name, type(error).__name__)
        for change in (lambda: os.chmod("/in/canary", 0o644), lambda: os.open("/in/new", os.O_CREAT | os.O_WRONLY)):
            try:
                change()
            except OSError as error:
                print(type(error).__name__)
    """
    spec = make_spec(code)
    mount = Mount(type="bind", target="/in", source=str(tmp_path))
    async with started(engine, replace(spec, mounts=(*spec.mounts, mount))) as container:
        text = await read_all(container)
        assert (await container.wait()).code == 0, container.said()
    lines = text.splitlines()
    assert lines[:2] == ["open seen", "canary PermissionError"]
    assert lines[-2:] == ["PermissionError", "PermissionError"]
    assert not (tmp_path / "new").exists()


async def test_a_limit_that_is_only_watched_is_refused() -> None:
    """A request that asks for it does not run, unless best effort is enough for it."""
    require_bwrap()
    backend = BubblewrapBackend(BubblewrapConfig(cgroups="never"))
    async with Exec(runtime_backends=[backend]) as ex:
        for name in ("memory_bytes", "cpu_ms", "cpus"):
            with pytest.raises(LimitNotEnforceableError, match=name):
                await ex.execute_code("return 1", limits=Limits(**{name: 1 << 28}))
        limits = Limits(memory_bytes=1 << 28, pids=64, disk_bytes=1 << 24)
        result = await ex.execute_code("return 1", limits=limits, best_effort=True)
        assert result.value == 1
        held = result.limits_enforced
        assert (held.memory, held.cpu, held.cpus) == (False, False, False)
        assert (held.pids, held.disk, held.timeout) == (True, True, True)


@pytest.mark.parametrize(
    ("uid_map", "numbers"),
    [
        ("0 0 4294967295\n", range(0x70000000, 0x7FFE0000)),
        ("0 1000 1\n1 100000 65536\n", range(61438, 65534)),
        ("0 100000 65536\n", range(61438, 65534)),
        ("0 1000 1\n65534 65534 1\n", range(65534, 65535)),
    ],
)
def test_the_users_that_there_are(tmp_path: Path, uid_map: str, numbers: range) -> None:
    """Of those that are mapped, the ones that nothing else has; never root."""
    file = tmp_path / "uid_map"
    file.write_text(uid_map)
    users = HostUsers(file, claims=tmp_path / "users")
    assert users.numbers == numbers
    taken = [users.take() for _ in range(min(100, len(numbers)))]
    assert len({*taken}) == len(taken)
    assert all(number in numbers for number in taken)


def test_root_alone_is_nobody_to_become(tmp_path: Path) -> None:
    """Then nothing runs at all."""
    file = tmp_path / "uid_map"
    file.write_text("0 1000 1\n")
    with pytest.raises(SandboxUnavailableError, match="must not run as root"):
        HostUsers(file)


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_what_is_enforced_is_known_after_a_check(engine: BubblewrapEngine) -> None:
    """Without control groups nothing bounds memory and CPU time in sum, and that is not claimed."""
    assert engine.enforces(Limits()) == LimitsEnforced()
    found = await engine.check()
    assert found.ok, found
    assert found.version.startswith("0.")
    groups = engine.config.cgroups == "auto"
    assert engine.enforces(Limits()) == LimitsEnforced(memory=groups, cpu=groups, pids=True, disk=True, cpus=groups)


async def test_one_process_cannot_take_more_memory(engine: BubblewrapEngine) -> None:
    """Such a process is killed, or refused the memory where there is no control group."""
    end, text = await end_of(engine, "x = bytearray(300 << 20); print('got it')", memory_bytes=64 * MEGABYTE)
    assert "got it" not in text
    assert end == Exit(code=137, oom=True) if engine.config.cgroups == "auto" else "MemoryError" in text
    assert (await end_of(engine, "bytearray(20 << 20)", memory_bytes=64 * MEGABYTE))[0] == Exit(code=0)


async def test_many_processes_cannot_take_more_memory_together(engine: BubblewrapEngine) -> None:
    """Each stays within the bound, and all of them do not."""
    code = """if 1:
        import os, time
        for _ in range(6):
            if not os.fork():
                x = bytearray(30 << 20)
                time.sleep(1000)
        os.wait()
        os._exit(9)
    """
    end, _ = await end_of(engine, code, memory_bytes=96 * MEGABYTE)
    assert end.oom
    assert end.code in (9, 137, -9)


async def test_what_processes_share_counts_once(engine: BubblewrapEngine) -> None:
    """Forks of one large process are no reason to stop it."""
    code = """if 1:
        import os, time
        x = bytearray(50 << 20)
        for _ in range(5):
            if not os.fork():
                time.sleep(0.5)
                os._exit(0)
        for _ in range(5):
            os.wait()
        print("fine")
    """
    end, text = await end_of(engine, code, memory_bytes=128 * MEGABYTE)
    assert (end, text) == (Exit(code=0), "fine\n")


FORKS = """if 1:
    import os, signal, sys
    children = []
    try:
        for _ in range(200):
            children.append(os.fork())
            if not children[-1]: signal.pause()
    except OSError as error:
        sys.exit(7)
    signal.pause()
"""


async def test_there_can_only_be_so_many_processes(engine: BubblewrapEngine) -> None:
    """The kernel refuses one too many, with control groups and without, whichever user starts the container."""
    end, _ = await asyncio.wait_for(end_of(engine, FORKS, pids=20), LONG)
    assert end == Exit(code=7, pids=engine.config.cgroups == "auto")


async def test_as_many_processes_as_asked_for_are_there(engine: BubblewrapEngine) -> None:
    """Processes of bubblewrap itself do not count."""
    code = "import os, signal\nfor _ in range(9): os.fork() or signal.pause()\nprint('ten', flush=True); os.kill(-1, 9)"
    end, text = await end_of(engine, code, pids=10)
    assert text == "ten\n"
    assert not end.pids


async def test_cpu_time_is_known(engine: BubblewrapEngine) -> None:
    """That of processes that have ended, too, and also after the end."""
    code = """if 1:
        import os, sys, time
        def burn():
            end = time.process_time() + 0.25
            while time.process_time() < end: pass
        if not os.fork(): burn(); os._exit(0)
        os.wait(); burn(); print("burnt", flush=True); sys.stdin.read()
    """
    async with started(engine, make_spec(code)) as container:
        assert await container.stream.read() == b"burnt\n"
        used = await container.cpu_seconds()
        assert used is not None
        assert used >= 0.45
        await container.aclose()
        later = await container.cpu_seconds()
        assert later is not None
        assert later >= used


async def test_a_rate_of_cpu_time_is_held() -> None:
    """Seen in what the kernel says of the group."""
    require_bwrap()
    require_cgroups()
    engine = engine_of(cgroups="require")
    code = "import time\nwhile time.process_time() < 0.1: pass\nprint('burnt', flush=True); time.sleep(1000)"
    async with started(engine, make_spec(code, cpus=0.05)) as container:
        assert await asyncio.wait_for(container.stream.read(), LONG) == b"burnt\n"
        assert container._group is not None
        directory = container._group._directories["cpu"]
        stat = dict(line.split() for line in (directory / "cpu.stat").read_text().splitlines())
        assert int(stat["nr_throttled"]) > 0


async def test_what_can_be_written_has_a_bound(engine: BubblewrapEngine) -> None:
    """In each place, and there are no others."""
    code = """if 1:
        import os
        def fill(directory):
            try:
                with open(directory + "/x", "wb", buffering=0) as file:
                    for done in range(64):
                        if file.write(bytes(1 << 20)) < 1 << 20: return done
            except OSError as error:
                return done if error.errno == 28 else error.errno
        places = ["/work", "/tmp", "/dev/shm", "/", "/usr", "/dev", "/proc", "/etc", "/bin", "/proc/acpi", "/proc/sys"]
        print([fill(place) for place in places if os.path.isdir(place)][:6])
    """
    assert await output(engine, code, disk=32 * MEGABYTE) == "[23, 8, 1, 30, 30, 30]\n"


async def test_open_files_have_a_bound(engine: BubblewrapEngine) -> None:
    """Open files have a bound, and there are no core files."""
    code = "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE))"
    assert await output(engine, code, open_files=99) == "(99, 99) (0, 0)\n"
    assert await output(engine, "print(1)", open_files=0) == "1\n"


# -- what is hidden and forbidden -------------------------------------------------------------------------------------


async def test_there_is_no_network(plain: BubblewrapEngine) -> None:
    """A server on this machine cannot be reached."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"""if 1:
            import os, socket
            print([name for _, name in socket.if_nameindex()])
            for address in ("127.0.0.1", {server.getsockname()[1]}), ("10.0.0.1", 80):
                try: socket.create_connection(address, 2)
                except OSError as error: print(error.errno)
        """
        assert await output(plain, code) == "['lo']\n111\n101\n"


async def test_nothing_of_the_host_is_there(plain: BubblewrapEngine) -> None:
    """No directory but /usr and a few files that it needs; no processes; no users."""
    code = """if 1:
        import json, os
        print(json.dumps([sorted(os.listdir("/")), sorted(os.listdir("/etc")), sorted(os.listdir("/work")),
            len([name for name in os.listdir("/proc") if name.isdecimal()])]))
    """
    top, etc, work, processes = json.loads(await output(plain, code))
    assert {*top} <= {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr", "work"}
    assert {*etc} <= {"alternatives", "ld.so.cache", "localtime", "ssl"}
    assert (work, processes) == ([], 2)


async def test_settings_of_the_kernel_cannot_be_changed(plain: BubblewrapEngine) -> None:
    """Root could do so without any capability; and what it alone may read cannot be read."""
    code = """if 1:
        import os
        names = ["sys/kernel/core_pattern", "sys/kernel/hostname", "sys/vm/drop_caches", "sysrq-trigger", "self/oom_score_adj"]
        for name in names:
            try: os.close(os.open("/proc/" + name, os.O_WRONLY)); print("can write", name)
            except OSError: pass
        for name in ["kcore", "keys", "timer_list", "kmsg", "kpagecount", "slabinfo", "vmallocinfo"]:
            try: print("can read", name, open("/proc/" + name, "rb").read(1))
            except OSError: pass
        print(os.listdir("/proc/acpi") if os.path.isdir("/proc/acpi") else [])
    """
    assert await output(plain, code) == "[]\n"


async def test_it_has_no_rights(plain: BubblewrapEngine) -> None:
    """No capability, no way to gain one, a filter of system calls, and no namespaces of its own."""
    code = """if 1:
        import ctypes, os
        fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
        print([fields[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Groups")])
        libc = ctypes.CDLL(None, use_errno=True)
        print([libc.unshare(flag) for flag in (0x10000000, 0x00020000)], libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
        print(libc.syscall(250, 0, 0, 0, 0), libc.ptrace(16, 1, 0, 0))
    """
    none = "0000000000000000"
    expected = f"[{none!r}, {none!r}, {none!r}, {none!r}, '1', '2', '']\n[-1, -1] -1\n-1 "
    assert (await output(plain, code)).startswith(expected)


async def test_without_a_filter_namespaces_are_still_refused(plain: BubblewrapEngine) -> None:
    """Namespaces are refused by two independent means."""
    code = "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000), 'Seccomp:\\t0' in open('/proc/self/status').read())"
    spec = make_spec(code)
    async with started(plain, replace(spec, security=Security(seccomp="unconfined"))) as container:
        assert await read_all(container) == "-1 True\n"


@pytest.mark.parametrize(
    "changed",
    [
        {"security": Security(network="bridge")},
        {"security": Security(keep_capabilities=("CAP_CHOWN",))},
        {"security": Security(user="nobody")},
        {"mounts": (Mount(type="volume", target="/data", source="data"),)},
    ],
)
async def test_what_there_is_not_is_refused(plain: BubblewrapEngine, changed: dict[str, Any]) -> None:
    """Networks, capabilities, names of users, volumes."""
    with pytest.raises(InvalidRequestError, match="bubblewrap"):
        await plain.start(Image(name="host", reference="host"), replace(make_spec("1"), **changed))
    with pytest.raises(ConfigurationError):
        await plain.start(
            Image(name="host", reference="host"), replace(make_spec("1"), security=Security(seccomp="/no/such/file"))
        )


async def test_directories_can_be_given(plain: BubblewrapEngine, tmp_path: Path) -> None:
    """To read, or to write too."""
    tmp_path.chmod(0o777)
    for name in ("in", "out"):
        (tmp_path / name).mkdir(mode=0o777)
        (tmp_path / name).chmod(0o777)
    (tmp_path / "in/x").write_text("given")
    spec = make_spec("open('/out/x', 'w').write(open('/in/x').read()); open('/in/y', 'w')")
    mounts = (
        *spec.mounts,
        Mount(type="bind", target="/in", source=str(tmp_path / "in"), read_only=True),
        Mount(type="bind", target="/out", source=str(tmp_path / "out")),
        Mount(type="tmpfs", target="/empty", size_bytes=4096, read_only=True),
    )
    async with started(plain, replace(spec, mounts=mounts)) as container:
        assert (await asyncio.wait_for(container.wait(), LONG)).code == 1
        await container.aclose()
        assert "Read-only file system: '/in/y'" in container.said()
    assert (tmp_path / "out/x").read_text() == "given"


# -- images -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_an_image_of_the_store_can_be_run(engine: BubblewrapEngine) -> None:
    """By its name; it is held as long as the engine lives."""
    stored = image_of_tests()
    image = await engine.resolve(stored.name)
    again = await engine.resolve(stored.name)
    assert image == again == Image(name=stored.name, reference=str(stored.root), digest=stored.digest)
    assert len(engine._holds) == 1
    code = "import os, humanize; print(humanize.intcomma(1234), os.path.exists('/etc/passwd'), os.listdir('/root'))"
    spec = make_spec(["python3", "-c", code])
    async with started(engine, spec, stored.name) as container:
        text = await read_all(container)
        assert text.startswith("1,234 True") or "Permission denied: '/root'" in container.said(), container.said()


@pytest.mark.full
async def test_an_image_can_have_an_environment(plain: BubblewrapEngine, tmp_path: Path) -> None:
    """That of the container comes first."""
    stored = image_of_tests()
    plain._env[str(stored.root)] = {"FROM": "image", "HOME": "/root"}
    spec = make_spec("import os; print(os.environ['FROM'], os.environ['HOME'])")
    image = Image(name="x", reference=str(stored.root))
    container = await plain.start(image, spec)
    assert await read_all(container) == "image /work\n"
    await container.aclose()


@pytest.mark.full
async def test_a_root_file_system_need_not_have_the_directories(plain: BubblewrapEngine) -> None:
    """Missing directories are made, and the root stays read-only all the same."""
    root = str(image_of_tests().root)
    spec = make_spec("import os; open('/very/new/x', 'w'); print(sorted(os.listdir('/'))); open('/etc/x', 'w')")
    mounts = (*spec.mounts, Mount(type="tmpfs", target="/very/new", size_bytes=1 << 20))
    async with started(plain, replace(spec, mounts=mounts), root) as container:
        text = await read_all(container)
        assert "'very'" in text, container.said()
        await container.aclose()
        assert "Read-only file system: '/etc/x'" in container.said()
    assert not (Path(root) / "very").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
async def test_images_that_others_have_put_there_are_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends with whose directory it is, and no other sandbox takes it without a word."""
    (tmp_path / "images").mkdir()
    os.chown(tmp_path / "images", 65534, 65534)
    monkeypatch.setenv("TOOLEXEC_CACHE", str(tmp_path))
    first, other = BubblewrapBackend(BubblewrapConfig(image="planted")), ScriptedSandbox(kind="other")
    async with Exec(runtime_backends={"standard": [first, other]}) as ex:
        with pytest.raises(SandboxUnavailableError, match=r"images, belongs to another user \(number 65534\)"):
            await ex.execute_code("return 1")
    assert other.requests == []


async def test_a_missing_image_is_named(plain: BubblewrapEngine, tmp_path: Path) -> None:
    """With what to do about it."""
    engine = BubblewrapEngine(BubblewrapConfig(image="nothing"), store=ImageStore(tmp_path / "images"))
    with pytest.raises(SandboxUnavailableError, match="no image nothing") as caught:
        await engine.resolve("nothing")
    assert "toolexec image build" in caught.value.details["remedy"]
    found = await engine.check()
    assert (found.ok, found.remedy) == (False, "toolexec image build --name nothing")
    with pytest.raises(SandboxUnavailableError, match="root of this machine"):
        await plain.resolve("/./")
    with pytest.raises(SandboxUnavailableError, match="no directory /no/such/root"):
        await plain.resolve("/no/such/root")
    with pytest.raises(SandboxUnavailableError, match="cannot be read"):
        await plain.start(Image(name="x", reference="/no/such/root"), make_spec("1"))


async def test_an_image_without_python_is_found_out(engine: BubblewrapEngine, tmp_path: Path) -> None:
    """By the check."""
    broken = engine_of(image=str(tmp_path), cgroups=engine.config.cgroups)
    found = await broken.check()
    assert (found.ok, found.reason) == (False, f"there is no python3 in the image {tmp_path}")


async def test_a_python_that_is_too_old_is_found_out(plain: BubblewrapEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the check, too."""
    monkeypatch.setattr(checks, "_TRIAL", "print('python', '3.7', False)")
    found = await plain.check()
    assert (found.ok, found.reason) == (False, "the image host has Python 3.7")
    monkeypatch.setattr(checks, "_TRIAL", "import time; time.sleep(1000)")
    monkeypatch.setattr(checks, "TRIAL_TIME", 0.3)
    found = await plain.check()
    assert (found.ok, found.reason) == (False, "a trial did not work in time: it said nothing")


# -- the program ------------------------------------------------------------------------------------------------------


async def test_the_program_of_the_package_works_too(engine: BubblewrapEngine) -> None:
    """The packaged program is newer than that of the distribution."""
    other = engine_of(bwrap=wheel_bwrap(), cgroups=engine.config.cgroups)
    found = await other.check()
    assert found.ok, found
    assert tuple(int(part) for part in found.version.split(".")) >= (0, 11)
    assert await output(other, "print(1)", pids=5, memory_bytes=64 * MEGABYTE) == "1\n"


async def test_without_one_on_the_path_that_of_the_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packaged program replaces one on the path that is too old, too."""
    which = checks.shutil.which
    monkeypatch.setattr(checks.shutil, "which", lambda name: which(name) if name != "bwrap" else None)
    assert checks.look("", "auto").bwrap == wheel_bwrap()
    monkeypatch.setattr(checks.shutil, "which", lambda name: which(name) if name != "bwrap" else "/bin/echo")
    assert checks.look("", "auto").bwrap == wheel_bwrap()


async def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that mends it; and nothing is started."""
    for engine in (engine_of(bwrap="/no/such/bwrap"), engine_of(bwrap="/bin/echo")):
        found = await engine.check()
        assert (found.ok, "bubblewrap" in found.remedy) == (False, True)
        assert engine.enforces(Limits()) == LimitsEnforced()
        with pytest.raises(SandboxUnavailableError, match="apt-get install bubblewrap"):
            await engine.start(Image(name="host", reference="host"), make_spec("1"))
    monkeypatch.setattr(checks, "_candidates", lambda _: [])
    found = await engine_of().check()
    assert found.reason == "there is no bwrap"


async def test_control_groups_can_be_required(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where there are none, nothing is started, and there is nothing to sweep."""
    require_bwrap()
    monkeypatch.setattr(checks, "find_cgroups", lambda: None)
    engine = engine_of(cgroups="require")
    found = await engine.check()
    assert (found.ok, "Delegate=yes" in found.remedy) == (False, True)
    await engine.sweep()
    assert not caplog.records
    with pytest.raises(ConfigurationError, match="auto, never, require"):
        engine_of(cgroups="perhaps")


async def test_some_controllers_are_better_than_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits without a controller are enforced by other means."""
    require_bwrap()
    directories = require_cgroups()._directories
    monkeypatch.setattr(checks, "find_cgroups", lambda: Cgroups(1, {"memory": directories["memory"]}))
    engine = engine_of()
    assert (await engine.check()).ok
    assert engine.enforces(Limits()) == LimitsEnforced(memory=True, pids=True, disk=True)
    end, _ = await end_of(engine, FORKS, pids=20)
    assert end.code == 7
    end, _ = await end_of(engine, "bytearray(300 << 20)", memory_bytes=64 * MEGABYTE)
    assert end == Exit(code=137, oom=True)
    async with started(
        engine, make_spec("import time\nwhile time.process_time() < 0.2: pass\nprint(1, flush=True); time.sleep(99)")
    ) as container:
        await container.stream.read()
        assert (await container.cpu_seconds() or 0) >= 0.15


# -- faults -----------------------------------------------------------------------------------------------------------


async def test_a_start_that_fails_leaves_nothing(engine: BubblewrapEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails, at any point."""
    assert (await engine.check()).ok
    fds = len(os.listdir("/proc/self/fd"))
    image = Image(name="host", reference="host")
    await engine.sweep()
    assert engine._machine is not None
    with monkeypatch.context() as patch:
        patch.setattr(module, "Watch", None)
        patch.setattr(child_module.os, "memfd_create", lambda _: (_ for _ in ()).throw(OSError(24, "Too many")))
        with pytest.raises(SandboxUnavailableError, match="Too many"):
            await engine.start(image, make_spec("1"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "ChildContainer", None)
        with pytest.raises(TypeError):
            await engine.start(image, make_spec("1"))
    if engine._machine.cgroups is not None:
        with pytest.raises(SandboxUnavailableError, match="Invalid argument"):
            await engine.start(image, make_spec("1", pids=-9))
    engine._machine = replace(engine._machine, bwrap="/no/such/bwrap")
    if engine._machine.cgroups is None or os.geteuid() == 0:
        with pytest.raises(SandboxUnavailableError, match="No such file"):
            await engine.start(image, make_spec("1"))
    assert settled(fds)


async def test_a_cancelled_start_leaves_nothing(engine: BubblewrapEngine) -> None:
    """At whatever point it is cancelled."""
    image = Image(name="host", reference="host")
    for number in range(12):
        if number % 2:
            engine._machine = None
            engine._filters.clear()
        task = asyncio.create_task(engine.start(image, make_spec(SLEEP)))
        await asyncio.sleep(number * 0.0007)
        task.cancel()
        done = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(done[0], BaseException):
            await done[0].aclose()
        else:
            assert isinstance(done[0], asyncio.CancelledError)


async def test_a_cancelled_close_is_completed_first(engine: BubblewrapEngine) -> None:
    """Nothing of it is left, and closing twice is fine."""
    container = await engine.start(Image(name="host", reference="host"), make_spec(SLEEP))
    await container.stream.read()
    pids = tree_of(int(container.id))
    assert len(pids) >= 3
    closing = asyncio.create_task(container.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert gone(pids)
    await container.aclose()
    assert (await container.wait()).code in (137, -9)


async def test_daemons_end_with_their_container(engine: BubblewrapEngine) -> None:
    """Though they have left their parents and their session."""
    code = "import os, time\nif not os.fork():\n  os.setsid()\n  if not os.fork(): time.sleep(1000)\n  os._exit(0)\nos.wait(); print('up', flush=True); time.sleep(1000)"
    async with started(engine, make_spec(code)) as container:
        await container.stream.read()
        pids = tree_of(int(container.id))
        assert len(pids) >= 4
    assert gone(pids)


async def test_twenty_at_once(engine: BubblewrapEngine) -> None:
    """Each for itself, and nothing is left."""
    assert (await engine.check()).ok
    fds = len(os.listdir("/proc/self/fd"))

    async def one(number: int) -> str:
        return await output(engine, f"open('/tmp/x', 'x').write('1'); print({number})", pids=10, memory_bytes=64 << 20)

    assert await asyncio.gather(*(one(number) for number in range(20))) == [f"{number}\n" for number in range(20)]
    assert settled(fds)


async def test_one_after_the_other_leaves_nothing(engine: BubblewrapEngine) -> None:
    """No descriptor, process, group or mount, however they end."""
    await output(engine, "1")
    fds, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for number in range(15):
        async with started(engine, make_spec(SLEEP if number % 3 else "1", pids=9)) as container:
            if number % 2:
                await container.stream.read()
    assert settled(fds)
    assert len(os.listdir("/proc/self/task")) <= threads + 4


HOST = """
    import asyncio, sys
    from tests.engines.bubblewrap import engine_of, make_spec

    async def main():
        engine = engine_of()
        await engine.check()
        image = await engine.resolve("host")
        code = "import os, time, signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); os.fork(); time.sleep(1000)"
        made = [await engine.start(image, make_spec(code)) for _ in range(2)]
        for container in made:
            await container.stream.read()
        print(*[container.id for container in made], flush=True)
        await asyncio.sleep(1000)

    asyncio.run(main())
"""


async def test_a_killed_host_leaves_no_process_and_its_groups_are_swept_up(plain: BubblewrapEngine) -> None:
    """The next host removes it."""
    host = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOST)],
        stdout=subprocess.PIPE,
        env=server_environment(PYTHONPATH=os.getcwd()),
    )
    assert host.stdout is not None
    pids = [pid for text in host.stdout.readline().split() for pid in tree_of(int(text))]
    assert len(pids) >= 6
    host.kill()
    host.wait()
    host.stdout.close()
    assert gone(pids)
    await plain.check()
    assert plain._machine is not None
    if plain._machine.cgroups is not None:
        assert groups_of(host.pid)
    await plain.sweep()
    assert not groups_of(host.pid)


NOBODY = """
    import asyncio, concurrent.futures.thread, json, os, resource, sys
    from tests.engines.bubblewrap import engine_of, make_spec, read_all, started
    from toolexec.code.limits import Limits
    from toolexec.runtime.containers.seccomp import default_profile

    default_profile()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    async def main():
        engine = engine_of(cgroups="never")
        found = await engine.check()
        said = [found.ok, found.reason, engine.enforces(Limits()).to_dict()]
        forks = sys.argv[1]
        async with started(engine, make_spec(forks, pids=20)) as container:
            said.append((await container.wait()).code)
        code = "import os; print(os.getuid(), open('/proc/sys/kernel/core_pattern').read(1), os.access('/proc/sys/kernel/core_pattern', 2))"
        async with started(engine, make_spec(code, memory_bytes=64 << 20)) as container:
            said.append(await read_all(container))
        print(json.dumps(said))

    asyncio.run(main())
"""


def test_an_ordinary_user_can_do_it_too() -> None:
    """The kernel holds the number of processes for an ordinary user as for root."""
    require_bwrap()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(NOBODY), FORKS],
        capture_output=True,
        text=True,
        env=server_environment(PYTHONPATH=os.getcwd(), PYTHONDONTWRITEBYTECODE="1"),
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
    ok, reason, enforced, code, text = json.loads(done.stdout)
    assert ok, reason
    assert {name for name, held in enforced.items() if held} == {"pids", "disk"}
    assert code == 7
    assert text.split()[0] == "65534"
    assert text.split()[-1] == "False"


async def test_what_cannot_be_watched_is_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As nothing would bound it."""
    require_bwrap()
    engine = engine_of(cgroups="never")
    async with started(engine, make_spec(SLEEP)) as container:
        await container.stream.read()
        monkeypatch.setattr(container._watch, "_look", lambda: 1 / 0)
        assert (await asyncio.wait_for(container.wait(), LONG)).code in (137, -9)
    assert "could not be watched" in caplog.text


async def test_nothing_that_happens_in_a_check_or_sweep_is_raised(
    plain: BubblewrapEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a failure is reported or logged."""
    engine: ContainerEngine = plain

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(module, "look", fail)
    found = await engine.check()
    assert (found.ok, found.reason) == (False, "the check failed: broken")
    await engine.sweep()
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
