"""The Proxmox VE that these tests use."""

from tests.engines.proxmox.cluster import proxmox_cluster, proxmox_node

__all__ = ["proxmox_cluster", "proxmox_node"]
