"""A Proxmox VE for tests: its API, over HTTPS, in front of real Linux containers."""
