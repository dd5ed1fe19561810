"""The part of an `Exec` for programs that talk to a vendor's API: tools for a request, answers to a model's calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

from toolexec.discovery.summary import Filters
from toolexec.exec.finding import Finding
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from toolexec.adapter.export import ToolSearch, VendorFormat, VendorTools
    from toolexec.adapter.messages import VendorCall
    from toolexec.adapter.names import NameMap
    from toolexec.model.call import ProgressCallback
    from toolexec.run.types import Result

__all__ = ["AnswerSettings", "ExportSettings", "Unknown", "VendorCalls"]

Unknown: TypeAlias = Literal["answer", "skip"]
"""What to do with a call of a tool that is not here: tell the model, or leave it to somebody else."""

_MAX_BYTES: Final = 100_000
_MAX_MEDIA_BYTES: Final = 5 << 20


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


class VendorCalls(Finding):
    """What an `Exec` can do for a program that talks to a model's API without a framework in between."""

    if TYPE_CHECKING:

        async def run_tool(
            self,
            tool_id: str,
            args: Mapping[str, Any] | None = None,
            *,
            timeout: float | None = None,
            on_progress: ProgressCallback | None = None,
        ) -> Result:
            """See `Exec.run_tool`."""
            ...

    @checked(
        "export_tools", homes=dict.fromkeys(("ToolSearch", "VendorFormat", "VendorTools"), "toolexec.adapter.export")
    )
    async def export_tools(
        self,
        format: VendorFormat,
        *,
        filters: Filters | None = None,
        strict: bool = False,
        describe: bool = True,
        search: ToolSearch | None = None,
        always: Collection[str] = (),
        allowed_callers: Sequence[str] = (),
    ) -> VendorTools:
        """The tools that may be known of just now, by ID, in a vendor's form, with what is lost in it.

        *strict* asks for schemas that the vendor holds the model to; a tool whose schema cannot be one is exported as
        usual, with a warning. *describe* says in descriptions what schemas cannot hold. With *search* (Anthropic and
        OpenAI Responses) the model sees only those tools at first whose IDs are in *always*, and finds the others.
        *allowed_callers* says who may call the tools, such as `direct` and `code_execution_20260120`. A gate with a
        `Budget` adds `read_result`. Raises ConfigurationError for a form, or a combination, that does not exist.
        """
        from toolexec.adapter.export import collect
        from toolexec.exec.vendor_answers import RESULT_READER, kept_results

        if self._sources.pending:
            await self._sources.start()
        entries = self.visible()[0].tools()
        chosen = [entry.tool for entry in entries if filters is None or filters.accept(entry.tool, entry.bindings)]
        return collect(
            chosen,
            format,
            strict=strict,
            describe=describe,
            search=search,
            always=always,
            allowed_callers=allowed_callers,
            reader=RESULT_READER if kept_results(self.options) is not None else None,
            filters=filters,
        )

    @checked("handle_openai_tool_calls")
    async def handle_openai_tool_calls(
        self,
        message: Any,
        tools: VendorTools | NameMap | None = None,
        *,
        unknown: Unknown = "answer",
        max_bytes: int = _MAX_BYTES,
        max_media_bytes: int = _MAX_MEDIA_BYTES,
    ) -> list[dict[str, Any]]:
        """Run the calls in a message of OpenAI's, all at the same time, and give the answers in their order.

        *message* is a completion, a response, a message, or a list of calls, as JSON data or as the SDK's objects.
        Answers to Chat Completions are `tool` messages, those to Responses `function_call_output` items (and
        `tool_search_output` for a search that is this side's). *tools* is what `export_tools` gave: only those are
        called then; without it, all tools that there are. Every call is answered, whatever is wrong with it, unless
        *unknown* is `skip`: then calls of tools that are not here are left out. A text is cut at *max_bytes* of JSON
        (1000 at least), pictures and files have *max_media_bytes* together.

        Raises ConfigurationError for a budget below 1000 bytes; all else is an answer.
        """
        from toolexec.adapter.messages import openai_calls

        return await self._answers(openai_calls(message), tools, unknown, max_bytes, max_media_bytes)

    @checked("handle_anthropic_tool_use")
    async def handle_anthropic_tool_use(
        self,
        message: Any,
        tools: VendorTools | NameMap | None = None,
        *,
        unknown: Unknown = "answer",
        max_bytes: int = _MAX_BYTES,
        max_media_bytes: int = _MAX_MEDIA_BYTES,
    ) -> list[dict[str, Any]]:
        """Run the `tool_use` blocks of a message of Anthropic's; gives the `tool_result` blocks of the next message.

        Put nothing else into that message where code has made the calls. Pictures and PDF files go along as blocks,
        unless code asked. A call of `search_tools` is answered with references to what was found. For the rest see
        `handle_openai_tool_calls`.
        """
        from toolexec.adapter.messages import anthropic_calls

        return await self._answers(anthropic_calls(message), tools, unknown, max_bytes, max_media_bytes)

    @checked("handle_gemini_function_calls")
    async def handle_gemini_function_calls(
        self,
        message: Any,
        tools: VendorTools | NameMap | None = None,
        *,
        unknown: Unknown = "answer",
        max_bytes: int = _MAX_BYTES,
        max_media_bytes: int = _MAX_MEDIA_BYTES,
    ) -> list[dict[str, Any]]:
        """Run the `functionCall` parts of a response or content of Gemini's; gives the `functionResponse` parts.

        Media go along as parts of the response. For the rest see `handle_openai_tool_calls`.
        """
        from toolexec.adapter.messages import gemini_calls

        return await self._answers(gemini_calls(message), tools, unknown, max_bytes, max_media_bytes)

    # -- one message --------------------------------------------------------------------------------------------

    async def _answers(
        self,
        calls: Sequence[VendorCall],
        tools: VendorTools | NameMap | None,
        unknown: Unknown,
        max_bytes: int,
        max_media_bytes: int,
    ) -> list[dict[str, Any]]:
        from toolexec.exec.vendor_answers import answers, kept_results

        if self._sources.pending:
            await self._sources.start()
        return await answers(
            self,
            kept_results(self.options),
            calls,
            tools,
            skip_unknown=unknown == "skip",
            max_bytes=max_bytes,
            max_media_bytes=max_media_bytes,
        )
