"""All sandboxes of toolexec, set up together: what an `Exec` uses that brings none of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from toolexec.backend.plugins import SANDBOXES as PLUGINS
from toolexec.backend.plugins import load_plugin, plugin_names
from toolexec.errors import ConfigurationError, UnsupportedPlatformError
from toolexec.errors.extras import unix_needed
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict
from toolexec.model.settings import checked
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.router import CANDIDATES, Runtime

if TYPE_CHECKING:
    from toolexec.runtime.egress.policy import Egress

__all__ = ["SANDBOXES", "RuntimeBackends", "SandboxSettings", "make_runtime"]

RuntimeBackends: TypeAlias = Sequence[SandboxBackend] | Mapping[str, SandboxBackend | Sequence[SandboxBackend]]
"""Sandboxes: a list, or by profile."""

SANDBOXES: Final = ("wasm", "bubblewrap", "docker", "containerd", "gvisor", "kata", "unsafe_host")
"""Every kind of sandbox that there is."""


@checked("SandboxSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Which sandboxes there are, and how they are set up.

    `use` names the kinds that may be used, the preferred one first; empty means all, in the order of each profile.
    Those of plugins (entry points of the group `toolexec.sandboxes`) are used only when they are named here.
    `image` is what container sandboxes run programs in ("" for the default of each), `warm` how many guests each keeps
    started, `max_running` how many programs each runs at once, `egress` which hosts code may reach (None: none).
    `bwrap` and `runsc` are paths of the programs, `docker_host` and `containerd_address` where the daemons listen,
    `docker_runtime` the runtime that Docker uses (`runsc` makes it gVisor); "" for the usual ones. With
    `route_by_needs` a Python program that imports a package, or starts processes, goes to the first sandbox of its
    profile that has them.

    Raises ConfigurationError for an unknown kind.
    """

    use: tuple[str, ...] = ()
    image: str = ""
    warm: int = 0
    max_running: int = 32
    egress: Egress | None = None
    bwrap: str = ""
    runsc: str = ""
    docker_host: str = ""
    docker_runtime: str = ""
    containerd_address: str = ""
    route_by_needs: bool = False

    def __post_init__(self) -> None:
        unknown = sorted({*self.use} - {*SANDBOXES})
        plugins = plugin_names(PLUGINS) if unknown else []
        unknown = [kind for kind in unknown if kind not in plugins]
        if unknown:
            known = [*SANDBOXES, *plugins]
            hint = did_you_mean(unknown[0], known, otherwise=f"use {', '.join(known)}")
            raise ConfigurationError(f"there is no sandbox {', '.join(unknown)}; {hint}")


def make_runtime(settings: SandboxSettings | None = None) -> Runtime:
    """Return a runtime with the sandboxes of *settings* (default: all there are). Nothing is started or looked for yet.

    Raises ConfigurationError, and UnsupportedPlatformError for a kind in `use` that this operating system cannot have.
    """
    settings = settings or SandboxSettings()
    order = {
        profile: [kind for kind in settings.use if kind in kinds or kind not in SANDBOXES]
        for profile, kinds in CANDIDATES.items()
    }
    kinds = settings.use or SANDBOXES
    backends: list[SandboxBackend] = []
    for kind in kinds:
        try:
            with unix_needed(f"the sandbox {kind}"):
                backends.append(_MAKERS[kind](settings) if kind in _MAKERS else _of_plugin(kind, settings))
        except UnsupportedPlatformError:  # those that work here are left
            if settings.use:
                raise
    return Runtime(backends, order=order if settings.use else None, route_by_needs=settings.route_by_needs)


def _of_plugin(kind: str, settings: SandboxSettings) -> SandboxBackend:
    """Return the sandbox that a plugin makes. Raises ConfigurationError for one that is broken."""
    try:
        backend = load_plugin(PLUGINS, kind)(settings)
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"the plugin for the sandbox {kind} failed: {type(error).__name__}: {error}"
        ) from error
    if getattr(backend, "kind", None) != kind:
        raise ConfigurationError(f"the plugin for the sandbox {kind} made something that is not a sandbox of that kind")
    return backend


def _shared(settings: SandboxSettings) -> JSONDict:
    """The settings of all container sandboxes."""
    image = {"image": settings.image} if settings.image else {}
    return {**image, "warm": settings.warm, "max_running": settings.max_running, "egress": settings.egress}


def _wasm(_: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.wasm.backend import WasmBackend

    return WasmBackend()


def _bubblewrap(settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig

    return BubblewrapBackend(BubblewrapConfig(**_shared(settings), bwrap=settings.bwrap))


def _docker(settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.containers.docker import DockerBackend, DockerConfig

    return DockerBackend(DockerConfig(**_shared(settings), host=settings.docker_host, runtime=settings.docker_runtime))


def _containerd(settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.containers.containerd import ContainerdBackend, ContainerdConfig

    return ContainerdBackend(ContainerdConfig(**_shared(settings), address=settings.containerd_address))


def _gvisor(settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.containers.gvisor import GvisorBackend, GvisorConfig

    return GvisorBackend(GvisorConfig(**_shared(settings), runsc=settings.runsc))


def _kata(settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.containers.kata import KataBackend, KataConfig

    return KataBackend(KataConfig(**_shared(settings), address=settings.containerd_address))


def _unsafe(_: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.unsafe_host.backend import UnsafeHostBackend

    return UnsafeHostBackend()


_MAKERS: Final[Mapping[str, Callable[[SandboxSettings], SandboxBackend]]] = {
    "wasm": _wasm,
    "bubblewrap": _bubblewrap,
    "docker": _docker,
    "containerd": _containerd,
    "gvisor": _gvisor,
    "kata": _kata,
    "unsafe_host": _unsafe,
}
