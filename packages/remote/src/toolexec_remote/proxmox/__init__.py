"""Sandboxes in the Linux containers of a Proxmox VE cluster, which are started, cloned and removed by its API."""
