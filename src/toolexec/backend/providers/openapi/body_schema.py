"""The schema of a request's body: whether its properties become arguments, and which of them are files."""

from __future__ import annotations

from typing import Final

from toolexec.backend.providers.openapi.bodies import FILE, Body, BodyKind, kind_of
from toolexec.backend.providers.openapi.discriminators import subtypes
from toolexec.backend.providers.openapi.document import Document, InvalidPartError, items_of, mapping_of, string_of
from toolexec.backend.providers.openapi.keywords import types_of
from toolexec.backend.providers.openapi.parameters import Argument
from toolexec.backend.providers.openapi.schemas import Refs, SchemaTable, encode
from toolexec.model.json_value import JSONDict, JSONValue

_ORDER: Final[tuple[BodyKind, ...]] = ("json", "multipart", "form", "text", "binary")
_FILE_TEXT: Final = encode(FILE)
_FILES_TEXT: Final = encode({"type": "array", "items": FILE})
_OF_OBJECTS: Final = ("type", "properties", "required", "allOf", "additionalProperties", "nullable", "discriminator")
_ABOUT: Final = (
    "title",
    "description",
    "example",
    "examples",
    "default",
    "deprecated",
    "externalDocs",
    "xml",
    "format",
)
_PLAIN_KEYWORDS: Final = frozenset((*_OF_OBJECTS, *_ABOUT, "$id", "$schema"))
"""The keywords of an object whose properties can stand beside parameters; any other speaks of the whole object."""
_MAX_NESTED: Final = 20


class _Fields:
    """The properties of an object, with those of all its parts."""

    def __init__(self) -> None:
        self.properties: JSONDict = {}
        self.required: dict[str, None] = {}
        self.hidden: set[str] = set()
        self.extras: JSONValue = False

    def settle(self) -> None:
        """Require nothing that only replies have, and let what is required without being declared be anything."""
        for name in [each for each in self.required if each not in self.properties]:
            if name in self.hidden or not self.properties:
                del self.required[name]
            else:
                self.properties[name] = {}


def preferred(content: JSONDict) -> tuple[str, JSONDict]:
    """Return the media type of *content* to use, and what it says: JSON before forms before text before the rest."""
    ranked = sorted(content, key=lambda each: (_ORDER.index(kind_of(each)), each != "application/json"))
    return (ranked[0], mapping_of(content[ranked[0]])) if ranked else ("", {})


