"""How sandboxes of virtual machines are set up: by their own class, and by the keys of `[sandboxes]`."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.machines import SandboxSettings
from toolexec.sandbox import SandboxPlugin
from toolexec_microvms import MicrovmConfig
from toolexec_microvms.plugin import FIRECRACKER, QEMU


def read(plugin: SandboxPlugin, settings: SandboxSettings) -> MicrovmConfig:
    assert plugin.read is not None
    return plugin.read(settings)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"memory_limit": 1}, "memory"),
        ({"vmm": "bochs"}, "qemu"),
        ({"accelerator": "hvf"}, "tcg"),
        ({"accelerator": "tcg"}, "vmm='qemu'"),
        ({"memory_room": 63}, "memory_room"),
        ({"memory_room": 64.5}, "memory_room"),
        ({"memory_reserve": -1}, "memory_reserve"),
        ({"boot_seconds": 0.5}, "boot_seconds"),
        ({"boot_seconds": "3"}, "boot_seconds"),
        ({"snapshots": 0}, "snapshots"),
        ({"program": 5}, "program"),
        ({"fresh_interpreter": "no"}, "fresh_interpreter"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], named: str) -> None:
    """The error names the setting, or the nearest name, or what there is instead."""
    with pytest.raises(ToolExecError) as caught:
        MicrovmConfig(**given)
    assert named in caught.value.message


def test_the_keys_of_sandboxes_are_those_of_machines() -> None:
    """Each VMM has its own program; both have the image, the reserve, and what all containers have."""
    settings = SandboxSettings(
        use=("qemu", "firecracker"),
        vm_image="team-vm",
        vm_memory_reserve=512,
        vm_accelerator="tcg",
        qemu="/opt/q/qemu",
        firecracker="/opt/f/firecracker",
        max_running=3,
    )
    qemu, firecracker = read(QEMU, settings), read(FIRECRACKER, settings)
    assert (qemu.vmm, qemu.program, qemu.accelerator) == ("qemu", "/opt/q/qemu", "tcg")
    assert (firecracker.vmm, firecracker.program, firecracker.accelerator) == (
        "firecracker",
        "/opt/f/firecracker",
        "kvm",  # tcg is QEMU's alone
    )
    assert {(each.image, each.memory_reserve, each.max_running) for each in (qemu, firecracker)} == {
        ("team-vm", 512, 3)
    }


def test_a_slow_machine_is_never_a_surprise() -> None:
    """A machine that was not named in `use` runs with the processor's virtualization only, whatever else is allowed."""
    assert read(QEMU, SandboxSettings(vm_accelerator="auto")).accelerator == "kvm"
    assert read(QEMU, SandboxSettings(use=("qemu",), vm_accelerator="auto")).accelerator == "auto"


@pytest.mark.parametrize("kind", ["qemu", "firecracker"])
def test_a_table_of_its_own_is_refused(kind: str) -> None:
    """A table of plugins for a machine would have no effect beside the keys, and is an error for that."""
    with pytest.raises(ConfigurationError, match=f"the sandbox {kind} is of toolexec: its settings have names"):
        SandboxSettings(plugins={kind: {"memory_room": 256}})


def test_firecracker_runs_only_where_it_is_named() -> None:
    """No run in one of its machines was ever measured; QEMU is the last choice of a profile, as it may be slow."""
    assert (FIRECRACKER.experimental, QEMU.experimental) == (True, False)
    assert {plugin.kind: plugin.profiles["hardened"] for plugin in (FIRECRACKER, QEMU)} == {
        "firecracker": 30,
        "qemu": 80,
    }
