"""Machines of QEMU for real: what they start from, what goes wrong, and who is killed."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines.microvm import require_qemu
from tests.waiting import reached, until

from toolexec import Exec, Limits
from toolexec.containers import ImageStore, this_owner
from toolexec.errors import ConfigurationError, SandboxFailedError, SandboxUnavailableError
from toolexec_microvms import MicrovmBackend, MicrovmConfig
from toolexec_microvms.snapshots import SnapshotCache

pytestmark = [pytest.mark.full, pytest.mark.anyio]
SMALL = Limits(memory_bytes=96 << 20)


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[tuple[Exec, MicrovmBackend, asyncio.Event]]:
    """An Exec with machines of QEMU, and a tool that waits; the event says that it does."""
    backend = MicrovmBackend(MicrovmConfig(**{"vmm": "qemu", "image": require_qemu(), "limits": SMALL, **settings}))
    waits = asyncio.Event()

    async def wait() -> None:
        waits.set()
        await asyncio.Event().wait()

    async with Exec(runtime_backends={"standard": [backend]}) as ex:
        ex.add(wait, "test:wait")
        yield ex, backend, waits
    assert left() == set()


def left() -> set[str]:
    """What machines of this process have left on the host."""
    processes = {str(child.pid) for child in psutil.Process().children(recursive=True) if "qemu" in child.name()}
    return processes | {str(path) for path in Path("/sys/fs/cgroup").glob(f"**/toolexec/{this_owner()}-*")}


def machines() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "qemu" in child.name()]


def private_cache(backend: MicrovmBackend, directory: Path) -> None:
    """Have *backend* keep its saved machines in a directory of the test."""
    backend.engine._templates.cache = SnapshotCache(directory)  # type: ignore[attr-defined]


async def value(ex: Exec, code: str) -> Any:
    return (await ex.execute_code(code, timeout=30)).raise_for_error().value


async def test_a_run_says_what_ran_it() -> None:
    """A restored machine, with its own kernel; and no result pretends that software is a processor."""
    async with opened() as (ex, backend, _):
        result = await ex.execute_code(
            "import os\nreturn [os.uname().release, os.getuid(), os.listdir('/sys/class/net')]"
        )
        release, user, networks = result.raise_for_error().value
        image = ImageStore().find(require_qemu())
        assert image is not None
        assert (release, user, networks) == (image.kernel, 65534, ["lo"])
        details = result.backend.details
        assert (details["vmm"], details["restored"]) == ("qemu", True)
        assert details["accelerator"] == backend.engine.vmm.accelerator  # type: ignore[attr-defined]
        assert details["restore_ms"] > 0
        assert result.backend.isolation == "vm"


async def test_restored_machines_have_other_random_numbers() -> None:
    """The kernel and Python's own generator differ between two machines that were saved as one."""
    code = "import os, random, uuid\nreturn [os.urandom(8).hex(), random.random(), str(uuid.uuid4()), hash('x')]"
    async with opened() as (ex, _, _):
        first, second = [await value(ex, code) for _ in range(2)]
        for one, other in list(zip(first, second, strict=True))[:3]:
            assert one != other


async def test_a_fresh_interpreter_has_hashes_of_its_own() -> None:
    """Python starts after the restore, so that neither its hashes nor its addresses are those of another run."""
    async with opened(fresh_interpreter=True) as (ex, _, _):
        results = [await ex.execute_code("return [hash('a'), id(object())]", timeout=120) for _ in range(2)]
        assert [result.backend.details["restored"] for result in results] == [True, True]
        first, second = (result.raise_for_error().value for result in results)
        assert first[0] != second[0]
        assert first[1] != second[1]
        ex.add(lambda: 7, "test:seven")
        assert await value(ex, "return tools.test.seven()") == 7


async def test_a_restored_machine_has_the_time_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """However old the snapshot is: the clock is set with each restore."""
    far = 1_900_000_000 * 10**9 + random.randrange(10**9)
    async with opened() as (ex, _, _):
        monkeypatch.setattr(time, "time_ns", lambda: far)
        assert (await value(ex, "import time\nreturn int(time.time())")) - far // 10**9 in range(60)


async def test_a_machine_that_never_boots(tmp_path: Path) -> None:
    """The time is up: the error is retryable, says what the console says, and nothing is kept."""
    async with opened(boot_seconds=1) as (ex, backend, _):
        private_cache(backend, tmp_path)
        with pytest.raises(SandboxUnavailableError, match=r"did not boot within 0\.5 s, 2 times") as caught:
            await ex.execute_code("1", timeout=30)
        assert caught.value.retryable
        assert caught.value.details["reason"] == "never_booted"
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


async def test_a_kernel_without_virtio(tmp_path: Path) -> None:
    """The first file system has no drivers: the kernel gives up, and its last words are in the error."""
    image = ImageStore().find(require_qemu())
    assert image is not None
    files = ImageStore().vm_files(image)
    directory = tmp_path / "image"
    directory.mkdir()
    for path in (files.kernel, files.vmlinux, files.rootfs):
        shutil.copy(path, directory)
    (directory / "initrd.img").write_bytes(b"")
    async with opened(image=str(directory), boot_seconds=60) as (ex, backend, _):
        private_cache(backend, tmp_path / "cache")
        with pytest.raises(SandboxUnavailableError, match="before it could boot") as caught:
            await ex.execute_code("1", timeout=60)
        assert "panic" in caught.value.details["console"]


