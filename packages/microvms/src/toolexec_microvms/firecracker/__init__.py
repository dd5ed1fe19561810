"""Machines of Firecracker: its API, its jailer, and what is needed to run Linux in them."""

from toolexec.machines import unix_needed

with unix_needed("virtual machines of Firecracker"):
    from toolexec_microvms.firecracker.vmm import Firecracker

__all__ = ["Firecracker"]