class BodyReader:
    """Reads the request bodies of one document."""

    def __init__(self, document: Document, table: SchemaTable) -> None:
        self._document = document
        self._table = table
        self._subtypes: dict[int, dict[str, str]] = {}  # by a node of the document, which stays as long as this does

    def read(self, node: JSONValue, arguments: dict[str, Argument]) -> tuple[Body | None, str]:
        """Return how the body *node* is made, and the `additionalProperties` of the tool's input as JSON text.

        Its properties are added to *arguments* where it is an object that has some, and no name is taken already;
        otherwise it is the argument `body`. Raises InvalidPartError for one that cannot be used.
        """
        if node is None:
            return None, "false"
        given = self._document.follow(node)
        content = mapping_of(given.get("content"))
        if not content:
            return None, "false"
        media_type, media = preferred(content)
        kind = kind_of(media_type)
        schema = media.get("schema", {})
        fields = self._fields(schema) if kind in ("json", "form", "multipart") else None
        if fields is not None:
            fields.settle()
        files = self._files(fields, mapping_of(media.get("encoding"))) if kind == "multipart" and fields else {}
        form = {name: mapping_of(how) for name, how in mapping_of(media.get("encoding")).items()}
        required = given.get("required") is True
        if fields is None or not fields.properties or arguments.keys() & fields.properties.keys():
            name = "body"
            while name in arguments:
                name = f"request_{name}"
            arguments[name] = self._whole(given, schema, kind, fields, files, required=required)
            body = Body(kind=kind, media_type=media_type, argument=name, encodings=form, files=frozenset(files))
            return body, "false"
        extras = self._merge(fields, files, arguments, required=required)
        names = dict.fromkeys(fields.properties)
        return (
            Body(
                kind=kind,
                media_type=media_type,
                names=names,
                extras=extras != "false",
                required=required,
                encodings=form,
                files=frozenset(files),
            ),
            extras,
        )

    def _merge(self, fields: _Fields, files: dict[str, str], arguments: dict[str, Argument], *, required: bool) -> str:
        needed = [name for name in fields.required if name in fields.properties]

        def needs(name: str) -> list[str]:
            """Return what a body that may be left out has to have once it is there: all through the first of them."""
            if required or not needed:
                return []
            return needed[:1] if name != needed[0] else needed[1:]

        for name, child in fields.properties.items():
            refs: Refs = {}
            text = files.get(name) or self._converted(child, refs)
            arguments[name] = Argument(text, refs, required=required and name in needed, needs=needs(name))
        refs = {}
        extras = encode(self._table.convert(fields.extras, refs))
        # The references of further properties count as those of the last argument: all end in one `$defs`.
        arguments[next(reversed(arguments))].refs.update(refs)
        return extras

    def _whole(
        self,
        given: JSONDict,
        schema: JSONValue,
        kind: BodyKind,
        fields: _Fields | None,
        files: dict[str, str],
        *,
        required: bool,
    ) -> Argument:
        """Return the argument that is the body as a whole."""
        said = string_of(given.get("description"), 2000)
        refs: Refs = {}
        if kind == "binary":
            return Argument(
                encode({**FILE, "description": f"{said} {FILE['description']}".strip()}), refs, required=required
            )
        if kind == "text":
            return Argument(
                encode({"type": "string", **({"description": said} if said else {})}), refs, required=required
            )
        if fields is not None and fields.properties and files:
            members = {
                name: files.get(name) or self._converted(child, refs) for name, child in fields.properties.items()
            }
            inside = ",".join(f"{encode(name)}:{text}" for name, text in members.items())
            needed = encode([name for name in fields.required if name in members])
            return Argument(
                f'{{"type":"object","properties":{{{inside}}},"required":{needed}}}', refs, required=required
            )
        converted = self._table.convert(schema, refs)
        self._table.check(converted)
        if said and isinstance(converted, dict):
            converted = {"description": said, **converted}
        return Argument(encode(converted), refs, required=required)

    def _converted(self, node: JSONValue, refs: Refs) -> str:
        converted = self._table.convert(node, refs)
        self._table.check(converted)
        return encode(converted)

    def _fields(self, schema: JSONValue, level: int = 0) -> _Fields | None:
        """Return the properties of an object and of all that it consists of; None for what is more than that."""
        if level > _MAX_NESTED:
            return None
        node = self._document.follow(schema)
        types = types_of(node.get("type"))
        if any(each != "object" for each in types) or node.get("nullable") is True:
            return None
        if not all(key in _PLAIN_KEYWORDS or key.startswith("x-") for key in node):
            return None
        found = _Fields()
        for part in items_of(node.get("allOf")):
            fields = self._fields(part, level + 1)
            if fields is None:
                return None
            found.properties |= fields.properties
            found.required |= fields.required
            found.hidden |= fields.hidden
            found.extras = found.extras or fields.extras
        own = mapping_of(node.get("properties"))
        found.properties |= {name: child for name, child in own.items() if not self._table.is_hidden(child)}
        found.hidden |= own.keys() - found.properties.keys()
        found.required |= {name: None for name in items_of(node.get("required")) if isinstance(name, str)}
        extras = node.get("additionalProperties")
        if isinstance(extras, dict) or extras is True:
            found.extras = extras
        if level == 0:
            self._add_subtypes(node, found)
        return found

    def _add_subtypes(self, node: JSONDict, found: _Fields) -> None:
        """Add the properties that only some kinds of an object have, where its discriminator says which kind it is."""
        if "discriminator" not in node:
            return
        kinds = self._subtypes.get(id(node))
        if kinds is None:
            kinds = self._subtypes[id(node)] = subtypes(self._document, node)
        for ref in kinds.values():
            try:
                fields = self._fields({"$ref": ref}, 1)
            except InvalidPartError:
                fields = None
            if fields is None:
                found.extras = True
            else:
                found.properties = {**fields.properties, **found.properties}
        name = mapping_of(node.get("discriminator")).get("propertyName")
        if kinds and isinstance(name, str) and name in found.properties:
            values = {"description": f"It says which properties there are: {', '.join(list(kinds)[:50])}."[:2000]}
            found.properties[name] = {"allOf": [found.properties[name]], **values}

    def _files(self, fields: _Fields, encodings: JSONDict) -> dict[str, str]:
        """Return the schemas of the fields that are files, as JSON text."""
        found: dict[str, str] = {}
        for name, child in fields.properties.items():
            try:
                node = self._document.follow(child)
                is_many = "array" in types_of(node.get("type"))
                one = self._document.follow(node.get("items", {})) if is_many else node
            except InvalidPartError:
                continue
            if _is_file(one, mapping_of(encodings.get(name))):
                text = _FILES_TEXT if is_many else _FILE_TEXT
                said = string_of(node.get("description"), 2000)
                found[name] = f'{{"title":{encode(said)},{text[1:]}' if said else text
        return found


def _is_file(node: JSONDict, encoding: JSONDict) -> bool:
    """Return whether a field is a file: it is binary, or its media type is neither text nor JSON."""
    if node.get("type") == "file" or node.get("format") == "binary":
        return True
    types = types_of(node.get("type"))
    media_type = node.get("contentMediaType") or encoding.get("contentType")
    if types not in ([], ["string"]) or node.get("contentEncoding") or not isinstance(media_type, str):
        return False
    return kind_of(media_type.partition(",")[0]) == "binary"
