"""All sandboxes that there are, set up together: what an `Exec` uses that brings none of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolexec.errors import ConfigurationError, ToolExecError, UnsupportedPlatformError
from toolexec.errors.extras import unix_needed
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.settings import check_ranges, checked, unknown_setting
from toolexec.run.run_request import PROFILES
from toolexec.runtime.base import SandboxBackend, judged_kind
from toolexec.runtime.kinds import KINDS, SANDBOXES, installed_kinds, plugin_of
from toolexec.runtime.plugin import REMOVED, SandboxContext, SandboxPlugin
from toolexec.runtime.router import Runtime

if TYPE_CHECKING:
    from toolexec.runtime.egress.policy import Egress
    from toolexec.runtime.remote.proxmox.settings import ProxmoxSettings
    from toolexec.runtime.remote.settings import RemoteSettings

__all__ = ["SANDBOXES", "RuntimeBackends", "SandboxSettings", "make_runtime", "make_sandbox", "settings_of"]

RuntimeBackends: TypeAlias = Sequence[SandboxBackend] | Mapping[str, SandboxBackend | Sequence[SandboxBackend]]
"""Sandboxes: a list, or by profile."""


@checked("SandboxSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Which sandboxes there are, and how they are set up.

    `use` names the kinds that may be used, the preferred one first; empty means all, in the order of each profile, but
    for experimental ones (`firecracker`, `kata`). These, `temporal`, and those of plugins (entry points of the group
    `toolexec.sandboxes`), are used only when they are named here. `temporal` is what that kind needs: `inner`, the kind
    of sandbox that its workers have (default: wasm), and the fields of `TemporalSettings`.
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
    sandbox `remote`, and no `proxmox_lxc`. `plugins` has the settings of kinds that other distributions have, by kind.

    Raises ConfigurationError for an unknown kind, in `use` or in `plugins`.
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
    plugins: Mapping[str, JSONObject] = field(default_factory=dict[str, JSONObject])

    def __post_init__(self) -> None:
        check_ranges("sandboxes", above={"max_running": self.max_running}, least={"warm": self.warm})
        ours = sorted({*self.plugins} & {*KINDS})
        if ours:
            raise ConfigurationError(f"the sandbox {ours[0]} is of toolexec: its settings have names of their own")
        unknown = sorted({*self.use, *self.plugins} - {*KINDS})
        plugins = installed_kinds() if unknown else []
        unknown = [kind for kind in unknown if kind not in plugins]
        if unknown:
            known = [*dict.fromkeys([*KINDS, *plugins])]
            hint = REMOVED.get(unknown[0]) or did_you_mean(unknown[0], known, otherwise=f"use {', '.join(known)}")
            raise ConfigurationError(f"there is no sandbox {', '.join(unknown)}; {hint}")

    def shared(self) -> JSONDict:
        """Return the settings that all container sandboxes have, by the names of `ContainerConfig`."""
        image = {"image": self.image} if self.image else {}
        return {**image, "warm": self.warm, "max_running": self.max_running, "egress": self.egress}


def make_runtime(settings: SandboxSettings | None = None) -> Runtime:
    """Return a runtime with the sandboxes of *settings* (default: all there are, but for experimental ones). Nothing is
    started or looked for yet.

    Raises ConfigurationError, as for `remote` or `proxmox_lxc` without settings of its own, and
    UnsupportedPlatformError for a kind in `use` that this operating system cannot have.
    """
    settings = settings or SandboxSettings()
    if settings.use:
        backends = [make_sandbox(kind, settings) for kind in settings.use]
        order = {
            profile: [backend.kind for backend in backends if profile in plugin_of(judged_kind(backend)).profiles]
            for profile in PROFILES
        }
        return Runtime(backends, order=order, route_by_needs=settings.route_by_needs)
    backends = []
    for kind in SANDBOXES:
        plugin = plugin_of(kind)
        if plugin.experimental:  # never measured: no profile chooses it by itself
            continue
        try:
            with unix_needed(f"the sandbox {kind}"):
                own = settings_of(kind, settings)
                if own is not None:
                    backends.append(_make(plugin, own, settings))
        except UnsupportedPlatformError:  # those that work here are left
            continue
    return Runtime(backends, route_by_needs=settings.route_by_needs)


def make_sandbox(kind: str, settings: SandboxSettings) -> SandboxBackend:
    """Return the sandbox of one kind; raises as `make_runtime` does."""
    with unix_needed(f"the sandbox {kind}"):
        return _make(plugin_of(kind), settings_of(kind, settings), settings)


def settings_of(kind: str, settings: SandboxSettings) -> Any:
    """Return how the sandbox of one kind is set up under *settings*, as `SandboxPlugin.settings` has it; None for one
    that is not set up. Raises ConfigurationError for settings that it refuses.
    """
    plugin = plugin_of(kind)
    if plugin.read is not None:
        return plugin.read(settings)
    made = plugin.settings_class()
    names = [each.name for each in fields(made)] if is_dataclass(made) else [*getattr(made, "model_fields", ())]
    own = settings.plugins.get(kind, {})
    for name in own:
        if name not in names:
            raise unknown_setting(f"the sandbox {kind}", name, names)
    shared = {name: value for name, value in settings.shared().items() if name in names}
    try:
        return made(**{**shared, **own})
    except ToolExecError:
        raise
    except Exception as error:  # which may quote a secret, and is not kept as the cause for that
        raise ConfigurationError(f"the settings of the sandbox {kind} are wrong: {_wrong_settings(error)}") from None


def _wrong_settings(error: Exception) -> str:
    """Return what is wrong with settings, without their values where pydantic says it."""
    listed = getattr(error, "errors", None)
    if not callable(listed):
        return f"{type(error).__name__}: {error}"
    found: Any = listed(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found)


def _make(plugin: SandboxPlugin, own: object, settings: SandboxSettings) -> SandboxBackend:
    """Return the sandbox of a plugin. Raises ConfigurationError for a plugin that is broken."""
    kind = plugin.kind
    context = SandboxContext(
        image=settings.image,
        warm=settings.warm,
        max_running=settings.max_running,
        egress=settings.egress,
        make=partial(make_sandbox, settings=settings),
    )
    if kind in KINDS:
        return plugin.make(own, context)
    try:
        made: object = plugin.make(own, context)
    except ToolExecError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"the plugin for the sandbox {kind} failed: {type(error).__name__}: {str(error)[:1000]}"
        ) from error
    if not isinstance(made, SandboxBackend) or made.kind != kind:
        raise ConfigurationError(
            f"the plugin for the sandbox {kind} made {type(made).__name__}, which is not a sandbox of that kind"
        )
    return made
