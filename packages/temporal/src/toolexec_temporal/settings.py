"""How Temporal is reached, and what holds for the runs on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.journal import Bytes, PathName, Seconds, checked, setting

MIN_KEY_CHARS: Final = 16


@checked("TemporalSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalSettings:
    """Where Temporal is, and how runs go on it; callers and workers need the same.

    `address` is `host:port`, `tls` and `api_key` are for a server that asks for them. Workers of `task_queue` run the
    workflows and their tool calls, those of `task_queue` and an isolation (`toolexec-execution-wasm`) run code in
    sandboxes of that isolation. The ID of a Temporal workflow is `prefix` and the ID of the run.

    `key` is a secret of at least 16 characters: with it nothing of a run but IDs, types and times is readable on the
    server; `old_keys` can still be read. These and `api_key` may be references, such as `secretref:env:TEMPORAL_KEY`.
    Payloads of more than `large_bytes` are kept as files in `large_directory`, which all callers and workers share, in
    place of the history ("": nothing is).

    `call_timeout` (seconds) bounds one attempt at a tool call, `heartbeat_timeout` is how long a worker may be silent
    before its work is given to another one, `attempts` how often a call that can be repeated is begun when workers are
    lost. After `max_events` events a run continues in a new history. `linger` is how many seconds a run waits idle
    before its sandbox is stopped, and its caller gets an answer; a timer of its program of `timer_linger` seconds or
    less keeps the sandbox.

    With `build_id` workers are a version of `deployment`, as Temporal's worker versioning has it: new runs go to the
    version that the operator has made the current one, and those under way move on to it, or stay (`pinned`) with the
    version that they began with.

    With `search_attributes` Temporal's own tools find runs by who they are for, their skill, the tools that they have
    called, and what they wait for. These words are readable on the server, whether there is a key or not; the namespace
    must have the attributes.

    Raises ConfigurationError for a value that makes no sense.
    """

    address: str = setting("localhost:7233", "Where Temporal is.")
    namespace: str = setting("default", "The namespace of the runs.")
    task_queue: str = setting(
        "toolexec-execution", "The queue of runs and tool calls; queue-wasm and the like: of code."
    )
    prefix: str = setting("toolexec-", "What comes before the ID of a run in Temporal.")
    tls: bool = setting(False, "Connect with TLS.")
    api_key: str = setting("", "The API key of the server.", secret=True)
    key: str = setting("", "A secret of 16 characters or more that encrypts all that the server gets.", secret=True)
    old_keys: Sequence[str] = setting((), "Former keys, which can still be read.", secret=True)
    large_bytes: Bytes = setting(256 * 1024, "Larger payloads are kept as files.", least=1)
    large_directory: PathName = setting("", "The directory of those, shared by all; empty: there is none.")
    call_timeout: Seconds = setting(300.0, "How long one attempt at a call may take.", above=0, file_least=0.1)
    heartbeat_timeout: Seconds = setting(
        10.0, "A worker that is silent for so long counts as lost.", above=0, file_least=0.5
    )
    attempts: int = setting(10, "How often a call that can be repeated is begun when workers are lost.", least=1)
    max_events: int = setting(8000, "A run continues in a new history after so many events.", least=1, file_least=50)
    linger: Seconds = setting(1.0, "How long a run waits idle before its sandbox is stopped.", least=0)
    timer_linger: Seconds = setting(10.0, "A program's timer that is no longer keeps the sandbox.", least=0)
    deployment: str = setting("toolexec", "The name of the deployment that workers with a build_id belong to.")
    build_id: str = setting("", "The version of this worker in its deployment; empty: workers have none.")
    pinned: bool = setting(False, "Runs stay with the version of the worker that they began with.")
    search_attributes: bool = setting(
        False, "Runs can be searched by caller, skill, tools and waits, which the server can read then."
    )

    def __post_init__(self) -> None:
        for key in (self.key, *self.old_keys):
            if key and len(key) < MIN_KEY_CHARS:
                raise ConfigurationError(f"a key of Temporal's payloads has at least {MIN_KEY_CHARS} characters")
        for name in ("address", "namespace", "task_queue", "deployment"):
            if not getattr(self, name):
                raise ConfigurationError(f"{name} of Temporal must not be empty")

    def queue_for(self, isolation: str) -> str:
        """Return the task queue of the workers with sandboxes of one isolation."""
        return f"{self.task_queue}-{isolation}"


def queue_of_places(task_queue: str, name: str) -> str:
    """Return the task queue of the places that runs of the queue *name* hold, beside that of the runs."""
    return f"{task_queue}-queue-{name}"


@checked("TemporalSandbox")
@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalSandbox(TemporalSettings):
    """What code runs in on Temporal: the kind of sandbox that its workers have (`inner`), and where Temporal is.

    In settings `inner` is a key of the table of `sandboxes.plugins` with the kind `temporal`, and the others are those
    of `[durable.temporal]`. Raises ConfigurationError as `TemporalSettings` does.
    """

    inner: str = setting("wasm", "The kind of sandbox that the workers have.")


def queue_of_slots(task_queue: str) -> str:
    """Return the task queue of what keeps the limits of queues over all workers, beside that of the runs."""
    return f"{task_queue}-slots"
