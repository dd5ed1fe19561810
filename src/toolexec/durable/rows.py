"""Records of durable runs as rows of a database, with marks that show damage."""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import islice, repeat
from typing import Any, Final, TypeAlias, cast, get_args

from toolexec.durable.journal import CallRecord, CallState, RunRecord, RunState, Signal, Snapshot, Wait, WaitKind
from toolexec.errors import JournalError
from toolexec.model.json_value import JSONObject, JSONValue

Row: TypeAlias = Sequence[Any]

RUN_COLUMNS: Final = (
    "id, kind, digest, caller, state, created, updated, owner, wake, cancel, waits, calls, queue, priority, started"
)
CALL_COLUMNS: Final = "id, step, tool, definition, args, state, sent, place, began, ended, outcome, mark, outcome_mark"
SIGNAL_COLUMNS: Final = "id, name, payload, sent, sender, taken_by, mark"

_STATES: Final = frozenset(get_args(RunState))
_NUMBER: Final = (1 << 32) - 1
_SET_RUN: Final = {field.name: getattr(RunRecord, field.name).__set__ for field in fields(RunRecord)}
_SET_WAIT: Final = [getattr(Wait, field.name).__set__ for field in fields(Wait)]
_decode = json.JSONDecoder().raw_decode  # `json.loads` looks for spaces around the value first
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_text(value: JSONValue) -> str:
    """Return JSON; raises JournalError for what JSON does not have."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise JournalError(f"what is not JSON cannot be recorded: {error}", op="encode") from error


def from_json(text: str, what: str) -> Any:
    """Return the value of JSON out of the store; raises JournalError where it is damaged."""
    try:
        value, end = _decode(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise _damaged(what) from error
    if end != len(text):
        raise _damaged(what)
    return value


def mark_of(*parts: str) -> int:
    """Return a checksum of strings: SQLite does not notice a byte that is another one. Raises JournalError for a string
    that is not text."""
    try:
        return zlib.crc32("\0".join(parts).encode())
    except UnicodeError as error:
        raise JournalError(f"what is not text cannot be recorded: {error}", op="encode") from error


def verify(mark: object, what: str, *parts: str) -> None:
    """Raise JournalError unless *mark* is that of these strings."""
    try:
        if mark_of(*parts) == mark:
            return
    except TypeError as error:
        raise _damaged(what) from error
    raise _damaged(what)


def waits_text(waits: Iterable[Wait]) -> str:
    """Return waits as a column holds them; empty for none."""
    rows = [[wait.step, wait.kind, wait.name, wait.details, wait.due, wait.since] for wait in waits]
    return to_text(rows) if rows else ""


def wait_names(text: str) -> set[str]:
    """Return the names of the signals that a run waits for."""
    return {wait.name for wait in _waits_of(text) if wait.name} if text else set()


def run_of(
    row: Row, source: str = "", settings: JSONObject | None = None, result: JSONObject | None = None
) -> RunRecord:
    """Return the run of RUN_COLUMNS."""
    run_id, kind, digest, caller, state, created, updated, owner, wake, cancel, waits, calls, *in_queue = row
    queue, priority, started = in_queue
    if state not in _STATES:
        raise _damaged(f"the run {run_id}")
    return RunRecord(
        id=run_id,
        kind=kind,
        source=source,
        digest=digest,
        settings={} if settings is None else settings,
        caller=caller,
        state=state,
        created=created,
        updated=updated,
        owner=owner,
        lease=wake if owner else 0.0,
        cancel_asked=cancel != 0,
        waits=_waits_of(waits) if waits else (),
        result=result,
        calls=calls,
        queue=queue,
        priority=priority,
        started=started,
    )


def runs_of(rows: Sequence[Row]) -> list[RunRecord]:
    """Return the runs of rows of RUN_COLUMNS, without their source, settings and result.

    A list has thousands: so they are filled field by field, which takes a third of what the constructor does.
    """
    if not rows:
        return []
    ids, kinds, digests, callers, states, created, updated, owners, wakes, cancels, waits, calls, *in_queue = zip(
        *rows, strict=True
    )
    queues, priorities, starts = in_queue
    if not _STATES.issuperset(states):
        return [run_of(row) for row in rows]  # raises for the first that is damaged
    runs = [*map(RunRecord.__new__, repeat(RunRecord, len(rows)))]
    columns: dict[str, Iterable[Any]] = {
        "id": ids,
        "kind": kinds,
        "source": repeat(""),
        "digest": digests,
        "settings": [{} for _ in rows],
        "caller": callers,
        "state": states,
        "created": created,
        "updated": updated,
        "owner": owners,
        "lease": [wake if owner else 0.0 for wake, owner in zip(wakes, owners, strict=True)],
        "cancel_asked": map(bool, cancels),
        "waits": _waits_of_all(waits),
        "result": repeat(None),
        "calls": calls,
        "queue": queues,
        "priority": priorities,
        "started": starts,
    }
    for name, values in columns.items():
        _fill(_SET_RUN[name], runs, values)
    return runs


def program_of(row: Row, run_id: str) -> tuple[str, Any]:
    """Return the source and settings of the columns source, settings, mark."""
    source, settings, mark = row
    what = f"the program of the run {run_id}"
    verify(mark, what, source, settings)
    return source, from_json(settings, what)


def result_of(row: Row, run_id: str) -> Any:
    """Return the result of the columns result, result_mark; None where there is none."""
    result, mark = row
    if result is None:
        return None
    what = f"the result of the run {run_id}"
    verify(mark, what, result)
    return from_json(result, what)


def row_of_call(call: CallRecord) -> tuple[Any, ...]:
    """Return tool, definition, args, sent, place and mark of a call that begins."""
    place = "" if call.at is None else f"{call.at[0]}:{call.at[1]}"
    parts = (call.tool, call.definition, call.args, call.sent, place)
    return (*parts, mark_of(call.step, *parts))


def call_of(row: Row) -> CallRecord:
    """Return the call of CALL_COLUMNS."""
    number, step, tool, definition, args, state, sent, place, began, ended, outcome, mark, outcome_mark = row
    what = f"the call {step}"
    verify(mark, what, step, tool, definition, args, sent, place)
    if outcome is not None:
        verify(outcome_mark, what, state, outcome)
    elif state != "begun":
        raise _damaged(what)
    line, _, column = place.partition(":")
    return CallRecord(
        step=step,
        tool=tool,
        definition=definition,
        args=args,
        number=number & _NUMBER,
        state=cast("CallState", state),
        sent=sent,
        at=(int(line), int(column)) if place else None,
        began=began,
        ended=ended,
        outcome=None if outcome is None else from_json(outcome, what),
    )


def signal_of(row: Row) -> Signal:
    """Return the signal of SIGNAL_COLUMNS."""
    signal_id, name, payload, sent, sender, taken_by, mark = row
    what = f"the signal {signal_id}"
    verify(mark, what, signal_id, name, payload)
    return Signal(
        id=signal_id, name=name, payload=from_json(payload, what), sent=sent, sender=sender, taken_by=taken_by
    )


def snapshot_of(row: Row, run_id: str) -> Snapshot:
    """Return the snapshot of the columns calls, state, mark."""
    calls, state, mark = row
    what = f"the snapshot of the run {run_id}"
    verify(mark, what, str(calls), state)
    return Snapshot(calls=calls, state=from_json(state, what))


def _waits_of(text: str) -> tuple[Wait, ...]:
    try:
        return tuple([_wait_of(*row) for row in from_json(text, "a wait")])
    except TypeError as error:
        raise _damaged("a wait") from error


def _waits_of_all(columns: Sequence[str]) -> list[tuple[Wait, ...]]:
    """Return what each of many columns holds: they are read as one."""
    try:
        lists = from_json(f"[{','.join(filter(None, columns))}]", "a wait")
        rows = [row for each in lists for row in each]
        waits = [*map(Wait.__new__, repeat(Wait, len(rows)))]
        for setter, values in zip(_SET_WAIT, zip(*rows, strict=True), strict=True) if rows else ():
            _fill(setter, waits, values)
        made = iter(waits)
        of_each = iter([tuple(islice(made, len(each))) for each in lists])
        return [next(of_each) if text else () for text in columns]
    except (JournalError, TypeError, ValueError, StopIteration):
        return [_waits_of(text) if text else () for text in columns]  # raises for the one that is damaged


def _wait_of(
    step: str, kind: WaitKind, name: str, details: JSONObject | None, due: float | None, since: float, /
) -> Wait:
    return Wait(step=step, kind=kind, name=name, details=details, due=due, since=since)


def _fill(setter: Callable[[Any, Any], None], made: Sequence[Any], values: Iterable[Any]) -> None:
    """Set one field of each; a class that is frozen has no other way."""
    deque(map(setter, made, values), maxlen=0)


def _damaged(what: str) -> JournalError:
    return JournalError(
        f"the journal is damaged: {what} is not what was written; nothing was changed, and a backup may have it",
        op="read",
        details={"damaged": True},
    )
