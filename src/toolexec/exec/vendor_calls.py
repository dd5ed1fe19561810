"""What an `Exec` does for programs that talk to a provider's API: tools for a request, answers to a model's calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

from toolexec.adapter.export import ToolSearch, VendorFormat, VendorTools, collect
from toolexec.adapter.messages import VendorCall, anthropic_calls, gemini_calls, openai_calls
from toolexec.exec.vendor_answers import RESULT_READER, Host, answers
from toolexec.model.origin import current_origin
from toolexec.run.excerpt import encode
from toolexec.run.layers.budget import kept_results

if TYPE_CHECKING:
    from toolexec.adapter.names import NameMap
    from toolexec.discovery.summary import Filters
    from toolexec.exec.options import Options
    from toolexec.exec.sources import Sources

Provider: TypeAlias = Literal["openai", "anthropic", "gemini"]
"""Whose messages the calls are in."""

Unknown: TypeAlias = Literal["answer", "skip"]
"""What to do with a call of a tool that is not here: answer with an error, or leave it to other code."""

_READERS: Final[Mapping[Provider, Callable[[Any], Sequence[VendorCall]]]] = {
    "openai": openai_calls,
    "anthropic": anthropic_calls,
    "gemini": gemini_calls,
}


class ExportSettings(TypedDict, total=False):
    """What `Exec.export_tools` takes beside the form."""

    filters: Filters | None
    strict: bool
    describe: bool
    search: ToolSearch | None
    always: Collection[str]
    allowed_callers: Sequence[str]


class AnswerSettings(TypedDict, total=False):
    """What the methods that answer a model's calls take beside its message and the tools."""

    unknown: Unknown
    max_bytes: int
    max_media_bytes: int


class ProviderCalls:
    """Tools in the forms of providers, and answers to the calls that their models make; starts the backends first."""

    def __init__(self, options: Options, sources: Sources, host: Host) -> None:
        self._store = kept_results(options.own_gate)
        self._sources = sources
        self._host = host

    async def export(
        self,
        format: VendorFormat,
        *,
        filters: Filters | None,
        strict: bool,
        describe: bool,
        search: ToolSearch | None,
        always: Collection[str],
        allowed_callers: Sequence[str],
    ) -> VendorTools:
        """Return the tools that may be known of just now in a provider's form; see `Exec.export_tools`."""
        if self._sources.pending:
            await self._sources.start()
        entries = self._host.scope.visible()[0].tools()
        chosen = [entry.tool for entry in entries if filters is None or filters.accept(entry.tool, entry.bindings)]
        made = collect(
            chosen,
            format,
            strict=strict,
            describe=describe,
            search=search,
            always=always,
            allowed_callers=allowed_callers,
            reader=RESULT_READER if self._store is not None else None,
            filters=filters,
        )
        if self._host.meter.counts:
            self._host.meter.count(current_origin(), "tools", encode(made.at_first()), again=True)
        return made

    async def answer(
        self,
        provider: Provider,
        message: Any,
        tools: VendorTools | NameMap | None,
        unknown: Unknown,
        max_bytes: int,
        max_media_bytes: int,
    ) -> list[dict[str, Any]]:
        """Run the calls in a message and return the answers; see `Exec.handle_openai_tool_calls`."""
        calls = _READERS[provider](message)
        if self._sources.pending:
            await self._sources.start()
        return await answers(
            self._host,
            self._store,
            calls,
            tools,
            skip_unknown=unknown == "skip",
            max_bytes=max_bytes,
            max_media_bytes=max_media_bytes,
        )
