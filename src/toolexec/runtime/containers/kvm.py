"""Virtual machines of this kernel: does it offer virtual machines that run Linux?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from toolexec.runtime.base import Availability

_KVM: Final = Path("/dev/kvm")
_PROCESSOR: Final = Path("/proc/cpuinfo")
_MODULES: Final = Path("/sys/module")
_SOFTWARE: Final = ("kvm_pvm",)
"""Modules of the kernel that offer virtual machines without the processor's help: no usual Linux boots in them."""


def look_at_kvm(
    device: Path | None = None, processor: Path | None = None, modules: Path | None = None
) -> Availability | None:
    """Return what keeps virtual machines from running here, by what the kernel says in `/dev/kvm`, `/proc/cpuinfo` and
    `/sys/module`; None if nothing is seen. Blocks for a moment.
    """
    device, processor = device or _KVM, processor or _PROCESSOR
    try:
        flags = {*processor.read_text("ascii", "replace").split()}
    except OSError:
        flags = set[str]()
    if not device.exists():
        reason = f"there is no {device}: the kernel offers no virtual machines"
    elif not os.access(device, os.R_OK | os.W_OK):
        return Availability(
            ok=False,
            reason=f"{device} is not for this user",
            remedy="run as root, or join the group that owns it: usermod -aG kvm USER",
        )
    elif os.uname().machine == "x86_64" and not flags & {"vmx", "svm"}:
        reason = f"{device} is there, but the processor has no virtualization (neither vmx nor svm in {processor})"
        software = next((name for name in _SOFTWARE if ((modules or _MODULES) / name).is_dir()), "")
        reason += f": the module {software} does it in software, and Linux does not boot on that" if software else ""
    else:
        return None
    return Availability(
        ok=False,
        reason=reason,
        remedy="use a machine with hardware virtualization (bare metal, or nested virtualization switched on), or the "
        "gvisor sandbox, which needs none",
    )
