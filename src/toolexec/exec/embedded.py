"""The engine for an executor that is built by hand: it needs nothing but this package."""

from __future__ import annotations

from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import ConfigurationError


class EmbeddedEngine:
    """Runs Python in the embedded sandbox, a fresh one for each run, and workflows in this process.

    >>> import asyncio
    >>> from toolexec import Exec
    >>> from toolexec.code import CodeConfig, ExecuteRequest, Executor
    >>> ex = Exec()
    >>> _ = ex.add(lambda a, b: a + b, "math:add")
    >>> executor = Executor(CodeConfig(index=ex.index, run=ex.runner, engine=EmbeddedEngine()))
    >>> asyncio.run(executor.execute(ExecuteRequest(code="return tools.math.add(a=5, b=3)"))).value
    8
    """

    languages = frozenset({"python", "workflow"})
    keeps_deadline = True

    async def execute(self, request: ExecuteRequest, tools: Tools, /) -> CodeResult:
        """Run the code; see `Engine.execute`. Raises ConfigurationError for other languages."""
        # Imported here: a workflow needs no sandbox, and Python no workflow language.
        if request.language == "workflow":
            from toolexec.workflow.engine import WorkflowEngine

            return await WorkflowEngine().execute(request, tools)
        if request.language != "python":
            raise ConfigurationError(
                f"EmbeddedEngine runs python and workflow only, not {request.language}; give the executor an engine "
                f"that runs {request.language}: Runtime([...]), from toolexec.runtime"
            )
        from toolexec.runtime.router import Runtime
        from toolexec.runtime.wasm.backend import WasmBackend

        runtime = Runtime([WasmBackend()])
        try:
            return await runtime.execute(request, tools)
        finally:
            await runtime.aclose()
