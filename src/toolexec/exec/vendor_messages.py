"""What `Exec` does with messages of models: tools in a provider format, and the answers to the calls in a message."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolexec.lazy import lazy_names
from toolexec.model.json_value import JSONDict
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from toolexec.adapter.export import ToolSearch, VendorFormat, VendorTools
    from toolexec.adapter.names import NameMap
    from toolexec.discovery.summary import Filters
    from toolexec.exec.parts import Parts
    from toolexec.exec.vendor_calls import Unknown
else:  # what the annotations of checked methods name: imported at the first call of each
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.adapter.export": ("ToolSearch", "VendorFormat", "VendorTools"),
            "toolexec.adapter.names": ("NameMap",),
            "toolexec.discovery.summary": ("Filters",),
            "toolexec.exec.vendor_calls": ("Unknown",),
        },
    )

__all__ = ["VendorMessages"]

_MAX_BYTES: Final = 100_000
_MAX_MEDIA_BYTES: Final = 5 << 20


class VendorMessages:
    """The methods of `Exec` for the APIs of OpenAI, Anthropic and Gemini."""

    _parts: Parts

    @checked("export_tools")
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
        """Return the tools that may be known of just now, by ID, in a provider format, with what is lost in it.

        *strict* asks for schemas that the provider holds the model to; a tool whose schema cannot be one is exported as
        usual, with a warning. *describe* says in descriptions what schemas cannot hold. With *search* (Anthropic and
        OpenAI Responses) the model sees only those tools at first whose IDs are in *always*, and finds the others.
        *allowed_callers* says who may call the tools, such as `direct` and `code_execution_20260120`. A gate with a
        `Budget` adds `read_result`. Raises ConfigurationError for a format, or a combination, that does not exist.
        """
        return await self._parts.provider_calls.export(
            format,
            filters=filters,
            strict=strict,
            describe=describe,
            search=search,
            always=always,
            allowed_callers=allowed_callers,
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
    ) -> list[JSONDict]:
        """Run the calls in a message of OpenAI's, all at the same time, and give the answers in their order.

        *message* is a completion, a response, a message, or a list of calls, as JSON data or as the SDK's objects.
        Answers to Chat Completions are `tool` messages, those to Responses `function_call_output` items (and
        `tool_search_output` for a search that is this side's). *tools* is what `export_tools` gave: only those are
        called then; without it, all tools that there are. Every call is answered, whatever is wrong with it, unless
        *unknown* is `skip`: then calls of tools that are not here are left out. A text is cut at *max_bytes* of JSON
        (1000 at least), pictures and files have *max_media_bytes* together.

        Raises ConfigurationError for a budget below 1000 bytes; all else is an answer.
        """
        answer = self._parts.provider_calls.answer
        return await answer("openai", message, tools, unknown, max_bytes, max_media_bytes)

    @checked("handle_anthropic_tool_use")
    async def handle_anthropic_tool_use(
        self,
        message: Any,
        tools: VendorTools | NameMap | None = None,
        *,
        unknown: Unknown = "answer",
        max_bytes: int = _MAX_BYTES,
        max_media_bytes: int = _MAX_MEDIA_BYTES,
    ) -> list[JSONDict]:
        """Run the `tool_use` blocks of a message of Anthropic's; gives the `tool_result` blocks of the next message.

        Put nothing else into that message where code has made the calls. Pictures and PDF files go along as blocks,
        unless code asked. A call of `search_tools` is answered with references to what was found. For the rest see
        `handle_openai_tool_calls`.
        """
        answer = self._parts.provider_calls.answer
        return await answer("anthropic", message, tools, unknown, max_bytes, max_media_bytes)

    @checked("handle_gemini_function_calls")
    async def handle_gemini_function_calls(
        self,
        message: Any,
        tools: VendorTools | NameMap | None = None,
        *,
        unknown: Unknown = "answer",
        max_bytes: int = _MAX_BYTES,
        max_media_bytes: int = _MAX_MEDIA_BYTES,
    ) -> list[JSONDict]:
        """Run the `functionCall` parts of a response or content of Gemini's; gives the `functionResponse` parts.

        Media go along as parts of the response. For the rest see `handle_openai_tool_calls`.
        """
        answer = self._parts.provider_calls.answer
        return await answer("gemini", message, tools, unknown, max_bytes, max_media_bytes)
