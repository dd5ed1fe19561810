"""How an `Exec` is set up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

from toolexec.cassette.modes import CassetteMode
from toolexec.code.limits import DEFAULT_RESULT_BYTES, Limits
from toolexec.errors import ConfigurationError
from toolexec.lazy import lazy_names
from toolexec.model.declared import Bytes, Seconds, setting
from toolexec.model.json_value import JSONObject
from toolexec.model.settings import checked
from toolexec.run.context_settings import ContextSettings

if TYPE_CHECKING:
    from toolexec.backend.registry import BackendRegistry
    from toolexec.cassette.cassette import Cassette
    from toolexec.discovery.docs import DocStore
    from toolexec.discovery.index import Index
    from toolexec.discovery.toolset import Toolset
    from toolexec.durable.engine import DurableEngine
    from toolexec.durable.journal import Journal
    from toolexec.durable.queues import Queue
    from toolexec.durable.record import Record
    from toolexec.model.transform import ToolTransform
    from toolexec.run.default_gate import DefaultGate
    from toolexec.run.gate import Gate
    from toolexec.run.layers.trace import TraceHook
    from toolexec.run.resolve import BindingsResolver, ToolResolver
    from toolexec.run.runner import OutputValidation, Runner
    from toolexec.runtime.sandboxes import RuntimeBackends, SandboxSettings
else:  # what the annotations name, for `checked`: each is imported with the first value that is given for it
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.backend.registry": ("BackendRegistry",),
            "toolexec.cassette.cassette": ("Cassette",),
            "toolexec.discovery.docs": ("DocStore",),
            "toolexec.discovery.index": ("Index",),
            "toolexec.discovery.toolset": ("Toolset",),
            "toolexec.durable.engine": ("DurableEngine",),
            "toolexec.durable.journal": ("Journal",),
            "toolexec.durable.queues": ("Queue",),
            "toolexec.durable.record": ("Record",),
            "toolexec.model.transform": ("ToolTransform",),
            "toolexec.run.default_gate": ("DefaultGate",),
            "toolexec.run.gate": ("Gate",),
            "toolexec.run.layers.trace": ("TraceHook",),
            "toolexec.run.resolve": ("BindingsResolver", "ToolResolver"),
            "toolexec.run.runner": ("OutputValidation", "Runner"),
            "toolexec.runtime.sandboxes": ("RuntimeBackends", "SandboxSettings"),
        },
    )

__all__ = ["DEFAULT_TOOL_CALLS", "CallRemote", "ExecSettings", "Options", "RuntimeBackends", "SecurityProfile"]

DEFAULT_TOOL_CALLS: Final = 100
"""How many calls a run of code may make, where none was given."""
SecurityProfile: TypeAlias = Literal["dev", "standard", "hardened", "wasm"]
"""How much code is trusted: see `Runtime`. `wasm` is another name for `standard` in the embedded sandbox."""
CallRemote: TypeAlias = Callable[[str, str, JSONObject], Awaitable[Any] | Any]
"""Takes the server's or provider's name, the tool's name there, and the arguments; gives the answer."""


def _default_gate() -> DefaultGate:
    from toolexec.run.default_gate import DefaultGate

    return DefaultGate()


