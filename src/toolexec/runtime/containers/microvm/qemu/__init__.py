"""Machines of QEMU: with the processor's virtualization where there is one, and translated in software elsewhere."""

from toolexec.runtime.containers.microvm.qemu.vmm import QemuVmm

__all__ = ["QemuVmm"]
