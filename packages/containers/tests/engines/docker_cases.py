"""What every daemon that speaks Docker's API must do for the engine. Test modules import all of it, with `engine` and
`daemon` fixtures of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.engines.docker import IMAGE, DockerDaemon, request
from tests.held_out.running import escaped, unknown

from toolexec.containers import OWNER_LABEL, Mount, spec_for, this_owner
from toolexec.errors import SandboxDeniedError, SandboxUnavailableError
from toolexec.sandbox import Container, ContainerSpec, Exit, Image, Limits
from toolexec_containers.docker import DockerBackend, DockerConfig, DockerEngine

ECHO = """
import os
while data := os.read(0, 1 << 20):
    while data:
        data = data[os.write(1, data):]
"""


@dataclass(frozen=True)
class Heard:
    """What came of a program."""

    out: str
    said: str
    end: Exit


def spec_of(engine: DockerEngine, image: Image, code: str, **limits: Any) -> ContainerSpec:
    """A container that runs Python code."""
    return spec_for(
        image=image.reference,
        command=("python3", "-I", "-X", "utf8", "-c", textwrap.dedent(code)),
        limits=Limits(**limits),
        profile="standard",
        config=engine.config,
        kind="docker",
    )


async def start(engine: DockerEngine, code: str, **limits: Any) -> Container:
    """A container that runs Python code."""
    image = await engine.resolve(engine.config.image)
    return await engine.start(image, spec_of(engine, image, code, **limits))


async def read_all(container: Container) -> bytes:
    """Read all output to its end."""
    pieces: list[bytes] = []
    while data := await container.stream.read():
        pieces.append(data)
    return b"".join(pieces)


async def read_exactly(container: Container, size: int) -> bytes:
    """The next *size* bytes that it writes."""
    data = b""
    pieces: list[bytes] = []
    while sum(map(len, pieces)) < size and (data := await container.stream.read()):
        pieces.append(data)
    return b"".join(pieces)


async def run(engine: DockerEngine, code: str, **limits: Any) -> Heard:
    """Run Python code to its end."""
    container = await start(engine, code, **limits)
    try:
        async with asyncio.timeout(60):
            out = await read_all(container)
            end = await container.wait()
            return Heard(out.decode(), container.said(), end)
    finally:
        await container.aclose()


@pytest.fixture(autouse=True)
def nothing_stays(daemon: DockerDaemon) -> Any:
    """No test leaves a container behind."""
    yield
    assert daemon.containers() == []


async def test_the_streams_carry_bytes_both_ways(engine: DockerEngine) -> None:
    container = await start(engine, ECHO)
    await container.stream.write(b"\x00\xff hello")
    assert await read_exactly(container, 8) == b"\x00\xff hello"
    await container.aclose()


async def test_sixteen_megabytes_come_back_as_they_went_in(engine: DockerEngine) -> None:
    container = await start(engine, ECHO)
    data = os.urandom(16 << 20)
    writing = asyncio.create_task(container.stream.write(data))
    assert await read_exactly(container, len(data)) == data
    await writing
    await container.aclose()


async def test_stderr_is_kept_apart_and_only_its_end(engine: DockerEngine) -> None:
    received = await run(
        engine,
        """
        import os
        for number in range(5000):
            os.write(2, b"%08d" % number * 100)
        os.write(1, b"out")
        """,
    )
    assert received.out == "out"
    assert len(received.said) == 4000
    assert received.said.endswith("00004999")


async def test_a_program_that_does_not_read_does_not_hold_up_aclose(engine: DockerEngine) -> None:
    container = await start(engine, "import time; time.sleep(100)")
    writing = asyncio.create_task(container.stream.write(bytes(64 << 20)))
    await asyncio.sleep(0.3)
    assert not writing.done()
    await container.aclose()
    with pytest.raises(OSError):
        await writing


async def test_an_exit_code_is_told_to_all_who_wait(engine: DockerEngine) -> None:
    container = await start(engine, "import sys; sys.stdin.read(1); sys.exit(3)")
    waiting = [asyncio.create_task(container.wait()) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in waiting)
    await container.stream.write(b"x")
    assert await asyncio.gather(*waiting) == [Exit(code=3)] * 3
    assert await container.wait() == Exit(code=3)
    await container.aclose()
    assert await container.wait() == Exit(code=3)


async def test_a_wait_ends_when_the_container_is_closed(engine: DockerEngine) -> None:
    container = await start(engine, ECHO)
    waiting = asyncio.create_task(container.wait())
    await asyncio.sleep(0.1)
    await asyncio.gather(container.aclose(), container.aclose())
    assert (await asyncio.wait_for(waiting, 10)).lost == ""
    unasked = await start(engine, ECHO)
    await unasked.aclose()
    assert await unasked.wait() == Exit()


async def test_a_container_whose_input_ends_reads_its_end(engine: DockerEngine, daemon: DockerDaemon) -> None:
    """A guest sees the same of a host that was killed."""
    container = await start(engine, ECHO)
    await container.stream.write(b"x")
    assert await container.stream.read() == b"x"
    await container.stream.aclose()
    assert (await asyncio.wait_for(container.wait(), 10)).code == 0
    await container.aclose()


async def test_closing_cannot_be_cut_short(engine: DockerEngine, daemon: DockerDaemon) -> None:
    container = await start(engine, ECHO)
    closing = asyncio.create_task(container.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert daemon.containers() == []


async def test_memory_is_bounded(engine: DockerEngine) -> None:
    received = await run(engine, "x = bytearray(300 << 20); print(len(x))", memory_bytes=64 << 20)
    assert received.out == ""
    assert received.end.code == 137


async def test_the_number_of_processes_is_bounded(engine: DockerEngine) -> None:
    received = await run(
        engine,
        """
        import os, time
        number = 0
        try:
            while number < 200:
                if not os.fork():
                    time.sleep(60)
                number += 1
        except OSError as error:
            print(number, error.errno, flush=True)
        os._exit(0)
        """,
        pids=20,
    )
    assert received.out == "19 11\n"


async def test_what_can_be_written_is_bounded_in_all(engine: DockerEngine) -> None:
    received = await run(
        engine,
        """
        import os
        total = 0
        for directory, _, _ in os.walk("/"):
            if directory.startswith(("/proc", "/sys")):
                continue
            try:
                with open(directory + "/x", "wb", buffering=0) as file:
                    total += file.write(b"x")
                    print("can write", directory)
                    while True:
                        total += file.write(bytes(1 << 16))
            except OSError as error:
                if total and error.errno == 28:
                    print("full")
        print(total)
        """,
        disk_bytes=8 << 20,
    )
    lines = received.out.splitlines()
    assert {line for line in lines if line.startswith("can")} == {
        "can write /work",
        "can write /tmp",
        "can write /dev/shm",
    }
    assert lines.count("full") == 3
    assert 7 << 20 < int(lines[-1]) <= 8 << 20


async def test_code_has_no_rights(engine: DockerEngine) -> None:
    received = await run(
        engine,
        """
        import os
        for line in open("/proc/self/status"):
            name, _, value = line.partition(":")
            if name in ("Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"):
                print(name, *set(value.split()))
        print(os.getcwd(), os.stat("/work").st_uid, os.getgroups())
        """,
    )
    none = "0" * 16
    assert received.out.splitlines() == [
        "Uid 65534",
        "Gid 65534",
        f"CapInh {none}",
        f"CapPrm {none}",
        f"CapEff {none}",
        f"CapBnd {none}",
        f"CapAmb {none}",
        "NoNewPrivs 1",
        "Seccomp 2",
        "/work 65534 [65534]" if "[65534]" in received.out else "/work 65534 []",
    ]


async def test_calls_that_lead_out_of_a_container_are_filtered(engine: DockerEngine) -> None:
    """Filter by our profile, not the daemon's: sockets to the hypervisor lie outside of any network namespace."""
    received = await run(
        engine,
        """
        import ctypes, errno, os, platform, socket
        libc = ctypes.CDLL(None, use_errno=True)

        def call(name, number, *args):
            result = libc.syscall(number, *args)
            print(name, errno.errorcode[ctypes.get_errno()] if result < 0 else "done")

        for name, family in (("vsock", 40), ("packet", 17), ("bluetooth", 31), ("alg", 38), ("xdp", 44)):
            try:
                socket.socket(family, socket.SOCK_DGRAM if name == "packet" else socket.SOCK_STREAM)
                print(name, "done")
            except OSError as error:
                print(name, errno.errorcode[error.errno])
        arm = platform.machine() == "aarch64"
        call("io_uring", 425, 1, None)
        call("keyctl", 219 if arm else 250, 0, -3, 1)
        call("add_key", 217 if arm else 248, b"user", b"x", b"y", 1, -3)
        call("user namespace", 97 if arm else 272, 0x10000000)
        call("ptrace", 117 if arm else 101, 0, 0, 0, 0)
        call("perf", 241 if arm else 298, None, 0, -1, -1, 0)
        call("bpf", 280 if arm else 321, 0, None, 0)
        call("fsopen", 430, b"tmpfs", 0)
        socket.socket(socket.AF_INET)
        print("internet", "done")
        """,
    )
    refused = "vsock packet bluetooth alg xdp io_uring keyctl add_key|user namespace|ptrace perf bpf fsopen"
    names = [name for part in refused.split("|") for name in ([part] if "namespace" in part else part.split())]
    assert received.out.splitlines() == [f"{name} EPERM" for name in names] + ["internet done"]


