"""Firecracker for tests: its real programs, with kernels that run on any KVM."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.tiers import missing

from toolexec.containers import this_owner
from toolexec.machines import VmFiles, find_cgroups
from toolexec.sandbox import Availability
from toolexec_microvms.firecracker import Firecracker
from toolexec_microvms.firecracker.probe import probe_kernel
from toolexec_microvms.jail import Jails
from toolexec_microvms.machine import Shape

_ROOT = Path(__file__).parents[4]
SMALL = Shape(memory_mib=16)
"""Memory enough for the kernel of the tests."""
_TICKING = (
    b"\xb9\x00\x40\x00\x00"  # mov ecx, 0x4000
    b"\xff\xc9\x75\xfc"  # dec ecx; jnz
    b"\xb0\x2e\xee"  # mov al, '.'; out dx, al
    b"\xeb\xf2"  # and again
)


def require_firecracker() -> tuple[str, str]:
    """Return the paths of firecracker and of its jailer, where they can be used; else the test is skipped, or fails in CI."""
    if os.geteuid() != 0:
        pytest.skip("the jailer needs root")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("there is no /dev/kvm to be used")
    found, jailer = shutil.which("firecracker"), shutil.which("jailer")
    if found is None or jailer is None:
        missing("firecracker and jailer are not installed", "bash .ci/run")
    return found, jailer


def boot_files(directory: Path, *, ends: bool = False) -> VmFiles:
    """Return a kernel that says a word and then, unless it *ends*, writes dots; with a root device that it does not look at."""
    kernel, disk = directory / "kernel", directory / "disk"
    kernel.write_bytes(probe_kernel() if ends else probe_kernel(_TICKING))
    disk.write_bytes(bytes(4096))
    return VmFiles(kernel=kernel, vmlinux=kernel, initrd=disk, rootfs=disk, digest="0")


def what_is_left(jails: Jails, owner: str = "") -> set[str]:
    """Return the directories, claims on users, control groups and processes of jails that belong to *owner*, by default us."""
    owner = owner or this_owner()
    found = {str(path) for path in jails.base.glob(f"{owner}-*")}
    found |= {str(path) for path in (jails.base / "users").glob("*") if owner in path.read_text()}
    if find_cgroups() is not None:
        found |= {str(path) for path in Path("/sys/fs/cgroup").glob(f"*/toolexec/{owner}-*")}
        found |= {str(path) for path in Path("/sys/fs/cgroup").glob(f"toolexec/{owner}-*")}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if any(word.startswith(f"{owner}-") for word in words):
            found.add(" ".join(words)[:200])
    return found


class StandIn(Firecracker):
    """The stand-in of `firecracker_server`, which no KVM has to be looked at for."""

    async def check(self) -> Availability:
        """Ask both programs what they are."""
        programs = await self._ready()
        return Availability(ok=True, version=programs.version)


def make_stand_in(directory: Path, image: Path, jails: Jails) -> StandIn:
    """Firecracker's stand-in, as two programs in *directory*, whose QEMU boots the kernel in the directory *image*."""
    for name in ("firecracker", "jailer"):
        program = directory / name
        program.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={_ROOT} TOOLEXEC_TEST_VM={image} TOOLEXEC_CACHE={directory / 'cache'}\n"
            f'exec {sys.executable} -m packages.microvms.tests.engines.firecracker_server {name} "$@"\n'
        )
        program.chmod(0o755)
    return StandIn(str(directory / "firecracker"), jails=jails)
