"""Resources and prompts of an MCP server: its lists, and what is asked of it by them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

import pydantic
from mcp import Client, MCPError
from mcp_types import METHOD_NOT_FOUND, PromptReference, ResourceTemplateReference, ServerCapabilities

from toolexec.backend.mcp.choosing import Chosen
from toolexec.backend.mcp.convert import without_hidden_characters
from toolexec.backend.offers import Offered, OfferKind, Offers
from toolexec.backend.uris import is_closed
from toolexec.discovery.index import Registered
from toolexec.errors import Outcome, RemoteToolError, ToolExecError
from toolexec.model.binding import MCPBinding, MCPMethod
from toolexec.model.content import ToolReply
from toolexec.model.ids import MAX_NAME_LENGTH, clean_segment
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.resources import MAX_URI, gateway_uri
from toolexec.model.tool import Tool, ToolAnnotations

MAX_OFFERS: Final = 10_000
"""The most resources, templates, and prompts that are taken of one server, of each."""
MAX_REPLY: Final = 32 << 20
"""The most characters that one resource, or one prompt, may hold; base64 counts as it comes."""
_MAX_PAGES: Final = 1000
_MAX_LISTED: Final = 16 << 20
_MAX_DEFINITION: Final = 64 << 10
_UNLISTED: Final = "unlisted"
_COMPLETE: Final = "complete"
_HASH: Final = 8
_MARK: Final[dict[OfferKind, str]] = {
    "prompt": "+prompt",
    "resource": "+resource",
    "template": "+resource",
    "completion": "+completion",
}
_METHOD: Final[dict[OfferKind, MCPMethod]] = {
    "prompt": "prompts/get",
    "resource": "resources/read",
    "template": "resources/read",
    "completion": "completion/complete",
}
_READS: Final = ToolAnnotations(read_only=True, idempotent=True)
T = TypeVar("T")


def may_offer(capabilities: ServerCapabilities) -> frozenset[str]:
    """Return what a server says that it has, see `OffersMore.may_offer`."""
    resources = capabilities.resources
    found = {
        "resources": resources is not None,
        "subscribe": resources is not None and bool(resources.subscribe),
        "prompts": capabilities.prompts is not None,
        "completion": capabilities.completions is not None,
    }
    return frozenset(name for name, has in found.items() if has)


async def read_offers(client: Client, name: str, namespace: str, destination: str, chosen: Chosen) -> Offers:
    """Return what is *chosen* of all that the server offers. A list that never ends is cut, and what is not as MCP has
    it is left out, with the reason among the faults. Raises what the SDK does."""
    has = may_offer(client.server_capabilities)
    makes = _Maker(name, namespace, destination, chosen)
    prompts: list[Offered] = []
    resources: list[Offered] = []
    templates: list[Offered] = []
    if "prompts" in has:
        prompts = makes.all("prompt", await _listed(lambda c: client.list_prompts(cursor=c), "prompts", makes))
    if "resources" in has:
        listed = await _listed(lambda c: client.list_resources(cursor=c), "resources", makes)
        resources = makes.all("resource", listed)
        listed = await _listed(lambda c: client.list_resource_templates(cursor=c), "resource_templates", makes)
        templates = makes.all("template", listed)
    resources_chosen = chosen.resources

    def refuses(uri: str) -> bool:
        return not resources_chosen.includes(uri) or is_closed(uri, resources_chosen.excludes, makes.excluded_templates)

    return Offers(
        prompts=prompts,
        resources=resources,
        templates=templates,
        unlisted=makes.other("template", _UNLISTED) if "resources" in has else None,
        completion=makes.other("completion", _COMPLETE) if "completion" in has else None,
        refuses=refuses if resources_chosen.narrows else None,
        faults=makes.faults,
    )


def narrowed(known: Offers, chosen: Chosen) -> Offers:
    """Return those of *known* offers that are *chosen* now, until all are read again. A URI that was left out stays so
    until then, too."""
    resources, before = chosen.resources, known.refuses
    closed = [template.remote for template in known.templates if resources.excludes(template.remote)]

    def refuses(uri: str) -> bool:
        if before is not None and before(uri):
            return True
        return resources.narrows and (not resources.includes(uri) or is_closed(uri, resources.excludes, closed))

    return replace(
        known,
        prompts=[each for each in known.prompts if chosen.prompts.takes(each.remote)],
        resources=[each for each in known.resources if resources.takes(each.remote)],
        templates=[each for each in known.templates if resources.takes(each.remote)],
        refuses=refuses if before is not None or resources.narrows else None,
    )


async def _listed(page_at: Callable[[str | None], Awaitable[Any]], key: str, makes: _Maker) -> list[JSONDict]:
    """Return the definitions on all pages; ends also where a server repeats a cursor or never stops."""
    found: list[JSONDict] = []
    seen: set[str] = set()
    cursor: str | None = None
    size = 0
    for _ in range(_MAX_PAGES):
        try:
            page = await page_at(cursor)
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            return found
        for item in cast("Sequence[pydantic.BaseModel]", getattr(page, key)):
            data = item.model_dump(by_alias=True, mode="json", exclude_none=True)
            size += len(item.model_dump_json(by_alias=True, exclude_none=True))
            found.append(data)
        cursor = page.next_cursor
        if cursor is None:
            return found[:MAX_OFFERS]
        if cursor in seen:
            why = "the server repeats a page"
        elif len(found) >= MAX_OFFERS:
            why = f"there are more than {MAX_OFFERS}"
        elif size > _MAX_LISTED:
            why = f"their definitions have more than {_MAX_LISTED} characters"
        else:
            seen.add(cursor)
            continue
        break
    else:
        why = f"there are more than {_MAX_PAGES} pages"
    makes.faults[f"({key})"] = f"{why}; those after that are missing"
    return found[:MAX_OFFERS]


class _Maker:
    """Makes offers of those definitions that are *chosen*, each with an ID of its own."""

    def __init__(self, backend: str, namespace: str, destination: str, chosen: Chosen) -> None:
        self._backend = backend
        self._namespace = namespace
        self._destination = destination
        self._taken: set[str] = {self._id(kind, name) for kind, name in _OWN}
        self._chosen = chosen
        self.excluded_templates: list[str] = []
        self.faults: JSONDict = {}

    def all(self, kind: OfferKind, listed: Iterable[JSONDict]) -> list[Offered]:
        """Return the offers of these definitions; the first counts of those with the same name or URI."""
        found: dict[str, Offered] = {}
        for data in listed:
            remote = str(data["name"] if kind == "prompt" else data["uriTemplate" if kind == "template" else "uri"])
            choice = self._chosen.of(kind)
            if not choice.takes(remote):
                if kind == "template" and choice.excludes(remote):
                    self.excluded_templates.append(remote)
                continue
            label = f"{kind} {remote[:200]}"
            size = sum(len(str(value)) for value in data.values())
            if remote in found:
                self.faults[label] = "it is listed twice"
            elif not remote or len(remote) > MAX_URI or size > _MAX_DEFINITION:
                self.faults[label] = f"its name or its definition is empty, or too long ({size} characters)"
            else:
                try:
                    found[remote] = self._offer(kind, remote, _cleaned(data))
                except ToolExecError as error:
                    self.faults[label] = error.message
        return list(found.values())

    def other(self, kind: OfferKind, name: str) -> Offered:
        """Return the offer for what is not listed, or of the server as a whole."""
        return self._made(kind, name, name, {"name": name}, {"type": "object"})

    def _offer(self, kind: OfferKind, remote: str, data: JSONDict) -> Offered:
        name = clean_segment(remote) or "x"
        digest = hashlib.sha256(remote.encode(errors="surrogatepass")).hexdigest()[:_HASH]
        if len(name) + len(self._backend) + 2 > MAX_NAME_LENGTH or self._id(kind, name) in self._taken:
            name = f"{name[: max(MAX_NAME_LENGTH - len(self._backend) - _HASH - 3, 8)]}-{digest}"
        schema = _prompt_schema(data) if kind == "prompt" else _uri_schema(kind, remote)
        self._taken.add(self._id(kind, name))
        return self._made(kind, name, remote, data, schema)

    def _id(self, kind: OfferKind, name: str) -> str:
        return f"{self._named(name)}:{_MARK[kind]}"

    def _named(self, name: str) -> str:
        """Return the name, with that of the backend where another one may have the same namespace."""
        return name if self._namespace == self._backend else f"{name}.{self._backend}"[:MAX_NAME_LENGTH]

    def _made(self, kind: OfferKind, name: str, remote: str, data: JSONDict, schema: JSONDict) -> Offered:
        title = data.get("title") or (data.get("name") if kind != "prompt" else "") or ""
        tool = Tool(
            name=self._named(name),
            namespace=self._namespace,
            version=_MARK[kind],
            title=str(title),
            description=str(data.get("description") or ""),
            input_schema=schema,
            annotations=_READS,
        )
        binding = MCPBinding(self._backend, remote, self._destination, _METHOD[kind])
        return Offered(kind, Registered(tool, (binding,), binding), remote, data)


_OWN: Final[tuple[tuple[OfferKind, str], ...]] = (("template", _UNLISTED), ("completion", _COMPLETE))


def _cleaned(data: JSONDict) -> JSONDict:
    """Return a definition without characters that hide something from people who read it."""
    for key in ("title", "description"):
        if isinstance(data.get(key), str):
            data[key] = without_hidden_characters(data[key])
    for argument in data.get("arguments") or ():
        _cleaned(argument)
    return data


def _prompt_schema(data: JSONObject) -> JSONDict:
    arguments = cast("Sequence[JSONObject]", data.get("arguments") or ())
    properties: JSONDict = {}
    for argument in arguments:
        described = {key: argument[key] for key in ("title", "description") if argument.get(key)}
        properties[str(argument["name"])] = {"type": "string", **described}
    required = [str(argument["name"]) for argument in arguments if argument.get("required")]
    schema: JSONDict = {"type": "object", "properties": properties, "additionalProperties": {"type": "string"}}
    return schema | ({"required": required} if required else {})


def _uri_schema(kind: OfferKind, remote: str) -> JSONDict:
    uri: JSONDict = {"const": remote} if kind == "resource" else {"type": "string", "description": f"as {remote}"}
    return {"type": "object", "properties": {"uri": uri}, "required": ["uri"], "additionalProperties": False}


def linked(part: JSONObject, backend: str) -> JSONObject:
    """Return a part of a reply with the URI by which a resource in it can be read here, whatever URI its server gives
    it; what is on the web is left to be read there."""
    if part.get("type") == "resource_link":
        return {**part, "uri": _uri_here(part.get("uri"), backend)}
    resource = part.get("resource")
    if part.get("type") == "resource" and isinstance(resource, dict):
        held = cast("JSONDict", resource)
        return {**part, "resource": {**held, "uri": _uri_here(held.get("uri"), backend)}}
    return part


def _uri_here(uri: object, backend: str) -> object:
    if not isinstance(uri, str) or uri.startswith(("https://", "http://")):
        return uri
    return gateway_uri(backend, uri)


async def ask_offer(client: Client, backend: str, method: MCPMethod, remote: str, args: JSONObject) -> ToolReply:
    """Ask the server for what the method says, and return its answer as a structured value, with URIs for here.

    Raises what the SDK does, and RemoteToolError for an answer that is too long.
    """
    if method == "resources/read":
        data = _bounded(await client.read_resource(str(args["uri"])), remote)
        for part in data.get("contents", ()):
            part["uri"] = gateway_uri(backend, str(part.get("uri", "")))
        return _reply(data)
    if method == "prompts/get":
        given = {key: str(value) for key, value in args.items()}
        data = _bounded(await client.get_prompt(remote, given), remote)
        for message in data.get("messages", ()):
            message["content"] = linked(message["content"], backend)
        return _reply(data)
    ref, argument = cast("JSONDict", args["ref"]), cast("JSONDict", args["argument"])
    reference: PromptReference | ResourceTemplateReference
    if ref["type"] == "ref/prompt":
        reference = PromptReference(name=str(ref["name"]))
    else:
        reference = ResourceTemplateReference(uri=str(ref["uri"]))
    context = cast("dict[str, str] | None", args.get("context"))
    known = {"name": str(argument["name"]), "value": str(argument["value"])}
    return _reply(_bounded(await client.complete(reference, known, context), remote))


def _reply(data: JSONDict) -> ToolReply:
    return ToolReply(structured=data, has_structured=True)


def _bounded(result: pydantic.BaseModel, label: str) -> JSONDict:
    data = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    for key in ("resultType", "ttlMs", "cacheScope"):
        data.pop(key, None)
    size = _size(data)
    if size > MAX_REPLY:
        raise RemoteToolError(
            f"{label[:200]} is too long: it has {size} characters, and {MAX_REPLY} is the most",
            outcome=Outcome.DONE,
            details={"size": size, "most": MAX_REPLY},
        )
    return data


def _size(data: JSONObject) -> int:
    """Return how many characters the strings have that may be long."""
    total = 0
    waiting: list[Any] = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, dict):
            waiting += cast("JSONDict", value).values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
    return total
