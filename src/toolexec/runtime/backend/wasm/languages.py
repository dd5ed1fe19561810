"""What the wasm backend asks of each language that it can run."""

from __future__ import annotations

from typing import Protocol

from toolexec.code.limits import LimitsEnforced
from toolexec.code.types import CodeResult
from toolexec.runtime.base import Availability, ExecuteRequest

__all__ = ["WasmLanguage"]


class WasmLanguage(Protocol):
    """Runs programs of some languages inside of WebAssembly, in this process."""

    languages: frozenset[str]

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """Which limits would hold for *request*."""
        ...

    async def check(self) -> Availability:
        """Whether it can run something here and now."""
        ...

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run a program that was validated, within its deadline; see `SandboxBackend.execute`."""
        ...

    async def aclose(self) -> None:
        """Stop what runs and free everything."""
        ...
