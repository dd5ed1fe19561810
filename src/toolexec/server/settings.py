"""How a server is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.model.declared import Bytes, FileName, Seconds, same_as, setting
from toolexec.model.settings import checked
from toolexec.run.settings import ApprovalSettings
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.settings import HttpSettings
from toolexec.version import __version__

__all__ = ["Expose", "ServeSettings", "TaskMode", "TaskSettings", "Transport"]

Transport: TypeAlias = Literal["stdio", "http", "sse"]
"""How clients connect."""
Expose: TypeAlias = Literal["auto", "meta", "direct", "code"]
"""What a server lists; `auto` chooses by the size of the definitions."""

TaskMode: TypeAlias = Literal["auto", "always", "never"]
"""When a call becomes a task: after some seconds, at once, or never."""


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

    mode: TaskMode = setting("auto", "Which calls become tasks: those that take long, all, none.")
    after: Seconds = setting(10.0, "How long a call runs before it becomes a task.", least=0)
    ttl: Seconds = setting(
        86400.0, "Lifetime of a task from its creation; it is stopped and deleted then.", above=0, file_least=1
    )
    durable: bool = setting(
        False, "Chains, workflows, skills and code that may become tasks wait for people, and survive restarts."
    )
    path: FileName = setting("", "SQLite file of tasks; empty: tasks.db in the state directory.")
    max_tasks: int = setting(1000, "Most tasks kept; finished ones make room.", least=1)
    max_per_caller: int = setting(100, "Most tasks kept per caller.", least=1)
    max_bytes: Bytes = setting(256 * 1024**2, "Total size of kept results.", least=1)
    max_bytes_per_caller: Bytes = setting(64 * 1024**2, "Total size of kept results per caller.", least=1)


@checked("ServeSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """All settings of a server; every one has a default.

    `expose` is what clients see: `meta` tools to find, read and run the others; `direct`, the tools themselves; `code`,
    one tool that finds and one that runs code; `auto`, the tools themselves where a task costs a model less then, else
    as with `code`, or with `meta` where code is switched off. `name`, `version`, `title` and `instructions` are what
    the server says of itself (no instructions: those that fit what is exposed). `page_size` is for `tools/list`.

    With `list_all` the list has all of the server's own tools and their arguments, for clients that call only what they
    see; without, only those that a model needs, and the others can be called all the same.

    `list_changed` notifies clients of changes of the catalogue, once per burst: when nothing has changed for
    `list_changed_debounce` seconds. For `direct_wait` seconds after its start (with `auto`, 2 at most), a server that
    shows the tools themselves has `tools/list` wait for backends that are still starting; what comes later is announced
    by `list_changed`.

    `approval_timeout` is how long, in seconds, a person has to answer; then the answer is no. At most `suspended_max`
    calls wait for answers between requests; when there are as many, the caller with most of them makes room for others.
    `state_keys` (32 bytes or more each, or secret references; the first seals, all open) seal their state, and encrypt
    what is kept of a server; none means a key that is kept with it, or a fresh one.

    `state_path` is the file, SQLite, of what a server must not forget when it ends, and what several servers on one
    machine share: the sessions of clients over HTTP, and the calls that wait for answers (empty: in memory only).
    `state_url` is the address of a store in its place that servers on many machines share, or a secret reference to
    it, such as `secretref:env:STATE`; `valkey://` and `valkeys://` (with TLS) need the extra `valkey`.

    Results that were too large for a reply are kept there, too, encrypted: at most `state_results` bytes of all callers
    together; then the one that has most there loses what it has not read for the longest time.

    `max_result_bytes` is how long a result may be, as JSON, before it is cut (None: as the budget says);
    `max_line_bytes` is how long a line on stdin may be. `tasks` is for calls that outlive their request; `http` and
    `auth` are for the transports `http` and `sse`.

    Raises ConfigurationError for a value that makes no sense.
    """

    name: str = setting("toolexec", "The name that clients see.")
    title: str = setting("", "The name that people see.")
    version: str = __version__
    transport: Transport = setting("stdio", "How clients connect; sse adds the older HTTP transport.")
    expose: Expose = setting(
        "meta", "What clients see: meta-tools, the tools themselves, code only, or (auto) the cheapest."
    )
    list_all: bool = setting(False, "List all of the server's own tools and arguments, even rarely needed ones.")
    instructions: str = setting("", "Instructions for the model; empty: the default text.")
    page_size: int = setting(50, "Tools per page of a list.", least=1, file_most=1000)
    list_changed: bool = setting(True, "Tell clients when the tools have changed.")
    list_changed_debounce: Seconds = setting(
        0.15, "How long tool changes are collected into one notification.", above=0, file_least=0.001
    )
    direct_wait: Seconds = setting(
        8.0, "How long the first list of directly exposed tools waits for starting servers.", least=0
    )
    approval_timeout: Seconds = same_as(ApprovalSettings, "timeout")
    suspended_max: int = setting(100, "Most calls that wait for answers between requests.", least=1)
    state_keys: tuple[str, ...] = setting(
        (),
        "Keys of 32 bytes or more that encrypt such calls and what is kept of them; else one is made.",
        secret=True,
    )
    state_path: FileName = setting(
        "", "The file of sessions and of such calls, SQLite; empty: server.db in the state directory."
    )
    state_url: str = setting(
        "", "A store in place of the file, for many machines: valkeys://..., or secretref:env:NAME.", secret=True
    )
    state_results: Bytes = setting(
        64 * 1024**2, "Total size of the results kept for paged reading; they survive a restart.", least=0
    )
    max_line_bytes: Bytes = setting(16 * 1024**2, "The longest message over stdio.", least=1)
    max_result_bytes: int | None = setting(None, "The longest result, as JSON; longer ones are cut.", least=1)
    tasks: TaskSettings = field(default_factory=TaskSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError("a server needs a name")
        for number, key in enumerate(self.state_keys):
            if len(key.encode()) < 32 and not key.startswith("secretref:"):  # which is looked up, and measured, later
                raise ConfigurationError(f"state_keys[{number}] must be 32 bytes or longer; make one at random")
