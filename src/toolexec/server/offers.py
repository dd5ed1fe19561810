"""Resources and prompts of the servers behind this one, as its own."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CompleteRequestParams,
    EmptyResult,
    GetPromptRequestParams,
    InputRequiredResult,
    PaginatedRequestParams,
    PromptReference,
    ReadResourceRequestParams,
    ServerCapabilities,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolexec.backend.offering import OffersMore
from toolexec.backend.offers import Offered, OfferEvent, Offers
from toolexec.discovery.pages import CursorSeal
from toolexec.errors import (
    ApprovalRequiredError,
    InputValidationError,
    InvalidCursorError,
    NotOfferedError,
    ToolExecError,
)
from toolexec.exec.facade import Exec
from toolexec.exec.resources import answer_of
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.origin import Origin, acting
from toolexec.model.redaction import redactor
from toolexec.model.resources import gateway_uri, split_uri
from toolexec.model.visible import visible, visible_line
from toolexec.run.framing import framed, framed_parts
from toolexec.server.callers import RequestContext, Requester, connection_of
from toolexec.server.metering import Job, metered
from toolexec.server.replies import content_for, internal_failure
from toolexec.server.tools.errors import error_object
from toolexec.server.watching import Watching

logger: logging.Logger = logging.getLogger(__name__)
Answer: TypeAlias = Callable[[RequestContext, Any, str, JSONObject, Job], Awaitable[JSONDict | InputRequiredResult]]
"""Has a job done for the client of a request with these parameters, which may be asked meanwhile."""

OFFER_HINTS: Final[Mapping[CacheableMethod, CacheHint]] = {
    "prompts/list": CacheHint(),
    "resources/list": CacheHint(),
    "resources/templates/list": CacheHint(),
    "resources/read": CacheHint(),
}
"""How long clients may keep what they get: not at all, as it differs by caller, and may change at any time."""
_NOT_FOUND: Final = -32002
"""What a resource that there is not was refused with, before the version of 2026-07-28."""
_DESCRIPTION: Final = 4000
_LINE: Final = 200


class ServedOffers:
    """Answers what clients ask about resources and prompts; *answer* has what may have to be approved done.

    Each is known by its URI or its name here, so that two servers may have the same one. What a caller may not know of
    is not listed, and not there for that caller.
    """

    def __init__(self, ex: Exec, page_size: int, answer: Answer) -> None:
        self._ex = ex
        self._page_size = page_size
        self._answer = answer
        self._seal = CursorSeal()
        self._version = 0
        self.watching: Watching = Watching(ex.resources)
        """Which resources the clients have subscribed to."""

    def serve(self, server: Server[Any]) -> None:
        """Add the handlers to the SDK's server."""
        server.add_request_handler("resources/list", PaginatedRequestParams, self._list_resources)
        server.add_request_handler("resources/templates/list", PaginatedRequestParams, self._list_templates)
        server.add_request_handler("resources/read", ReadResourceRequestParams, self._read)
        server.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)
        server.add_request_handler("prompts/list", PaginatedRequestParams, self._list_prompts)
        server.add_request_handler("prompts/get", GetPromptRequestParams, self._get_prompt)
        server.add_request_handler("completion/complete", CompleteRequestParams, self._complete)

    def offered(self, found: ServerCapabilities) -> ServerCapabilities:
        """Return the capabilities without those that no server behind this one has; one that is not connected yet may
        have any."""
        has = self._ex.resources.may_offer()
        resources = found.resources if "resources" in has else None
        if resources is not None and "subscribe" not in has:
            resources = resources.model_copy(update={"subscribe": False})
        return found.model_copy(
            update={
                "resources": resources,
                "prompts": found.prompts if "prompts" in has else None,
                "completions": found.completions if "completion" in has else None,
            }
        )

    # -- lists --------------------------------------------------------------------------------------------------

    async def _list_resources(self, ctx: RequestContext, params: PaginatedRequestParams) -> JSONDict:
        return await self._list(ctx, params, "resources", lambda offers: offers.resources, _resource)

    async def _list_templates(self, ctx: RequestContext, params: PaginatedRequestParams) -> JSONDict:
        return await self._list(ctx, params, "resourceTemplates", lambda offers: offers.templates, _template)

    async def _list_prompts(self, ctx: RequestContext, params: PaginatedRequestParams) -> JSONDict:
        return await self._list(ctx, params, "prompts", lambda offers: offers.prompts, _prompt)

    async def _list(
        self,
        ctx: RequestContext,
        params: PaginatedRequestParams,
        key: str,
        choose: Callable[[Offers], Sequence[Offered]],
        make: Callable[[Offered], JSONDict],
    ) -> JSONDict:
        requester = Requester.of(ctx)
        with acting(requester.origin(None)):
            what = "prompts" if key == "prompts" else "resources"
            entries = await self._ex.resources.visible(what, choose, make)
        question: JSONValue = [key, requester.key]
        try:
            start = 0 if params.cursor is None else self._seal.read(params.cursor, self._version, question)
        except InvalidCursorError:
            raise MCPError(code=INVALID_PARAMS, message="invalid cursor") from None
        end = start + self._page_size
        page: JSONDict = {key: entries[start:end], "resultType": "complete"}
        if end < len(entries):
            page["nextCursor"] = self._seal.make(end, self._version, question)
        return page

    # -- reading and getting ------------------------------------------------------------------------------------

    async def _read(self, ctx: RequestContext, params: ReadResourceRequestParams) -> JSONDict | InputRequiredResult:
        uri = str(params.uri)
        args: JSONDict = {"uri": uri}
        job = metered(self._ex.meter, args, partial(self._read_one, uri, ctx.protocol_version))
        return await self._answer(ctx, params, "resources/read", args, job)

    async def _read_one(self, uri: str, version: str, origin: Origin, on_progress: ProgressCallback | None) -> JSONDict:
        with _refusing(version, {"uri": uri}):
            self._ex.meter.check(origin)
            own_uri, offered = await self._ex.resources.to_read(uri)
            result = await self._ex.resources.ask(offered, {"uri": own_uri}, None, on_progress)
            data = answer_of(result)
        contents = [_content(part) for part in data.get("contents") or ()]
        return {**_meta(data), "contents": contents, "resultType": "complete"}

    async def _get_prompt(self, ctx: RequestContext, params: GetPromptRequestParams) -> JSONDict | InputRequiredResult:
        args: JSONDict = dict(params.arguments or {})
        job = metered(self._ex.meter, args, partial(self._get_one, params.name, args, ctx.protocol_version))
        return await self._answer(ctx, params, f"prompts/get {params.name}", args, job)

    async def _get_one(
        self, name: str, args: JSONObject, version: str, origin: Origin, on_progress: ProgressCallback | None
    ) -> JSONDict:
        with _refusing(version, {"name": name}):
            self._ex.meter.check(origin)
            offered = await self._ex.resources.to_get(name, args)
            data = answer_of(await self._ex.resources.ask(offered, args, None, on_progress))
        messages: list[JSONDict] = []
        for message in data.get("messages") or ():
            [content] = content_for(framed_parts([message["content"]]), version)
            messages.append({"role": message["role"], "content": content})
        described = {"description": framed(data["description"])} if data.get("description") else {}
        return {**_meta(data), **described, "messages": messages, "resultType": "complete"}

    async def _complete(self, ctx: RequestContext, params: CompleteRequestParams) -> JSONDict:
        with acting(Requester.of(ctx).origin(None)), _refusing(ctx.protocol_version, {}):
            offers, offered = await self._completed(params)
            known = params.context.arguments if params.context is not None else None
            argument = params.argument
            found = await self._ex.resources.completed(offers, offered, argument.name, argument.value, known)
        completion: JSONDict = {"values": [visible_line(value) for value in found.values], "hasMore": found.has_more}
        if found.total is not None:
            completion["total"] = found.total
        return {"completion": completion, "resultType": "complete"}

    async def _completed(self, params: CompleteRequestParams) -> tuple[Offers, Offered]:
        """Return what is to be completed; raises NotOfferedError."""
        resources = self._ex.resources
        if isinstance(params.ref, PromptReference):
            offered = await resources.prompt(params.ref.name)
            backend = next(one for one in resources.backends() if one.name == offered.entry.binding.backend)
            return await backend.offers(), offered
        parts = split_uri(params.ref.uri)
        if parts is not None:
            for offered in await resources.visible("resources", lambda offers: offers.templates, lambda one: one):
                if (offered.entry.binding.backend, offered.remote) == parts:
                    backend = next(one for one in resources.backends() if one.name == parts[0])
                    return await backend.offers(), offered
        raise NotOfferedError(f"no template {params.ref.uri[:_LINE]!r}", details={"uri": params.ref.uri[:_LINE]})

    # -- changes ------------------------------------------------------------------------------------------------

    def changed(
        self, backend: OffersMore, event: OfferEvent
    ) -> ResourcesListChanged | PromptsListChanged | ResourceUpdated:
        """Return what clients are to be notified of."""
        if event.kind == "updated":
            return ResourceUpdated(uri=gateway_uri(backend.name, event.uri))
        self._version += 1
        return ResourcesListChanged() if event.kind == "resources" else PromptsListChanged()

    async def _subscribe(self, ctx: RequestContext, params: SubscribeRequestParams) -> EmptyResult:
        connection = connection_of(ctx)
        uri = str(params.uri)
        with acting(Requester.of(ctx).origin(None)), _refusing(ctx.protocol_version, {"uri": uri}):
            await self.watching.watch(connection, connection.exit_stack, uri)
        return EmptyResult()

    async def _unsubscribe(self, ctx: RequestContext, params: UnsubscribeRequestParams) -> EmptyResult:
        await self.watching.unwatch(connection_of(ctx), str(params.uri))
        return EmptyResult()