@checked("Exec", leave=("gate",))  # its check would import every gate there is
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All settings of an `Exec`; every one has a default.

    Parts: `index`, `docs` and `backends` replace the ones that an Exec makes for itself. `local_handlers` maps handler
    names to functions of one dict, looked up at each call. `mcp_executor` and `provider_executor` answer for servers
    and providers that no backend is registered for. `tool_resolver` and `bindings_resolver` are asked about tools that
    the index does not know. `toolset` is all that can be found, described and run, however it is asked for: other tools
    are as if they were not there. `transforms` says how tools are shown, by their own IDs: each is a `ToolTransform`,
    or a mapping with its parts. `trace` is notified of every call. `gate` holds the rules around every call: policy,
    approval, rate limits, audit and more. Without one, calls of tools that are marked as destructive and run outside of
    this program need approval; None switches that off. `layers` are your own rules around every call, each a function
    from a runner to a runner; the first is outermost, all are inside of trace and gate and outside of the time limit.

    Checks: `validate_input`; `validate_output`, where None means strict for local and warn for remote tools, True
    strict, False off.

    Limits: `default_timeout` in seconds for a call, for each step of a chain and for a run of code that asks for none
    (None: none); `max_timeout` is the longest that one may ask for (None: no ceiling), and holds where the default is
    longer. What is above a ceiling is refused with InvalidLimitsError. `start_timeout` bounds how long a start waits
    for slow servers (they go on connecting).

    Code: `enable_code_execution` false refuses all code but workflows, which need no sandbox. `security_profile` is
    that of code which asks for none; `unsafe_opt_in` allows the profile `dev`, which runs code on this machine without
    isolation. `runtime_backends` are the sandboxes in place of all that there are: a list, a mapping from profiles, or
    settings. `default_language`; `max_tool_calls` and `code_limits` are the most that a run may ask for (0: any);
    `default_tool_calls` is for a run that asks for no number (None: `max_tool_calls`, or 100 where there is none);
    `result_bytes` is how long a tool's result may be, as JSON, before code gets a handle in its place.

    Durable runs: `journal` keeps them; the path of a file makes it a `SQLiteJournal`, a `postgresql://` address, or a
    `secretref:` to one, a `PostgresJournal`, and the kind of a plugin, such as `temporal`, what that has; with an
    engine they run elsewhere. A run that waits, and does nothing else for `linger` seconds, is suspended; for a timer
    of its program, such as a sleep, only one that is due in more than `timer_linger` seconds. `queues` are those that
    runs are put into and workers take from, by name.

    `record` writes other runs into the `journal`, too, once they have ended, so that they can be replayed, compared and
    forked: a share of them (1: all), or a `Record` with more of what is to be kept. Secrets are replaced in it.

    Tests without a network: `cassette` is a file of recorded calls, or a `Cassette`. By `cassette_mode`, `replay`
    answers every call from it and reaches no backend, `record` begins it again, `auto` replays what it has and records
    the rest, `refresh` makes all calls again. Policy, limits and audit hold for replayed calls, too.

    Tokens: `context` says how those of conversations are counted (see `Exec.context`), and how many there may be.

    Raises ConfigurationError for a setting that there is not, with the nearest one, and for an invalid value;
    CassetteError for a cassette that cannot be used.

    >>> from toolexec import Exec
    >>> options = Options(default_timeout=5, result_bytes=100_000)
    >>> Exec(options, default_timeout=10).options.default_timeout
    10
    """

    index: Index | None = None
    docs: DocStore | None = None
    backends: BackendRegistry | None = None
    local_handlers: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    mcp_executor: CallRemote | None = None
    provider_executor: CallRemote | None = None
    tool_resolver: ToolResolver | None = None
    bindings_resolver: BindingsResolver | None = None
    toolset: Toolset | None = None
    transforms: Mapping[str, ToolTransform | Mapping[str, Any]] = field(
        default_factory=dict[str, "ToolTransform | Mapping[str, Any]"]
    )
    trace: TraceHook | None = None
    gate: Gate | DefaultGate | None = field(default_factory=_default_gate)
    layers: Sequence[Callable[[Runner], Runner]] = ()
    validate_input: bool = True
    validate_output: OutputValidation | bool | None = None
    default_timeout: float | None = setting(
        30.0, "Default time limit of a call or a run of code.", above=0, file_least=0
    )
    max_timeout: float | None = setting(
        None, "Longest time limit that a call or code may ask for; 0: when served, 10 minutes.", above=0, file_least=0
    )
    start_timeout: Seconds = setting(10.0, "How long startup waits for slow servers.", above=0, file_least=0.01)
    max_examples: int | None = setting(10, "How many examples a tool may have.", least=0)
    enable_code_execution: bool = setting(
        True, "Whether code can be run; workflows, which need no sandbox, always can."
    )
    security_profile: SecurityProfile = setting("standard", "Default security profile of code.")
    default_language: str = setting("python", "Default language of code.")
    unsafe_opt_in: bool = setting(False, "Allow the profile dev: code runs on this machine WITHOUT A SANDBOX.")
    runtime_backends: RuntimeBackends | SandboxSettings | None = None
    default_tool_calls: int | None = setting(
        None, "Default number of tool calls in a run of code; 0: max_tool_calls, or 100.", least=0
    )
    max_tool_calls: int = setting(0, "Most tool calls that a run of code may ask for; 0: when served, 1,000.", least=0)
    code_limits: Limits = field(default_factory=Limits)
    result_bytes: Bytes = setting(
        DEFAULT_RESULT_BYTES, "How long a tool's result may be until code gets a handle in its place.", least=0
    )
    journal: Journal | DurableEngine | str | Path | None = setting(
        None, "SQLite file of the runs, or a kind of journal; empty: runs.db in the state directory."
    )
    linger: Seconds = setting(1.0, "How long a waiting run keeps its process.", above=0, file_least=0.001)
    timer_linger: Seconds = setting(10.0, "A timer due within this time keeps the process, too.", least=0)
    queues: Mapping[str, Queue] = field(default_factory=dict[str, "Queue"])
    record: Record | float | None = None
    cassette: Cassette | str | Path | None = setting(
        None, "The file of recorded calls, YAML; empty: calls are made, and not recorded."
    )
    cassette_mode: CassetteMode = setting(
        "replay",
        "Answer calls from it (replay), start afresh (record), add to it (auto), repeat all (refresh).",
    )
    context: ContextSettings = field(default_factory=ContextSettings)

    def __post_init__(self) -> None:
        if self.gate is not None and not callable(getattr(self.gate, "wrap", None)):
            raise ConfigurationError(
                f"gate must be a Gate, or None for no rules at all, not {self.gate!r}", details={"setting": "gate"}
            )
        if self.cassette is None and self.cassette_mode != "replay":
            raise ConfigurationError(
                f"cassette_mode is {self.cassette_mode!r}, and there is no cassette; name its file: "
                f"Exec(cassette='session.yaml', cassette_mode={self.cassette_mode!r}), or path in the block [cassette] "
                "of toolexec.toml",
                details={"setting": "cassette_mode"},
            )
        if self.record and self.journal is None:
            raise ConfigurationError(
                "recorded runs are kept in a journal: Exec(journal='runs.db', record=1), or journal in the block "
                "[durable] of toolexec.toml",
                details={"setting": "record"},
            )
        if isinstance(self.journal, str) and "://" in self.journal:
            _check_address(self.journal)
        if self.record:
            _check_recording(self.journal)

    @property
    def tool_calls(self) -> int:
        """How many calls a run of code may make that asks for no number."""
        if self.default_tool_calls is not None:
            return self.default_tool_calls
        return self.max_tool_calls or DEFAULT_TOOL_CALLS

    @property
    def own_gate(self) -> Gate | None:
        """The gate that was given; None also for the default one, which hides, counts and keeps nothing."""
        from toolexec.run.default_gate import DefaultGate

        return None if isinstance(self.gate, DefaultGate) else self.gate

    @property
    def output_validation(self) -> OutputValidation | None:
        """`validate_output` with the booleans spelled out."""
        if isinstance(self.validate_output, bool):
            return "strict" if self.validate_output else "off"
        return self.validate_output


def _check_address(journal: str) -> None:
    """Raise ConfigurationError for an address of what no journal is kept in, so that no file gets such a name."""
    from toolexec.durable.journals import DATABASES

    if not journal.startswith(DATABASES):
        scheme = journal.partition("://")[0]
        raise ConfigurationError(
            f"journal has an address that begins with {scheme}://, where no journal is kept; give the path of a file, "
            "or the address of a database that begins with postgresql://",
            details={"setting": "journal"},
        )


def _check_recording(journal: Journal | DurableEngine | str | Path | None) -> None:
    """Raise ConfigurationError for a journal that keeps no recordings of other runs: now, and not at the first run."""
    from toolexec.durable.journals import is_journal_kind, make_journal
    from toolexec.durable.recorder import recording_store

    if isinstance(journal, Path) or (isinstance(journal, str) and not is_journal_kind(journal)):
        return  # a file or PostgreSQL
    made = make_journal(journal) if isinstance(journal, str) else journal
    try:
        recording_store(made)
    finally:
        if made is not journal and (close := getattr(made, "close", None)) is not None:
            close()  # an engine has connected to nothing


# Written out: no type checker derives the keys of a TypedDict from a dataclass, and a generated copy would be the same
# lines beside a generator. tests/exec/test_door.py compares names and types with those of Options.
class ExecSettings(TypedDict, total=False):
    """The settings of an `Exec` by keyword: the fields of `Options`, for type checkers."""

    index: Index | None
    docs: DocStore | None
    backends: BackendRegistry | None
    local_handlers: Mapping[str, Callable[..., Any]]
    mcp_executor: CallRemote | None
    provider_executor: CallRemote | None
    tool_resolver: ToolResolver | None
    bindings_resolver: BindingsResolver | None
    toolset: Toolset | None
    transforms: Mapping[str, ToolTransform | Mapping[str, Any]]
    trace: TraceHook | None
    gate: Gate | DefaultGate | None
    layers: Sequence[Callable[[Runner], Runner]]
    validate_input: bool
    validate_output: OutputValidation | bool | None
    default_timeout: float | None
    max_timeout: float | None
    start_timeout: float
    max_examples: int | None
    enable_code_execution: bool
    security_profile: SecurityProfile
    unsafe_opt_in: bool
    runtime_backends: RuntimeBackends | SandboxSettings | None
    default_language: str
    default_tool_calls: int | None
    max_tool_calls: int
    code_limits: Limits
    result_bytes: int
    journal: Journal | DurableEngine | str | Path | None
    linger: float
    timer_linger: float
    queues: Mapping[str, Queue]
    record: Record | float | None
    cassette: Cassette | str | Path | None
    cassette_mode: CassetteMode
    context: ContextSettings
