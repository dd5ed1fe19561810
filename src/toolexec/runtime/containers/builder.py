"""From a request, its limits and its profile to the container that it gets; or one part after the other by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Self

from toolexec.code.limits import Limits
from toolexec.errors import InvalidRequestError
from toolexec.process.owner import OWNER_LABEL, this_owner
from toolexec.run.run_request import PROFILES
from toolexec.runtime.containers.checks import check_spec
from toolexec.runtime.containers.config import DEFAULT_LIMITS, ContainerConfig
from toolexec.runtime.containers.spec import TMP, WORK, ContainerSpec, Mount, Network, Resources, Security
from toolexec.runtime.contract import NOBODY

"""The time, in microseconds, that a CPU quota is counted over."""
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - inside of a container, where it is a tmpfs of its own
"""Where a container has the memory that its processes share."""

_PAGE = 4096
_LARGEST_SIDE = 64 << 20


class ContainerSpecBuilder:
    """Makes a `ContainerSpec` part by part: each method changes the builder and returns it, `build` checks.

    What is not said stays as it is in `ContainerSpec`: no rights, no network, a read-only root.

    >>> ContainerSpecBuilder("python:3.12").command("python3", "-c", "print(1)").memory(256 << 20).build().image
    'python:3.12'
    """

    def __init__(self, image: str) -> None:
        self._spec = ContainerSpec(image=image, command=())

    def command(self, *words: str) -> Self:
        """Set the program and its arguments."""
        return self._with(command=words)

    def working_dir(self, path: str) -> Self:
        """Set where the program starts."""
        return self._with(working_dir=path)

    def env(self, name: str, value: str) -> Self:
        """Add an environment variable."""
        return self._with(env={**self._spec.env, name: value})

    def env_list(self, variables: Iterable[str]) -> Self:
        """Add environment variables, as strings `NAME=value`; raises InvalidRequestError for a text without `=`."""
        for variable in variables:
            name, sign, value = variable.partition("=")
            if not sign:
                raise InvalidRequestError(f"an environment variable must be NAME=value, not {variable[:100]!r}")
            self.env(name, value)
        return self

    def mount(self, mount: Mount) -> Self:
        """Add a mount."""
        return self._with(mounts=(*self._spec.mounts, mount))

    def bind_mount(self, source: str, target: str, *, read_only: bool = True) -> Self:
        """Add a directory or file of the host."""
        return self.mount(Mount(type="bind", source=source, target=target, read_only=read_only))

    def tmpfs(self, target: str, size_bytes: int) -> Self:
        """Add an empty directory in memory, for at most *size_bytes*."""
        return self.mount(Mount(type="tmpfs", target=target, size_bytes=size_bytes))

    def resources(self, resources: Resources) -> Self:
        """Set all bounds at once."""
        return self._with(resources=resources)

    def memory(self, size_bytes: int) -> Self:
        """Set the bound on memory, in bytes; see `Resources`."""
        return self.resources(replace(self._spec.resources, memory_bytes=size_bytes))

    def cpus(self, rate: float) -> Self:
        """Set the bound on CPU time per time: 1.5 is one and a half cores."""
        return self.resources(replace(self._spec.resources, cpus=rate))

    def pids(self, number: int) -> Self:
        """Set the bound on processes and threads."""
        return self.resources(replace(self._spec.resources, pids=number))

    def security(self, security: Security) -> Self:
        """Set all rights at once."""
        return self._with(security=security)

    def user(self, user: str) -> Self:
        """Set the user, and after a `:` the group, best in numbers."""
        return self.security(replace(self._spec.security, user=user))

    def read_only_root(self, read_only: bool = True) -> Self:
        """Set whether the root is read-only."""
        return self.security(replace(self._spec.security, read_only_root=read_only))

    def network(self, mode: Network) -> Self:
        """Set the network that it is on."""
        return self.security(replace(self._spec.security, network=mode))

    def no_network(self) -> Self:
        """Take the network away, which is the default."""
        return self.network("none")

    def seccomp(self, profile: str) -> Self:
        """Set the filter of system calls; see `Security`."""
        return self.security(replace(self._spec.security, seccomp=profile))

    def label(self, name: str, value: str) -> Self:
        """Add a label."""
        return self._with(labels={**self._spec.labels, name: value})

    def labels(self, labels: Mapping[str, str]) -> Self:
        """Add labels."""
        return self._with(labels={**self._spec.labels, **labels})

    def runtime(self, name: str) -> Self:
        """Set the OCI runtime, for engines that have several."""
        return self._with(runtime=name)

    def profile(self, name: str) -> Self:
        """Set the security profile whose rules hold; it sets nothing by itself."""
        return self._with(profile=name)

    def build(self) -> ContainerSpec:
        """Return the container; raises SandboxDeniedError or InvalidRequestError, see `check_spec`."""
        check_spec(self._spec)
        return self._spec

    def _with(self, **changes: Any) -> Self:
        self._spec = replace(self._spec, **changes)
        return self


def spec_for(
    *,
    image: str,
    command: tuple[str, ...],
    limits: Limits,
    profile: str,
    config: ContainerConfig,
    kind: str,
    env: Mapping[str, str] | None = None,
    runtime: str = "",
) -> ContainerSpec:
    """Return the container for one guest of the backend *kind*.

    Each of *limits* counts if it is set, else that of *config*. Under all profiles the code runs as user 65534, with no
    network and no rights; under `dev` the root can be written. `/work`, `/tmp` and `/dev/shm` are tmpfs, see
    `tmpfs_mounts`. What they hold is memory to the kernel: a container whose memory bound is smaller than its disk
    bound runs out of memory first. The labels say whose it is (`toolexec.owner`), and the profile and backend.

    Raises InvalidRequestError for an unknown profile, and as `check_spec` does.
    """
    if profile not in PROFILES:
        raise InvalidRequestError(f"unknown security profile {profile!r}; use {', '.join(PROFILES)}")
    ours = config.limits
    memory = limits.memory_bytes or ours.memory_bytes
    disk = limits.disk_bytes or ours.disk_bytes or memory or DEFAULT_LIMITS.disk_bytes
    spec = ContainerSpec(
        image=image,
        command=command,
        env={"HOME": WORK, **(env or {})},
        mounts=tmpfs_mounts(disk),
        resources=Resources(
            memory_bytes=memory,
            cpus=limits.cpus or ours.cpus,
            pids=limits.pids or ours.pids,
            disk_bytes=disk,
        ),
        security=Security(user=NOBODY, read_only_root=profile != "dev", network="none", seccomp=config.seccomp),
        labels={"runtime.profile": profile, "runtime.backend": kind, OWNER_LABEL: this_owner()},
        runtime=runtime,
        profile=profile,
    )
    check_spec(spec)
    return spec


def tmpfs_mounts(disk_bytes: int) -> tuple[Mount, ...]:
    """Return the directories that can be written, for *disk_bytes* in all.

    `/tmp` gets a quarter of the bound and `/dev/shm` a thirty-second, each 64 MiB at most, and `/work` the rest. The
    smallest of each is a page, as a tmpfs of size 0 would have no bound.
    """
    tmp = _pages(min(disk_bytes // 4, _LARGEST_SIDE))
    shared = _pages(min(disk_bytes // 32, _LARGEST_SIDE))
    work = _pages(disk_bytes - tmp - shared)
    return (
        Mount(type="tmpfs", target=WORK, size_bytes=work),
        Mount(type="tmpfs", target=TMP, size_bytes=tmp),
        Mount(type="tmpfs", target=SHARED_MEMORY, size_bytes=shared),
    )


def _pages(size: int) -> int:
    return max(_PAGE, size // _PAGE * _PAGE)
