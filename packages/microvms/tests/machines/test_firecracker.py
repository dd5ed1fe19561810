"""The real Firecracker and its jailer, with a kernel that runs on any KVM: jails, states, snapshots, and their ends."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from packages.microvms.tests.engines.firecracker import SMALL, boot_files, require_firecracker, what_is_left
from tests.waiting import until

from toolexec.errors import SandboxUnavailableError
from toolexec.machines import ProcessTree, VmFiles
from toolexec_microvms.firecracker import Firecracker
from toolexec_microvms.firecracker import vmm as vmm_module
from toolexec_microvms.firecracker.machine import FirecrackerMachine
from toolexec_microvms.firecracker.probe import PROBE_WORD
from toolexec_microvms.jail import Jails
from toolexec_microvms.machine import Machine

pytestmark = pytest.mark.anyio


@pytest.fixture
def jails(tmp_path: Path) -> Jails:
    """Jails below a short path that their users can reach."""
    return Jails(tmp_path / "jails")


@pytest.fixture
def firecracker(jails: Jails) -> Firecracker:
    """Return the real programs."""
    return Firecracker(*require_firecracker(), jails=jails)


@pytest.fixture
def files(tmp_path: Path) -> VmFiles:
    """Return a kernel that writes dots."""
    return boot_files(tmp_path)


@asynccontextmanager
async def running(machine: Machine) -> AsyncGenerator[FirecrackerMachine]:
    """*machine*, closed in the end."""
    assert isinstance(machine, FirecrackerMachine)
    try:
        yield machine
    finally:
        await machine.aclose()


async def inner_pid(machine: FirecrackerMachine) -> int:
    """Return the number of the process that became Firecracker, in its own namespace the first."""
    members = ProcessTree(machine.pid).members()
    return next(
        member.pid for member in members if Path(f"/proc/{member.pid}/comm").read_text().strip() == "firecracker"
    )


async def saved(firecracker: Firecracker, files: VmFiles, directory: Path) -> Path:
    """Save a machine after it has written some dots."""
    directory.mkdir()
    async with running(await firecracker.boot(files, SMALL, template=directory)) as machine:
        await until(lambda: "..." in machine.said())
        await firecracker.save(machine, directory)
    return directory


class TestMachines:
    async def test_booting(self, firecracker: Firecracker, files: VmFiles, jails: Jails) -> None:
        """A machine runs its kernel, is measured, and leaves nothing when it is closed."""
        async with running(await firecracker.boot(files, SMALL)) as machine:
            await until(lambda: PROBE_WORD in machine.said())
            await until(lambda: "..." in machine.said())
            assert (await machine.cpu_seconds() or 0) > 0
            assert machine.id in str(what_is_left(jails))
        assert (await machine.wait()).code == -signal.SIGKILL
        assert (await machine.cpu_seconds() or 0) > 0
        assert what_is_left(jails) == set()
        assert firecracker.version.count(".") == 2

    async def test_jail(self, firecracker: Firecracker, files: VmFiles, jails: Jails) -> None:
        """Firecracker has a user, a root directory and namespaces of its own, no right, no network, no open file."""
        async with running(await firecracker.boot(files, SMALL)) as machine:
            pid = await inner_pid(machine)
            status = dict(
                line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
            )
            assert all(int(number) in jails.users for number in f"{status['Uid']} {status['Gid']}".split())
            assert (int(status["CapEff"], 16), status["NoNewPrivs"], status["Seccomp"]) == (0, "1", "2")
            assert len(status["NSpid"].split()) == 2
            for kind in ("net", "mnt", "ipc", "uts", "pid"):
                assert Path(f"/proc/{pid}/ns/{kind}").readlink() != Path(f"/proc/self/ns/{kind}").readlink()
            interfaces = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
            assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
            assert not Path(f"/proc/{pid}", "root", "etc").exists()
            assert machine._group is not None
            for directory in machine._group.directories:
                assert str(pid) in (directory / "cgroup.procs").read_text().split()
            links = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
            assert not [link for link in links if link.startswith("/") and link not in ALLOWED]

    async def test_two_machines_have_two_users(self, firecracker: Firecracker, files: VmFiles) -> None:
        """No machine can signal or read another one."""
        async with (
            running(await firecracker.boot(files, SMALL)) as one,
            running(await firecracker.boot(files, SMALL)) as other,
        ):
            owners = {os.stat(f"/proc/{await inner_pid(machine)}").st_uid for machine in (one, other)}
            assert len(owners) == 2

    async def test_trial(self, firecracker: Firecracker, jails: Jails) -> None:
        """The check's own kernel runs and ends its machine."""
        await firecracker.trial()
        assert what_is_left(jails) == set()

    async def test_guest_ends(self, firecracker: Firecracker, tmp_path: Path) -> None:
        """A guest that resets ends its machine; exit code 0 says no more than that."""
        async with running(await firecracker.boot(boot_files(tmp_path, ends=True), SMALL)) as machine:
            assert (await machine.wait()).code == 0
            assert PROBE_WORD in machine.said()
            with pytest.raises(ConnectionError, match="ended"):
                await machine.control.read()


