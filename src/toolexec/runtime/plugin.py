"""What a kind of sandbox is to everything else: one object, whichever distribution it comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.run.run_request import PROFILES
from toolexec.runtime.base import SandboxBackend

if TYPE_CHECKING:
    from typer import Typer

    from toolexec.runtime.egress.policy import Egress
    from toolexec.runtime.sandboxes import SandboxSettings

PLUGIN_API: Final = 1
"""The version of `SandboxPlugin` and of all that it is made of; a plugin of another one is refused."""

REMOVED: Final[Mapping[str, str]] = {
    "libkrun": "libkrun was taken out, as none of its machines was ever booted; use qemu, or firecracker"
}
"""Kinds of sandbox that there are no more, and what to use instead."""

_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxContext:
    """What `SandboxPlugin.make` gets beside the settings of its kind: what is the same for all sandboxes.

    `image`, `warm`, `max_running` and `egress` are those of `SandboxSettings`; `image` is "" where each kind has its
    own. `make` returns a sandbox of another kind under the same settings, for kinds that have others do the work.
    """

    image: str = ""
    warm: int = 0
    max_running: int = 32
    egress: Egress | None = None
    make: Callable[[str], SandboxBackend]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorPackage:
    """A package that `toolexec doctor` looks for: its `name`, what it is for, and what pip installs to get it ("": the
    same name)."""

    name: str
    purpose: str
    install: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorAdvice:
    """What `toolexec doctor` says of a kind beside what its `check` finds.

    `set_up` is the fix where this kind is not set up ("": the usual one), `packages` are those that it needs or can
    use, and `patience` is how many seconds its check may take, if it comes by a distribution of its own.
    """

    set_up: str = ""
    packages: tuple[DoctorPackage, ...] = ()
    patience: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlugin:
    """One kind of sandbox: its settings, how it is made, which profiles it may serve, and what is said of it.

    `kind` is its name, `api` the `PLUGIN_API` that it was written for: a number, and not the constant. `settings` is
    the class of its settings, a dataclass or a model of pydantic, or where that is, as `module:Name`; its fields
    are the keys of `[sandboxes.plugins.KIND]`. Fields called `image`, `warm`, `max_running` and `egress` have the
    values of `[sandboxes]` where they are not set there. `make(settings, context)` returns the sandbox, and starts
    nothing.

    `profiles` has the security profiles that it may serve, and its position among the candidates of each: the lowest
    number is the preferred one; wasm has 10, and the others follow in steps of ten (see `candidates`). One that is
    `experimental`, as no run in it was ever measured, is used only where it is named, until a check on this machine has
    measured it (see `toolexec.runtime.measured`). `isolation` is what it usually gives ("": that of the sandbox which
    does the work). With `runs_servers` it is one of containers whose streams can be the transport of an MCP server.
    `doctor` is what `toolexec doctor` adds, and `cli` returns the commands that come under `toolexec sandbox`, by its
    kind. `read` is for kinds whose keys are fields of `SandboxSettings`: it returns their settings, None for a kind
    that was not set up.

    Raises ConfigurationError for a name or a profile that cannot be.

    >>> plugin = SandboxPlugin(
    ...     kind="cell", api=1, settings=DoctorAdvice, make=lambda settings, context: context.make("wasm"),
    ...     profiles={"standard": 15},
    ... )
    >>> plugin.settings_class().__name__
    'DoctorAdvice'
    """

    kind: str
    api: int
    settings: type[Any] | str
    make: Callable[[Any, SandboxContext], SandboxBackend]
    profiles: Mapping[str, int]
    isolation: str = ""
    experimental: bool = False
    runs_servers: bool = False
    doctor: DoctorAdvice = field(default_factory=DoctorAdvice)
    cli: Callable[[], Typer] | None = None
    read: Callable[[SandboxSettings], Any] | None = None

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise ConfigurationError(
                f"the kind of a sandbox is a word of lower case letters, digits and _, not {self.kind!r}"
            )
        unknown = sorted({*self.profiles} - {*PROFILES})
        if unknown:
            hint = did_you_mean(unknown[0], PROFILES, otherwise=f"use {', '.join(PROFILES)}")
            raise ConfigurationError(f"the sandbox {self.kind} cannot serve the profile {unknown[0]!r}; {hint}")

    def settings_class(self) -> type[Any]:
        """Return the class of its settings, imported if need be."""
        if not isinstance(self.settings, str):
            return self.settings
        found: type[Any] = resolve_name(self.settings)
        return found
