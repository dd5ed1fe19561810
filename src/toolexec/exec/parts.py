"""What an `Exec` is made of, put together."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from toolexec.backend.local import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.facade import Discovery
from toolexec.errors import ConfigurationError
from toolexec.exec.calls import Calls
from toolexec.exec.home import Home
from toolexec.exec.links import KeptLinks
from toolexec.exec.scope import Scope
from toolexec.exec.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolexec.cassette.cassette import Cassette
    from toolexec.exec.adding import Adding
    from toolexec.exec.cassettes import UsedCassette
    from toolexec.exec.chain import Chains
    from toolexec.exec.chains_ahead import ChainPlanner
    from toolexec.exec.code import CodeRuns
    from toolexec.exec.durable import DurableRuns
    from toolexec.exec.finding import Finder
    from toolexec.exec.options import CallRemote, Options
    from toolexec.exec.recorded import RunRecordings
    from toolexec.exec.resources import Resources
    from toolexec.exec.runs import Runs
    from toolexec.exec.schedules import Schedules
    from toolexec.exec.skills import Skills
    from toolexec.exec.vendor_calls import ProviderCalls
    from toolexec.model.binding import BindingKind
    from toolexec.model.json_value import JSONObject
    from toolexec.model.transform import Transforms
    from toolexec.run.context import ContextMeter

CLOSE_PATIENCE: Final = 2.0
"""How many seconds closing waits for handlers that ignored their cancellation."""


class Parts:
    """The parts of one `Exec`, each with its own state.

    What tools and backends there are stays; what works with them is made again for other options. The parts that not
    every program needs are made, and their modules imported, at their first use.
    """

    def __init__(self, options: Options) -> None:
        """Raises ConfigurationError for parts in the options that do not go together."""
        self.discovery: Discovery = Discovery(index=options.index, docs=options.docs, max_examples=options.max_examples)
        self.backends: BackendRegistry = options.backends if options.backends is not None else BackendRegistry()
        self.local: LocalBackend = _local_backend(self.backends, options)
        self._stand_in("mcp", options.mcp_executor)
        self._stand_in("provider", options.provider_executor)
        self.home: Home = Home()
        self.transforms: Transforms | None = _transforms(options, self.discovery)
        self.sources: Sources = Sources(
            self.discovery.index, self.backends, options.start_timeout, self.home, self.transforms
        )
        self.close_patience: float = CLOSE_PATIENCE
        self.cassette: Cassette | None = None
        self._cassette_given: tuple[object, str] = (None, "")
        self.configure(options)
        for backend in self.backends.list():
            if backend is not self.local:
                self.sources.adopt(backend)

    def _stand_in(self, kind: BindingKind, execute: CallRemote | None) -> None:
        if execute is None:
            return
        from toolexec.backend.provider import ProviderBackend

        self.backends.on_missing(kind, lambda name: ProviderBackend(name, partial(execute, name), kind=kind))

    def configure(self, options: Options) -> None:
        """Make what works by the *options*, before the first use of any of it."""
        self.sources.check_open()
        if "durable" in self.__dict__:
            self.durable.close()
        for name in ("finder", "chains", "planner", "resources", "code", "durable", "recordings", "provider_calls"):
            self.__dict__.pop(name, None)
        self.options = options
        self.sources.start_timeout = options.start_timeout
        self.sources.runtime_backends = options.runtime_backends
        self.scope: Scope = Scope(options, self.discovery, self.backends)
        used = self._use_cassette(options)
        self.calls: Calls = Calls(options, self.scope, self.backends, self.sources, self.transforms, used)
        self.links: KeptLinks = KeptLinks(options, self.scope.index)
        self.__dict__.pop("meter", None)

    @cached_property
    def meter(self) -> ContextMeter:
        """What counts the tokens of conversations; the telemetry of the gate is notified."""
        from toolexec.run.context import ContextMeter

        meter = ContextMeter(self.options.context)
        gate = self.options.own_gate
        meter.observer = getattr(gate.telemetry, "counted", None) if gate is not None else None
        return meter

    def _use_cassette(self, options: Options) -> UsedCassette | None:
        """Return the cassette of the options, open; in a replay its tools are there from now on, and no backend is
        started."""
        if options.cassette is None and self.cassette is None:
            return None
        from toolexec.exec.cassettes import UsedCassette, cassette_of

        before = self.cassette
        given = (options.cassette, options.cassette_mode)
        if before is None or given != self._cassette_given:
            if before is not None and before is not self._cassette_given[0]:
                before.leave()
            self.cassette, self._cassette_given = cassette_of(options), given
        if self.cassette is None:
            return None
        used = UsedCassette(self.cassette, self.backends, self.transforms, self._is_skill)
        if used.replays:
            self.sources.stay_offline(used.recorded)
            self.adding.stand_ins |= used.fill(self.discovery.index)
        return used

    def _is_skill(self, tool_id: str) -> bool:
        return "skills" in self.__dict__ and tool_id in self.skills.known

    def _close_cassette(self) -> None:
        """Write what was recorded; one that was given open stays so."""
        if self.cassette is not None:
            if self.cassette is self.options.cassette:
                self.cassette.save()
            else:
                self.cassette.close()

    @cached_property
    def adding(self) -> Adding:
        """What adds functions, and tools by hand."""
        from toolexec.exec.adding import Adding

        return Adding(self.discovery, self.local, self.transforms)

    @cached_property
    def finder(self) -> Finder:
        """What finds tools and describes them."""
        from toolexec.exec.finding import Finder

        return Finder(self.scope, self.sources, self.links)

    @cached_property
    def chains(self) -> Chains:
        """What runs chains."""
        from toolexec.exec.chain import Chains

        return Chains(self.options, self.scope, self.sources, self.calls.runner)

    @cached_property
    def planner(self) -> ChainPlanner:
        """What proposes chains."""
        from toolexec.exec.chains_ahead import ChainPlanner

        return ChainPlanner(self.scope, self.sources, self.links)

    @cached_property
    def code(self) -> CodeRuns:
        """What runs code."""
        from toolexec.exec.code import CodeRuns

        recordings = partial(getattr, self, "recordings")  # made at the first run, as it asks for the journal
        return CodeRuns(self.options, self.scope, self.sources, self.calls.runner, self.home, recordings)

    @cached_property
    def recordings(self) -> RunRecordings | None:
        """What records a share of the runs; None where none are."""
        if not self.options.record:
            return None
        from toolexec.exec.recorded import RunRecordings

        return RunRecordings(self.options, self.scope, self.sources, self.calls.runner, lambda: self.durable)

    @cached_property
    def resources(self) -> Resources:
        """What reads resources and gets prompts."""
        from toolexec.exec.resources import Resources

        return Resources(self.scope, self.backends, self.calls, self.transforms)

    @cached_property
    def durable(self) -> DurableRuns:
        """What runs chains and code that outlive this process."""
        from toolexec.exec.durable import DurableRuns

        self.sources.check_open()
        return DurableRuns(self.options, self.scope, self.sources, self.calls.runner, lambda: self.code)

    @cached_property
    def runs(self) -> Runs:
        """What is asked of those, by these options or later ones."""
        from toolexec.exec.runs import Runs

        return Runs(lambda: self.durable)

    @cached_property
    def schedules(self) -> Schedules:
        """What makes such runs again and again."""
        from toolexec.exec.schedules import Schedules

        return Schedules(lambda: self.durable)

    @cached_property
    def skills(self) -> Skills:
        """What adds skills and runs them, by the code of these options or later ones."""
        from toolexec.exec.skills import Skills

        return Skills(self.discovery.index, self.adding, lambda: self.code, lambda: self.durable)

    @property
    def has_skills(self) -> bool:
        """Whether there are skills, or were."""
        return "skills" in self.__dict__

    @property
    def code_is_in_use(self) -> bool:
        """Whether code has run, or may have."""
        return "code" in self.__dict__ and self.code.in_use

    @cached_property
    def provider_calls(self) -> ProviderCalls:
        """What talks in the forms of providers."""
        from toolexec.exec.vendor_answers import Host
        from toolexec.exec.vendor_calls import ProviderCalls

        host = Host(self.scope, self.finder, self.calls, self.meter)
        return ProviderCalls(self.options, self.sources, host)

    async def aclose(self) -> None:
        """Stop all runs and every backend, end every process; see `Exec.aclose`."""
        if self.home.is_left:
            return
        if self.code_is_in_use:
            self.home.enter()
        has_ended = True
        try:
            has_ended = await self.sources.under_way.aclose(self.close_patience, self.aclose)
        finally:
            if has_ended:  # else the run that this is called from needs the rest until its end
                await self._close_all()

    async def _close_all(self) -> None:
        self.sources.close()
        try:
            if "code" in self.__dict__:
                await self.code.aclose()
        finally:
            self.links.close()
            if "skills" in self.__dict__:
                self.skills.close()
            if "durable" in self.__dict__:
                await self.durable.aclose()
            index = self.discovery.index
            close_search = getattr(index, "close_search", None)
            if close_search is None:  # another index, whose searcher is there
                close_search = getattr(getattr(index, "searcher", None), "close", None)
            try:
                if close_search is not None:
                    close_search()
            finally:
                try:
                    await self.sources.aclose()
                finally:
                    try:
                        await self.calls.aclose(self.close_patience)
                    finally:
                        self._close_cassette()


def _transforms(options: Options, discovery: Discovery) -> Transforms | None:
    if not options.transforms and not (options.own_gate is not None and options.own_gate.is_live):
        return None
    from toolexec.model.transform import Transforms

    def keep_examples(tool_id: str, examples: Sequence[JSONObject]) -> None:
        from toolexec.discovery.examples import ToolExample

        discovery.docs.register_examples(tool_id, [ToolExample(**each) for each in examples])

    transforms = Transforms(options.transforms, keep_examples)
    for tool_id in transforms.hidden:  # of an index that was kept, whose backends may start later
        found = discovery.index.find(tool_id)
        if found is not None and found.tool.id == tool_id:
            discovery.index.unregister(tool_id)
    return transforms


def _local_backend(backends: BackendRegistry, options: Options) -> LocalBackend:
    known = backends.get("local")
    if known is None:
        backends.register(local := LocalBackend(handlers=options.local_handlers))
        return local
    if not isinstance(known, LocalBackend):
        raise ConfigurationError("the backend named local must be a LocalBackend: functions are added to it")
    if options.local_handlers:
        raise ConfigurationError("your backends have a local one already; give local_handlers to that one")
    return known