ALLOWED = {"/dev/kvm", "/dev/null", "/log", "/kernel", "/initrd", "/rootfs", "/dev/urandom"}


class TestSnapshots:
    async def test_restoring(self, firecracker: Firecracker, files: VmFiles, tmp_path: Path, jails: Jails) -> None:
        """Machines go on from where another one was saved, each in a fresh jail, several at once."""
        directory = await saved(firecracker, files, tmp_path / "saved")
        before = {path.name: path.read_bytes() for path in directory.iterdir()}
        async with (
            running(await firecracker.restore(files, SMALL, directory)) as one,
            running(await firecracker.restore(files, SMALL, directory)) as other,
        ):
            for machine in (one, other):
                await until(lambda machine=machine: "..." in machine.said())
                assert PROBE_WORD not in machine.said()
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
        assert what_is_left(jails) == set()

    @pytest.mark.parametrize("name", ["state", "memory", "firecracker.json"])
    async def test_incomplete(
        self, firecracker: Firecracker, files: VmFiles, tmp_path: Path, jails: Jails, name: str
    ) -> None:
        """A file that is cut off is found before anything runs, and one that is missing."""
        directory = await saved(firecracker, files, tmp_path / "saved")
        path = directory / name
        path.chmod(0o600)
        os.truncate(path, path.stat().st_size // 2)
        await refused(firecracker, files, directory)
        path.unlink()
        await refused(firecracker, files, directory)
        assert what_is_left(jails) == set()

    async def test_corrupt_state(self, firecracker: Firecracker, files: VmFiles, tmp_path: Path, jails: Jails) -> None:
        """Firecracker finds by its checksum that a bit of the state is another one."""
        directory = await saved(firecracker, files, tmp_path / "saved")
        path = directory / "state"
        path.chmod(0o600)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        await refused(firecracker, files, directory)
        assert what_is_left(jails) == set()

    async def test_other_version(self, firecracker: Firecracker, files: VmFiles, tmp_path: Path) -> None:
        """A machine that another release has saved is not restored."""
        directory = await saved(firecracker, files, tmp_path / "saved")
        about = directory / "firecracker.json"
        about.write_text(about.read_text().replace(firecracker.version, "1.7.0"))
        error = await refused(firecracker, files, directory)
        assert "1.7.0" in error.message

    async def test_full_disk(self, firecracker: Firecracker, files: VmFiles, tmp_path: Path) -> None:
        """A machine that does not fit on the disk is not saved; the error says that a retry may work later."""
        base = tmp_path / "small"
        base.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "none", str(base)], check=True)
        try:
            jails = Jails(base / "jails")
            small = Firecracker(*require_firecracker(), jails=jails)
            async with running(await small.boot(files, SMALL, template=tmp_path)) as machine:
                with pytest.raises(SandboxUnavailableError, match=r"(?i)no space left|os error 28") as caught:
                    await small.save(machine, tmp_path)
                assert caught.value.retryable
            assert what_is_left(jails) == set()
        finally:
            subprocess.run(["umount", str(base)], check=True)


