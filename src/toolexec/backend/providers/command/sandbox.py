"""What a sandbox for programs has to give. The layers above have the sandboxes, and pass in what makes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:  # they are not for all operating systems, and the settings are
    from toolexec.backend.providers.command.running import Process, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRules:
    """What programs in a sandbox have beside the system's own programs: their directory, which they may change if it is
    `writable`, the `paths` that they may read, and the `network` if that is allowed."""

    network: bool = False
    writable: bool = False
    paths: Sequence[Path] = ()


class ProgramSandbox(Protocol):
    """Starts programs apart from everything else on this machine."""

    async def check(self) -> None:
        """Raise SandboxUnavailableError, which says what to install, where it cannot start a program."""
        ...

    def shows(self, path: Path, directory: Path) -> bool:
        """Return whether a program that runs in *directory* finds *path* in the sandbox."""
        ...

    async def start(self, program: Program) -> Process:
        """Start a program in a sandbox of its own. Raises SandboxUnavailableError."""
        ...

    async def aclose(self) -> None:
        """Free what it has made. Programs that run go on."""
        ...


MakeSandbox: TypeAlias = Callable[[str, SandboxRules], ProgramSandbox]
"""Makes the sandbox of this name. Raises ConfigurationError for one that there is not."""
