"""What a run of code is granted, what holds its calls to that, and what of it was really enforced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Self

from toolexec.errors import (
    ChainStepLimitError,
    ConfigurationError,
    InvalidLimitsError,
    ToolCallLimitError,
    ToolNotAllowedError,
    ToolNotFoundError,
)
from toolexec.model.declared import Bytes, setting
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.settings import checked
from toolexec.run.ceilings import refuse_above

if TYPE_CHECKING:
    from toolexec.code.gateway import Gateway
    from toolexec.code.types import ToolCallRecord
    from toolexec.discovery.docs import DetailLevel, ToolDoc
    from toolexec.discovery.examples import ToolExample
    from toolexec.discovery.index import Index
    from toolexec.discovery.summary import Summary
    from toolexec.run.steps import Step
    from toolexec.run.types import Result, StepResult

DEFAULT_RESULT_BYTES: Final = 1 << 20
"""How long a tool's result may be, as JSON, before code gets a handle in its place."""


@checked("Limits", error=InvalidLimitsError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of one run; 0 means no bound of one's own.

    `max_tool_calls` and `max_chain_steps` count what the code asks for. `cpu_ms` is a budget of CPU time in
    milliseconds, `cpus` a rate (1.5 is one and a half cores), `memory_bytes` and `disk_bytes` sizes, `pids` a number of
    processes. Raises InvalidLimitsError for a value that is negative or no number.

    >>> from toolexec import Exec
    >>> with Exec(code_limits=Limits(memory_bytes=64 << 20)).sync as ex:
    ...     ex.execute_code("return 'x' * 100_000_000").error.code
    'limit_exceeded'
    """

    max_tool_calls: int = setting(0, "How many calls of tools it may make.", least=0)
    max_chain_steps: int = setting(0, "Most steps of a chain in code.", least=0)
    cpu_ms: int = setting(0, "CPU time of one run of code, in milliseconds.", least=0)
    cpus: float = setting(0.0, "CPU rate of code: 1.5 is one and a half cores.", least=0)
    memory_bytes: Bytes = setting(0, "Memory of code.", least=0)
    pids: int = setting(0, "Processes of code.", least=0)
    disk_bytes: Bytes = setting(0, "Files of code.", least=0)

    @classmethod
    def from_dict(cls, data: JSONObject) -> Self:
        """Limits from JSON data; raises InvalidLimitsError for unknown names too."""
        return cls(**data)

    def narrow(self, asked: Limits) -> Limits:
        """Return the tighter of the two for each bound. For what a user asks for, see `grant`, which refuses more."""
        if not any(_bounds(asked)):
            return self
        return _narrowed(self, asked) if any(_bounds(self)) else asked

    def grant(self, asked: Limits, *, of: str = "") -> Limits:
        """Return the bounds of a run that asks for some: those, and these where it asks for none.

        Raises InvalidLimitsError that names the first one asked for above these; *of* says whose these are, by default
        an Exec's.
        """
        for name in asked.set_names():
            refuse_above(name, getattr(asked, name), getattr(self, name), setting=of and f"{name} of {of}")
        return self.narrow(asked)

    def set_names(self) -> tuple[str, ...]:
        """Return the names of the bounds that are set."""
        bounds = _bounds(self)
        return tuple(name for name, bound in zip(_NAMES, bounds, strict=True) if bound) if any(bounds) else ()

    def to_dict(self) -> JSONDict:
        """Return the bounds that are set, as JSON-able data."""
        return {name: getattr(self, name) for name in self.set_names()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsEnforced:
    """Which bounds really held for a run: True only where the sandbox would have stopped the code at them."""

    timeout: bool = False
    tool_calls: bool = False
    chain_steps: bool = False
    memory: bool = False
    cpu: bool = False
    cpus: bool = False
    pids: bool = False
    disk: bool = False

    def to_dict(self) -> dict[str, bool]:
        """Return the same as JSON-able data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class CallCount:
    """The tool calls of one run, held to the caps of *limits*. Safe to use from several threads.

    A run that is a part of another is counted *within* it, too.
    """

    def __init__(self, limits: Limits, within: CallCount | None = None) -> None:
        self.limits = limits
        self.made: int = 0
        self._within = within
        self._lock = threading.Lock()

    def reserve(self, count: int = 1) -> None:
        """Count calls that are about to be made; raises ToolCallLimitError, with none counted."""
        if self._within is not None:
            self._within.reserve(count)
        cap = self.limits.max_tool_calls
        with self._lock:
            left = cap - self.made
            if cap and count > left:
                if self._within is not None:
                    self._within.give_back(count)
                need = "" if count == 1 else f" (need {count}, have {max(left, 0)} remaining)"
                raise ToolCallLimitError(
                    f"limit exceeded: max tool calls ({cap}) exceeded{need}",
                    op="run" if count == 1 else "chain",
                    details={"limit": cap, "made": self.made},
                )
            self.made += count

    def reserve_chain(self, steps: int, calls: int | None = None) -> None:
        """Count the *calls* of a chain, by default one for each of its *steps*; raises ChainStepLimitError too."""
        most = self.limits.max_chain_steps
        if most and steps > most:
            raise ChainStepLimitError(
                f"limit exceeded: max chain steps ({most}) exceeded (got {steps}); split the chain",
                op="chain",
                details={"limit": most, "steps": steps},
            )
        self.reserve(steps if calls is None else calls)

    def give_back(self, count: int) -> None:
        """Forget calls that were counted and not made."""
        with self._lock:
            self.made -= count
        if self._within is not None:
            self._within.give_back(count)


class AllowList:
    """Tool IDs and patterns such as `github:*`. None lets all tools through, and is false; an empty list lets none.

    Raises ConfigurationError for what is not a list of strings.
    """

    def __init__(self, index: Index, allowed: Collection[str] | None) -> None:
        if isinstance(allowed, str) or not all(isinstance(item, str) for item in allowed or ()):
            raise ConfigurationError(
                'allowed_tools must be a list of IDs or patterns, such as ["math:*"]; None means all tools'
            )
        self._index = index
        self._allowed = frozenset(allowed or ())
        self._patterns = None if allowed is None else IDPatterns("allowed_tools", self._allowed)

    def __bool__(self) -> bool:
        return self._patterns is not None

    def accepts(self, tool_id: str) -> bool:
        """Return whether the list means the tool that the ID leads to."""
        if self._patterns is None:
            return True
        found = self._index.find(tool_id)
        return self._patterns.match(found.tool.id if found is not None else tool_id)

    def check(self, tool_id: str, op: str) -> None:
        """Raises ToolNotAllowedError for a tool that is not on the list."""
        if not self.accepts(tool_id):
            raise ToolNotAllowedError(
                f"this code may not call {tool_id}; it may call {', '.join(sorted(self._allowed)[:10]) or 'no tools'}",
                tool_id=tool_id,
                op=op,
            )

    def without_hints(self, error: ToolNotFoundError) -> ToolNotFoundError:
        """Return the error, its suggestions without the tools that the code may not know of."""
        if self._patterns is None:
            return error
        close = [tool_id for tool_id in error.details.get("close", ()) if self.accepts(tool_id)]
        return ToolNotFoundError(error.tool_id or "", close=close, op=error.op or "resolve")


def counted(gateway: Gateway, limits: Limits) -> Gateway:
    """*gateway* itself if it holds the caps of *limits* already (or there are none), else one that does."""
    if not limits.max_tool_calls and not limits.max_chain_steps:
        return gateway
    own: Any = getattr(gateway, "limits", None)
    if isinstance(own, Limits):  # it counts by itself
        narrowed = own.narrow(limits)
        if (narrowed.max_tool_calls, narrowed.max_chain_steps) == (own.max_tool_calls, own.max_chain_steps):
            return gateway
    return CountedGateway(gateway, limits)


class CountedGateway:
    """Passes everything on to *inner*, and no more tool calls and chain steps than *limits* allows. Safe for many calls
    at once; what a chain does not run is given back."""

    def __init__(self, inner: Gateway, limits: Limits) -> None:
        self.inner = inner
        self.limits = limits
        self._count = CallCount(limits)

    async def search_tools(self, query: str, limit: int = 10) -> list[Summary]:
        """Implement `Gateway.search_tools`."""
        return await self.inner.search_tools(query, limit)

    async def list_namespaces(self) -> list[str]:
        """Implement `Gateway.list_namespaces`."""
        return await self.inner.list_namespaces()

    async def describe_tool(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Implement `Gateway.describe_tool`."""
        return await self.inner.describe_tool(tool_id, level)

    async def list_tool_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """Implement `Gateway.list_tool_examples`."""
        return await self.inner.list_tool_examples(tool_id, limit)

    async def run_tool(self, tool_id: str, args: JSONObject | None = None) -> Result:
        """Run one tool; raises ToolCallLimitError with nothing run, and as `Gateway.run_tool` does."""
        self._count.reserve()
        return await self.inner.run_tool(tool_id, args)

    async def run_chain(self, steps: Sequence[Step]) -> tuple[Result | None, list[StepResult]]:
        """Run a chain; raises ChainStepLimitError and ToolCallLimitError with nothing run."""
        most = len(steps) + sum(step.retries for step in steps)
        self._count.reserve_chain(len(steps), most)
        made = 0
        try:
            result, done = await self.inner.run_chain(steps)
            made = sum(step.attempts for step in done)
        finally:
            self._count.give_back(most - min(made, most))
        return result, done

    def tool_calls(self) -> list[ToolCallRecord]:
        """Return the trace that *inner* keeps, if it keeps one."""
        return trace_of(self.inner)


def trace_of(gateway: Gateway | None) -> list[ToolCallRecord]:
    """Return the trace that *gateway* keeps; empty if it keeps none."""
    trace: Callable[[], Sequence[ToolCallRecord]] | None = getattr(gateway, "tool_calls", None)
    return [*trace()] if trace is not None else []


_NAMES = tuple(field.name for field in fields(Limits))
_bounds: Final = attrgetter(*_NAMES)


@lru_cache(maxsize=256)  # each run of code asks seven times, and the same: 7 µs each, 0.7 µs so
def _narrowed(ours: Limits, asked: Limits) -> Limits:
    return Limits(**{name: _tighter(getattr(ours, name), getattr(asked, name)) for name in _NAMES})


def _tighter(ours: Any, asked: Any) -> Any:
    return min(ours, asked) if ours and asked else ours or asked
