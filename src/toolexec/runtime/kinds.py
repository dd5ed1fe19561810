"""Which kinds of sandbox there are: those of toolexec, by where each is described or by the package that has it, and
those of other distributions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pkgutil import resolve_name
from typing import Final

from toolexec.backend.plugins import JOURNALS, PACKAGES, load_kind, plugin_names
from toolexec.backend.plugins import SANDBOXES as GROUP
from toolexec.errors import ConfigurationError
from toolexec.run.run_request import PROFILES
from toolexec.runtime.plugin import PLUGIN_API, SandboxPlugin

_HOMES: Final = {
    "wasm": "toolexec.runtime.wasm.plugin:PLUGIN",
    "bubblewrap": "toolexec.runtime.containers.bubblewrap.plugin:PLUGIN",
    "unsafe_host": "toolexec.runtime.unsafe_host.plugin:PLUGIN",
}
RELAYED: Final = tuple(kind for kind in PACKAGES[GROUP] if kind in PACKAGES[JOURNALS])
"""The kinds of packages that are engines of durable runs, too: workers elsewhere have a sandbox of another kind. They
are used only when they are named."""
PACKAGED: Final = tuple(kind for kind in PACKAGES[GROUP] if kind not in RELAYED)
"""The other kinds of the packages beside the core; a package may be absent."""
ELSEWHERE: Final = {"proxmox_lxc": "proxmox", "remote": "remote"}
"""Those of them that have sandboxes of other machines do the work, each with the field of `SandboxSettings` that has
its settings."""
WITH_KEYS: Final = frozenset({"containerd", "docker", "firecracker", "gvisor", "kata", "qemu"})
"""Those of them whose settings are keys of `[sandboxes]`, such as `docker_host` and `vm_image`, and no table of their
own."""
_STRONGER: Final = {"firecracker": "vm", "gvisor": "gvisor", "kata": "vm", "qemu": "vm"}
"""Those of them that isolate more than a container, known without their package, as a remote runtime may have it."""
SANDBOXES: Final = (*_HOMES, *PACKAGED)
"""Every kind of sandbox that toolexec and its packages have; an experimental one is used only when it is named."""
KINDS: Final = (*SANDBOXES, *RELAYED)
"""Every kind of sandbox that comes with toolexec."""


def installed_kinds() -> list[str]:
    """Return the kinds that distributions have which are not toolexec's, sorted; none of them is loaded, and a name of
    ours among them is one that cannot be used."""
    return [kind for kind in plugin_names(GROUP) if kind not in PACKAGES[GROUP]]


def plugin_of(kind: str) -> SandboxPlugin:
    """Return the object of a kind, imported if need be.

    Raises ConfigurationError for one that is not there, and for a plugin that cannot be used: it says which
    distribution that is from, and why. Raises MissingExtraError for a kind whose package is not installed.
    """
    home = _HOMES.get(kind)
    if home is not None:
        found: SandboxPlugin = resolve_name(home)
        return found
    return load_kind(GROUP, kind, SandboxPlugin, PLUGIN_API, needed_for=f"the sandbox {kind}")


def present_plugins() -> list[SandboxPlugin]:
    """Return the objects of all kinds of `SANDBOXES` that can be used here.

    One whose package is absent, of another version or broken is left out: the others work, the doctor shows why, and
    naming it is an error.
    """
    found: list[SandboxPlugin] = []
    for kind in SANDBOXES:
        with suppress(ConfigurationError):
            found.append(plugin_of(kind))
    return found


@cache
def candidates() -> dict[str, tuple[str, ...]]:
    """Return the kinds of toolexec that are installed and may serve each profile, the preferred one first."""
    return positions(present_plugins())


def positions(plugins: Sequence[SandboxPlugin]) -> dict[str, tuple[str, ...]]:
    """Return the kinds of *plugins* that may serve each profile, the preferred one first."""
    return {
        profile: tuple(
            plugin.kind
            for plugin in sorted(plugins, key=lambda plugin: plugin.profiles.get(profile, 0))
            if profile in plugin.profiles
        )
        for profile in PROFILES
    }


@cache
def lent_kinds() -> tuple[str, ...]:
    """Return the kinds of toolexec that run code by themselves; those of packages do, and are not looked for here,
    which would take long."""
    here = [kind for kind in SANDBOXES if kind not in ELSEWHERE]
    return tuple(kind for kind in here if kind in PACKAGED or plugin_of(kind).isolation)


@cache
def isolations() -> dict[str, str]:
    """Return the kinds of toolexec that run code by themselves, and the isolation that each usually gives.

    One whose package is not installed here may still be elsewhere.
    """
    present = {plugin.kind: plugin.isolation for plugin in present_plugins()}
    found = {kind: present.get(kind, _STRONGER.get(kind, "container")) for kind in SANDBOXES if kind not in ELSEWHERE}
    return {kind: isolation for kind, isolation in found.items() if isolation}