async def test_there_is_no_network(engine: DockerEngine) -> None:
    received = await run(
        engine,
        """
        import os, socket
        print([name for _, name in socket.if_nameindex()], os.path.isdir("/sys") and os.listdir("/sys"))
        try:
            socket.create_connection(("192.0.2.1", 80), timeout=5)
        except OSError as error:
            print(error.errno)
        """,
    )
    assert received.out == "['lo'] []\n101\n"


async def test_code_sees_no_variables_of_the_host(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "s3cr3t")
    received = await run(engine, "import os; print(sorted(os.environ))")
    assert "A_SECRET" not in received.out
    assert "HOME" in received.out


async def test_cpu_time_is_told_while_it_runs(engine: DockerEngine) -> None:
    container = await start(
        engine,
        """
        import sys, time
        sys.stdin.read(1)
        while time.process_time() < 0.5:
            pass
        print("burnt", flush=True)
        sys.stdin.read()
        """,
    )
    before = await container.cpu_seconds()
    assert before is not None
    await container.stream.write(b"x")
    assert await read_exactly(container, 6) == b"burnt\n"
    after = await container.cpu_seconds()
    assert after is not None
    assert 0.3 < after - before < 5
    await container.aclose()
    assert await container.cpu_seconds() is None


async def test_the_rate_of_cpu_time_is_bounded(engine: DockerEngine) -> None:
    received = await run(
        engine,
        """
        import time
        began = time.monotonic()
        while time.process_time() < 0.2:
            pass
        print(time.monotonic() - began)
        """,
        cpus=0.1,
    )
    assert float(received.out) > 1  # two seconds, if all is well


