"""The settings of sandboxes that are virtual machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from toolexec.errors import ConfigurationError
from toolexec.machines import RESERVE
from toolexec.sandbox import ContainerConfig, checked
from toolexec_microvms.machine import VmmName

DEFAULT_VM_IMAGE: Final = "toolexec-vm"
"""The image that `toolexec image build --kind vm` makes."""
AcceleratorChoice: TypeAlias = Literal["auto", "kvm", "tcg"]


@checked("MicrovmConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class MicrovmConfig(ContainerConfig):
    """How a sandbox of virtual machines is set up.

    `vmm` is what runs them, and the kind of the sandbox. `image` is an image of the store that was built for machines,
    or the path of a directory with `vmlinuz`, `vmlinux`, `initrd.img` and `rootfs.squashfs`. `program` is the path of
    the VMM, by default the one on the PATH. `accelerator` is `kvm`, `tcg` (software: only QEMU has it, and it is some
    ten times slower), or `auto`: the former where it really works, else the latter. `memory_room` is how many MiB a
    machine gets beside the memory of the program, for its kernel and the guest, and `memory_reserve` how many of the
    host's memory stay free: a machine starts only beside them. `boot_seconds` is how long a machine
    may take to boot, which it does once for each size. `snapshots` is how many saved machines are kept on the disk.
    With `fresh_interpreter` Python starts after the restore, so that each run has a seed of its hashes and a layout of
    memory of its own, which takes the time of that start.

    Raises ConfigurationError, too, for an unknown VMM, and for an accelerator that it does not have.
    """

    vmm: VmmName = "firecracker"
    image: str = DEFAULT_VM_IMAGE
    program: str = ""
    accelerator: AcceleratorChoice = "auto"
    memory_room: int = 128
    memory_reserve: int = RESERVE >> 20
    boot_seconds: float = 90.0
    snapshots: int = 6
    fresh_interpreter: bool = False

    def __post_init__(self) -> None:
        ContainerConfig.__post_init__(self)
        if self.vmm not in get_args(VmmName):
            raise ConfigurationError(f"there is no VMM {self.vmm!r}; use {', '.join(get_args(VmmName))}")
        if self.accelerator not in get_args(AcceleratorChoice):
            raise ConfigurationError(
                f"there is no accelerator {self.accelerator!r}; use {', '.join(get_args(AcceleratorChoice))}"
            )
        if self.accelerator == "tcg" and self.vmm != "qemu":
            raise ConfigurationError(f"{self.vmm} cannot run machines in software; tcg is QEMU's: use vmm='qemu'")
        for name, least in (("memory_room", 64), ("memory_reserve", 0), ("boot_seconds", 1), ("snapshots", 1)):
            if not getattr(self, name) >= least:
                raise ConfigurationError(f"{name} must be {least} or more, not {getattr(self, name)!r}")
