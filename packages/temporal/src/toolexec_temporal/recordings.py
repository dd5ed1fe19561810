"""What is recorded of a run on Temporal: its workflow has it, and any worker that repeats its history."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import JournalError
from toolexec.journal import CallRecord, JSONDict, RunRecord
from toolexec_temporal.activities import pages
from toolexec_temporal.messages import (
    VERSION,
    Carried,
    Rules,
    RunInput,
    call_to_json,
    memo_of,
    read_call,
    read_record,
    record_to_json,
)

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle

_SECONDS: Final = 10.0
"""How long a worker may take to repeat a history."""
_HELD: Final = "held"
"""What the server keeps of a run that is held until it is resumed."""

Recorded = tuple[RunRecord, list[CallRecord], list[list[str]]]


async def read_recording(handle: WorkflowHandle[Any, Any], known: RunRecord) -> Recorded:
    """Return a run, of which *known* is what the server knows, with all that its workflow has recorded.

    Payloads are read as those of any run: decrypted, and fetched where they are kept elsewhere. Raises JournalError
    where no worker answers, or only older ones.
    """
    with _explained(known.id):
        data: JSONDict = await handle.query(
            "recorded", result_type=dict[str, Any], rpc_timeout=timedelta(seconds=_SECONDS)
        )
    begun = read_record(data["record"])
    calls = (await read_calls(handle, known.id))[: data["calls"]]  # more may have been begun since
    run = replace(
        begun,
        state=known.state,
        created=known.created,
        updated=known.updated,
        waits=known.waits,
        result=known.result,
        calls=len(calls),
    )
    return run, calls, data["delivered"]


async def read_calls(handle: WorkflowHandle[Any, Any], run_id: str) -> list[CallRecord]:
    """Return the calls of a run as its workflow has them, numbered in the order of their beginning. Raises JournalError
    where no worker answers."""
    with _explained(run_id):
        return numbered([read_call(call) for call in await pages(handle)])


def numbered(calls: Sequence[CallRecord]) -> list[CallRecord]:
    """Return the calls with the numbers that a journal counts."""
    return [replace(call, number=number) for number, call in enumerate(calls, 1)]


def fork_input(
    record: RunRecord, rules: Rules, calls: Sequence[CallRecord], groups: Sequence[Sequence[str]], *, held: bool
) -> RunInput:
    """Return what a run is started with that begins with the calls of another one."""
    known = [call_to_json(call) for call in sorted(calls, key=lambda call: call.number)]
    given = RunInput(record_to_json(record), rules, Carried(known, [[*group] for group in groups]))
    return replace(given, held=True, version=VERSION) if held else given


def fork_memo(record: RunRecord, *, held: bool) -> JSONDict:
    """Return what the server keeps of it beside its history."""
    return memo_of(record) | ({_HELD: True} if held else {})


def is_held(memo: Any) -> bool:
    """Return whether a run was begun to be held until it is resumed."""
    return bool(memo.get(_HELD))


@contextmanager
def _explained(run_id: str) -> Generator[None, None, None]:
    """Raise what a query fails with where no worker answers it as what it means; other errors of the server stay."""
    from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
    from temporalio.service import RPCError, RPCStatusCode

    try:
        yield
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
        if isinstance(error, RPCError) and error.status not in (
            RPCStatusCode.DEADLINE_EXCEEDED,
            RPCStatusCode.CANCELLED,
            RPCStatusCode.FAILED_PRECONDITION,  # no worker was there for a while
        ):
            raise
        raise JournalError(
            f"what {run_id} has recorded cannot be read: {error}; start a worker of this version (toolexec temporal "
            "worker), which repeats the history of the run for that",
            retryable=True,
            details={"run_id": run_id},
        ) from error
