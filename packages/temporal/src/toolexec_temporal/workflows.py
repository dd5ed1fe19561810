"""Durable runs as Temporal workflows: the program of a chain or workflow runs here, that of code in an activity.

Either way each tool call is an activity of its own, named by its step. Temporal replays this code, and what it calls,
from its history, so it must take the same steps each time: what changes them needs a name in `changes` for
`workflow.patched`, and a test with recorded histories.
"""

from __future__ import annotations

from typing import Any, Final

from temporalio import workflow

from toolexec_temporal.code_run import CodeRun
from toolexec_temporal.messages import KINDS, RunInput
from toolexec_temporal.program_run import ProgramRun


@workflow.defn(name=KINDS["chain"], sandboxed=False)
class ChainWorkflow(ProgramRun):
    """A durable chain."""

    @workflow.init
    def __init__(self, given: RunInput) -> None:
        super().__init__(given)

    @workflow.run
    async def run(self, given: RunInput) -> dict[str, Any]:
        """Run the chain."""
        return await self._run()


@workflow.defn(name=KINDS["workflow"], sandboxed=False)
class ProgramWorkflow(ProgramRun):
    """A durable run of a workflow, in toolexec's language."""

    @workflow.init
    def __init__(self, given: RunInput) -> None:
        super().__init__(given)

    @workflow.run
    async def run(self, given: RunInput) -> dict[str, Any]:
        """Run the workflow."""
        return await self._run()


@workflow.defn(name=KINDS["code"], sandboxed=False)
class CodeWorkflow(CodeRun):
    """A durable run of code in a sandbox."""

    @workflow.init
    def __init__(self, given: RunInput) -> None:
        super().__init__(given)

    @workflow.run
    async def run(self, given: RunInput) -> dict[str, Any]:
        """Run the code."""
        return await self._run()


WORKFLOWS: Final = (ChainWorkflow, ProgramWorkflow, CodeWorkflow)