class _refusing:  # noqa: N801 - it reads as a statement
    """Raise the failures of the block as MCP has them, for clients of *version*; *facts* are what was asked for."""

    def __init__(self, version: str, facts: JSONDict) -> None:
        self._version = version
        self._facts = facts

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ToolExecError):
            raise self._refusal(error) from None
        if isinstance(error, Exception) and not isinstance(error, MCPError):
            logger.error("a request for a resource or a prompt failed inside of the server", exc_info=error)
            shown = internal_failure("the request")
            raise MCPError(code=INTERNAL_ERROR, message=shown.message) from None

    def _refusal(self, error: ToolExecError) -> MCPError:
        message = visible(redactor.text(error.public().message), _DESCRIPTION)
        is_modern = self._version in MODERN_PROTOCOL_VERSIONS
        if isinstance(error, NotOfferedError):
            missing = _NOT_FOUND if "uri" in self._facts and not is_modern else INVALID_PARAMS
            return MCPError(code=missing, message=message, data=self._facts)
        data = error_object(error)
        if isinstance(error, InputValidationError):
            return MCPError(code=INVALID_PARAMS, message=message, data=data)
        if isinstance(error, ApprovalRequiredError) and is_modern and not error.retryable:
            needed = {"requiredCapabilities": {"elicitation": {"form": {}}}, **data}
            return MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message=message, data=needed)
        code = error.details.get("code")
        if not isinstance(code, int):
            return MCPError(code=INTERNAL_ERROR, message=message, data=data)
        if code == _NOT_FOUND and is_modern:
            code = INVALID_PARAMS
        return MCPError(code=code, message=message, data=self._facts | data)


