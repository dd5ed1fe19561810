"""The tools and sandboxes of the workers of this process: the workflows find them here."""

from __future__ import annotations

from toolexec.errors import ConfigurationError
from toolexec.journal import Host

_hosts: dict[str, Host] = {}


def hosted(queue: str, host: Host) -> None:
    """Have the workflows on a task queue find *host*. Raises ConfigurationError for a second one."""
    if _hosts.setdefault(queue, host) is not host:
        raise ConfigurationError(f"another worker for the task queue {queue} runs in this process")


def unhosted(queue: str, host: Host) -> None:
    """Forget it."""
    if _hosts.get(queue) is host:
        del _hosts[queue]


def host_of(queue: str) -> Host:
    """Return the host of the workflows on a task queue."""
    return _hosts[queue]
