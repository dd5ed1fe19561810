"""Security profiles: what isolation code gets, and which sandboxes may serve it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from toolexec.errors import InvalidRequestError
from toolexec.errors.hints import did_you_mean
from toolexec.runtime.base import PROFILES

__all__ = ["CANDIDATES", "ISOLATIONS", "effective_profile"]

CANDIDATES: Final[Mapping[str, Sequence[str]]] = {
    "dev": ("unsafe_host",),
    "standard": ("wasm", "bubblewrap", "docker", "containerd", "kubernetes", "proxmox_lxc", "remote"),
    "hardened": ("gvisor", "kata", "firecracker", "kubernetes", "docker", "containerd", "wasm"),
}
"""The kinds of sandbox that may serve a profile, the preferred one first."""

ISOLATIONS: Final[Mapping[str, frozenset[str]]] = {
    "dev": frozenset({"none", "process", "container", "gvisor", "vm", "wasm"}),
    "standard": frozenset({"container", "gvisor", "vm", "wasm"}),
    "hardened": frozenset({"gvisor", "vm", "wasm"}),
}
"""The isolation that a profile asks for: judged by what surrounds the code in the end, whatever starts it."""

_ALIASES: Final = {"wasm": "standard"}


def effective_profile(asked: str, default: str) -> tuple[str, str]:
    """The profile that holds, and the only kind of sandbox that may serve it ("" for any): `wasm` is short for
    `standard` on the wasm sandbox.

    Raises InvalidRequestError for an unknown profile.
    """
    profile = asked or default
    only = profile if profile in _ALIASES else ""
    profile = _ALIASES.get(profile, profile)
    if profile not in PROFILES:
        hint = did_you_mean(profile, (*PROFILES, *_ALIASES), otherwise=f"use {', '.join(PROFILES)} or wasm")
        raise InvalidRequestError(f"unknown security profile {profile!r}; {hint}")
    return profile, only
