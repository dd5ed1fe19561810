"""What callers, Temporal workflows and their activities send each other: plain data, and how records become that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from toolexec.journal import CallRecord, JSONDict, RunKind, RunRecord, Wait

VERSION: Final = 5
"""Of these messages: a worker refuses input of a newer one."""
_WITHOUT_HELD: Final = 4
"""The version of runs that are not held, which older workers can make, too."""
KINDS: Final[Mapping[RunKind, str]] = {
    "chain": "toolexec-chain",
    "workflow": "toolexec-workflow",
    "code": "toolexec-code",
}
"""The type of Temporal workflow for each kind of run."""
RUN_FAILED: Final = "toolexec-run-failed"
"""The type of the failure of a run that has ended by itself: its details say how, as results do."""
BEGIN_CHILD: Final = "begin_child"
"""The update by which a call has its run begin another one."""
SANDBOX: Final = "toolexec-sandbox"
"""The type of Temporal workflow that runs one request of a `TemporalBackend`."""


@dataclass
class Rules:
    """What holds for one run from its start on: the part of the settings that its workflow needs. `keeps_large` says
    that there is a place for large payloads; older callers do not say so, and nothing is refused then."""

    call_timeout: float = 300.0
    heartbeat_timeout: float = 10.0
    attempts: int = 10
    max_events: int = 8000
    linger: float = 1.0
    keeps_large: bool = True
    timer_linger: float = 10.0
    attributes: bool = False


@dataclass
class Carried:
    """What a run takes along into a new history."""

    calls: list[JSONDict] = field(default_factory=list[JSONDict])
    delivered: list[list[str]] = field(default_factory=list[list[str]])
    signals: list[JSONDict] = field(default_factory=list[JSONDict])
    children: list[str] = field(default_factory=list[str])


@dataclass
class RunInput:
    """What the Temporal workflow of a run is started with.

    `delay` is how many seconds it waits before it takes its place in a queue. A run that a schedule makes is
    `scheduled` by what comes before IDs in Temporal: its own is the rest of that of its workflow. One that is `held`
    makes no call until it is resumed.
    """

    record: JSONDict
    rules: Rules
    carried: Carried | None = None
    version: int = _WITHOUT_HELD
    delay: float = 0.0
    scheduled: str | None = None
    held: bool = False


@dataclass
class Child:
    """A run that a call of another one begins: the ID of its workflow, its task queue, and what it is started with."""

    id: str
    task_queue: str
    given: RunInput
    memo: JSONDict


@dataclass
class Exchange:
    """What a sandbox has for its workflow: what it asks for, each item with an ID, the IDs whose answers it waits for,
    those of items to cancel, and what reached the code.

    `attempt` orders the workers that have run it: an earlier one has lost the run. `rests` says whether the code waits
    for answers, and does nothing itself; sandboxes of older workers do not say.
    """

    attempt: int
    items: list[JSONDict] = field(default_factory=list[JSONDict])
    wanted: list[str] = field(default_factory=list[str])
    cancelled: list[str] = field(default_factory=list[str])
    delivered: list[list[str]] = field(default_factory=list[list[str]])
    rests: bool | None = None


@dataclass
class SandboxInput:
    """What the Temporal workflow of one request for a sandbox is started with.

    `request` is the request as JSON-able data, `kind` the sandbox that is to run it, `queue` where its workers are,
    `seconds` its time limit. `gateway` is the task queue of the caller, who answers for the tools.
    """

    kind: str
    queue: str
    gateway: str
    request: JSONDict
    seconds: float
    rules: Rules
    version: int = _WITHOUT_HELD


def record_to_json(record: RunRecord) -> JSONDict:
    """Return a run as JSON-able data."""
    return asdict(record)


def read_record(data: Mapping[str, Any]) -> RunRecord:
    """Return what `record_to_json` has written."""
    given = {each.name: data[each.name] for each in fields(RunRecord) if each.name in data}
    given["waits"] = tuple(Wait(**wait) for wait in given.get("waits", ()))
    return RunRecord(**given)


def call_to_json(call: CallRecord) -> JSONDict:
    """Return a call as JSON-able data."""
    return asdict(call)


def read_call(data: Mapping[str, Any]) -> CallRecord:
    """Return what `call_to_json` has written."""
    given: dict[str, Any] = {**data, "at": tuple(data.get("at") or ()) or None}
    return CallRecord(**given)


def memo_of(record: RunRecord, delay: float = 0.0) -> JSONDict:
    """Return what the server keeps of a run beside its history."""
    memo: JSONDict = {"kind": record.kind, "digest": record.digest, "caller": record.caller}
    if record.created:
        memo["created"] = record.created
    if record.queue:
        memo |= {"queue": record.queue, "priority": record.priority, "ready": record.created + delay}
    if record.started:
        memo["started"] = record.started
    if parent := record.settings.get("parent"):
        memo["parent"] = parent
    return memo
