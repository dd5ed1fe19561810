"""The bridge from code to sandboxes: a code engine on top of a `Runtime`."""

from __future__ import annotations

from toolexec.code.tools import Tools
from toolexec.code.types import CodeParams, CodeResult
from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.base import ExecuteRequest, ExecuteResult
from toolexec.runtime.runtime import Runtime

__all__ = ["RuntimeEngine", "code_result"]


class RuntimeEngine:
    """Runs code in whatever sandbox *runtime* has for its language and profile.

    Raises SandboxUnavailableError without a runtime.
    """

    keeps_deadline = True

    def __init__(self, runtime: Runtime | None, profile: str = "standard") -> None:
        if runtime is None:
            raise SandboxUnavailableError("an engine for sandboxed code needs a runtime; give it Runtime([...])")
        self.runtime = runtime
        self.profile = profile or "standard"

    @property
    def languages(self) -> frozenset[str]:
        """All that any of the sandboxes runs."""
        return frozenset().union(*(backend.languages for backend in self.runtime.backends))

    async def execute(self, params: CodeParams, tools: Tools) -> CodeResult:
        """Run the code; see `Engine.execute`. Raises as `Runtime.execute` does."""
        return code_result(await self.runtime.execute(self.request(params, tools)))

    def request(self, params: CodeParams, tools: Tools) -> ExecuteRequest:
        """What the runtime is asked."""
        return ExecuteRequest(
            code=params.code,
            gateway=tools,
            language=params.language,
            timeout=params.timeout,
            limits=params.limits,
            profile=params.profile or self.profile,
            output=tools.output,
            env=params.env,
            files=params.files,
            args=params.args,
            stdin=params.stdin,
            seed=params.seed,
            now=params.now,
            best_effort=params.best_effort,
            metadata=params.metadata,
        )


def code_result(result: ExecuteResult) -> CodeResult:
    """A sandbox's result as that of code."""
    return CodeResult(
        value=result.value,
        stdout=result.stdout,
        stderr=result.stderr,
        tool_calls=result.tool_calls,
        duration=result.duration,
        error=result.error,
        files=result.files,
        backend=result.backend,
        limits_enforced=result.limits_enforced,
    )
