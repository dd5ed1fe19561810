"""What toolexec costs, measured beside its peers: `python -m benchmarks`."""
