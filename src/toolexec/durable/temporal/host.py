"""What a worker needs of the tools and sandboxes around it; an `Exec` has it, and the workflows find it here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from toolexec.code.deliveries import Deliveries
from toolexec.discovery.index import Index, Registered
from toolexec.durable.journal import RunRecord
from toolexec.durable.temporal.messages import CallSpec, RunSpec
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.run.runner import Runner
from toolexec.runtime.base import SandboxBackend

__all__ = ["Host", "host_of", "hosted", "unhosted"]


class Host(Protocol):
    """Makes the calls of durable runs, and runs their programs."""

    @property
    def index(self) -> Index:
        """The tools."""
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
        telemetry record it only where it runs in an activity: else it is done again whenever Temporal repeats it."""
        ...

    async def record(self, spec: RunSpec) -> None:
        """Have audit and telemetry know of a run that has ended, as they do of chains and code."""
        ...

    def sandboxes(self) -> Mapping[str, SandboxBackend]:
        """Return the sandboxes that this worker offers, by kind."""
        ...


_hosts: dict[str, Host] = {}


def hosted(queue: str, host: Host) -> None:
    """Have the workflows on a task queue find *host*. Raises ConfigurationError for a second one."""
    if _hosts.setdefault(queue, host) is not host:
        raise ConfigurationError(f"another worker for the task queue {queue} runs in this process")


def unhosted(queue: str, host: Host) -> None:
    """Forget it."""
    if _hosts.get(queue) is host:
        del _hosts[queue]


def host_of(queue: str) -> Host:
    """Return the host of the workflows on a task queue."""
    return _hosts[queue]
