"""A QEMU that stands still while a machine is started: who waits for it can leave at once, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import psutil
import pytest
from tests.tiers import missing
from tests.waiting import until

from toolexec.machines import VmFiles
from toolexec_microvms.machine import Shape
from toolexec_microvms.qemu.vmm import PROCESSOR, RAM, STATE, QemuVmm

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="another user's QEMU sees no file of this test"),
]
_PROGRAM = """\
#!/bin/sh
case " $* " in *" --version "*) exec {qemu} --version ;; esac
kill -STOP $$
"""
_SHAPE = Shape(cpus=1, memory_mib=16)
_FAR_LESS = 15.0
"""Seconds: half of what the monitor of a machine is given to answer."""


@pytest.mark.parametrize("restores", [False, True])
async def test_who_is_cancelled_does_not_wait_for_it(tmp_path: Path, restores: bool) -> None:
    """A run at its time limit gives up its place at once, and the process that is stopped ends."""
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        missing("QEMU is not installed", "sudo bash .ci/engines")
    program = tmp_path / "qemu"
    program.write_text(_PROGRAM.format(qemu=qemu))
    program.chmod(0o755)
    for name in ("vmlinuz", "initrd.img", "rootfs.squashfs", STATE, PROCESSOR, RAM):
        (tmp_path / name).touch()
    os.truncate(tmp_path / RAM, _SHAPE.memory_mib << 20)
    files = VmFiles.in_directory(tmp_path, "sha256:0")
    vmm = QemuVmm(str(program), accelerator="tcg")
    assert (await vmm.check()).ok
    work = vmm.restore(files, _SHAPE, tmp_path) if restores else vmm.boot(files, _SHAPE)
    starting = asyncio.create_task(work)
    (stopped,) = await until(_stopped)
    starting.cancel()
    done, _ = await asyncio.wait({starting}, timeout=_FAR_LESS)
    assert done
    assert starting.cancelled()
    await until(lambda: not stopped.is_running() or stopped.status() == psutil.STATUS_ZOMBIE)
    assert _stopped() == []
    await vmm.aclose()


def _stopped() -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() == psutil.STATUS_STOPPED:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found
