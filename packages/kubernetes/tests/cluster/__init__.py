"""Tests that need a cluster, as a package: its clusters end with its last test, and not with the run. Idle control planes
take the processor from all that comes after."""
