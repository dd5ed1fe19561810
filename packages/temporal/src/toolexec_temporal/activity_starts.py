"""How workflows start activities: their names, time limits, retries, and how they are cancelled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy

from toolexec.journal import CallSpec, JSONDict, RunSpec
from toolexec_temporal.changes import NAMED
from toolexec_temporal.messages import Rules

_GRACE: Final = 15.0
"""How many seconds a call may take beyond its own time limit, which its worker keeps."""
_FOREVER: Final = timedelta(days=3650)
_AGAIN: Final = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10))


async def call_tool(spec: CallSpec, rules: Rules, *, repeats: bool) -> JSONDict:
    """Make a call, or refuse one with too many arguments: more than once where that *repeats* no effect. Raises
    ActivityError when it was cancelled or its worker was lost."""
    once = RetryPolicy(maximum_attempts=1)
    often = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=rules.attempts)
    return await workflow.execute_activity(
        "refuse_call" if spec.excess else "call_tool",
        spec,
        result_type=dict[str, Any],
        activity_id=spec.step,
        start_to_close_timeout=timedelta(seconds=(spec.timeout or rules.call_timeout) + _GRACE),
        heartbeat_timeout=timedelta(seconds=rules.heartbeat_timeout),
        retry_policy=often if repeats else once,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


async def settle_call(spec: CallSpec, rules: Rules) -> JSONDict:
    """Return what is known of a call whose worker was lost."""
    return await workflow.execute_activity(
        "settle_call",
        spec,
        result_type=dict[str, Any],
        activity_id=f"{spec.step}?settle" if workflow.patched(NAMED) else f"{spec.step}!",
        start_to_close_timeout=timedelta(seconds=rules.call_timeout + _GRACE),
        heartbeat_timeout=timedelta(seconds=rules.heartbeat_timeout),
        retry_policy=_AGAIN,
    )


async def record_run(spec: RunSpec, rules: Rules) -> None:
    """Have audit and telemetry know of a run that has ended."""
    await workflow.execute_activity(
        "record_run",
        spec,
        activity_id=_own_name("record"),
        start_to_close_timeout=timedelta(seconds=rules.call_timeout),
        heartbeat_timeout=timedelta(seconds=rules.heartbeat_timeout),
        retry_policy=_AGAIN,
    )


def start_code(record: JSONDict, rules: Rules, *, start: int) -> workflow.ActivityHandle[dict[str, Any]]:
    """Start the sandbox of a run, for the *start*-th time."""
    return workflow.start_activity(
        "run_code",
        record,
        result_type=dict[str, Any],
        activity_id=_own_name(f"code.{start}"),
        task_queue=f"{workflow.info().task_queue}-wasm",
        start_to_close_timeout=_FOREVER,
        heartbeat_timeout=timedelta(seconds=rules.heartbeat_timeout),
        retry_policy=_AGAIN,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


def _own_name(name: str) -> str | None:
    """Return the ID of an activity of the run itself, as no step can be called; one that the SDK counts could be that
    of a call that is under way."""
    return f"?{name}" if workflow.patched(NAMED) else None
