"""What an operation answers: the schema of its success, the media types to ask for, and how its pages are turned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from toolexec.backend.providers.items import is_item_type
from toolexec.backend.providers.openapi.bodies import kind_of
from toolexec.backend.providers.openapi.document import Document, InvalidPartError, items_of, mapping_of
from toolexec.backend.providers.openapi.keywords import types_of
from toolexec.backend.providers.openapi.schemas import Refs, SchemaTable
from toolexec.backend.providers.openapi.styles import Parameter
from toolexec.model.json_value import JSONDict, JSONValue

_MAX_TYPES: Final = 6
_MAX_LINKS: Final = 32
_PAGE: Final = ("page", "page_number", "pagenumber", "page_num", "pageno", "page_no", "page[number]", "p")
_SIZE: Final = ("per_page", "perpage", "page_size", "pagesize", "limit", "max_results", "maxresults", "top", "$top")
_SIZES: Final = (*_SIZE, "page[size]", "count", "size", "first", "num_results")
_OFFSET: Final = ("offset", "skip", "$skip", "start", "startindex", "start_index", "page[offset]", "from")
_CURSOR: Final = ("cursor", "page_token", "pagetoken", "next_token", "nexttoken", "next_cursor", "after", "$skiptoken")
_CURSORS: Final = (*_CURSOR, "continuation_token", "continuationtoken", "marker", "starting_after", "page[after]")
_NEXT_PAGE: Final = ("next", "next_page", "nextpage", "next_page_token", "nextpagetoken", "next_page_url", "has_more")
_NEXT_CURSOR: Final = (
    "next_cursor",
    "nextcursor",
    "next_token",
    "nexttoken",
    "continuation_token",
    "continuationtoken",
)
_NEXT_LINK: Final = ("next_url", "nextlink", "next_link", "@odata.nextlink", "nextmarker", "next_marker", "hasmore")
_NEXT: Final = frozenset((*_NEXT_PAGE, *_NEXT_CURSOR, *_NEXT_LINK))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """How the pages of an operation's answer are turned: the arguments that do, and where the next page is named: a
    field of the answer, or its `Link` header."""

    arguments: Mapping[str, str]
    next: str = ""

    def sentence(self) -> str:
        """Return this as a part of a tool's description."""
        turn = ", ".join(f"`{name}` ({role})" for name, role in self.arguments.items())
        return f"Pages: {turn}{f'; the next is named by {self.next}' if self.next else ''}."

    def to_dict(self) -> JSONDict:
        """Return this as a part of a tool's metadata."""
        return {"arguments": dict(self.arguments), **({"next": self.next} if self.next else {})}


def successes(document: Document, responses: JSONValue) -> list[JSONDict]:
    """Return the successful responses of an operation, by status; `default` counts where there is no other."""
    given = mapping_of(responses)
    keys = sorted(key for key in given if key[:1] == "2") or [key for key in given if key == "default"]
    found: list[JSONDict] = []
    for key in keys:
        try:
            found.append(document.follow(given[key]))
        except InvalidPartError:
            continue
    return found


def answer_types(responses: list[JSONDict]) -> tuple[str, ...]:
    """Return the media types of the successes, without parameters and in lower case."""
    found = (media for response in responses for media in mapping_of(response.get("content")))
    return tuple(dict.fromkeys(media.partition(";")[0].strip().lower() for media in found))


def is_among(media: str, known: Iterable[str]) -> bool:
    """Return whether a media type is one of those *known*, of which some may be ranges such as `text/*`."""
    return any(each in (media, "*/*") or (each.endswith("/*") and media.startswith(each[:-1])) for each in known)


def media_types(responses: list[JSONDict]) -> str:
    """Return the `Accept` header of a request: the media types of the successes, those with JSON first."""
    found = dict.fromkeys(media for response in responses for media in mapping_of(response.get("content")))
    plain = [media for media in found if media.isascii() and media.isprintable() and "/" in media and "," not in media]
    plain.sort(key=lambda media: kind_of(media) != "json")
    return ", ".join([*plain[:_MAX_TYPES], *(["*/*;q=0.1"] if plain and "*/*" not in plain else [])]) or "*/*"


