"""How Temporal is reached, and what holds for the runs on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.model.settings import checked

__all__ = ["MIN_KEY_CHARS", "TemporalSettings"]

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

    Raises ConfigurationError for a value that makes no sense.
    """

    address: str = "localhost:7233"
    namespace: str = "default"
    task_queue: str = "toolexec-execution"
    prefix: str = "toolexec-"
    tls: bool = False
    api_key: str = ""
    key: str = ""
    old_keys: Sequence[str] = ()
    large_bytes: int = 256 << 10
    large_directory: str | Path = ""
    call_timeout: float = 300.0
    heartbeat_timeout: float = 10.0
    attempts: int = 10
    max_events: int = 8000
    linger: float = 1.0
    timer_linger: float = 10.0
    deployment: str = "toolexec"
    build_id: str = ""
    pinned: bool = False

    def __post_init__(self) -> None:
        for key in (self.key, *self.old_keys):
            if key and len(key) < MIN_KEY_CHARS:
                raise ConfigurationError(f"a key of Temporal's payloads has at least {MIN_KEY_CHARS} characters")
        for name in ("address", "namespace", "task_queue", "deployment"):
            if not getattr(self, name):
                raise ConfigurationError(f"{name} of Temporal must not be empty")
        for name in ("call_timeout", "heartbeat_timeout", "attempts", "max_events", "large_bytes"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be above 0, not {getattr(self, name)!r}")
        for name in ("linger", "timer_linger"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"{name} must be 0 or more seconds, not {getattr(self, name)!r}")

    def queue_for(self, isolation: str) -> str:
        """Return the task queue of the workers with sandboxes of one isolation."""
        return f"{self.task_queue}-{isolation}"
