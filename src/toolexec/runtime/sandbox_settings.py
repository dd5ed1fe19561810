"""Which sandboxes there are, and how they are set up: declared apart from what makes them, as files have it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.declared import FileName, about, setting
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.settings import checked
from toolexec.runtime.kinds import ELSEWHERE, KINDS, PACKAGED, RELAYED, WITH_KEYS, installed_kinds
from toolexec.runtime.plugin import REMOVED

if TYPE_CHECKING:
    from toolexec.runtime.egress.policy import Egress
    from toolexec.runtime.remote.proxmox_settings import ProxmoxSettings
    from toolexec.runtime.remote.settings import RemoteSettings


@checked("SandboxSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Which sandboxes there are, and how they are set up.

    `use` names the kinds that may be used, the preferred one first; empty means all, in the order of each profile, but
    for experimental ones (`firecracker`, `kata`) that no check on this machine has measured. These, those that have
    workers elsewhere run code (`temporal`), and those of plugins (entry points of the group `toolexec.sandboxes`), are
    used only when they are named here.
    `image` is what container sandboxes run programs in ("" for the default of each), `warm` how many guests each keeps
    started, `max_running` how many programs each runs at once, `egress` which hosts code may reach (None: none).
    `wasm_workers` is how many processes run Python of the embedded sandbox beside this one when several programs run at
    once: `auto`, or 0 for none (see `WasmConfig`).
    `vm_image` is what virtual machines boot ("" for the default), and `vm_accelerator` what runs them: `kvm`, `tcg` or
    `auto` (see `MicrovmConfig`). A machine that is not named in `use` runs with `kvm` only. `vm_memory_reserve` is how
    many MiB of the host's memory machines leave free: those that would not fit beside it wait, within their time limit.
    `bwrap`, `runsc`, `qemu` and `firecracker` are paths of the programs, `docker_host` and `containerd_address` where
    the daemons listen, `docker_runtime` the runtime that Docker uses (`runsc` makes it gVisor); "" for the usual ones.
    With `route_by_needs` a Python program that imports a package, or starts processes, goes to the first sandbox of its
    profile that has them.
    `remote` says where remote runtimes are, `proxmox` which containers of Proxmox VE run code: without them there is no
    sandbox `remote`, and no `proxmox_lxc`. `plugins` has the settings of kinds that packages beside toolexec, and other
    distributions, have, by kind.

    Raises ConfigurationError for an unknown kind, in `use` or in `plugins`.
    """

    use: tuple[str, ...] = setting(
        (),
        "The kinds to use, preferred first; empty: all but temporal and unchecked experimental ones.",
    )
    image: str = setting("", "The image of container sandboxes; empty: each one's own default.")
    warm: int = setting(0, "Guests that each sandbox keeps started, for each way to run code.", least=0, file_most=100)
    max_running: int = setting(32, "Most programs that each container sandbox runs at once.", least=1)
    wasm_workers: int | Literal["auto"] = setting(
        "auto", "Processes for Python in the embedded sandbox when programs run at once; auto: one for each core."
    )
    bwrap: FileName = setting("", "The program bwrap; empty: the one on the PATH.")
    runsc: FileName = setting("", "The program runsc, which is gVisor; empty: the one on the PATH.")
    qemu: FileName = setting("", "The program qemu-system-x86_64; empty: the one on the PATH.")
    firecracker: FileName = setting("", "The program firecracker; empty: the one on the PATH.")
    vm_image: str = setting("", "The image of virtual machines (toolexec image build --kind vm); empty: toolexec-vm.")
    vm_accelerator: Literal["auto", "kvm", "tcg"] = setting(
        "auto", "What runs virtual machines: kvm, or tcg, which is slow software; auto: kvm where it works."
    )
    vm_memory_reserve: int = setting(
        256,
        "MiB of host memory that virtual machines leave free; machines that do not fit wait.",
        least=0,
    )
    docker_host: str = setting("", "Address of Docker or Podman: unix:///var/run/docker.sock.")
    docker_runtime: str = setting("", "The runtime that Docker uses: runsc makes its containers gVisor's.")
    containerd_address: str = setting("", "The socket of containerd; empty: the usual one.")
    route_by_needs: bool = setting(
        False, "Run Python that imports packages or starts processes in a sandbox that has them."
    )
    egress: Egress | None = setting(None, "Hosts that code in containers may reach: api.example.com.")
    plugins: Mapping[str, JSONObject] = field(
        default_factory=dict[str, JSONObject],
        repr=False,  # there may be secrets
        metadata=about("Settings of sandboxes of packages and plugins: kind, and what that kind takes."),
    )
    remote: RemoteSettings | None = None
    proxmox: ProxmoxSettings | None = None

    def __post_init__(self) -> None:
        ours = sorted({*self.plugins} & ({*KINDS} - {*PACKAGED, *RELAYED} | {*ELSEWHERE, *WITH_KEYS}))
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