def output_schema(responses: list[JSONDict], table: SchemaTable, room: int) -> str:
    """Return the schema of the value that a success gives, as JSON text; empty where that is not known.

    Several successes are alternatives, and one without content is null. Only JSON has a schema, and the items of a
    stream of JSON.
    """
    refs: Refs = {}
    alternatives: list[JSONValue] = []
    is_null = False
    for response in responses:
        content = mapping_of(response.get("content"))
        if not content:
            is_null = True
            continue
        for name, media in content.items():
            schema = _schema_of(name, mapping_of(media))
            if schema is None:
                return ""
            alternatives.append(table.convert(schema, refs))
    distinct = [each for number, each in enumerate(alternatives) if each not in alternatives[:number]]
    if not distinct or any(each in (True, {}) for each in distinct):
        return ""
    if is_null:
        distinct.append({"type": "null"})
    return table.root(distinct[0] if len(distinct) == 1 else {"anyOf": distinct}, refs, room)


def _schema_of(name: str, media: JSONDict) -> JSONDict | None:
    """Return the schema of what comes with this media type; None where that is not known."""
    if is_item_type(name):  # server-sent events have another form here: their data are values
        items = media.get("itemSchema")
        return {"type": "array", "items": items} if isinstance(items, dict) and "json" in name.lower() else None
    schema = media.get("schema")
    return schema if name and kind_of(name) == "json" and isinstance(schema, dict) else None


def links_of(document: Document, responses: list[JSONDict]) -> JSONDict:
    """Return the `links` that the author wrote down for these responses; see `discovery.links.openapi`."""
    found: JSONDict = {}
    for response in responses:
        for name, link in mapping_of(response.get("links")).items():
            try:
                node = document.follow(link)
            except InvalidPartError:
                continue
            if isinstance(node.get("operationId"), str) and isinstance(node.get("parameters"), dict):
                found[name] = {"operationId": node["operationId"], "parameters": node["parameters"]}
    return dict(list(found.items())[:_MAX_LINKS])


def pages_of(parameters: Iterable[Parameter], responses: list[JSONDict], document: Document) -> Pages | None:
    """Return how pages are turned, by the usual names of parameters; None where nothing looks like it."""
    roles: dict[str, str] = {}
    for parameter in parameters:
        role = _role_of(parameter.name.lower()) if parameter.place == "query" else ""
        if role:
            roles[parameter.argument] = role
    if not any(role != "size" for role in roles.values()):
        return None
    return Pages(arguments=roles, next=_next_of(responses, document))


def _role_of(name: str) -> str:
    for role, names in (("page", _PAGE), ("size", _SIZES), ("offset", _OFFSET), ("cursor", _CURSORS)):
        if name in names:
            return role
    return ""


def _next_of(responses: list[JSONDict], document: Document) -> str:
    """Return where a response names the next page."""
    for response in responses:
        if any(name.lower() == "link" for name in mapping_of(response.get("headers"))):
            return "the Link header"
        for media in mapping_of(response.get("content")).values():
            field = _next_field(mapping_of(media).get("schema"), document)
            if field:
                return f"`{field}` of the result"
    return ""


def _next_field(schema: JSONValue, document: Document, level: int = 0) -> str:
    if not isinstance(schema, dict) or level > 3:
        return ""
    try:
        node = document.follow(schema)
    except InvalidPartError:
        return ""
    nested: list[tuple[str, JSONValue]] = [("", part) for part in items_of(node.get("allOf"))]
    for name, child in mapping_of(node.get("properties")).items():
        if name.lower() in _NEXT:
            return name
        if name.lower() in ("meta", "pagination", "paging", "links", "_links", "page_info", "pageinfo", "metadata"):
            nested.append((f"{name}.", child))
    if "array" in types_of(node.get("type")):
        return ""
    for prefix, child in nested:
        found = _next_field(child, document, level + 1)
        if found:
            return prefix + found
    return ""
