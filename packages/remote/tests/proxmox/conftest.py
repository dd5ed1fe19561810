"""The Proxmox VE that these tests use."""

from packages.remote.tests.pve.cluster import proxmox_cluster, proxmox_node

__all__ = ["proxmox_cluster", "proxmox_node"]
