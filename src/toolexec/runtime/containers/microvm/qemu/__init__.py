"""Machines of QEMU: with the processor's virtualization where there is one, and translated in software elsewhere."""

from toolexec.errors.extras import unix_needed

with unix_needed("virtual machines of QEMU"):
    from toolexec.runtime.containers.microvm.qemu.vmm import QemuVmm

__all__ = ["QemuVmm"]
