"""The former bridge from code to sandboxes; it stays for one release."""

from __future__ import annotations

from dataclasses import replace

from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.router import Runtime

__all__ = ["RuntimeEngine"]


class RuntimeEngine:
    """A `Runtime` with a profile for code that asks for none; give `CodeConfig` the runtime itself instead.

    Raises SandboxUnavailableError without a runtime.
    """

    keeps_deadline = True

    def __init__(self, runtime: Runtime | None, profile: str = "standard") -> None:
        if runtime is None:
            raise SandboxUnavailableError("an engine for sandboxed code needs a runtime; give it Runtime([...])")
        self.runtime = runtime
        self.profile: str = profile or "standard"

    @property
    def languages(self) -> frozenset[str]:
        """Return all that any of the sandboxes runs."""
        return self.runtime.languages

    @property
    def limits(self) -> Limits:
        """Return the ceilings of the runtime."""
        return self.runtime.limits

    async def execute(self, request: ExecuteRequest, tools: Tools) -> CodeResult:
        """Run the code; see `Runtime.execute`."""
        return await self.runtime.execute(replace(request, profile=request.profile or self.profile), tools)
