"""What a durable run comes to, and what is reported of it while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from toolexec.code.types import CodeResult
from toolexec.durable.journal import CallRecord, RunRecord, Wait
from toolexec.durable.outcomes import error_from_json
from toolexec.errors import RunError, ToolExecError
from toolexec.exec.chain import ChainResult
from toolexec.exec.run_data import chain_from_json, chain_to_json, code_from_json, code_to_json
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict

if TYPE_CHECKING:
    from toolexec.code.types import EventCallback

RunResult: TypeAlias = ChainResult | CodeResult
"""What a durable run comes to: a chain's result, or that of code, which a workflow is, too."""
WaitsCallback: TypeAlias = Callable[[tuple[Wait, ...]], None]
"""Receives what a run waits for; nothing once it goes on."""
ENDED: Final = ("done", "failed", "cancelled")
"""The states of runs that have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHooks:
    """What is reported of a run to its caller, in this process only."""

    on_progress: ProgressCallback | None = None
    on_event: EventCallback | None = None


NO_HOOKS: Final = RunHooks()


def result_data(result: RunResult) -> JSONDict:
    """Return a result as a journal keeps it."""
    return chain_to_json(result) if isinstance(result, ChainResult) else code_to_json(result)


def failed_result(run: RunRecord, error: ToolExecError) -> RunResult:
    """Return the result of a run that cannot go on, or waits."""
    if run.kind == "chain":
        return ChainResult(error=error)
    language = "workflow" if run.kind == "workflow" else str((run.settings.get("given") or {}).get("language", ""))
    return CodeResult(error=error, language=language)


def ended_result(run: RunRecord, calls: Sequence[CallRecord]) -> RunResult:
    """Return the result of a run that has ended. Raises the error of one of which nothing was run."""
    if run.result is None:
        cancelled = RunError(
            f"the run {run.id} was cancelled", code="run_cancelled", op="resume", details={"run_id": run.id}
        )
        return failed_result(run, cancelled)
    if "raised" in run.result:  # nothing was run
        raise error_from_json(run.result["raised"])
    if run.kind == "chain":
        return chain_from_json(run.result)
    return code_from_json(run.result, calls)
