"""A tool: what it is called, what it takes, what it gives, and hints on how it behaves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from toolexec.errors import InvalidSchemaError, InvalidToolError
from toolexec.model.ids import check_segment, joined
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.schema import Schema, SchemaLike
from toolexec.model.settings import checked
from toolexec.model.sharing import shared_parts, shared_tags, shared_text
from toolexec.model.tags import normalize_tags
from toolexec.model.version import Version

HINTS: Final = ("read_only", "idempotent", "destructive", "open_world")
"""The yes-or-no annotations of a tool."""
DRY_RUN: Final = "toolexec/dry_run"
"""The key of a tool's `meta` that says how to try a call: by the tool with this ID, or by `{"tool": ID, "args":
{...}}`, where the arguments are added to those of the call, and the tool is this one unless it is named."""
TRANSFORMED: Final = "toolexec/transformed"
"""The key of a tool's `meta` with the digest of the definition that it was made of: pins cover that, too."""


@checked("ToolAnnotations", error=InvalidToolError)
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """Hints on a tool's behaviour. They come from the tool's author: trust them only if you trust the author.

    `read_only`: no side effects. `idempotent`: repeating a call changes nothing more. `destructive`: may destroy data;
    None means unknown and is read as yes, unless the tool is read-only. `open_world`: touches things outside.

    >>> ToolAnnotations(read_only=True).destructive is None
    True
    """

    title: str = ""
    read_only: bool = False
    idempotent: bool = False
    destructive: bool | None = None
    open_world: bool | None = None

    @classmethod
    def from_mcp(cls, data: JSONObject) -> ToolAnnotations:
        """Read the MCP spelling (`readOnlyHint`, ...); values of the wrong type count as absent."""
        return cls(
            title=_text(data.get("title")),
            read_only=data.get("readOnlyHint") is True,
            idempotent=data.get("idempotentHint") is True,
            destructive=_flag(data.get("destructiveHint")),
            open_world=_flag(data.get("openWorldHint")),
        )

    def on(self) -> list[str]:
        """Return the names of the hints that hold, as a caller would read them: what does not say whether it is
        destructive counts as destructive unless it is read-only, and as open-world unless it says no.
        """
        destructive = not self.read_only if self.destructive is None else self.destructive
        values = (self.read_only, self.idempotent, destructive, self.open_world is not False)
        return [name for name, value in zip(HINTS, values, strict=True) if value]

    def to_mcp(self) -> JSONDict:
        """Return the MCP spelling, without what is unset or false by default."""
        data: JSONDict = {"title": self.title} if self.title else {}
        if self.read_only:
            data["readOnlyHint"] = True
        if self.idempotent:
            data["idempotentHint"] = True
        if self.destructive is not None:
            data["destructiveHint"] = self.destructive
        if self.open_world is not None:
            data["openWorldHint"] = self.open_world
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Icon:
    """A picture for a tool: an `https:` or `data:` address, its media type, sizes such as `48x48`, light or dark."""

    src: str
    mime_type: str = ""
    sizes: tuple[str, ...] = ()
    theme: str = ""

    @classmethod
    def from_mcp(cls, data: JSONObject) -> Icon:
        """Read the MCP spelling; values of the wrong type count as absent."""
        sizes = data.get("sizes")
        return cls(
            src=_text(data.get("src")),
            mime_type=_text(data.get("mimeType")),
            sizes=tuple(s for s in sizes if isinstance(s, str)) if isinstance(sizes, Sequence) else (),
            theme=_text(data.get("theme")),
        )

    def to_mcp(self) -> JSONDict:
        """Return the MCP spelling, without what is empty."""
        data: JSONDict = {"src": self.src}
        if self.mime_type:
            data["mimeType"] = self.mime_type
        if self.sizes:
            data["sizes"] = list(self.sizes)
        if self.theme:
            data["theme"] = self.theme
        return data


_NO_ANNOTATIONS: Final = ToolAnnotations()
_plain_annotations: dict[tuple[bool | None, ...], ToolAnnotations] = {}
_FIELDS: Final = (
    "name",
    "namespace",
    "version",
    "title",
    "description",
    "input_schema",
    "output_schema",
    "annotations",
    "icons",
    "tags",
    "meta",
)


@checked("Tool", error=InvalidToolError, leave=("input_schema", "output_schema", "meta"))
class Tool:
    """An immutable tool definition; `replace` makes a changed copy.

    >>> tool = Tool(name="add", namespace="math", input_schema={"type": "object"})
    >>> tool.id
    'math:add'
    """

    __slots__ = ("_meta_text", "id", *(field for field in _FIELDS if field != "meta"))

    id: str
    """`name`, `namespace:name` or `namespace:name:version`."""
    name: str
    namespace: str
    version: str
    title: str
    description: str
    input_schema: Schema
    output_schema: Schema | None
    annotations: ToolAnnotations
    icons: tuple[Icon, ...]
    tags: tuple[str, ...]
    _meta_text: str

    def __init__(
        self,
        *,
        name: str,
        namespace: str = "",
        version: str = "",
        title: str = "",
        description: str = "",
        input_schema: SchemaLike,
        output_schema: SchemaLike | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Iterable[Icon] = (),
        tags: Iterable[str] = (),
        meta: JSONObject | None = None,
    ) -> None:
        """Check and keep the parts; tags are normalised, schemas and meta are copied.

        Raises InvalidToolError when a part of the ID is not legal, a version has no namespace to go with, or the meta
        is not JSON; InvalidSchemaError (or a subclass) when a schema is not safe to use.
        """
        put = object.__setattr__
        put(self, "id", _checked_id(name, namespace, version))
        put(self, "name", shared_text(name) if namespace else self.id)
        put(self, "namespace", shared_text(namespace))
        put(self, "version", shared_text(version) if version else version)
        put(self, "title", shared_text(title) if title else title)
        put(self, "description", description)
        put(self, "input_schema", Schema.of(input_schema).guard())
        put(self, "output_schema", None if output_schema is None else Schema.of(output_schema).guard())
        put(self, "annotations", _NO_ANNOTATIONS if annotations is None else shared_annotations(annotations))
        put(self, "icons", tuple(icons))
        put(self, "tags", shared_tags(normalize_tags(tags)) if tags else ())
        put(self, "_meta_text", "" if meta is None else _frozen_meta(meta))

    @classmethod
    def restored(
        cls,
        id: str,
        title: str,
        description: str,
        input_schema: str,
        output_schema: str = "",
        annotations: ToolAnnotations | None = None,
        icons: tuple[Icon, ...] = (),
        tags: tuple[str, ...] = (),
        meta: str = "",
    ) -> Tool:
        """Return the tool that had these parts, without another check of any of them: only for what a tool was taken
        apart into. Schemas and meta are JSON text (`Schema.text`, `meta_text`), empty where there is none.
        """
        tool = object.__new__(cls)
        name, namespace, version = shared_parts(id)
        put = object.__setattr__
        put(tool, "id", id)
        put(tool, "name", name)
        put(tool, "namespace", namespace)
        put(tool, "version", version)
        put(tool, "title", shared_text(title))
        put(tool, "description", description)
        put(tool, "input_schema", Schema.restored(input_schema))
        put(tool, "output_schema", Schema.restored(output_schema) if output_schema else None)
        put(tool, "annotations", annotations or _NO_ANNOTATIONS)
        put(tool, "icons", icons)
        put(tool, "tags", tags)
        put(tool, "_meta_text", meta)
        return tool

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Tool is immutable; use tool.replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Tool is immutable; {name} cannot be deleted")

    @property
    def meta(self) -> JSONDict:
        """The free metadata (`_meta` in MCP) as a fresh dict."""
        return json.loads(self._meta_text) if self._meta_text else {}

    @property
    def has_meta(self) -> bool:
        """Whether there is any metadata; quicker than to ask for it."""
        return self._meta_text != ""

    @property
    def meta_text(self) -> str:
        """The same as JSON text; empty when there is none."""
        return self._meta_text

    @property
    def parsed_version(self) -> Version:
        """The version as a semantic version; raises InvalidVersionError when it is empty or is not one."""
        return Version.parse(self.version)

    @property
    def display_name(self) -> str:
        """The title, else the annotations' title, else the name."""
        return self.title or self.annotations.title or self.name

    def check_schemas(self) -> Tool:
        """Find mistakes in the tool's schemas now rather than at its first call. Returns the tool itself.

        Raises InvalidSchemaError with the reason and the place: its `details` have `schema` and `pointer`.
        """
        for name, schema in (("input_schema", self.input_schema), ("output_schema", self.output_schema)):
            if schema is not None:
                try:
                    schema.check()
                except InvalidSchemaError as error:
                    said = error.message.removeprefix("the schema ")
                    raise type(error)(
                        f"the {name} of {self.id} {said}", tool_id=self.id, details={**error.details, "schema": name}
                    ) from error
        return self

    def replace(self, **changes: Any) -> Tool:
        """Return a copy with *changes*, checked as a new tool is."""
        parts: dict[str, Any] = {field: getattr(self, field) for field in _FIELDS}
        return Tool(**(parts | changes))

    def same_definition(self, other: Tool) -> bool:
        """Return whether a caller would see the same tool: all but namespace, version and tags is equal."""
        return (
            self.name == other.name
            and self.title == other.title
            and self.description == other.description
            and self.annotations == other.annotations
            and self.icons == other.icons
            and (self._meta_text == other._meta_text or self.meta == other.meta)
            and self.input_schema == other.input_schema
            and self.output_schema == other.output_schema
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tool):
            return NotImplemented
        return self.id == other.id and self.tags == other.tags and self.same_definition(other)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Tool({self.id!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Tool.from_dict, (self.to_dict(),))

    def to_mcp(self) -> JSONDict:
        """Return the tool in MCP's spelling, without namespace, version and tags."""
        data: JSONDict = {"name": self.name, "inputSchema": self.input_schema.to_json()}
        if self.title:
            data["title"] = self.title
        if self.description:
            data["description"] = self.description
        if self.output_schema is not None:
            data["outputSchema"] = self.output_schema.to_json()
        annotations = self.annotations.to_mcp()
        if annotations:
            data["annotations"] = annotations
        if self.icons:
            data["icons"] = [icon.to_mcp() for icon in self.icons]
        if self._meta_text:
            data["_meta"] = self.meta
        return data

    def to_dict(self) -> JSONDict:
        """Return the whole tool as JSON-able data: MCP's spelling plus namespace, version and tags; `from_dict` reads
        it.
        """
        data = self.to_mcp()
        if self.namespace:
            data["namespace"] = self.namespace
        if self.version:
            data["version"] = self.version
        if self.tags:
            data["tags"] = list(self.tags)
        return data

    @classmethod
    def from_mcp(cls, data: JSONObject, *, namespace: str = "") -> Tool:
        """Read MCP's spelling; unknown keys are ignored, a wrongly typed optional counts as absent."""
        return cls.from_dict({**_mcp_part(data), "namespace": namespace})

    @classmethod
    def from_dict(cls, data: JSONObject) -> Tool:
        """Read what `to_dict` wrote. Raises InvalidToolError or InvalidSchemaError as the constructor does."""
        if data.get("inputSchema") is None:
            raise InvalidToolError(f"tool {_text(data.get('name'))!r} has no inputSchema; use {{'type': 'object'}}")
        annotations, icons, meta, tags = data.get("annotations"), data.get("icons"), data.get("_meta"), data.get("tags")
        return cls(
            name=_text(data.get("name")),
            namespace=_text(data.get("namespace")),
            version=_text(data.get("version")),
            title=_text(data.get("title")),
            description=_text(data.get("description")),
            input_schema=data["inputSchema"],
            output_schema=data.get("outputSchema"),
            annotations=ToolAnnotations.from_mcp(annotations) if _is_mapping(annotations) else None,
            icons=[Icon.from_mcp(icon) for icon in icons or () if _is_mapping(icon)],
            tags=[tag for tag in tags or () if isinstance(tag, str)],
            meta=meta if _is_mapping(meta) else None,
        )


def _mcp_part(data: JSONObject) -> JSONDict:
    keys = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta")
    return {key: data[key] for key in keys if key in data}


def _checked_id(name: str, namespace: str, version: str) -> str:
    problem = check_segment(name)
    if problem:
        raise InvalidToolError(f"the tool's name {problem}", details={"field": "name"})
    if namespace and (problem := check_segment(namespace)):
        raise InvalidToolError(f"the namespace of {name} {problem}", details={"field": "namespace"})
    if version:
        if not namespace:
            raise InvalidToolError(
                f"tool {name} has a version but no namespace, which its ID would need to hold it; give it one",
                details={"field": "namespace"},
            )
        if problem := check_segment(version, version=True):
            raise InvalidToolError(f"the version of {name} {problem}", details={"field": "version"})
    return joined(name, namespace, version)


def shared_annotations(annotations: ToolAnnotations) -> ToolAnnotations:
    """Return the first annotations that said the same; those with a title are given back as they are."""
    values = (annotations.read_only, annotations.idempotent, annotations.destructive, annotations.open_world)
    if annotations.title or any(not (value is None or value is True or value is False) for value in values):
        return annotations
    return _plain_annotations.setdefault(values, annotations)


def _frozen_meta(meta: JSONObject) -> str:
    if not meta and isinstance(meta, Mapping):
        return ""
    try:
        return json.dumps(dict(meta), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidToolError(f"the tool's meta is not JSON: {error}", details={"field": "meta"}) from error


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_mapping(value: object) -> TypeGuard[JSONObject]:
    """Return whether this is a mapping; the ABC is asked only where neither None nor a dict is given: 0.4 µs."""
    return type(value) is dict or (value is not None and isinstance(value, Mapping))


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
