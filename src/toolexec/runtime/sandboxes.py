"""All sandboxes of toolexec, set up together: what an `Exec` uses that brings none of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from toolexec.backend.plugins import SANDBOXES as PLUGINS
from toolexec.backend.plugins import load_plugin, plugin_names
from toolexec.errors import ConfigurationError, UnsupportedPlatformError
from toolexec.errors.extras import unix_needed
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.settings import check_ranges, checked
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.router import CANDIDATES, Runtime

if TYPE_CHECKING:
    from toolexec.runtime.containers.kubernetes.config import KubernetesConfig
    from toolexec.runtime.containers.microvm.machine import VmmName
    from toolexec.runtime.egress.policy import Egress
    from toolexec.runtime.remote.proxmox.settings import ProxmoxSettings
    from toolexec.runtime.remote.settings import RemoteSettings

__all__ = ["SANDBOXES", "RuntimeBackends", "SandboxSettings", "kubernetes_config", "make_runtime", "make_sandbox"]

RuntimeBackends: TypeAlias = Sequence[SandboxBackend] | Mapping[str, SandboxBackend | Sequence[SandboxBackend]]
"""Sandboxes: a list, or by profile."""

SANDBOXES: Final = (
    "wasm",
    "bubblewrap",
    "docker",
    "containerd",
    "gvisor",
    "kata",
    "firecracker",
    "kubernetes",
    "qemu",
    "libkrun",
    "proxmox_lxc",
    "remote",
    "unsafe_host",
)
"""Every kind of sandbox that is used without being named."""
_BY_SETTINGS: Final = {"proxmox_lxc": "proxmox", "remote": "remote"}
"""Kinds that are there only with settings of their own, and the field of those."""
_ELSEWHERE: Final = {"temporal": "toolexec.durable.temporal.sandboxes"}
"""Kinds that have another one do the work, and where they are made; they are used only when they are named."""


@checked("SandboxSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Which sandboxes there are, and how they are set up.

    `use` names the kinds that may be used, the preferred one first; empty means all, in the order of each profile.
    `temporal`, and those of plugins (entry points of the group `toolexec.sandboxes`), are used only when they are named
    here. `temporal` is what the former needs: `inner`, the kind of sandbox that its workers have (default: wasm), and
    the fields of `TemporalSettings`.
    `image` is what container sandboxes run programs in ("" for the default of each), `warm` how many guests each keeps
    started, `max_running` how many programs each runs at once, `egress` which hosts code may reach (None: none).
    `wasm_workers` is how many processes run Python of the embedded sandbox beside this one when several programs run at
    once: `auto`, or 0 for none (see `WasmConfig`).
    `vm_image` is what virtual machines boot ("" for the default), and `vm_accelerator` what runs them: `kvm`, `tcg` or
    `auto` (see `MicrovmConfig`). A machine that is not named in `use` runs with `kvm` only.
    `bwrap`, `runsc`, `qemu` and `firecracker` are paths of the programs, `docker_host` and `containerd_address` where
    the daemons listen, `docker_runtime` the runtime that Docker uses (`runsc` makes it gVisor); "" for the usual ones.
    `kubeconfig` and all that begin with `kube_` are for the cluster; see `KubernetesConfig`. With `route_by_needs` a
    Python program that imports a package, or starts processes, goes to the first sandbox of its profile that has them.
    `remote` says where remote runtimes are, `proxmox` which containers of Proxmox VE run code: without them there is no
    sandbox `remote`, and no `proxmox_lxc`.

    Raises ConfigurationError for an unknown kind.
    """

    use: tuple[str, ...] = ()
    image: str = ""
    warm: int = 0
    max_running: int = 32
    egress: Egress | None = None
    temporal: JSONObject = field(default_factory=JSONDict)
    wasm_workers: int | Literal["auto"] = "auto"
    bwrap: str = ""
    runsc: str = ""
    qemu: str = ""
    firecracker: str = ""
    vm_image: str = ""
    vm_accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    docker_host: str = ""
    docker_runtime: str = ""
    containerd_address: str = ""
    kubeconfig: str = ""
    kube_context: str = ""
    kube_namespace: str = ""
    kube_runtime_class: str = ""
    kube_service_account: str = ""
    kube_node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    kube_tolerations: Sequence[Mapping[str, Any]] = ()
    kube_pull_secrets: Sequence[str] = ()
    kube_jobs: bool = False
    kube_network: Literal["require", "report"] = "require"
    route_by_needs: bool = False
    remote: RemoteSettings | None = None
    proxmox: ProxmoxSettings | None = None

    def __post_init__(self) -> None:
        check_ranges("sandboxes", above={"max_running": self.max_running}, least={"warm": self.warm})
        unknown = sorted({*self.use} - {*SANDBOXES, *_ELSEWHERE})
        plugins = plugin_names(PLUGINS) if unknown else []
        unknown = [kind for kind in unknown if kind not in plugins]
        if unknown:
            known = [*SANDBOXES, *_ELSEWHERE, *plugins]
            hint = did_you_mean(unknown[0], known, otherwise=f"use {', '.join(known)}")
            raise ConfigurationError(f"there is no sandbox {', '.join(unknown)}; {hint}")


