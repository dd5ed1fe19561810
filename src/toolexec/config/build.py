"""From settings to what they describe: an `Exec` with its tools and its gate, and the settings of a server."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.config import parts
from toolexec.config.callers import present_by
from toolexec.config.declared import read, values_for
from toolexec.config.entries import ENDPOINTS
from toolexec.config.gate_maker import RATES, GateMaker
from toolexec.config.loaded import LoadedConfig
from toolexec.config.python_files import PythonTools, located
from toolexec.config.toolsets import served_toolset
from toolexec.errors import CatalogueError, ConfigurationError
from toolexec.exec.options import Options
from toolexec.process.caches import state_directory
from toolexec.run.context_settings import ContextSettings
from toolexec.run.default_gate import DefaultGate
from toolexec.run.settings import ResultSettings
from toolexec.server.settings import TaskSettings

if TYPE_CHECKING:
    from toolexec.backend.base import Backend
    from toolexec.backend.mcp import MCPBackend, MCPServer
    from toolexec.discovery.catalogue import SQLiteCatalogue
    from toolexec.discovery.index import Index
    from toolexec.discovery.stored import StoredIndex
    from toolexec.discovery.toolset import Toolset
    from toolexec.exec import Exec
    from toolexec.model.origin import Approver
    from toolexec.run.audit import AuditLog
    from toolexec.run.gate import Gate
    from toolexec.run.layers.trace import TraceEvent, TraceHook
    from toolexec.run.results import ResultStore
    from toolexec.server.endpoint_settings import EndpointSettings
    from toolexec.server.endpoints import Endpoints
    from toolexec.server.settings import ServeSettings

logger: logging.Logger = logging.getLogger(__name__)

__all__ = [
    "GATE_BLOCKS",
    "RUNS_FILE",
    "STATE_FILE",
    "TASKS_FILE",
    "Built",
    "backends",
    "build",
    "by_endpoint",
    "choose_tools",
    "endpoint_settings",
    "server_backend",
    "skill_files",
    "state_directory",
]

GATE_BLOCKS = (
    "policy",
    "scan",
    "approval",
    "audit",
    "pinning",
    "telemetry",
    "results",
    "cache",
    "resilience",
    "learning",
)
"""The blocks of the settings that say what the gate is."""
TASKS_FILE = "tasks.db"
"""The file of tasks, in the state directory."""
STATE_FILE = "server.db"
"""The file of sessions and of calls that wait for answers, in the state directory."""
RUNS_FILE = "runs.db"
"""The file of durable runs, in the state directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What was built. `store` gives what keeps results too large for a reply, made at its first use; `audit`
    is the log of calls, if there is one, and is closed with the process, or by `close`; `catalogue` keeps the tools of
    servers, if it is wanted; `maker` has made the gate, unless a Python file brought its own; `state` is the state
    directory; `shows` says whether composed tools and transforms can be exchanged while it serves."""

    ex: Exec
    loaded: LoadedConfig
    store: Callable[[], ResultStore]
    gate: Gate | None = None
    audit: AuditLog | None = None
    catalogue: SQLiteCatalogue | None = None
    maker: GateMaker | None = None
    state: Path = field(default_factory=state_directory)
    shows: bool = False

    @property
    def results(self) -> ResultStore:
        """What keeps large results, for the gate and the server alike."""
        return self.store()

    @property
    def serve(self) -> ServeSettings:
        """The settings of the server; raises ConfigurationError."""
        settings = parts.serve_settings(self.loaded)
        if not settings.state_path:
            settings = replace(settings, state_path=str(self.state / STATE_FILE))
        if settings.tasks.path:
            return settings
        return replace(settings, tasks=replace(settings.tasks, path=str(self.state / TASKS_FILE)))

    def endpoints(self, settings: ServeSettings) -> Endpoints:
        """Return the endpoints beside the main one of a server with these *settings*; raises ConfigurationError."""
        from toolexec.server.endpoints import Endpoints

        made = Endpoints(self.ex, settings, self.index_at, self.results)
        made.exchange(made.prepare(endpoint_settings(self.loaded)))
        return made

    @property
    def index(self) -> Index:
        """The tools that there are at the main endpoint of a server, for one caller or another."""
        found = self.index_at("")
        return found if found is not None else self.ex.index

    def index_at(self, endpoint: str) -> Index | None:
        """Return the tools that there are at an endpoint; None where the gate does not say."""
        from toolexec.run.endpoint_rules import EndpointRules

        rules = self.gate.policy if self.gate is not None else None
        return rules.index(endpoint) if isinstance(rules, EndpointRules) else None

    def close(self) -> None:
        """Write down which tools there are and were seen, and close the audit log; to be called when the Exec is
        closed."""
        if self.gate is not None and self.gate.pinning is not None:
            from toolexec.run.pinning import Pins

            if isinstance(self.gate.pinning, Pins):
                self.gate.pinning.flush()
        for part in (self.gate.cache, self.gate.ledger) if self.gate is not None else ():
            close = getattr(part, "close", None)
            if callable(close):  # it has a file
                close()
        if (learned := self.ex.learned) is not None:
            try:
                learned.save()
            except OSError as error:  # the next results say it again
                logger.error("what was learned of results is not kept: %s", error)
        if self.audit is not None:
            self.audit.close()
        if self.catalogue is not None:
            try:
                self.catalogue.close()
            except CatalogueError as error:  # the work is done, and the file is as it was before
                logger.error("%s", error)


def build(
    loaded: LoadedConfig,
    *,
    serving: bool = False,
    terminal: Callable[[], Approver | None] | None = None,
    trace: TraceHook | None = None,
    state: Path | None = None,
) -> Built:
    """Build what *loaded* says; nothing is started yet.

    With *serving*, there are only the tools of the toolsets that the server names, if it names any, and the gate has
    policy, approval, audit, pinning and a budget, whatever is set; else it has those parts that are configured.
    *terminal* gives what asks at the terminal, or None where there is none; *trace* is notified of every call. *state*
    takes the place of `state_directory()`.

    An Exec that a Python file has at its top level keeps its options, but for those that are set; a gate of its
    own stays, too. Raises ConfigurationError when both it and the settings say what the gate is; also when a Python
    file cannot be used, or names clash. Raises MissingExtraError, AuditError for a log that cannot be written, and
    CatalogueError for a file that no catalogue can be kept in.
    """
    from toolexec.exec import Exec

    python = PythonTools(loaded.python)
    own = python.ex
    chooses = serving and by_endpoint(loaded)
    toolset = served_toolset(loaded) if serving and not chooses else None
    store = cache(partial(_result_store, loaded, own.options.own_gate if own is not None else None))
    if own is not None and own.options.own_gate is not None:
        _refuse_two_gates(loaded, python.place)
        toolset = served_toolset(loaded) if serving else None
        gate, audit, maker = own.options.own_gate, None, None
    else:
        maker = GateMaker(
            loaded=loaded,
            serving=serving,
            terminal=terminal,
            state=state or state_directory(),
            store=store,
            chooses=chooses,
        )
        gate, audit = maker.make()
    if gate is not None:
        gate.present = present_by(loaded)
    if serving and gate is not None:
        from toolexec.run.live_gate import LiveGate

        gate = LiveGate(gate)
    with ExitStack() as opened:
        if audit is not None:
            opened.callback(audit.close)
        kept = _kept_tools(loaded, python.place)
        catalogue, index = kept if kept is not None else (None, None)
        if catalogue is not None:
            opened.callback(catalogue.close)
        options = Options(toolset=toolset, index=index, transforms=loaded.transforms)
        ex = (
            Exec(parts.exec_options(loaded, options), gate=gate or options.gate, trace=trace)
            if own is None
            else _with(own, loaded, gate, trace, toolset)
        )
        if gate is not None:
            choose_tools(gate, ex)
        if isinstance(ex.options.gate, DefaultGate):
            ex.options.gate.approver = terminal
            ex.options.gate.present = present_by(loaded)
        _fill(ex, loaded, python)
        if (record := parts.record(loaded)) is not None:
            ex.reconfigure(record=record, journal=ex.options.journal or (state or state_directory()) / RUNS_FILE)
        if serving and read(TaskSettings, loaded.settings.tasks).durable and ex.options.journal is None:
            ex.reconfigure(journal=(state or state_directory()) / RUNS_FILE)
        opened.pop_all()
    if audit is not None:
        weakref.finalize(ex, audit.close)
    return Built(
        ex=ex,
        loaded=loaded,
        store=store,
        gate=ex.options.own_gate,
        audit=audit,
        catalogue=catalogue,
        maker=maker,
        state=state or state_directory(),
        shows=serving and own is None,
    )


def by_endpoint(loaded: LoadedConfig) -> bool:
    """Return whether a server that starts with these settings chooses its tools by endpoint, which can change while it
    runs, and not by one toolset for all, which cannot."""
    return bool(loaded.endpoints) or not loaded.settings.server.toolsets


def endpoint_settings(loaded: LoadedConfig) -> dict[str, EndpointSettings]:
    """Return the settings of the endpoints beside the main one, by name."""
    return {name: endpoint.settings for name, endpoint in loaded.endpoints.items()}


def choose_tools(gate: Gate, ex: Exec) -> None:
    """Have the rules of a server with toolsets and endpoints, if those are in *gate*, choose from the tools of *ex*."""
    from toolexec.run.endpoint_rules import EndpointRules

    if isinstance(gate.policy, EndpointRules):
        gate.policy.on(ex.index)


def _fill(ex: Exec, loaded: LoadedConfig, python: PythonTools) -> None:
    """Add all tools, servers, providers, skills and composed tools; what cannot be added is an error at its place."""
    python.add_to(ex)
    for origin, backend in backends(loaded):
        located(origin, ex.add_backends, backend)
    for path in skill_files(loaded.skills):
        located(path, ex.add_skill, path)
    for composed in loaded.tools.values():
        located(composed.origin, ex.add_skill, composed.skill)


def backends(loaded: LoadedConfig, names: Collection[str] | None = None) -> Iterator[tuple[str, Backend]]:
    """Yield a new backend for each server and provider, or for those *names*, with where it is configured. Raises
    ConfigurationError and MissingExtraError."""
    for server in loaded.servers:
        if names is None or server.name in names:
            yield loaded.server_origins[server.name], server_backend(server, loaded)
    for provider in loaded.providers.values():
        if names is None or provider.name in names:
            yield provider.origin, provider.backend()


def skill_files(names: Sequence[str]) -> Iterator[Path]:
    """Yield the files of skills; of a directory those that end with .workflow, by name."""
    for path in map(Path, names):
        yield from sorted(path.glob("*.workflow")) if path.is_dir() else [path]


def _kept_tools(loaded: LoadedConfig, place: str) -> tuple[SQLiteCatalogue, StoredIndex] | None:
    """Return the catalogue and its index, kept in step with each other from now on; None where the settings name no
    file.

    Tools of servers and providers that are not configured any more, or switched off, go out of it. One that is damaged
    is begun again. Raises ConfigurationError when there is an Exec already, in *place*; CatalogueError for a file that
    cannot be used.
    """
    path = loaded.settings.catalogue.path
    if not path:
        return None
    if place:
        raise ConfigurationError(
            f"{place} has an Exec with an index of its own, and the settings [catalogue] name one, too; take the path "
            "away, and give that Exec index=SQLiteCatalogue(path).open()"
        )
    from toolexec.discovery.catalogue import SQLiteCatalogue

    catalogue = SQLiteCatalogue(Path(path).expanduser())
    servers = {server.name for server in loaded.servers if server.enabled}
    servers |= {name for name, provider in loaded.providers.items() if provider.enabled}
    try:
        try:
            index = catalogue.open(backends=servers, local=False)
        except CatalogueError as error:
            if not error.details.get("damaged"):
                raise
            logger.warning("%s: it is begun again", error)
            catalogue.clear()
            index = catalogue.open(backends=servers, local=False)
        catalogue.attach(index, local=False)
    except BaseException:
        catalogue.close()
        raise
    return catalogue, index


def server_backend(server: MCPServer, loaded: LoadedConfig) -> MCPBackend:
    """Return the backend of one server; only this needs the `mcp` extra. Raises ConfigurationError."""
    from toolexec.exec.servers import server_backend as make

    return make(server, parts.sandbox_settings(loaded) if server.boxed is not None else None)


def _result_store(loaded: LoadedConfig, gate: Gate | None) -> ResultStore:
    """Return the store of the *gate* that a Python file brings, else one of the settings."""
    from toolexec.run.layers.budget import kept_results
    from toolexec.run.results import ResultStore

    kept = kept_results(gate)
    if kept is not None:
        return kept
    from toolexec.run.tokens import counted_with

    settings = loaded.settings
    counter = counted_with(read(ContextSettings, settings.context).count)
    return ResultStore(**values_for(ResultSettings, settings.results, settings.context), tokens=counter)


def _refuse_two_gates(loaded: LoadedConfig, place: str) -> None:
    given = [block for block in GATE_BLOCKS if loaded.has(block)]
    given += [f"{ENDPOINTS}.{name}" for name in loaded.endpoints]
    if _has_rates(loaded):
        given.append("limits.rate")
    if loaded.settings.get("context.max_result_tokens"):
        given.append("context.max_result_tokens")
    if given:
        raise ConfigurationError(
            f"{place} has an Exec with a gate of its own, and the settings [{'], ['.join(given)}] say what the gate "
            "is, too; take one of them away"
        )


def _has_rates(loaded: LoadedConfig) -> bool:
    return any(loaded.values[f"limits.{name}"].layer != "default" for name in RATES)


def _with(own: Exec, loaded: LoadedConfig, gate: Gate | None, trace: TraceHook | None, toolset: Toolset | None) -> Exec:
    """Return the Exec of a Python file, with what the settings say: the same object, so that calls which the file's own
    tools make with it pass the gate, too."""
    before = own.options
    if loaded.transforms:
        raise ConfigurationError("transforms: the Exec of a Python file has its own; give them to it as `transforms`")
    after = parts.exec_options(loaded, before, only_given=True)
    after = replace(after, gate=gate or before.gate, trace=_both(before.trace, trace))
    if toolset is not None:  # what the file leaves out stays out
        after = replace(after, toolset=toolset if before.toolset is None else before.toolset & toolset)
    changed = {
        each.name: value
        for each in fields(after)
        if (value := getattr(after, each.name)) is not getattr(before, each.name)
    }
    if changed:
        own.reconfigure(**changed)
    return own


def _both(first: TraceHook | None, second: TraceHook | None) -> TraceHook | None:
    if first is None or second is None:
        return first or second

    def hear(event: TraceEvent) -> None:
        first(event)
        second(event)

    return hear
