"""Machines of Firecracker: its API, its jailer, and what is needed to run Linux in them."""

from toolexec.errors.extras import unix_needed

with unix_needed("virtual machines of Firecracker"):
    from toolexec.runtime.containers.microvm.firecracker.vmm import Firecracker

__all__ = ["Firecracker"]
