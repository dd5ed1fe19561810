"""Google's form of a tool: a function declaration, in a tool that has one or more of them."""

from __future__ import annotations

from typing import Final

from toolexec.adapter.base import (
    Converted,
    FormOptions,
    converting,
    described_as,
    identity,
    keep,
    kept,
    lose_fields,
    plain,
)
from toolexec.adapter.dialects import DIALECTS
from toolexec.adapter.features import LISTS_OF_SCHEMAS, MAPS_OF_SCHEMAS, SCHEMAS, SchemaFeature
from toolexec.adapter.losses import Losses
from toolexec.adapter.names import NameMap, vendor_name
from toolexec.adapter.schemas import arguments, result
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.tool import Tool

_WRITTEN: Final = {"parameters": "parametersJsonSchema", "response": "responseJsonSchema"}
_SNAKE: Final = {
    "function_declarations": "functionDeclarations",
    "parameters_json_schema": "parametersJsonSchema",
    "response_json_schema": "responseJsonSchema",
}
_SCHEMA_NAMES: Final = {
    "any_of": "anyOf",
    "max_items": "maxItems",
    "max_length": "maxLength",
    "max_properties": "maxProperties",
    "min_items": "minItems",
    "min_length": "minLength",
    "min_properties": "minProperties",
    "property_ordering": "propertyOrdering",
    "additional_properties": "additionalProperties",
    "defs": "$defs",
    "ref": "$ref",
}
_NUMBERS: Final = frozenset(
    {"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties", "maximum", "minimum"}
)


class GeminiAdapter:
    """Gemini's function declarations.

    `from_tool` writes `{"functionDeclarations": [one]}` with `parameters` and `response`, a subset of OpenAPI 3.0. With
    *json_schema* it writes `parametersJsonSchema` and `responseJsonSchema`, which newer models take: they have
    references and several types, but fewer bounds. A function without parameters has none of them. `to_tool` takes a
    declaration, or a tool with exactly one, in either spelling.
    """

    def __init__(self, *, json_schema: bool = False) -> None:
        self.json_schema = json_schema

    @property
    def name(self) -> str:
        """`gemini`."""
        return "gemini"

    @property
    def _dialect(self) -> str:
        return "gemini-json" if self.json_schema else "gemini"

    def supports(self, feature: SchemaFeature) -> bool:
        """Return whether the declarations that it writes can hold the keyword."""
        return feature in DIALECTS[self._dialect].features

    def to_tool(self, form: object, *, names: NameMap | None = None) -> Tool:
        """Implement `Adapter.to_tool`."""
        return converting(self.name, "to_tool", lambda: _read(form, names))

    def from_tool(self, tool: Tool, options: FormOptions | None = None) -> Converted:
        """Implement `Adapter.from_tool`."""
        return converting(self.name, "from_tool", lambda: self._write(tool, options or FormOptions()), tool_id=tool.id)

    def _write(self, tool: Tool, options: FormOptions) -> Converted:
        losses = Losses(options.source, self.name, tool.id)
        name = options.name or vendor_name(tool.id, letter_first=True)
        before = kept(tool, self.name)
        lose_fields(tool, {"outputSchema"}, name, self.name, losses)
        declaration: JSONDict = {"name": name}
        description = described_as(tool, 0, losses)
        if description:
            declaration["description"] = description
        fitted, _ = arguments(tool, self._dialect, losses, options)
        output = result(tool, DIALECTS[self._dialect], losses, options)
        schemas = {"parameters": fitted.schema} if fitted.schema.get("properties") or self._open(fitted.schema) else {}
        schemas |= {"response": output.schema} if output is not None else {}
        declaration |= {_WRITTEN[key] if self.json_schema else key: value for key, value in schemas.items()}
        declaration |= {key: before[key] for key in ("behavior",) if key in before}
        return Converted(
            form={"functionDeclarations": [declaration]},
            name=name,
            tool_id=tool.id,
            warnings=losses.warnings(),
            renamed=fitted.renamed,
        )

    def _open(self, schema: JSONDict) -> bool:
        """Return whether a schema without properties says something nevertheless."""
        return bool(schema.keys() - {"type", "properties", "required", "additionalProperties"})


def _read(form: object, names: NameMap | None) -> Tool:
    data = _camel(plain(form))
    declarations = data.get("functionDeclarations")
    if declarations is not None:
        if not isinstance(declarations, list) or len(declarations) != 1 or not isinstance(declarations[0], dict):
            raise ValueError("a tool must have exactly one function declaration; convert each of them")
        data = _camel(declarations[0])
    description = data.get("description")
    return Tool(
        **identity(data.get("name"), names),
        description=description if isinstance(description, str) else "",
        input_schema=_schema(data, "parameters") or {"type": "object"},
        output_schema=_schema(data, "response"),
        meta=keep({}, "gemini", {key: data[key] for key in ("behavior",) if data.get(key) is not None}),
    )


def _camel(data: JSONDict) -> JSONDict:
    return {_SNAKE.get(key, key): value for key, value in data.items()}


def _schema(data: JSONDict, key: str) -> JSONDict | None:
    given = data.get(_WRITTEN[key])
    if isinstance(given, dict):
        return given
    given = data.get(key)
    return _json_schema(given) if isinstance(given, dict) else None


def _json_schema(node: object) -> JSONValue:
    """Return a node of OpenAPI's subset in the words of JSON Schema: types in lower case, null as a type."""
    if not isinstance(node, dict):
        return node
    result = {name: value for name, value in map(_keyword, node.items()) if value != "type_unspecified"}
    if result.pop("nullable", None) is True and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
        if isinstance(result.get("enum"), list):
            result["enum"] = [*result["enum"], None]
    if "example" in result and "examples" not in result:
        result["examples"] = [result.pop("example")]
    if result.get("format") == "enum":
        del result["format"]
        values = result.get("enum")
        if result.get("type") == "integer" and isinstance(values, list):
            result["enum"] = [int(value) for value in values]
    return result


def _keyword(item: tuple[str, object]) -> tuple[str, JSONValue]:
    """Return one keyword with its value, and what is in that."""
    name, value = _SCHEMA_NAMES.get(item[0], item[0]), item[1]
    if name == "type" and isinstance(value, str):
        return name, value.lower()
    if name in _NUMBERS and isinstance(value, str):
        return name, int(value)  # protobuf writes 64 bits as text
    if name in MAPS_OF_SCHEMAS and isinstance(value, dict):
        return name, {key: _json_schema(child) for key, child in value.items()}
    if name in LISTS_OF_SCHEMAS and isinstance(value, list):
        return name, [_json_schema(child) for child in value]
    return name, _json_schema(value) if name in SCHEMAS else value
