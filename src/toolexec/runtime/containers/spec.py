"""What a container is to be: image, command, mounts, resources and rights. Data only; `builder` makes and checks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from toolexec.runtime.contract import NOBODY, OPEN_FILES

MountType: TypeAlias = Literal["bind", "volume", "tmpfs"]
Network: TypeAlias = Literal["none", "bridge", "host"]

WORK: Final = "/work"
"""The private working directory of the code, on a tmpfs."""
TMP: Final = "/tmp"  # noqa: S108 - inside of a container, where it is a tmpfs of its own

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs in it are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Something at *target* in the container. `source` is a path or the name of a volume; a tmpfs has `size_bytes`."""

    type: MountType
    target: str
    source: str = ""
    read_only: bool = False
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """How much of the machine a container gets; 0 means no bound.

    `memory_bytes` includes swap: there is none beyond it. `cpus` is a rate (1.5 is one and a half cores). `disk_bytes`
    is what all its tmpfs mounts may hold together. `open_files` is the bound of each process.
    """

    memory_bytes: int = 0
    cpus: float = 0
    pids: int = 0
    disk_bytes: int = 0
    open_files: int = OPEN_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a container may do: by default as little as there is.

    `seccomp` is "default" (our own filter, or that of an engine which takes no other) or the path of a profile in
    Docker's JSON format.
    """

    user: str = NOBODY
    read_only_root: bool = True
    network: Network = "none"
    seccomp: str = "default"
    privileged: bool = False
    no_new_privileges: bool = True
    keep_capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container: `image` is a name that its engine can resolve, `command` what runs in it with pipes as its stdio.

    `labels` say whose it is. `runtime` names the OCI runtime, for engines that have several. `seconds` is how long it
    may live at most, for engines that end containers whose host is gone; 0 means as long as it likes.
    """

    image: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    working_dir: str = WORK
    mounts: tuple[Mount, ...] = ()
    resources: Resources = field(default_factory=Resources)
    security: Security = field(default_factory=Security)
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    runtime: str = ""
    profile: str = "standard"
    seconds: int = 0