async def refused(firecracker: Firecracker, files: VmFiles, directory: Path) -> SandboxUnavailableError:
    """Return the error of a snapshot that is of no use."""
    with pytest.raises(SandboxUnavailableError, match="cannot be restored") as caught:
        async with running(await firecracker.restore(files, SMALL, directory)):
            pass
    assert caught.value.details["corrupt"] is True
    return caught.value


class TestFaults:
    @pytest.mark.parametrize("inner", [True, False], ids=["firecracker", "first process"])
    @pytest.mark.parametrize("state", ["running", "paused", "restored"])
    async def test_killed(
        self, firecracker: Firecracker, files: VmFiles, tmp_path: Path, jails: Jails, state: str, inner: bool
    ) -> None:
        """Whatever of it is killed in whatever state, the machine ends, and nothing is left."""
        if state == "restored":
            directory = await saved(firecracker, files, tmp_path / "saved")
            machine = await firecracker.restore(files, SMALL, directory)
        else:
            machine = await firecracker.boot(files, SMALL)
        async with running(machine) as found:
            if state == "paused":
                api = await found.connect_api()
                await api.pause()
                assert await api.state() == "Paused"
                api.close()
            reading = asyncio.ensure_future(found.control.read())
            os.kill(await inner_pid(found) if inner else found.pid, signal.SIGKILL)
            async with asyncio.timeout(1):
                assert (await found.wait()).code == -signal.SIGKILL
                with pytest.raises(ConnectionError, match="ended"):
                    await reading
            directory = tmp_path / "late"
            directory.mkdir()
            with pytest.raises(SandboxUnavailableError, match="killed by signal 9") as caught:
                await firecracker.save(found, directory)
            assert caught.value.retryable
            assert not [*directory.iterdir()]
        assert what_is_left(jails) == set()

    async def test_api_refuses(self, firecracker: Firecracker, files: VmFiles, tmp_path: Path, jails: Jails) -> None:
        """The error has what Firecracker says, and nothing is left."""
        (tmp_path / "kernel").write_bytes(b"no kernel at all" * 32)
        with pytest.raises(SandboxUnavailableError, match=r"(?i)elf|kernel") as caught:
            await firecracker.boot(files, SMALL)
        assert not caught.value.retryable
        assert caught.value.outcome == "not_sent"
        assert caught.value.details["status"] == 400
        assert what_is_left(jails) == set()

    async def test_jailer_refuses(self, files: VmFiles, jails: Jails, tmp_path: Path) -> None:
        """A jailer that cannot do its work says why in the error."""
        _, jailer = require_firecracker()
        base = tmp_path / "nodev"
        base.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "nodev,size=64m,mode=755", "none", str(base)], check=True)
        try:
            vmm = Firecracker("", jailer, jails=Jails(base / "jails"))
            with pytest.raises(SandboxUnavailableError) as caught:
                async with running(await vmm.boot(files, SMALL)):
                    pass
            assert "kvm" in caught.value.message.lower() or "permission" in caught.value.message.lower()
            assert what_is_left(Jails(base / "jails")) == set()
        finally:
            subprocess.run(["umount", str(base)], check=True)

    async def test_missing_file(self, firecracker: Firecracker, files: VmFiles, jails: Jails) -> None:
        """A file of the image that is gone is named."""
        files.rootfs.unlink()
        with pytest.raises(SandboxUnavailableError, match="disk cannot be put"):
            await firecracker.boot(files, SMALL)
        assert what_is_left(jails) == set()

    async def test_stuck_start(
        self, files: VmFiles, jails: Jails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A jailer that hangs is given up on, and ended."""
        found, real = require_firecracker()
        jailer = tmp_path / "jailer"
        jailer.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\necho stuck >&2\nexec sleep 1000\n'
        )
        jailer.chmod(0o755)
        monkeypatch.setattr("toolexec_microvms.firecracker.machine._SOCKET_SECONDS", 0.3)
        with pytest.raises(SandboxUnavailableError, match=r"did not appear within 0\.3 s: stuck") as caught:
            await Firecracker(found, str(jailer), jails=jails).boot(files, SMALL)
        assert caught.value.retryable
        assert what_is_left(jails) == set()

    async def test_cancelled(self, firecracker: Firecracker, files: VmFiles, jails: Jails) -> None:
        """A start that is cancelled at any point leaves nothing."""
        for milliseconds in range(0, 80, 8):
            starting = asyncio.create_task(firecracker.boot(files, SMALL))
            await asyncio.wait({starting}, timeout=milliseconds / 1000)
            if starting.done():
                await starting.result().aclose()
                break
            starting.cancel()
            await asyncio.wait({starting})
            assert starting.cancelled() or starting.exception() is None
            if not starting.cancelled():
                await starting.result().aclose()
        assert what_is_left(jails) == set()

    async def test_host_killed(self, firecracker: Firecracker, jails: Jails, tmp_path: Path) -> None:
        """Machines die with the process that started them; the sweep of another one removes what they have left."""
        boot_files(tmp_path)
        program = tmp_path / "host.py"
        program.write_text(HOST)
        host = await asyncio.create_subprocess_exec(
            sys.executable, str(program), str(tmp_path), *require_firecracker(), stdout=subprocess.PIPE
        )
        assert host.stdout is not None
        owner = (await host.stdout.readline()).decode().strip()
        assert what_is_left(jails, owner)
        await firecracker.sweep()
        assert what_is_left(jails, owner), "a living host's machines are left alone"
        host.kill()
        await host.wait()
        await until(lambda: not [word for word in what_is_left(jails, owner) if word.startswith("/firecracker ")])
        await firecracker.sweep()
        assert what_is_left(jails, owner) == set()


HOST = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from toolexec.process.owner import this_owner
    from toolexec_microvms.firecracker import Firecracker
    from toolexec_microvms.jail import Jails
    from toolexec_microvms.machine import Shape, VmFiles

    async def main():
        base, firecracker, jailer = sys.argv[1:]
        kernel, disk = Path(base, "kernel"), Path(base, "disk")
        files = VmFiles(kernel=kernel, vmlinux=kernel, initrd=disk, rootfs=disk, digest="0")
        vmm = Firecracker(firecracker, jailer, jails=Jails(Path(base, "jails")))
        machines = [await vmm.boot(files, Shape(memory_mib=16)) for _ in range(2)]
        print(this_owner(), flush=True)
        await machines[0].wait()

    asyncio.run(main())
""")


