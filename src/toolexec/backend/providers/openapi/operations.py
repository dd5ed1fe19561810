"""From the operations of a document to tools, each with what its requests need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from toolexec.backend.providers.items import is_item_type
from toolexec.backend.providers.openapi.bodies import Body, kind_of
from toolexec.backend.providers.openapi.body_schema import BodyReader
from toolexec.backend.providers.openapi.document import Document, InvalidPartError, items_of, mapping_of, string_of
from toolexec.backend.providers.openapi.outputs import (
    Pages,
    answer_types,
    links_of,
    media_types,
    output_schema,
    pages_of,
    successes,
)
from toolexec.backend.providers.openapi.parameters import Argument, ParameterReader, is_key
from toolexec.backend.providers.openapi.schemas import Refs, SchemaTable, encode, with_definitions
from toolexec.backend.providers.openapi.security import Schemes
from toolexec.backend.providers.openapi.selection import Names, Selection
from toolexec.backend.providers.openapi.servers import Servers
from toolexec.backend.providers.openapi.styles import Parameter
from toolexec.backend.providers.openapi.swagger import PROBLEM
from toolexec.discovery.links import OPENAPI_LINKS
from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.schema import Schema
from toolexec.model.schema_guard import MAX_SCHEMA_BYTES
from toolexec.model.tool import Tool, ToolAnnotations

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_NOT_SENT: Final = ("trace", "connect")
_MAX_DESCRIPTION: Final = 4000
_MAX_TAGS: Final = 20
_READ: Final = ToolAnnotations(read_only=True, idempotent=True, destructive=False, open_world=True)
_OTHER: Final = ToolAnnotations(open_world=True)
_ANNOTATIONS: Final[Mapping[str, ToolAnnotations]] = {
    **dict.fromkeys(("get", "head", "options", "query"), _READ),
    "put": ToolAnnotations(idempotent=True, open_world=True),
    "delete": ToolAnnotations(idempotent=True, destructive=True, open_world=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a call of one operation needs: see `request` for how the parts become a request."""

    tool: Tool
    method: str
    path: str
    server: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    security: tuple[tuple[str, ...], ...]
    accept: str
    pages: Pages | None
    key_header: str = ""
    """The header for the idempotency key of a call."""
    needs_key: bool = False
    answers: tuple[str, ...] = ()
    """The media types of its successes."""

    @property
    def answers_json(self) -> bool:
        """Whether one of its successes is JSON."""
        return any(media and kind_of(media) == "json" for media in self.answers)

    @property
    def streams(self) -> bool:
        """Whether one of its successes is a stream of items."""
        return any(map(is_item_type, self.answers))

    @property
    def route(self) -> str:
        """The method and the path, such as `GET /pets/{id}`."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """The operations of a document that became tools, and why others did not, by name."""

    found: tuple[Operation, ...]
    skipped: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One operation as it stands in the document."""

    name: str
    method: str
    path: str
    item: JSONDict
    node: JSONDict


def read_operations(
    document: Document,
    *,
    namespace: str,
    servers: Servers,
    schemes: Schemes,
    selection: Selection | None = None,
    max_schema_bytes: int = 65_536,
    key_header: str = "",
) -> Operations:
    """Return the tools of *document*, in its order; what cannot be one is in `skipped`, and does not stop the others.

    The definitions of a schema have up to *max_schema_bytes* characters; those that are farther away are left open.
    *key_header* is the header for idempotency keys where the document names none. Raises ConfigurationError for a
    selection that names what is not there.
    """
    reader = _Reader(document, namespace, servers, schemes, max_schema_bytes, key_header)
    skipped: dict[str, str] = {}
    found: list[Operation] = []
    for entry in _entries(document, selection or Selection(), skipped):
        try:
            found.append(reader.read(entry))
        except InvalidPartError as error:
            skipped[entry.name] = f"{entry.method.upper()} {entry.path[:200]}: {error}"
        except ToolExecError as error:
            skipped[entry.name] = f"{entry.method.upper()} {entry.path[:200]}: {error.message[:500]}"
        except (RecursionError, ValueError, TypeError, AttributeError, KeyError) as error:
            # A document may hold anything anywhere; what no rule has foreseen is the end of this operation only.
            skipped[entry.name] = f"{entry.method.upper()} {entry.path[:200]}: {type(error).__name__}: {error}"[:500]
    return Operations(found=tuple(found), skipped=skipped)


def _entries(document: Document, selection: Selection, skipped: dict[str, str]) -> Iterator[_Entry]:
    """Yield the operations that are selected, each with its name. Names do not depend on what is selected."""
    names = Names(selection.rename)
    known: list[str] = []
    chosen: list[_Entry] = []
    for path, given in mapping_of(document.root.get("paths")).items():
        if path.startswith("x-"):
            continue
        try:
            item = document.follow(given)
        except InvalidPartError as error:
            skipped[path[:200]] = str(error)
            continue
        for method, node in _operations_of(item):
            if not isinstance(node, dict):
                skipped[f"{method.upper()} {path}"[:200]] = f"it is {type(node).__name__}, not an object"
                continue
            operation_id, route = string_of(node.get("operationId"), 500), f"{method.upper()} {path}"
            plain = names.plain(operation_id, method, path)
            name = names.of(operation_id, plain, route)
            known += [name, operation_id or plain]
            tags = [tag for tag in items_of(node.get("tags")) if isinstance(tag, str)]
            if selection.takes((name, operation_id, plain), route, tags):
                chosen.append(_Entry(name, method, path, item, node))
    names.check(known)
    yield from chosen


