"""Saved machines are bound to the processor, its microcode and flags, and the kernel that they were saved on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from toolexec.containers import JSONDict
from toolexec.machines import VmFiles, host_facts, other_host
from toolexec_microvms.firecracker.vmm import _problem  # pyright: ignore[reportPrivateUsage]
from toolexec_microvms.guest import MachineControl
from toolexec_microvms.machine import Machine, Shape
from toolexec_microvms.snapshots import SnapshotCache
from toolexec_microvms.templates import GuestAhead, Templates

pytestmark = pytest.mark.anyio
SYSTEM = os.uname_result(("Linux", "host", "6.1.0-40-amd64", "#1 SMP Debian 6.1.153-1", "x86_64"))
X86 = """processor\t: {number}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) 8481C
stepping\t: 8
microcode\t: {microcode}
cpu MHz\t\t: {number}700.1
flags\t\t: {flags}

"""
ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"


def facts(directory: Path, text: str, system: os.uname_result = SYSTEM) -> JSONDict:
    path = directory / "cpuinfo"
    path.write_text(text)
    return host_facts(path, system)


def x86(directory: Path, microcode: str = "0x2b", flags: str = "fpu vme avx2", system: object = SYSTEM) -> JSONDict:
    assert isinstance(system, os.uname_result)
    text = "".join(X86.format(number=number, microcode=microcode, flags=flags) for number in range(2))
    return facts(directory, text, system)


def test_the_facts_of_a_host(tmp_path: Path) -> None:
    """Name the processor, and nothing that changes from moment to moment or from core to core."""
    assert x86(tmp_path) == {
        "kernel": "6.1.0-40-amd64 #1 SMP Debian 6.1.153-1 x86_64",
        "processor": "vendor_id: GenuineIntel; cpu family: 6; model: 143; model name: Intel(R) Xeon(R) 8481C; "
        "stepping: 8",
        "microcode": "0x2b",
        "flags": "avx2 fpu vme",
    }
    arm = facts(tmp_path, ARM + ARM.replace("0xd0c", "0xd40"))
    assert arm["processor"] == "CPU implementer: 0x41; CPU part: 0xd0c | 0xd40"
    assert arm["flags"] == "asimd fp"
    assert host_facts(tmp_path / "absent", SYSTEM)["processor"] == ""
    assert host_facts() == host_facts()


def test_what_is_different_is_named(tmp_path: Path) -> None:
    """A log line is short, also where all flags have changed."""
    here = x86(tmp_path)
    assert other_host(here, here) == ""
    assert other_host({**here, "flags": "fpu vme amx"}, here) == (
        "processor flags that are missing here: amx; flags only here: avx2"
    )
    many = " ".join(f"f{number:02}" for number in range(30))
    assert "f07 and 22 more" in other_host({**here, "flags": many}, here)
    assert other_host({}, here).startswith("kernel None, here '6.1.0")


class FakeVmm:
    """Boots and saves nothing, and has a version."""

    accelerator, snapshots = "kvm", True

    def __init__(self, name: str = "qemu", version: str = "1") -> None:
        self.name, self.version = name, version

    async def save(self, machine: Machine, directory: Path) -> None:
        (directory / "ram").write_bytes(b"ram")


class FakeTemplates(Templates):
    """Counts the machines that boot."""

    booted = 0

    async def boot(
        self, files: VmFiles, shape: Shape, template: Path | None = None, ahead: GuestAhead | None = None
    ) -> tuple[Machine, MachineControl]:
        FakeTemplates.booted += 1
        return _Nothing(), _Nothing()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


class _Nothing:
    async def aclose(self) -> None: ...


async def saved(cache: Path, host: JSONDict, *vmm: str) -> Path:
    """Return the machine that a new process on *host* takes; *vmm* are the name and the version of what boots it."""
    files = VmFiles(kernel=cache, vmlinux=cache, initrd=cache, rootfs=cache, digest="sha256:1")
    templates = FakeTemplates(lambda: FakeVmm(*vmm), SnapshotCache(cache), 5.0, host=lambda: host)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    try:
        return (await templates.snapshot(files, Shape(memory_mib=128), GuestAhead())).directory
    finally:
        await templates.aclose()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"microcode": "0x2c"}, "microcode '0x2b', here '0x2c'"),
        ({"flags": "fpu vme"}, "processor flags that are missing here: avx2"),
        ({"flags": "fpu vme avx2 amx"}, "flags only here: amx"),
        (
            {"system": os.uname_result((*SYSTEM[:2], "6.1.0-41-amd64", *SYSTEM[3:]))},
            "kernel '6.1.0-40-amd64 #1 SMP Debian 6.1.153-1 x86_64', here '6.1.0-41-amd64 ",
        ),
        ({"system": os.uname_result((*SYSTEM[:3], "#2 SMP", SYSTEM[4]))}, "here '6.1.0-40-amd64 #2 SMP x86_64'"),
    ],
)
async def test_a_machine_of_another_host_is_made_again(
    tmp_path: Path, changed: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Restores nothing on another processor or kernel, logs why, and keeps one for each host."""
    FakeTemplates.booted = 0
    cache = tmp_path / "machines"
    first = await saved(cache, x86(tmp_path))
    assert await saved(cache, x86(tmp_path)) == first
    assert FakeTemplates.booted == 1
    assert not caplog.messages
    other = await saved(cache, x86(tmp_path, **changed))
    assert other != first
    assert FakeTemplates.booted == 2
    assert [message for message in caplog.messages if str(first) in message and why in message]
    assert await saved(cache, x86(tmp_path)) == first
    assert await saved(cache, x86(tmp_path, **changed)) == other
    assert FakeTemplates.booted == 2


