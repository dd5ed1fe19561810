"""A container spec as Docker's API wants it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from toolexec.containers import (
    CORE_BYTES,
    COVERED,
    CPU_PERIOD,
    HOSTNAME,
    MASKED,
    OWNER_LABEL,
    READ_ONLY,
    SHARED_MEMORY,
    WORK,
    JSONDict,
    Mount,
    cpu_quota,
    this_owner,
)
from toolexec.errors import SandboxDeniedError
from toolexec.sandbox import ContainerSpec
from toolexec_containers.docker.checks import isolation_of

_LEAST_SHM: Final = 1 << 20
_FIRST_TO_DIE: Final = 500
_SENTRY_THREADS: Final = 128
"""What gVisor's kernel has of its own, which counts where the processes in it count."""
_PODMANS_OWN: Final = frozenset({"/run", "/var/tmp"})  # noqa: S108 - inside of a container
"""Where Podman mounts tmpfs without a bound when the root is read-only."""


def create_body(
    image: str,
    spec: ContainerSpec,
    *,
    runtime: str = "",
    seccomp: str = "",
    volumes: Collection[str] = (),
    podman: bool = False,
) -> JSONDict:
    """Return the request that makes the container of *spec* from *image*.

    *runtime* is used when the spec names none, "" is the daemon's own. *seccomp* is what `seccomp_option` gives.
    *volumes* are the paths that the image wants volumes for: they are empty and cannot be written to. Podman (*podman*)
    has its own ways with a tmpfs, takes bounds of single processes from its configuration only, has no choice of
    runtimes, and hides paths beside those that it always hides.

    Raises SandboxDeniedError for a spec that would let code out: no spec of ours does that.
    """
    _refuse(spec)
    security = spec.security
    return {
        "Image": image,
        # The image's own entry point would get our command as its arguments.
        "Entrypoint": [spec.command[0]],
        "Cmd": list(spec.command[1:]),
        "Env": [f"{name}={value}" for name, value in spec.env.items()],
        "User": security.user,
        "WorkingDir": spec.working_dir,
        "Hostname": HOSTNAME,
        "Labels": {OWNER_LABEL: this_owner()} | dict(spec.labels),
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "NetworkDisabled": security.network == "none",
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(spec, runtime, seccomp, volumes, podman=podman),
    }


def _host_config(
    spec: ContainerSpec, runtime: str, seccomp: str, volumes: Collection[str], *, podman: bool
) -> JSONDict:
    security, resources = spec.security, spec.resources
    hidden = [*(f"/proc/{name}" for name in MASKED), *COVERED]
    own = {mount.target for mount in spec.mounts}
    config: JSONDict = {
        "ReadonlyRootfs": security.read_only_root,
        "Tmpfs": {
            mount.target: _tmpfs(mount, security.user, podman=podman)
            for mount in spec.mounts
            if mount.target != SHARED_MEMORY
        },
        "Mounts": [
            {"Type": "tmpfs", "Target": path, "ReadOnly": True, "TmpfsOptions": {"SizeBytes": 4096, "Mode": 0o555}}
            for path in sorted(volumes)
            if path not in own
        ],
        "ShmSize": next((mount.size_bytes for mount in spec.mounts if mount.target == SHARED_MEMORY), 0) or _LEAST_SHM,
        "CapDrop": ["ALL"],
        "CapAdd": list(security.keep_capabilities),
        "SecurityOpt": [
            *(["no-new-privileges"] if security.no_new_privileges else []),
            *([f"seccomp={seccomp}"] if seccomp else []),
            *([f"mask={':'.join(hidden)}"] if podman else []),
        ],
        "Privileged": False,
        "NetworkMode": security.network,
        "IpcMode": "private",
        # The log is not read: output is received as it is written.
        "LogConfig": {"Type": "none"},
        "OomScoreAdj": _FIRST_TO_DIE,
    }
    if not podman:  # whose read-only paths are among those that it always bars
        config["MaskedPaths"] = hidden
        config["ReadonlyPaths"] = [f"/proc/{name}" for name in READ_ONLY]
    if not podman:  # which would no longer apply the operator's own to those that are not named here
        config["Ulimits"] = [_ulimit("core", CORE_BYTES)]
        if resources.open_files:
            config["Ulimits"].append(_ulimit("nofile", resources.open_files))
    if resources.memory_bytes:
        config["Memory"] = config["MemorySwap"] = resources.memory_bytes
    if resources.cpus:
        # `NanoCpus` would be refused for more than the machine has.
        config["CpuPeriod"] = CPU_PERIOD
        config["CpuQuota"] = cpu_quota(resources.cpus)
    if resources.pids:
        gvisor = isolation_of(spec.runtime or runtime) == "gvisor"
        config["PidsLimit"] = resources.pids + (_SENTRY_THREADS if gvisor else 0)
    if (spec.runtime or runtime) and not podman:  # which would take no notice of it
        config["Runtime"] = spec.runtime or runtime
    if podman and security.read_only_root:
        for path in _PODMANS_OWN - own:
            config["Tmpfs"][path] = "ro,nosuid,nodev,size=4096,mode=0555"
    return config


def _tmpfs(mount: Mount, user: str, *, podman: bool) -> str:
    options = ["ro" if mount.read_only else "rw", "nosuid", "nodev", "exec"]
    if mount.size_bytes:
        options.append(f"size={mount.size_bytes}")
    uid, _, gid = user.partition(":")
    if mount.target == WORK and podman:
        options += ["mode=0700", "U"]  # its user's; a number it does not take
    elif mount.target == WORK and uid.isdecimal():
        options += ["mode=0700", f"uid={uid}", f"gid={gid if gid.isdecimal() else uid}"]
    else:
        options.append("mode=1777")
    return ",".join(options)


def _ulimit(name: str, value: int) -> JSONDict:
    return {"Name": name, "Soft": value, "Hard": value}


def _refuse(spec: ContainerSpec) -> None:
    """Refuse a forbidden spec. Its maker has checked this before; this last gate must hold by itself."""
    if spec.security.privileged:
        raise SandboxDeniedError("a sandbox is never privileged")
    if spec.security.network == "host":
        raise SandboxDeniedError("a sandbox never has the network of the host")
    bound = [mount.target for mount in spec.mounts if mount.type != "tmpfs"]
    if bound:
        raise SandboxDeniedError(
            f"a Docker sandbox has no files of the host, yet {', '.join(bound)} is to be one; hand over files"
        )