async def test_twenty_at_once(engine: DockerEngine) -> None:
    async def one(number: int) -> str:
        return (await run(engine, f"print({number})")).out

    assert await asyncio.gather(*map(one, range(20))) == [f"{number}\n" for number in range(20)]


async def test_a_start_that_is_cancelled_leaves_nothing(
    engine: DockerEngine, daemon: DockerDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each step, and at some times in between."""
    from toolexec_containers.docker.api import DockerAPI

    moments: list[str] = []
    wanted = ""
    starting: asyncio.Task[Container]

    def watched(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any) -> Any:
            for moment in (f"before {step}", f"after {step}"):
                if moment.startswith("after"):
                    result = await function(*args)
                moments.append(moment)
                if moment == wanted:
                    starting.cancel()
                    if moment.startswith("before"):
                        await asyncio.sleep(0)
            return result

        return call

    for step in ("create", "attach", "start"):
        monkeypatch.setattr(DockerAPI, step, watched(step, getattr(DockerAPI, step)))
    for step in ("create", "attach", "start"):
        for wanted in (f"before {step}", f"after {step}"):
            starting = asyncio.create_task(start(engine, ECHO))
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert wanted in moments
            moments.clear()
            assert daemon.containers() == [], wanted
    wanted = ""
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06):
        starting = asyncio.create_task(start(engine, ECHO))
        await asyncio.sleep(delay)
        starting.cancel()
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await starting).aclose()  # a daemon may be quicker than this process
        assert daemon.containers() == [], delay


async def test_an_image_that_is_not_there(engine: DockerEngine) -> None:
    ours = DockerEngine(replace(engine.config, pull="never"))
    with pytest.raises(SandboxUnavailableError, match=r"there is no image toolexec-nowhere:1.*toolexec image build"):
        await ours.resolve("toolexec-nowhere:1")
    with pytest.raises(SandboxUnavailableError, match="is not a name of an image"):
        await ours.resolve("No Image")
    with pytest.raises(SandboxUnavailableError, match=r"no registry can be asked for an ID|may not pull"):
        await ours.resolve(f"sha256:{'0' * 64}")
    await ours.aclose()


async def test_no_attack_of_others_gets_out(daemon: DockerDaemon) -> None:
    """Attacks that are not of the battery get nothing out."""
    backend = DockerBackend(DockerConfig(host=daemon.host, image=IMAGE, pull="never"))
    assert unknown("docker", await escaped(backend)) == {}


async def test_an_image_that_was_removed_after_it_was_found(engine: DockerEngine, daemon: DockerDaemon) -> None:
    small_image(daemon, "short:lived")
    image = await engine.resolve("short:lived")
    assert request(daemon.socket, "DELETE", "/images/short:lived?force=1")[0] == 200
    with pytest.raises(SandboxUnavailableError, match="the image short:lived is not there any more"):
        await engine.start(image, spec_of(engine, image, "1"))
    small_image(daemon, "short:lived", content=b"another one")
    found = await engine.resolve("short:lived")
    assert found.reference != image.reference
    request(daemon.socket, "DELETE", "/images/short:lived?force=1")


async def test_an_image_without_python_is_told(engine: DockerEngine, daemon: DockerDaemon) -> None:
    small_image(daemon, "small:1")
    image = await engine.resolve("small:1")
    with pytest.raises(SandboxUnavailableError, match="the image small:1 lacks what a sandbox needs"):
        await engine.start(image, spec_of(engine, image, "1"))
    request(daemon.socket, "DELETE", "/images/small:1?force=1")


async def test_an_image_is_found_by_its_id_and_by_a_digest(engine: DockerEngine) -> None:
    image = await engine.resolve(IMAGE)
    assert image.name == IMAGE
    assert (await engine.resolve(image.reference)).reference == image.reference
    assert (await engine.resolve(f"{IMAGE}@{image.digest}")).reference == image.reference
    ours = DockerEngine(replace(engine.config, pull="never"))
    with pytest.raises(SandboxUnavailableError, match=r"is not the one|there is no image"):
        await ours.resolve(f"{IMAGE}@sha256:{'0' * 64}")
    await ours.aclose()


async def test_a_runtime_that_is_not_there(engine: DockerEngine) -> None:
    ours = DockerEngine(replace(engine.config, runtime="kata-runtime"))
    found = await ours.check()
    assert not found.ok
    assert "kata-runtime" in found.reason
    assert "kata-runtime" in found.remedy
    with pytest.raises(SandboxUnavailableError, match="kata-runtime"):
        await start(ours, "1")
    await ours.aclose()


async def test_what_would_let_code_out_is_refused(engine: DockerEngine) -> None:
    image = await engine.resolve(IMAGE)
    spec = spec_of(engine, image, "1")
    for changed in (
        replace(spec, security=replace(spec.security, privileged=True)),
        replace(spec, security=replace(spec.security, network="host")),
        replace(spec, mounts=(*spec.mounts, Mount(type="bind", source="/srv", target="/srv"))),
    ):
        with pytest.raises(SandboxDeniedError):
            await engine.start(image, changed)


async def test_what_dead_hosts_have_left_is_swept_up_and_nothing_else(
    engine: DockerEngine, daemon: DockerDaemon
) -> None:
    dead = subprocess.run([sys.executable, "-c", _OWNER], capture_output=True, text=True, check=True).stdout.strip()
    mine = await start(engine, ECHO)
    names = {"created": dead, "running": dead, "exited": dead, "paused": dead, "other": "x-1-1", "ours": this_owner()}
    for name, owner in names.items():
        body = {"Image": IMAGE, "Cmd": ["sleep", "0" if name == "exited" else "60"], "Labels": {OWNER_LABEL: owner}}
        body["HostConfig"] = {"NetworkMode": "none"}
        status, said = request(daemon.socket, "POST", f"/containers/create?name=swept-{name}", json.dumps(body))
        assert status == 201, said
        if name != "created":
            status, said = request(daemon.socket, "POST", f"/containers/swept-{name}/start", "")
            assert status in (204, 200), said
    request(daemon.socket, "POST", "/containers/swept-exited/wait", "")
    paused = request(daemon.socket, "POST", "/containers/swept-paused/pause", "")
    assert paused[0] == 204, paused
    await engine.sweep()
    left = {each["Names"][0].removeprefix("/") for each in daemon.containers()}
    assert left == {"swept-other", "swept-ours", mine.id}
    for name in ("other", "ours"):
        request(daemon.socket, "DELETE", f"/containers/swept-{name}?force=1")
    await mine.aclose()


async def test_a_container_that_somebody_else_removes_is_lost(engine: DockerEngine, daemon: DockerDaemon) -> None:
    container = await start(engine, ECHO)
    waiting = asyncio.create_task(container.wait())
    await asyncio.sleep(0.1)
    request(daemon.socket, "DELETE", f"/containers/{container.id}?force=1")
    end = await asyncio.wait_for(waiting, 10)
    assert end.code == 137 or end.lost
    late = await asyncio.wait_for(container.wait(), 10)
    assert late == end
    await container.aclose()


def small_image(daemon: DockerDaemon, name: str, content: bytes = b"one") -> None:
    """An image of one file."""
    import io
    import tarfile

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        entry = tarfile.TarInfo("file")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    status, said = request(daemon.socket, "POST", f"/images/create?fromSrc=-&repo={name}", data.getvalue())
    assert status == 200, said
    assert b'"error"' not in said, said


_OWNER = "from toolexec.process.owner import this_owner; print(this_owner())"
