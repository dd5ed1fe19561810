"""The kinds of sandbox `firecracker` and `qemu`: one backend with two VMMs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from toolexec.containers import JSONDict
from toolexec.sandbox import SandboxBackend, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.machines import SandboxSettings
    from toolexec_microvms import MicrovmConfig
    from toolexec_microvms.machine import VmmName

_SETTINGS: Final = "toolexec_microvms.config:MicrovmConfig"


def _read(vmm: VmmName, settings: SandboxSettings) -> MicrovmConfig:
    from toolexec_microvms import MicrovmConfig
    from toolexec_microvms.config import DEFAULT_VM_IMAGE

    shared: JSONDict = {**settings.shared(), "image": settings.vm_image or DEFAULT_VM_IMAGE}
    accelerator = settings.vm_accelerator if vmm in settings.use else "kvm"  # a slow one is never a surprise
    if vmm != "qemu" and accelerator == "tcg":  # which is QEMU's alone
        accelerator = "kvm"
    program = {"qemu": settings.qemu, "firecracker": settings.firecracker}.get(vmm, "")
    reserve = settings.vm_memory_reserve
    return MicrovmConfig(**shared, vmm=vmm, program=program, accelerator=accelerator, memory_reserve=reserve)


def _make(settings: MicrovmConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec_microvms import MicrovmBackend

    return MicrovmBackend(settings)


def _plugin(vmm: VmmName, position: int, *, experimental: bool = False) -> SandboxPlugin:
    return SandboxPlugin(
        kind=vmm,
        api=1,
        settings=_SETTINGS,
        make=_make,
        profiles={"hardened": position},
        isolation="vm",
        experimental=experimental,
        read=partial(_read, vmm),
    )


FIRECRACKER = _plugin("firecracker", 30, experimental=True)
QEMU = _plugin("qemu", 80)
