"""What code may call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from toolexec.model.json_value import JSONObject

if TYPE_CHECKING:
    from toolexec.discovery.docs import DetailLevel, ToolDoc
    from toolexec.discovery.examples import ToolExample
    from toolexec.discovery.summary import Summary
    from toolexec.run.steps import Step
    from toolexec.run.types import Result, StepResult


@runtime_checkable
class Gateway(Protocol):
    """What code in a sandbox may ask of the host. Safe for many calls at once.

    `Tools` answers in this process, `toolexec.runtime.protocol.proxy.ProxyGateway` asks another one. A gateway that has
    a method `tool_calls()` is asked for the trace of a run.
    """

    async def search_tools(self, query: str, limit: int = 10) -> list[Summary]:
        """Return the best tools for *query*, at most *limit*."""
        ...

    async def list_namespaces(self) -> list[str]:
        """Return all namespaces in alphabetical order."""
        ...

    async def describe_tool(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return a tool's documentation; raises as `DocStore.describe` does."""
        ...

    async def list_tool_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """Return a tool's examples, at most *limit*; raises as `DocStore.describe` does."""
        ...

    async def run_tool(self, tool_id: str, args: JSONObject | None = None) -> Result:
        """Run one tool; raises as `Runner.run` does, and LimitExceededError or PolicyError with nothing run."""
        ...

    async def run_chain(self, steps: Sequence[Step]) -> tuple[Result | None, list[StepResult]]:
        """Run a chain as `Exec.run_chain` does. Gives its last result, None after a failure that stopped it, and the
        steps up to there; for an empty chain nothing, and no error."""
        ...


async def checkpoint() -> None:
    """Let a cancellation that is due arrive before the work begins."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)