def make_runtime(settings: SandboxSettings | None = None) -> Runtime:
    """Return a runtime with the sandboxes of *settings* (default: all there are). Nothing is started or looked for yet.

    Raises ConfigurationError, as for `remote` or `proxmox_lxc` without settings of its own, and
    UnsupportedPlatformError for a kind in `use` that this operating system cannot have.
    """
    settings = settings or SandboxSettings()
    order = {
        profile: [
            kind
            for kind in settings.use
            if _underneath(kind, settings) in kinds or kind not in (*SANDBOXES, *_ELSEWHERE)
        ]
        for profile, kinds in CANDIDATES.items()
    }
    kinds = settings.use or [kind for kind in SANDBOXES if _is_set_up(kind, settings)]
    backends: list[SandboxBackend] = []
    for kind in kinds:
        try:
            with unix_needed(f"the sandbox {kind}"):
                backends.append(make_sandbox(kind, settings))
        except UnsupportedPlatformError:  # those that work here are left
            if settings.use:
                raise
    return Runtime(backends, order=order if settings.use else None, route_by_needs=settings.route_by_needs)


def _is_set_up(kind: str, settings: SandboxSettings) -> bool:
    return kind not in _BY_SETTINGS or getattr(settings, _BY_SETTINGS[kind]) is not None


def _underneath(kind: str, settings: SandboxSettings) -> str:
    """The kind of sandbox that runs the code in the end."""
    if kind == "temporal":
        return str(settings.temporal.get("inner", "wasm"))
    if kind == "proxmox_lxc" and settings.proxmox is not None:
        return settings.proxmox.sandbox
    return settings.remote.sandbox if kind == "remote" and settings.remote is not None else kind


def make_sandbox(kind: str, settings: SandboxSettings) -> SandboxBackend:
    """Return the sandbox of one kind; raises as `make_runtime` does."""
    if kind in _MAKERS:
        return _MAKERS[kind](settings)
    if kind in _ELSEWHERE:
        made: SandboxBackend = import_module(_ELSEWHERE[kind]).make(settings)
        return made
    return _of_plugin(kind, settings)


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


def _wasm(settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.wasm.backend import WasmBackend

    return WasmBackend(workers=settings.wasm_workers)


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


def _microvm(vmm: VmmName, settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.containers.microvm import MicrovmBackend, MicrovmConfig
    from toolexec.runtime.containers.microvm.config import DEFAULT_VM_IMAGE

    shared: JSONDict = {**_shared(settings), "image": settings.vm_image or DEFAULT_VM_IMAGE}
    accelerator = settings.vm_accelerator if vmm in settings.use else "kvm"  # a slow one is never a surprise
    if vmm != "qemu" and accelerator == "tcg":  # which is QEMU's alone
        accelerator = "kvm"
    program = {"qemu": settings.qemu, "firecracker": settings.firecracker}.get(vmm, "")
    return MicrovmBackend(MicrovmConfig(**shared, vmm=vmm, program=program, accelerator=accelerator))


def _kubernetes(settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.containers.kubernetes import KubernetesBackend

    return KubernetesBackend(kubernetes_config(settings))


def kubernetes_config(settings: SandboxSettings) -> KubernetesConfig:
    """Return how the kubernetes sandbox of *settings* is set up."""
    from toolexec.runtime.containers.kubernetes.config import KubernetesConfig

    return KubernetesConfig(
        **_shared(settings),
        kubeconfig=settings.kubeconfig,
        context=settings.kube_context,
        namespace=settings.kube_namespace,
        runtime_class=settings.kube_runtime_class,
        service_account=settings.kube_service_account,
        node_selector=settings.kube_node_selector,
        tolerations=settings.kube_tolerations,
        pull_secrets=settings.kube_pull_secrets,
        jobs=settings.kube_jobs,
        network=settings.kube_network,
    )


def _remote(settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.remote.backend import RemoteBackend

    if settings.remote is None:
        raise ConfigurationError(
            "the sandbox remote needs to know where its servers are: set sandboxes.remote.endpoints"
        )
    return RemoteBackend(settings.remote)


def _proxmox(settings: SandboxSettings) -> SandboxBackend:
    from toolexec.runtime.remote.proxmox.backend import ProxmoxBackend

    if settings.proxmox is None:
        raise ConfigurationError(
            "the sandbox proxmox_lxc needs to know where Proxmox VE is: set sandboxes.proxmox.url, node, and vmid or "
            "template"
        )
    return ProxmoxBackend(settings.proxmox)


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
    "firecracker": partial(_microvm, "firecracker"),
    "qemu": partial(_microvm, "qemu"),
    "libkrun": partial(_microvm, "libkrun"),
    "kubernetes": _kubernetes,
    "proxmox_lxc": _proxmox,
    "remote": _remote,
    "unsafe_host": _unsafe,
}
