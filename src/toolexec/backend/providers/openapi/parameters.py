"""The parameters of an operation: which argument each has, and what schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, cast

from toolexec.backend.providers.openapi.document import Document, InvalidPartError, items_of, mapping_of, string_of
from toolexec.backend.providers.openapi.keywords import examples_of
from toolexec.backend.providers.openapi.schemas import Refs, SchemaTable, encode
from toolexec.backend.providers.openapi.styles import Parameter, Place
from toolexec.model.json_value import JSONDict, JSONValue

_PLACES: Final[tuple[Place, ...]] = ("path", "query", "header", "cookie", "querystring")
_STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
    "querystring": ("form",),
}
"""The styles of each place, the usual one first."""
_NOT_OURS: Final = frozenset(
    (
        *("accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection"),
        *("keep-alive", "te", "trailer", "upgrade"),
    )
)
"""Headers that the client writes; OpenAPI, too, says that parameters of the first three names are ignored."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Argument:
    """A property of a tool's input schema, as JSON text; `needs` are arguments that it is not given without."""

    __slots__ = ("needs", "refs", "required", "text")

    def __init__(self, text: str, refs: Refs, *, required: bool, needs: Iterable[str] = ()) -> None:
        self.needs: tuple[str, ...] = tuple(needs)
        self.text: str = text
        self.refs: Refs = refs
        self.required: bool = required


class ParameterReader:
    """Reads the parameters of one document; those that many operations refer to are converted once."""

    def __init__(self, document: Document, table: SchemaTable, withheld: Iterable[tuple[str, str]] = ()) -> None:
        """Leave out *withheld*, pairs of place and lower-case name: what the security schemes fill in."""
        self._document = document
        self._table = table
        self._withheld = frozenset(withheld)
        self._written: dict[int, tuple[str, Refs, JSONDict]] = {}  # each with its node, whose id must stay in use

    def read(self, path: str, shared: JSONValue, own: JSONValue) -> tuple[list[Parameter], dict[str, Argument]]:
        """Return the parameters of an operation and their arguments: *shared* are those of its path, *own* its own.

        Raises InvalidPartError for one that cannot be sent, unless it is optional.
        """
        found = self._declared(items_of(shared)) | self._declared(items_of(own))
        for name in _placeholders(path):
            found.setdefault(("path", name), {"name": name, "in": "path", "schema": {"type": ["string", "integer"]}})
        places = [place for place, _ in found]
        if "querystring" in places and ("query" in places or places.count("querystring") > 1):
            raise InvalidPartError("a parameter in querystring is the whole query, and not the only one that is in it")
        parameters: list[Parameter] = []
        arguments: dict[str, Argument] = {}
        for place in _PLACES:
            for (where, key), node in found.items():
                if where != place or self._is_left_out(place, key, path):
                    continue
                text, refs = self._text_of(node)
                name = cast("str", node["name"])
                argument = name
                while argument in arguments:
                    argument = f"{argument}_{place}"
                parameter = self._parameter(name, place, argument, node)
                parameters.append(parameter)
                arguments[argument] = Argument(text, refs, required=parameter.required and not is_key(place, name))
        return parameters, arguments

    def _declared(self, nodes: list[JSONValue]) -> dict[tuple[str, str], JSONDict]:
        found: dict[tuple[str, str], JSONDict] = {}
        for given in nodes:
            node = self._document.follow(given)
            name, place = node.get("name"), node.get("in")
            if not isinstance(name, str) or not name or place not in _PLACES:
                raise InvalidPartError(f"a parameter has no name, or is not in one of {', '.join(_PLACES)}")
            found[place, name.lower() if place == "header" else name] = node
        return found

    def _is_left_out(self, place: Place, name: str, path: str) -> bool:
        if place == "path":
            return f"{{{name}}}" not in path
        if place == "header" and not _TOKEN.fullmatch(name):
            raise InvalidPartError(f"no header can be called {name[:100]!r}")
        return (place == "header" and name in _NOT_OURS) or (place, name.lower()) in self._withheld

    def _parameter(self, name: str, place: Place, argument: str, node: JSONDict) -> Parameter:
        styles = _STYLES[place]
        style = node.get("style") if node.get("style") in styles else styles[0]
        explode = node.get("explode")
        content = mapping_of(node.get("content"))
        return Parameter(
            name=name,
            place=place,
            argument=argument,
            style=cast("str", style),
            explode=explode if isinstance(explode, bool) else style == "form",
            required=place == "path" or node.get("required") is True,
            allow_reserved=place == "query" and node.get("allowReserved") is True,
            media_type=next(iter(content), "") if not isinstance(node.get("schema"), dict) else "",
        )

    def _text_of(self, node: JSONDict) -> tuple[str, Refs]:
        known = self._written.get(id(node))
        if known is None:
            refs: Refs = {}
            known = self._written[id(node)] = encode(self._schema_of(node, refs)), refs, node
        return known[:2]

    def _schema_of(self, node: JSONDict, refs: Refs) -> JSONDict:
        """Convert a parameter's schema, and add what the parameter itself says of its meaning."""
        given = node.get("schema")
        if not isinstance(given, dict):
            media = next(iter(mapping_of(node.get("content")).values()), None)
            given = mapping_of(media).get("schema") if media is not None else _bare(node)
        converted = self._table.convert(given, refs)
        self._table.check(converted)
        schema: JSONDict = converted if isinstance(converted, dict) else {}
        said = string_of(node.get("description"), 2000)
        if said:
            schema = {**schema, "description": said}
        if node.get("deprecated") is True:
            schema = {**schema, "deprecated": True}
        if "examples" not in schema and "example" in node and (examples := examples_of({"example": node["example"]})):
            schema = {**schema, "examples": examples}
        return schema


def is_key(place: str, name: str) -> bool:
    """Return whether a parameter is the header for the idempotency key of a call, which need not be an argument."""
    return place == "header" and name.lower() == "idempotency-key"


def _bare(node: JSONDict) -> JSONDict:
    """Return the schema of a parameter that has it beside its name, as Swagger 2.0 did."""
    return {key: value for key, value in node.items() if key not in ("name", "in", "required", "description")}


def _placeholders(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:] if "}" in part]