async def test_a_machine_of_another_model_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Counts the model of the processor, too, and logs nothing about other images and sizes."""
    cache = tmp_path / "machines"
    host = x86(tmp_path)
    (await SnapshotCache(cache).get({"image": "other"}, _make, host)).close()
    first = await saved(cache, host)
    assert not caplog.messages
    other = await saved(cache, {**host, "processor": "vendor_id: AuthenticAMD"})
    assert other != first
    assert len([message for message in caplog.messages if "here 'vendor_id: AuthenticAMD'" in message]) == 1


async def test_a_machine_of_another_release_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores nothing that a release with other devices, or another processor for them, may have saved."""
    cache, host = tmp_path / "machines", x86(tmp_path)
    first = await saved(cache, host)
    monkeypatch.setattr("toolexec_microvms.templates.__version__", "0.0.1")
    assert await saved(cache, host) != first


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="a system without /proc/cpuinfo")
@pytest.mark.parametrize("vmm", ["firecracker", "qemu"])
async def test_a_machine_is_bound_to_each_fact_of_this_host(tmp_path: Path, vmm: str) -> None:
    """Takes a machine again where kernel, processor, microcode, flags and the VMM's version are what they were, and
    makes another one where a single one of them is not."""
    cache, here = tmp_path / "machines", host_facts()
    assert {*here} == {"kernel", "processor", "microcode", "flags"}
    assert here["kernel"]
    assert here["flags"]
    first = await saved(cache, here, vmm, "1.12.0")
    assert await saved(cache, host_facts(), vmm, "1.12.0") == first
    flags = str(here["flags"])
    others = [{**here, name: f"{here[name]} another"} for name in here]
    others += [{**here, "flags": flags.replace(flag, "", 1)} for flag in flags.split()[:3]]
    found = [await saved(cache, other, vmm, "1.12.0") for other in others]
    found.append(await saved(cache, here, vmm, "1.13.0"))
    assert len({first, *found}) == 1 + len(found)


def test_firecracker_refuses_what_another_version_saved(tmp_path: Path) -> None:
    """Looks at what was saved itself, with its version and sizes."""
    for name in ("state", "memory"):
        (tmp_path / name).write_bytes(b"saved")
    about = {"version": "1.12.0", "sizes": {"state": 5, "memory": 5}}
    (tmp_path / "firecracker.json").write_text(json.dumps(about), "ascii")
    assert _problem(tmp_path, "1.12.0") == ""
    assert _problem(tmp_path, "1.13.0") == "it is of Firecracker 1.12.0, and this is 1.13.0"
    (tmp_path / "memory").write_bytes(b"save")
    assert _problem(tmp_path, "1.12.0") == "a file of it has another size"


async def _make(directory: Path) -> None:
    (directory / "ram").write_bytes(b"ram")