def _content(part: JSONObject) -> JSONDict:
    text = part.get("text")
    return {**part, "text": framed(text)} if isinstance(text, str) else dict(part)


def _meta(data: JSONObject) -> JSONDict:
    return {"_meta": data["_meta"]} if isinstance(data.get("_meta"), dict) else {}


def _shown(offered: Offered) -> JSONDict:
    return _cleaned(offered.listed)


def _cleaned(definition: JSONObject) -> JSONDict:
    """Return a definition as clients receive it; its strings come from strangers."""
    data: JSONDict = dict(definition)
    if isinstance(data.get("title"), str):
        data["title"] = visible_line(data["title"], _LINE)
    if isinstance(data.get("description"), str):
        data["description"] = visible(data["description"], _DESCRIPTION)
    return data


def _resource(offered: Offered) -> JSONDict:
    uri = gateway_uri(offered.entry.binding.backend, offered.remote)
    return {**_shown(offered), "name": _line(offered), "uri": uri}


def _template(offered: Offered) -> JSONDict:
    uri = gateway_uri(offered.entry.binding.backend, offered.remote)
    return {**_shown(offered), "name": _line(offered), "uriTemplate": uri}


def _prompt(offered: Offered) -> JSONDict:
    data: JSONDict = {**_shown(offered), "name": offered.name}
    arguments: Sequence[JSONObject] = data.get("arguments", ())
    return data | ({"arguments": [_cleaned(argument) for argument in arguments]} if arguments else {})


def _line(offered: Offered) -> str:
    return visible_line(str(offered.listed.get("name", "")), _LINE)
