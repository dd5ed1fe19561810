"""Sandboxes of virtual machines."""
