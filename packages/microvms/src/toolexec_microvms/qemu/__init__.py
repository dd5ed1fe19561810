"""Machines of QEMU: with the processor's virtualization where there is one, and translated in software elsewhere."""

from toolexec.machines import unix_needed

with unix_needed("virtual machines of QEMU"):
    from toolexec_microvms.qemu.vmm import QemuVmm

__all__ = ["QemuVmm"]
