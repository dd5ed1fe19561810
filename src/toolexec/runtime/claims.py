"""What a sandbox claims to enforce: each limit by name, so that none is claimed by leaving it out."""

from __future__ import annotations

from toolexec.code.limits import LimitsEnforced


def claim_limits(
    *,
    timeout: bool,
    tool_calls: bool,
    chain_steps: bool,
    memory: bool,
    cpu: bool,
    cpus: bool,
    pids: bool,
    disk: bool,
) -> LimitsEnforced:
    """Return what `SandboxBackend.enforces` gives: True for each limit at which the sandbox really stops code.

    `timeout` is the time limit, `tool_calls` and `chain_steps` what the gateway of the request counts, `memory` bytes,
    `cpu` a budget of CPU time, `cpus` a rate of it, `pids` a number of processes, `disk` the bytes of files.
    `toolexec.testing.check_sandbox` has programs go over each limit that is claimed, and fails where one gets past it.

    >>> claims = claim_limits(
    ...     timeout=True, tool_calls=True, chain_steps=True, memory=False, cpu=False, cpus=False, pids=False, disk=False
    ... )
    >>> [name for name, held in claims.to_dict().items() if held]
    ['timeout', 'tool_calls', 'chain_steps']
    """
    return LimitsEnforced(
        timeout=timeout,
        tool_calls=tool_calls,
        chain_steps=chain_steps,
        memory=memory,
        cpu=cpu,
        cpus=cpus,
        pids=pids,
        disk=disk,
    )


def claim_resources(*, memory: bool, cpu: bool, cpus: bool, pids: bool, disk: bool) -> LimitsEnforced:
    """Return what `ContainerEngine.enforces` gives: the limits that what surrounds a container holds. Time and calls
    are the backend's; see `claim_limits`.

    >>> claim_resources(memory=True, cpu=False, cpus=False, pids=True, disk=True).disk
    True
    """
    return LimitsEnforced(memory=memory, cpu=cpu, cpus=cpus, pids=pids, disk=disk)


def claims_interrupt(backend: object) -> bool:
    """Return whether a session of *backend* outlives a run in it that is stopped: its attribute `interrupts`, False for
    one without it. `toolexec.testing.check_sandbox` stops a run in a session where it is claimed.

    >>> claims_interrupt(object())
    False
    """
    return getattr(backend, "interrupts", False) is True