class TestCheck:
    async def test_missing(self, jails: Jails, tmp_path: Path) -> None:
        """A program that is not there is named, with where to get it."""
        found = await Firecracker(str(tmp_path / "firecracker"), jails=jails).check()
        assert not found.ok
        assert "firecracker is not there" in found.reason
        assert "releases" in str(found)

    @pytest.mark.parametrize(("version", "why"), [("1.6.0", "too old"), ("1.13.0", "and .* is version")])
    async def test_versions(self, jails: Jails, tmp_path: Path, version: str, why: str) -> None:
        """Both programs are of one release that is new enough."""
        for name in ("Firecracker", "Jailer"):
            said = "1.6.0" if name == "Jailer" else version
            program = tmp_path / name.lower()
            program.write_text(f"#!/bin/sh\necho '{name} v{said}'\n")
            program.chmod(0o755)
        found = await Firecracker(str(tmp_path / "firecracker"), str(tmp_path / "jailer"), jails=jails).check()
        assert not found.ok
        assert re.search(why, found.reason)

    async def test_other_program(self, jails: Jails) -> None:
        """Another program of that name is not taken for it."""
        true = shutil.which("true") or ""
        found = await Firecracker(true, true, jails=jails).check()
        assert "does not work" in found.reason

    async def test_software_kvm(self, firecracker: Firecracker, monkeypatch: pytest.MonkeyPatch) -> None:
        """A processor that cannot do it is the reason; with one that can the trial decides."""
        found = await firecracker.check()
        assert found.version == firecracker.version
        monkeypatch.setattr(vmm_module, "look_at_kvm", lambda: None)
        assert (await firecracker.check()).ok
