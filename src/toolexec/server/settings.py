"""How a server is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from toolexec.errors import ConfigurationError
from toolexec.model.settings import checked
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.settings import HttpSettings
from toolexec.version import __version__

__all__ = ["Expose", "ServeSettings", "TaskMode", "TaskSettings", "Transport"]

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Expose: TypeAlias = Literal["auto", "meta", "direct", "code"]

TaskMode: TypeAlias = Literal["auto", "always", "never"]

_ABOVE_ZERO = ("approval_timeout", "list_changed_debounce")
_COUNTS = ("page_size", "suspended_max", "max_line_bytes")


@checked("TaskSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """When calls become tasks, for clients that offer to take them, and how tasks are kept.

    `mode` is `auto`, where a call becomes a task once it has taken `after` seconds, `always` (at once), or `never`. A
    client that asks for a task, as one of 2025-11-25 can, gets one at once in both. A task is dropped `ttl` seconds
    after it was made; work that is not done by then is stopped.

    With `durable`, calls of `run_chain`, `run_workflow`, `execute_code` and skills that may become tasks are durable
    runs in the journal of the `Exec`, with the ID of their task: they may wait for inputs, approvals and signals, which
    clients are asked for by way of the task, and go on after a restart of the server.

    `path` is the file of tasks, SQLite (empty: they are kept in memory). At most `max_tasks` tasks are kept, and
    `max_bytes` of their results, as JSON; of one caller, `max_per_caller` and `max_bytes_per_caller`.

    Raises ConfigurationError for a value that makes no sense.
    """

    mode: TaskMode = "auto"
    after: float = 10.0
    ttl: float = 86_400.0
    durable: bool = False
    path: str = ""
    max_tasks: int = 1000
    max_per_caller: int = 100
    max_bytes: int = 256 * 1024 * 1024
    max_bytes_per_caller: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        _check_choice("tasks.mode", self.mode, get_args(TaskMode))
        if not self.after >= 0:
            raise ConfigurationError(f"tasks.after must be 0 seconds or more, not {self.after!r}")
        if not self.ttl > 0:
            raise ConfigurationError(f"tasks.ttl must be above 0 seconds, not {self.ttl!r}")
        for name in ("max_tasks", "max_per_caller", "max_bytes", "max_bytes_per_caller"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"tasks.{name} must be 1 or more, not {getattr(self, name)!r}")


@checked("ServeSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """All settings of a server; every one has a default.

    `expose` is what clients see: `meta` tools to find, read and run the others; `direct`, the tools themselves; `code`,
    the tools to find and read and one to run code; `auto`, the tools themselves and one to run code where a model reads
    less then than with `meta`, else `meta`. `name`, `version`, `title` and `instructions` are what the server
    says of itself (no instructions: those that fit what is exposed). `page_size` is for `tools/list`.

    `list_changed` notifies clients of changes of the catalogue, once per burst: when nothing has changed for
    `list_changed_debounce` seconds. For `direct_wait` seconds after its start (with `auto`, 2 at most), a server that
    shows the tools themselves has `tools/list` wait for backends that are still starting; what comes later is announced
    by `list_changed`.

    `approval_timeout` is how long, in seconds, a person has to answer; then the answer is no. At most `suspended_max`
    calls wait for answers between requests; when there are as many, the caller with most of them makes room for others.
    `state_keys` (32 bytes or more each; the first seals) seal their state, where it must outlive the process or be
    known to another one; none means a fresh key.

    `max_result_bytes` is how long a result may be, as JSON, before it is cut (None: as the budget says);
    `max_line_bytes` is how long a line on stdin may be. `tasks` is for calls that outlive their request; `http` and
    `auth` are for the transports `http` and `sse`.

    Raises ConfigurationError for a value that makes no sense.
    """

    transport: Transport = "stdio"
    expose: Expose = "meta"
    name: str = "toolexec"
    version: str = __version__
    title: str = ""
    instructions: str = ""
    page_size: int = 50
    list_changed: bool = True
    list_changed_debounce: float = 0.15
    direct_wait: float = 8.0
    approval_timeout: float = 120.0
    suspended_max: int = 100
    state_keys: tuple[str, ...] = field(default=(), repr=False)
    max_result_bytes: int | None = None
    max_line_bytes: int = 16 * 1024 * 1024
    tasks: TaskSettings = field(default_factory=TaskSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)

    def __post_init__(self) -> None:
        _check_choice("transport", self.transport, get_args(Transport))
        _check_choice("expose", self.expose, get_args(Expose))
        if not self.name:
            raise ConfigurationError("a server needs a name")
        for name in _COUNTS:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"{name} must be an integer, 1 or more, not {value!r}")
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
                raise ConfigurationError(f"{name} must be above 0 seconds, not {value!r}")
        if self.max_result_bytes is not None and self.max_result_bytes < 1:
            raise ConfigurationError(f"max_result_bytes must be 1 or more, not {self.max_result_bytes!r}")
        if not self.direct_wait >= 0:
            raise ConfigurationError(f"direct_wait must be 0 seconds or more, not {self.direct_wait!r}")
        for number, key in enumerate(self.state_keys):
            if len(key.encode()) < 32:
                raise ConfigurationError(f"state_keys[{number}] must be 32 bytes or longer; make one at random")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(f"unknown {name} {value!r}; use {', '.join(choices)}")
