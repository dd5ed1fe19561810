"""What is around QEMU when an ordinary user starts it: looked at from inside of the walls, and from the host."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.engines.bubblewrap import require_bwrap
from tests.engines.microvm import require_qemu

from toolexec.containers import ImageStore
from toolexec.machines import VmFiles, open_to_all
from toolexec_microvms.qemu.walls import Walls, find_walls

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user"),
]
_USER = 65534
_INSIDE = """
import json, os
seen = lambda path: sorted(os.listdir(path)) if os.path.isdir(path) else None
writable = [path for path in ("/", "/usr", "/etc", "/dev", "/tmp", "/var/tmp", "/home") if os.access(path, os.W_OK)]
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
found = {name: status[name] for name in ("Uid", "CapEff", "CapBnd", "NoNewPrivs")}
processes = [name for name in os.listdir("/proc") if name.isdigit()]
nets = open("/proc/net/dev").read().count(":")
print(json.dumps({"top": seen("/"), "dev": seen("/dev"), "etc": seen("/etc"), "writable": writable, "nets": nets,
    "processes": len(processes), "name": os.uname().nodename, "own": os.path.exists(OWN), **found}))
"""
_START = """
import asyncio, os, sys
from pathlib import Path
from toolexec_microvms.machine import Shape, VmFiles
from toolexec_microvms.qemu.vmm import QemuVmm
async def main():
    files, vmm = VmFiles.in_directory(Path(sys.argv[1])), QemuVmm(accelerator="tcg")
    await (await vmm.boot(files, Shape(cpus=1, memory_mib=128))).aclose()  # imports what only root can read here
    os.environ.update(HOME=sys.argv[2], TOOLEXEC_CACHE=sys.argv[2])
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
    vmm = QemuVmm(accelerator="tcg")
    machine = await vmm.boot(files, Shape(cpus=1, memory_mib=128))
    print("it runs", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await machine.aclose()
    await vmm.aclose()
    print(await machine.wait())
asyncio.run(main())
"""


@pytest.fixture
def files() -> Iterator[VmFiles]:
    """What machines boot, where an ordinary user can read it; below a directory of that user's own."""
    image = ImageStore().find(require_qemu())
    assert image is not None
    top = Path(tempfile.mkdtemp(prefix="tx-walls-", dir="/var/tmp"))
    try:
        top.chmod(0o755)
        with ImageStore().hold(image):
            copied = shutil.copytree(ImageStore().vm_files(image).kernel.parent, top / "image")
        open_to_all(copied)
        (top / "home").mkdir(0o700)
        (top / "home/secret").touch()
        for path in (top / "home", top / "home/secret"):
            os.chown(path, _USER, _USER)
        yield VmFiles.in_directory(copied)
    finally:
        shutil.rmtree(top)


async def test_nothing_of_the_user_is_in_sight(files: VmFiles) -> None:
    """From inside, the walls show /usr, what is booted and a few devices, all read-only; no network, and no process but
    those of the walls."""
    own = files.kernel.parents[1] / "home/secret"
    walls = Walls(kind="bubblewrap", program=shutil.which("qemu-system-x86_64") or "", bwrap=require_bwrap())
    code = _INSIDE.replace("OWN", repr(str(own)))
    done = await asyncio.to_thread(
        subprocess.run,
        [*walls.command(files), "/usr/bin/python3", "-I", "-c", code],
        capture_output=True,
        text=True,
        user=_USER,
        group=_USER,
        extra_groups=[],
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {*found["top"]} <= {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "usr", "var"}
    assert {*found["etc"]} <= {"alternatives", "ld.so.cache", "localtime", "ssl"}
    assert not {*found["dev"]} & {"mem", "vda", "sda", "vsock", "fuse"}
    assert (found["own"], found["writable"], found["nets"], found["name"]) == (False, [], 1, "sandbox")
    assert found["processes"] == 2
    assert (found["NoNewPrivs"], int(found["CapEff"], 16), int(found["CapBnd"], 16)) == ("1", 0, 0)


async def test_a_machine_of_an_ordinary_user(files: VmFiles) -> None:
    """From the host, its QEMU has namespaces, a root and a filter of system calls of its own, and ends with its
    machine."""
    require_bwrap()
    home = files.kernel.parents[1] / "home"
    process = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", _START, str(files.kernel.parent), str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "it runs\n"
        (machine,) = [
            each for each in psutil.Process(process.pid).children(recursive=True) if each.name().startswith("qemu-")
        ]
        proc = Path(f"/proc/{machine.pid}")
        status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
        assert {*status["Uid"].split()} == {str(_USER)}
        assert (status["Seccomp"], status["NoNewPrivs"], int(status["CapEff"], 16)) == ("2", "1", 0)
        assert len(status["NSpid"].split()) == 2
        for kind in ("user", "net", "mnt", "ipc", "uts", "pid"):
            assert (proc / "ns" / kind).readlink() != Path("/proc/self/ns", kind).readlink()
        assert not (proc / "root" / str(home).lstrip("/")).exists()
        assert not (proc / "root/home").exists()
        mounts = [line.split()[4:6] for line in (proc / "mountinfo").read_text().splitlines()]
        devices = {*map(str, Path("/dev").iterdir())}
        assert [where for where, options in mounts if "rw" in options.split(",") and where not in devices] in (
            ["/proc", "/dev/pts"],
            ["/proc"],
        )
        process.stdin.close()
        assert "-9" in await asyncio.to_thread(process.stdout.read)
        assert not machine.is_running()
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@pytest.mark.parametrize(("works", "kind"), [("unshare", "namespaces"), ("nothing", "none")])
async def test_less_than_that_is_said(
    works: str, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where bubblewrap is missing or does not work, machines get the namespaces that there are, and the log says what
    they see."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    asked: list[list[str]] = []

    async def ask(command: list[str]) -> tuple[int, str]:
        asked.append(command)
        return (0, "") if command[0] == works else (1, "Operation not permitted")

    assert (await find_walls("/usr/bin/true", ask)).kind == kind
    assert [each[0].rpartition("/")[2] for each in asked] == ["bwrap", "unshare"]
    assert "Operation not permitted" in caplog.text
    assert "files" in caplog.text