@pytest.mark.parametrize("file", ["state", "ram"])
async def test_a_corrupt_snapshot(tmp_path: Path, file: str, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged one is removed and made again, and the run does not notice."""
    for attempt in range(2):
        async with opened() as (ex, backend, _):
            private_cache(backend, tmp_path)
            assert (await ex.execute_code("return 1", timeout=60)).value == 1
        if attempt == 0:
            (saved,) = tmp_path.glob(f"*/{file}")
            with saved.open("r+b") as changed:
                changed.seek(-100_000, os.SEEK_END)
                changed.write(os.urandom(1000))
    assert f"{file} is damaged" in caplog.text
    assert len([*tmp_path.glob(f"*/{file}")]) == 1


async def test_a_full_disk(tmp_path: Path) -> None:
    """A machine that cannot be saved is an error that can be retried, and takes no space."""
    cache = tmp_path / "cache"
    cache.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", str(cache)], check=True)
    try:
        async with opened() as (ex, backend, _):
            private_cache(backend, cache)
            with pytest.raises(SandboxUnavailableError, match="No space left on device") as caught:
                await ex.execute_code("1", timeout=60)
            assert caught.value.retryable
            assert [path for path in cache.iterdir() if path.is_dir()] == []
    finally:
        subprocess.run(["umount", str(cache)], check=True)


async def test_a_vmm_that_is_killed_in_the_middle_of_a_run() -> None:
    """The run ends with a typed error, which says that it was the machine; the next run is well."""
    async with opened() as (ex, _, waits):
        running = asyncio.create_task(ex.execute_code("print('begun', flush=True)\ntools.test.wait()", timeout=60))
        await reached(waits, running)
        (machine,) = machines()
        machine.send_signal(signal.SIGKILL)
        result = await running
        assert isinstance(result.error, SandboxFailedError)
        assert (result.error.details["reason"], result.error.retryable) == ("machine_ended", True)
        assert result.stdout == "begun\n"
        assert await value(ex, "return 1") == 1


async def test_a_vmm_that_is_killed_while_it_waits() -> None:
    """A warm machine that dies is replaced, and no run sees it."""
    async with opened(warm=1) as (ex, backend, _):
        assert await value(ex, "return 1") == 1
        await until(lambda: backend.warm_stats.idle == 1 and len(machines()) == 1, 0.05)  # the used one is removed
        machines()[0].send_signal(signal.SIGKILL)
        await until(lambda: backend.warm_stats.died == 1, 0.05)
        assert await value(ex, "return 2") == 2


async def test_a_vmm_that_is_killed_while_it_boots(tmp_path: Path) -> None:
    """The run that waits for it gets an error that can be retried."""
    async with opened() as (ex, backend, _):
        private_cache(backend, tmp_path)
        running = asyncio.create_task(ex.execute_code("1", timeout=60))
        await until(lambda: any(machine.cpu_times().user > 0.2 for machine in machines()), 0.02)
        machines()[0].send_signal(signal.SIGKILL)
        with pytest.raises(SandboxUnavailableError, match="before it could boot") as caught:
            await running
        assert caught.value.retryable


async def test_machines_are_confined() -> None:
    """A QEMU is a user of its own, in an empty directory, without a network, and with a filter of system calls; of
    processes there are its shell and itself."""
    async with opened() as (ex, _, waits):
        running = asyncio.create_task(ex.execute_code("tools.test.wait()", timeout=60))
        await reached(waits, running)
        (machine,) = machines()
        proc = Path(f"/proc/{machine.pid}")
        status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
        assert min(map(int, status["Uid"].split())) >= 0x6000_0000
        assert (status["Seccomp"], status["NoNewPrivs"], int(status["CapEff"], 16)) == ("2", "1", 0)
        assert [*(proc / "root").iterdir()] == []
        for kind in ("net", "mnt", "ipc", "uts", "pid"):
            assert (proc / "ns" / kind).readlink() != Path("/proc/self/ns", kind).readlink()
        assert status["NSpid"].split()[1:] == ["2"]
        running.cancel()


async def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """A program, an image and KVM that are not there: each with what to do."""
    require_qemu()
    for settings, reason, fix in (
        ({"program": "/nowhere/qemu"}, "is not there", "apt-get install"),
        ({"image": "no-such-image"}, "there is no image no-such-image here", "--kind vm --name no-such-image"),
    ):
        backend = MicrovmBackend(MicrovmConfig(vmm="qemu", **settings))
        found = await backend.check()
        assert not found.ok
        assert reason in found.reason
        assert fix in str(found)
        await backend.aclose()
    with pytest.raises(ConfigurationError, match="tcg is QEMU's"):
        MicrovmConfig(vmm="firecracker", accelerator="tcg")
    backend = MicrovmBackend(MicrovmConfig(vmm="qemu", image=str(tmp_path)))
    assert "has not all that a virtual machine boots" in (await backend.check()).reason
    await backend.aclose()
