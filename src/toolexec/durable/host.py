"""What the workers of an engine need of the tools and sandboxes around them: an `Exec` has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from toolexec.code.deliveries import Deliveries
from toolexec.discovery.index import Index, Registered
from toolexec.durable.engine import DurableEngine
from toolexec.durable.journal import RunRecord
from toolexec.durable.queues import Queue
from toolexec.model.arguments import RefusedArgs
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.tree_size import Excess
from toolexec.run.checks import CHECKS
from toolexec.run.large import ON_LOOP
from toolexec.run.program_limits import PROGRAM_LIMITS, ProgramLimit
from toolexec.run.runner import Runner
from toolexec.runtime.base import SandboxBackend


@dataclass
class CallSpec:
    """One tool call, as an engine has a worker make it: plain data, which it may send anywhere.

    `answer` is that to an approval that it needed, `origin` whom the run
    is for (of older runs there is only the ID of the `caller`). `excess` says of a call that is to be refused why
    nothing may walk its arguments, which are left out. `run` is the kind of a run whose program is repeated by the
    engine (chain, workflow or skill), so that it is decided on with each of its calls; `approved` says that it was
    approved when it began. `refused` is the error of a call whose arguments are too large to be sent."""

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


def repeat_here(
    checked: Callable[[Callable[[], None]], None], limit: Callable[[float], ProgramLimit] | None = None
) -> None:
    """Say that the current task repeats a program, which must do the same whatever the time is: nothing of it goes to
    threads. *checked* gets each check of the whole program, and makes it only where the run begins; *limit* makes
    the time limit of a program of so many seconds, for which its waits do not count (None: they do)."""
    ON_LOOP.set(True)
    CHECKS.set(checked)
    PROGRAM_LIMITS.set(limit)


class Host(Protocol):
    """Makes the calls of durable runs, and runs their programs."""

    @property
    def index(self) -> Index:
        """The tools."""
        ...

    @property
    def queues(self) -> Mapping[str, Queue]:
        """The queues that this worker takes runs from, with their limits, by name."""
        ...

    async def start(self) -> None:
        """Have everything ready: after this, no workflow has to wait for imports or connections."""
        ...

    def find(self, tool_id: str) -> Registered:
        """Return a tool; raises ToolNotFoundError."""
        ...

    async def call(self, spec: CallSpec) -> JSONDict:
        """Make one call; return `{"state": "done", "outcome": …}` as `durable.outcomes` writes it, or
        `{"state": "waits", "details": …}` for one that needs an approval first, whose
        answer comes with `spec.answer`. Raises nothing but what cancels it."""
        ...

    async def settle(self, spec: CallSpec) -> JSONDict:
        """Find out about a call whose worker was lost: as `call`, `{"state": "again"}` where it can be made again
        without harm, or `{"state": "unknown"}`."""
        ...

    async def run(self, record: RunRecord, runner: Runner, deliveries: Deliveries | None) -> JSONDict:
        """Run the program of a record with *runner* for its calls; return its result as JSON-able data. Audit and
        telemetry record it but for where it is repeated (`repeat_here`). Raises ClosedError when it was stopped as this
        worker is closed, which says nothing of the run."""
        ...

    async def record(self, spec: RunSpec) -> None:
        """Have audit and telemetry know of a run that has ended, as they do of chains and code."""
        ...

    def sandboxes(self) -> Mapping[str, SandboxBackend]:
        """Return the sandboxes that this worker offers, by kind."""
        ...


class Worker(Protocol):
    """Works for an engine, as `async with`: from the first line of the block on callers find it."""

    @property
    def queues(self) -> Sequence[str]:
        """What it takes work from."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


@runtime_checkable
class WorkedEngine(DurableEngine, Protocol):
    """An engine whose runs are the work of workers; `Exec.worker` is one."""

    def worker(self, host: Host, *, isolations: Sequence[str] | None, max_activities: int, patience: float) -> Worker:
        """Return a worker with the tools and sandboxes of *host*; `Exec.worker` says what the others are."""
        ...
