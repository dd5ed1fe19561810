"""The sandboxes that programs which are tools can run in; see `backend/providers/command`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean

if TYPE_CHECKING:
    from toolexec.backend.providers.command.sandbox import ProgramSandbox, SandboxRules

PROGRAM_SANDBOXES: Final = ("bubblewrap",)
"""The names of the sandboxes."""


def program_sandbox(name: str, rules: SandboxRules) -> ProgramSandbox:
    """Return the sandbox with this *name* for programs under *rules*; nothing is started. Raises ConfigurationError."""
    if name not in PROGRAM_SANDBOXES:
        raise ConfigurationError(
            f"there is no sandbox {name!r} for programs; {did_you_mean(name, PROGRAM_SANDBOXES)}",
            details={"setting": "sandbox"},
        )
    from toolexec.runtime.containers.bubblewrap.programs import BubblewrapPrograms

    return BubblewrapPrograms(rules)