def _operations_of(item: JSONDict) -> Iterator[tuple[str, JSONValue]]:
    """Yield the methods of a path: those of their own name, and those of `additionalOperations`."""
    for method in METHODS:
        if method in item:
            yield method, item[method]
    for method, node in mapping_of(item.get("additionalOperations")).items():
        if method.lower() not in METHODS:
            yield method, node


class _Reader:
    """Makes the operations of one document."""

    def __init__(
        self, document: Document, namespace: str, servers: Servers, schemes: Schemes, room: int, key_header: str
    ) -> None:
        self._key_header = key_header
        self._document = document
        self._namespace = namespace
        self._servers = servers
        self._schemes = schemes
        self._room = room
        self._inputs = SchemaTable(document, output=False)
        self._outputs = SchemaTable(document, output=True)
        self._parameters = ParameterReader(document, self._inputs, schemes.withheld())
        self._bodies = BodyReader(document, self._inputs)
        self._schemas: dict[str, Schema] = {}

    def read(self, entry: _Entry) -> Operation:
        """Return one operation. Raises InvalidPartError and ToolExecError for one that cannot be a tool."""
        node = entry.node
        if PROBLEM in node:
            raise InvalidPartError(str(node[PROBLEM])[:500])
        if entry.method.lower() in _NOT_SENT:
            raise InvalidPartError(f"requests with {entry.method.upper()} are not sent")
        if not entry.path.startswith("/"):
            raise InvalidPartError("its path does not begin with a slash")
        parameters, arguments = self._parameters.read(entry.path, entry.item.get("parameters"), node.get("parameters"))
        no_body = entry.method in ("get", "head") and not node.get("requestBody")
        body, extras = (None, "false") if no_body else self._bodies.read(node.get("requestBody"), arguments)
        responses = successes(self._document, node.get("responses"))
        pages = pages_of(parameters, responses, self._document) if entry.method == "get" else None
        server = self._servers.url_of(node.get("servers"), entry.item.get("servers"))
        security = self._schemes.of(node)
        declared = next((each for each in parameters if is_key(each.place, each.name)), None)
        tool = Tool(
            name=entry.name,
            namespace=self._namespace,
            title=string_of(node.get("summary"), 200),
            description=_description(entry, pages),
            input_schema=self._input(arguments, extras),
            output_schema=self._output(responses),
            annotations=_ANNOTATIONS.get(entry.method, _OTHER),
            tags=_tags(node),
            meta=self._meta(entry, server, security, pages, responses),
        )
        return Operation(
            tool=tool,
            method=entry.method.upper(),
            path=entry.path,
            server=server,
            parameters=tuple(parameters),
            body=body,
            security=security,
            accept=media_types(responses),
            pages=pages,
            key_header=declared.name if declared is not None else self._key_header,
            needs_key=declared is not None and declared.required,
            answers=answer_types(responses),
        )

    def _input(self, arguments: Mapping[str, Argument], extras: str) -> Schema:
        refs: Refs = {}
        for argument in arguments.values():
            refs.update(argument.refs)
        members = ",".join(f"{encode(name)}:{argument.text}" for name, argument in arguments.items())
        required = [name for name, argument in arguments.items() if argument.required]
        needed = f',"required":{encode(required)}' if required else ""
        together = {name: argument.needs for name, argument in arguments.items() if argument.needs}
        needed += f',"dependentRequired":{encode(together)}' if together else ""
        text = f'{{"type":"object","properties":{{{members}}}{needed},"additionalProperties":{extras}}}'
        return self._schema(with_definitions(text, self._inputs.definitions(refs, self._room)) if refs else text)

    def _output(self, responses: list[JSONDict]) -> Schema | None:
        try:
            text = output_schema(responses, self._outputs, self._room)
        except InvalidPartError:
            return None
        return self._schema(text) if len(text) > 4 and len(text) <= MAX_SCHEMA_BYTES else None

    def _schema(self, text: str) -> Schema:
        """Return the schema with this text. It is not guarded again: the table let nothing pass that a guard refuses,
        and each schema is guarded when it is compiled."""
        if len(text) > MAX_SCHEMA_BYTES:
            raise InvalidPartError(f"its schema has {len(text)} characters; {MAX_SCHEMA_BYTES} is the most")
        return self._schemas.setdefault(text, Schema.restored(text))

    def _meta(
        self,
        entry: _Entry,
        server: str,
        security: tuple[tuple[str, ...], ...],
        pages: Pages | None,
        responses: list[JSONDict],
    ) -> JSONDict:
        """Return where the requests go, for pins too: who is given arguments and secrets is a part of a tool."""
        http: JSONDict = {"method": entry.method.upper(), "path": entry.path, "server": server}
        tokens = self._schemes.token_urls(security)
        if tokens:
            http["tokens"] = tokens
        meta: JSONDict = {"http": http}
        if pages is not None:
            meta["pages"] = pages.to_dict()
        links = links_of(self._document, responses)
        return {**meta, OPENAPI_LINKS: links} if links else meta


def _description(entry: _Entry, pages: Pages | None) -> str:
    """Return what the document says of an operation, within bounds."""
    summary = string_of(entry.node.get("summary"), 500)
    text = string_of(entry.node.get("description"), _MAX_DESCRIPTION)
    parts = [] if not summary or text.startswith(summary.rstrip(".")) else [summary]
    if text:
        parts.append(text)
    if not parts:
        parts.append(f"{entry.method.upper()} {entry.path}"[:500])
    if entry.node.get("deprecated") is True:
        parts.insert(0, "Deprecated.")
    if pages is not None:
        parts.append(pages.sentence())
    return "\n\n".join(parts)


def _tags(node: JSONObject) -> list[str]:
    return [tag[:100] for tag in items_of(node.get("tags"))[:_MAX_TAGS] if isinstance(tag, str) and tag.strip()]
