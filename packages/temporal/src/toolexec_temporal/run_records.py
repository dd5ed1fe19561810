"""What a Temporal server knows of runs, as records of runs and queues."""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any, Final

from toolexec.errors import RunError
from toolexec.journal import JSONDict, QueueRecord, RunRecord, Wait, error_to_json
from toolexec_temporal.messages import read_record

STATES: Final = {
    "RUNNING": "running",
    "COMPLETED": "done",
    "FAILED": "failed",
    "CANCELED": "cancelled",
    "TERMINATED": "cancelled",
    "CONTINUED_AS_NEW": "running",
    "TIMED_OUT": "failed",
}
"""How Temporal calls the states of a run; one that ended by itself says more exactly how."""
OPEN: Final = ("queued", "running", "waiting")
STATUSES: Final = {
    **dict.fromkeys(OPEN, ("Running",)),
    "done": ("Completed",),
    "failed": ("Completed", "Failed", "TimedOut"),  # older runs that have failed are completed workflows
    "cancelled": ("Canceled", "Terminated"),
}
"""Which of Temporal's lists have the runs in a state."""


def summary_of(run_id: str, state: str, memo: Any, known: Any) -> RunRecord:
    """Return the record of a run of which its memo and its description, or its line in a list, are known."""
    ended = known.close_time
    waits = (memo.get("waits") or []) if state == "running" else []
    started = memo.get("started") or 0.0
    if state == "running" and memo.get("queue") and not started:
        state = "queued"
    return read_record(
        {
            "id": run_id,
            "kind": memo.get("kind", "code"),
            "source": "",
            "digest": memo.get("digest", ""),
            "settings": {"parent": memo["parent"]} if memo.get("parent") else {},
            "caller": memo.get("caller", ""),
            "state": "waiting" if waits else state,
            "waits": waits,
            "created": memo.get("created") or known.start_time.timestamp(),
            "updated": (ended or known.start_time).timestamp(),
            "queue": memo.get("queue", ""),
            "priority": memo.get("priority", 0),
            "started": started,
        }
    )


def queue_of(name: str, runs: Sequence[tuple[RunRecord, float]]) -> QueueRecord:
    """Return what there is in a queue, of its runs and when each may begin."""
    of = {state: [run for run, _ in runs if run.state == state] for state in OPEN}
    now = time()
    return QueueRecord(
        name=name,
        queued=len(of["queued"]),
        delayed=sum(run.state == "queued" and ready > now for run, ready in runs),
        running=len(of["running"]),
        waiting=len(of["waiting"]),
        queued_since=min((run.created for run in of["queued"]), default=None),
        running_since=min((run.started for run in of["running"]), default=None),
    )


def lost_run(error: Exception, run_id: str) -> JSONDict:
    """Return as JSON why a run failed that could not say so itself."""
    reason = error.__cause__ or error
    cause = getattr(reason, "cause", None) or reason
    return error_to_json(RunError(f"the run {run_id} failed on Temporal: {cause}", details={"run_id": run_id}))


def waits_of(progress: JSONDict) -> tuple[Wait, ...]:
    """Return what a run waits for, of what its workflow says of itself."""
    return tuple(Wait(**wait) for wait in progress.get("waits", ()))
