"""What a Docker daemon that answers can do for sandboxes, read from what it says about itself. Pure."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from toolexec.containers import JSONObject
from toolexec.errors import SandboxUnavailableError
from toolexec.sandbox import Availability, LimitsEnforced, claim_resources
from toolexec_containers.docker.filters import has_filters
from toolexec_containers.docker.host import DockerHost, explain

Isolation: TypeAlias = Literal["container", "gvisor", "vm"]

_OLDEST: Final = (1, 41)
_SAID: Final = 1000
_NO_PROFILE: Final = re.compile(r"seccomp profile.*no such file")
_NO_RUNTIME: Final = re.compile(
    r"unknown (or invalid )?runtime|invalid runtime name|runtime \S+ not found|containerd-shim-"
    r"|unable to retrieve oci runtime error"  # which it would have reported, had it been started
)
_SHIM: Final = "io.containerd."


def isolation_of(runtime: str) -> Isolation:
    """Return what surrounds a container that the OCI runtime of this name runs."""
    name = runtime.rpartition("/")[2].removeprefix(_SHIM)
    return "gvisor" if name.startswith("runsc") else "vm" if name.startswith("kata") else "container"


def problem(info: JSONObject, runtime: str, *, version: str, podman: bool) -> Availability | None:
    """Return what keeps a daemon that answers from running our containers."""
    numbers = tuple(int(part) for part in version.split("."))
    if numbers < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        return Availability(
            ok=False,
            reason=f"the daemon speaks version {version} of Docker's API; {oldest} is needed",
            remedy="install Docker 20.10 or later, or Podman 4 or later",
        )
    if info.get("OSType", "linux") != "linux":
        return Availability(
            ok=False, reason=f"the daemon runs {info['OSType']} containers", remedy="switch it to Linux containers"
        )
    if podman:
        return _podmans_runtime(info, runtime)
    known: JSONObject = info.get("Runtimes") or {}
    if not runtime or runtime.startswith(_SHIM):  # a shim is looked for when it is used
        return None
    if runtime in known:
        return None
    there = ", ".join(sorted(known))
    return Availability(
        ok=False,
        reason=f"the daemon has no runtime {runtime!r}, only {there}",
        remedy=f'install {runtime}, name it in /etc/docker/daemon.json under "runtimes", and start the daemon again',
    )


def _podmans_runtime(info: JSONObject, runtime: str) -> Availability | None:
    """Podman says yes to any runtime that a container is to have, and runs it with its own."""
    there = str(info.get("DefaultRuntime") or "")
    if not runtime or runtime == there:
        return None
    return Availability(
        ok=False,
        reason=f"Podman runs containers with {there or 'its own runtime'} only, not with {runtime!r}",
        remedy=f"start its service with it: podman --runtime {runtime} system service",
    )


def _runtime_of(info: JSONObject, runtime: str) -> str:
    """Return the OCI runtime that is used when *runtime* is asked for."""
    return runtime or str(info.get("DefaultRuntime") or "")


def enforced(info: JSONObject, runtime: str) -> LimitsEnforced:
    """Return which limits hold, by what the daemon found in its kernel: in rootless mode without delegated control
    groups, none of those that need one.
    """
    return claim_resources(
        memory=bool(info.get("MemoryLimit")),
        cpu=True,
        cpus=bool(info.get("CpuCfsQuota")),
        pids=bool(info.get("PidsLimit")) and isolation_of(_runtime_of(info, runtime)) == "container",
        disk=True,
    )


def drops_of(info: JSONObject, runtime: str, *, filtered: bool = True) -> tuple[str, ...]:
    """Return what a guest has to give up by itself, as the daemon has no filter for it, or takes none of ours (not
    *filtered*); see `ContainerEngine.drops`."""
    if isolation_of(runtime) != "container":
        return ()
    if not has_filters(info):
        return ("landlock", "seccomp")
    return () if filtered else ("seccomp",)


def details_of(info: JSONObject, runtime: str, *, podman: bool) -> dict[str, str]:
    """Return what a result can say about the daemon."""
    return {
        "engine": "podman" if podman else "docker",
        "server": str(info.get("ServerVersion") or ""),
        "storage": str(info.get("Driver") or ""),
        "runtime": _runtime_of(info, runtime),
        "isolation": isolation_of(runtime),
    }


def not_started(error: Exception, host: DockerHost, image: str, runtime: str) -> SandboxUnavailableError:
    """Return why a container of *image* could not be made, attached to or started, and what to do about it."""
    details = {"image": image}
    if isinstance(error, SandboxUnavailableError):
        return error
    if isinstance(error, OSError):
        return SandboxUnavailableError("; ".join(explain(host, error)), details=details)
    said = str(getattr(error, "message", "") or error)[:_SAID]
    low = said.lower()
    if "no such image" in low or "image not known" in low:
        text = f"the image {image} is not there any more: {said}; fetch it, or build it, again"
    elif host.path and _NO_PROFILE.search(low):
        text = (
            f"{host.path} leads to a Podman of another machine, which takes filters only from its own files: {said}; "
        )
        text += "copy that file from here to the same path there"
    elif _NO_RUNTIME.search(low):
        text = f"the daemon has no runtime {runtime or 'of its own'!r} that runs: {said}; install it, and name it right"
    elif "executable file not found" in low or "no such file or directory" in low:
        text = f"the image {image} lacks what a sandbox needs (python3): {said}; use one that has Python 3.9 or later"
    else:
        text = f"no container of the image {image} can be started: {said}"
    return SandboxUnavailableError(text, details=details)


def why_lost(error: Exception, host: DockerHost) -> str:
    """Return why it is not known how a container ended that the daemon at *host* was asked about."""
    if isinstance(error, OSError):
        return "; ".join(explain(host, error))
    if getattr(error, "status", 0) == 404:
        return "somebody else has removed the container"
    return f"the Docker daemon does not say how it ended: {error}"
