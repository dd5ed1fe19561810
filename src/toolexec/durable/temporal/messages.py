"""What callers, Temporal workflows and their activities send each other: plain data, and how records become that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from toolexec.durable.journal import CallRecord, RunKind, RunRecord, Wait
from toolexec.model.arguments import RefusedArgs
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.tree_size import Excess

__all__ = [
    "KINDS",
    "RUN_FAILED",
    "SANDBOX",
    "VERSION",
    "CallSpec",
    "Carried",
    "Exchange",
    "Rules",
    "RunInput",
    "RunSpec",
    "SandboxInput",
    "call_to_json",
    "read_args",
    "read_call",
    "read_record",
    "record_to_json",
    "sent_args",
]

VERSION: Final = 3
"""Of these messages: a worker refuses input of a newer one."""
KINDS: Final[Mapping[RunKind, str]] = {
    "chain": "toolexec-chain",
    "workflow": "toolexec-workflow",
    "code": "toolexec-code",
}
"""The type of Temporal workflow for each kind of run."""
RUN_FAILED: Final = "toolexec-run-failed"
"""The type of the failure of a run that has ended by itself: its details say how, as results do."""
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


@dataclass
class Carried:
    """What a run takes along into a new history."""

    calls: list[JSONDict] = field(default_factory=list[JSONDict])
    delivered: list[list[str]] = field(default_factory=list[list[str]])
    signals: list[JSONDict] = field(default_factory=list[JSONDict])


@dataclass
class RunInput:
    """What the Temporal workflow of a run is started with."""

    record: JSONDict
    rules: Rules
    carried: Carried | None = None
    version: int = VERSION


@dataclass
class CallSpec:
    """One tool call, as the workflow has it made. `answer` is that to an approval that it needed, `origin` whom the run
    is for (of older runs there is only the ID of the `caller`). `excess` says of a call that is to be refused why
    nothing may walk its arguments, which are left out. `run` is the kind of a run whose program no activity runs
    (chain, workflow or skill), so that it is decided on with each of its calls; `approved` says that it was approved
    when it began. `refused` is the error of a call whose arguments are too large to come here."""

    run_id: str
    step: str
    tool: str
    args: JSONDict
    timeout: float | None = None
    caller: str = ""
    path: str = "code"
    digest: str = ""
    answer: JSONValue = None
    origin: JSONDict | None = None
    excess: str = ""
    run: str = ""
    approved: bool = False
    refused: JSONDict | None = None


@dataclass
class RunSpec:
    """A run that has ended, as audit and telemetry record it: with its origin, and how it failed, if it did."""

    run_id: str
    kind: str
    origin: JSONDict
    seconds: float
    steps: int = 0
    failure: JSONDict | None = None


@dataclass
class Exchange:
    """What a sandbox has for its workflow: what it asks for, each item with an ID, the IDs whose answers it waits for,
    those of items to cancel, and what reached the code.

    `attempt` orders the workers that have run it: an earlier one has lost the run.
    """

    attempt: int
    items: list[JSONDict] = field(default_factory=list[JSONDict])
    wanted: list[str] = field(default_factory=list[str])
    cancelled: list[str] = field(default_factory=list[str])
    delivered: list[list[str]] = field(default_factory=list[list[str]])


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
    version: int = VERSION


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


def sent_args(args: JSONObject | None) -> tuple[JSONDict, str]:
    """Return the `args` and the `excess` of a CallSpec. Raises InputValidationError for arguments that do not fit."""
    if type(args) is not RefusedArgs:
        return dict(args or {}), ""
    if args.excess is None:
        raise args.error
    return {}, args.excess.name


def read_args(spec: CallSpec) -> JSONObject:
    """Return the arguments of a call that `sent_args` has written."""
    return RefusedArgs(Excess[spec.excess], spec.tool) if spec.excess else spec.args


def read_call(data: Mapping[str, Any]) -> CallRecord:
    """Return what `call_to_json` has written."""
    given: dict[str, Any] = {**data, "at": tuple(data.get("at") or ()) or None}
    return CallRecord(**given)
