"""libkrun, which boots nothing on a machine without hardware virtualization: how it is called, and what is missing.

The library is a stand-in in C with the functions of libkrun's header: what the real one does with them is not tested.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.engines.firecracker import what_is_left
from tests.tiers import missing
from tests.waiting import until

from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.containers.microvm import libkrun as libkrun_module
from toolexec.runtime.containers.microvm.jail import Jails
from toolexec.runtime.containers.microvm.libkrun import Libkrun
from toolexec.runtime.containers.microvm.machine import Machine, Shape, VmFiles

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.geteuid() != 0, reason="only root makes jails")]

STUB = Path(__file__).parents[3] / "engines" / "libkrun_stub.c"
SHAPE = Shape(memory_mib=256, cpus=2)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the stand-in."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing("there is no C compiler", "sudo apt-get install gcc libc6-dev")
    target = tmp_path_factory.mktemp("libkrun") / "libkrun.so.1.17.0"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(target), str(STUB)], check=True)
    return target


@pytest.fixture
def jails(tmp_path: Path) -> Jails:
    """Jails of this test."""
    return Jails(tmp_path / "jails")


@pytest.fixture
def files(tmp_path: Path) -> VmFiles:
    """An image as the store keeps it: files for machines beside a root file system."""
    vm, root = tmp_path / "image" / "vm", tmp_path / "image" / "rootfs"
    vm.mkdir(parents=True)
    (root / "sbin").mkdir(parents=True)
    (root / "sbin" / "toolexec-init").touch()
    return VmFiles.in_directory(vm, "0")


@asynccontextmanager
async def running(machine: Machine) -> AsyncGenerator[Machine]:
    """*machine*, closed in the end."""
    try:
        yield machine
    finally:
        await machine.aclose()


async def test_calls(library: Path, jails: Jails, files: VmFiles) -> None:
    """The machine is set up without vsock and network, in a root directory of its own, as a user of its own."""
    vmm = Libkrun(str(library), jails=jails)
    async with running(await vmm.boot(files, SHAPE)) as machine:
        assert await machine.control.read() == b'{"ready": {}}\n'
        await machine.control.write(b"hello")
        assert await machine.control.read() == b"hello"
        lines = machine.said().splitlines()
        assert lines[:-1] == [
            "create_ctx",
            "vm_config 7 2 256",
            "no vsock 7",
            "no console 7",
            "console 7 1 2 2",
            "ports 7",
            "port 7 3 toolexec.control 1",
            "port 7 3 toolexec.stdio 1",
            "virtiofs 7 /dev/root /root 0 1 readable=1",
            "exec 7 /sbin/toolexec-init 1 1",
        ]
        first, user, proc = lines[-1].rsplit(" ", 2)
        assert (first, proc) == ("enter 7", "proc=1")
        assert int(user.removeprefix("uid=")) in jails.users
        assert (await machine.cpu_seconds() or 0) > 0
    assert what_is_left(jails) == set()
    assert (vmm.version, vmm.snapshots, vmm.accelerator) == ("1.17.0", False, "kvm")


async def test_killed(library: Path, jails: Jails, files: VmFiles) -> None:
    """A machine that is killed has ended within a second."""
    async with running(await Libkrun(str(library), jails=jails).boot(files, SHAPE)) as machine:
        await machine.control.read()
        machine.kill()
        async with asyncio.timeout(1):
            assert (await machine.wait()).code == -signal.SIGKILL
            assert await machine.control.read() == b""
    assert what_is_left(jails) == set()


async def test_refused_call(library: Path, jails: Jails, files: VmFiles, tmp_path: Path) -> None:
    """A call that fails ends the machine, and is named in what it said."""
    broken = tmp_path / "libkrun.so.1"
    source = STUB.read_text().replace('REPORT("no vsock %u\\n", ctx)', "-22 + (int)ctx * 0")
    (tmp_path / "stub.c").write_text(source)
    subprocess.run(
        [shutil.which("cc") or "cc", "-shared", "-fPIC", "-o", str(broken), str(tmp_path / "stub.c")], check=True
    )
    async with running(await Libkrun(str(broken), jails=jails).boot(files, SHAPE)) as machine:
        assert (await machine.wait()).code == 1
        await until(lambda: "krun_disable_implicit_vsock failed: Invalid argument" in machine.said())
    assert what_is_left(jails) == set()


async def test_image_without_a_root(library: Path, jails: Jails, tmp_path: Path) -> None:
    """An image that is only a directory of files for machines is refused with what it takes."""
    with pytest.raises(SandboxUnavailableError, match="needs an image of the store"):
        await Libkrun(str(library), jails=jails).boot(VmFiles.in_directory(tmp_path, "0"), SHAPE)
    assert what_is_left(jails) == set()


async def test_no_snapshots(library: Path, files: VmFiles, tmp_path: Path, jails: Jails) -> None:
    """Machines are neither saved nor restored."""
    vmm = Libkrun(str(library), jails=jails)
    with pytest.raises(SandboxUnavailableError, match="cannot restore"):
        await vmm.restore(files, SHAPE, tmp_path)


class TestCheck:
    async def test_missing(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Without the library the reason says so, and that those of wheels cannot be used."""
        monkeypatch.setattr(libkrun_module, "_PLACES", (tmp_path / "libkrun.so",))
        found = await Libkrun().check()
        assert (found.ok, found.reason) == (False, "libkrun is not installed")
        monkeypatch.setattr(libkrun_module, "find_spec", lambda name: name == "boxlite" or None)
        found = await Libkrun().check()
        assert "that in boxlite is linked into its own module" in found.reason
        assert "there is no /x" in (await Libkrun("/x").check()).reason

    async def test_old(self, tmp_path: Path) -> None:
        """A library without the functions that switch vsock off is refused by their names."""
        (tmp_path / "old.c").write_text("int krun_create_ctx(void) { return 0; }\n")
        old = tmp_path / "libkrun.so.1.9"
        subprocess.run([shutil.which("cc") or "cc", "-shared", "-o", str(old), str(tmp_path / "old.c")], check=True)
        found = await Libkrun(str(old)).check()
        assert not found.ok
        assert "krun_disable_implicit_vsock" in found.reason
        assert "krun_create_ctx" not in found.reason

    async def test_not_a_library(self, tmp_path: Path) -> None:
        """A file that cannot be loaded is refused."""
        (tmp_path / "libkrun.so").write_text("text")
        assert "cannot be loaded" in (await Libkrun(str(tmp_path / "libkrun.so")).check()).reason

    async def test_processor(self, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a library the processor decides."""
        from toolexec.runtime.base import Availability

        monkeypatch.setattr(libkrun_module, "look_at_kvm", lambda: Availability(ok=False, reason="no kvm"))
        assert (await Libkrun(str(library)).check()).reason == "no kvm"
        monkeypatch.setattr(libkrun_module, "look_at_kvm", lambda: None)
        assert (await Libkrun(str(library)).check()).ok
