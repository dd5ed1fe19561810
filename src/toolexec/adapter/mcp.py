"""MCP's form of a tool: everything that a tool is, but namespace, version and tags."""

from __future__ import annotations

from typing import Final

from toolexec.adapter.base import META_KEY, Converted, FormOptions, converting, identity, keep, kept, plain
from toolexec.adapter.dialects import DIALECTS
from toolexec.adapter.features import SchemaFeature
from toolexec.adapter.losses import Losses
from toolexec.adapter.names import NameMap
from toolexec.adapter.roots import object_type
from toolexec.adapter.schemas import not_strict
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.schema import SchemaLike
from toolexec.model.tool import Tool

_OWN: Final = ("namespace", "version", "tags")
_SCHEMAS: Final = (("inputSchema", "input_schema"), ("outputSchema", "output_schema"))


class MCPAdapter:
    """MCP's `Tool`, as a server lists it.

    Nothing is lost: what MCP has no field for is in `_meta`, under the key of all adapters, and is taken from there
    again. `to_tool` also takes `Tool.to_dict`, and a Tool itself.
    """

    @property
    def name(self) -> str:
        """`mcp`."""
        return "mcp"

    def supports(self, feature: SchemaFeature) -> bool:
        """Return all of them: MCP's schemas are JSON Schema 2020-12."""
        return feature in DIALECTS["mcp"].features

    def to_tool(self, form: object, *, names: NameMap | None = None) -> Tool:
        """Implement `Adapter.to_tool`."""
        return form if isinstance(form, Tool) else converting(self.name, "to_tool", lambda: _read(form, names))

    def from_tool(self, tool: Tool, options: FormOptions | None = None) -> Converted:
        """Implement `Adapter.from_tool`. The name is that of the tool, unless the options have another."""
        return converting(self.name, "from_tool", lambda: self._write(tool, options or FormOptions()), tool_id=tool.id)

    def _write(self, tool: Tool, chosen: FormOptions) -> Converted:
        losses = Losses(chosen.source, self.name, tool.id)
        if chosen.strict:
            not_strict(losses)
        own = {key: value for key, value in tool.to_dict().items() if key in _OWN}
        name = chosen.name or tool.name
        if name != tool.name:
            own["name"] = tool.name
        given = tool.input_schema.to_json()
        written: dict[str, SchemaLike | None] = {}
        takes = listed_schema(given)
        if takes != given:
            object_type(given.get("type", "object") if isinstance(given, dict) else "object")  # refuses any other
            own["inputSchema"], written["input_schema"] = given, takes
            losses.add("inputSchema", "/inputSchema", "rewritten", "as an object's schema; the original is in _meta")
        output = tool.output_schema.to_json() if tool.output_schema is not None else None
        if output is not None and (not isinstance(output, dict) or output.get("type") != "object"):
            own["outputSchema"], written["output_schema"] = output, None
            losses.add("outputSchema", "/outputSchema", "rewritten", "in _meta: a client takes an object's schema only")
        elif output is not None and (gives := listed_schema(output)) != output:
            own["outputSchema"], written["output_schema"] = output, gives
            losses.add("outputSchema", "/outputSchema", "rewritten", "as an object's schema; the original is in _meta")
        form = tool.replace(meta=keep(tool.meta, self.name, own), **written).to_mcp()
        return Converted(form={**form, "name": name}, name=name, tool_id=tool.id, warnings=losses.warnings())


def listed_schema(schema: object) -> JSONDict:
    """Write an object's schema as every MCP client takes it: the type `object` at the root, and objects, not booleans,
    as the schemas of its properties. It accepts the same objects."""
    if not isinstance(schema, dict):
        return {"type": "object"} if schema else {"type": "object", "not": {}}
    properties = schema.get("properties")
    if isinstance(properties, dict) and any(isinstance(part, bool) for part in properties.values()):
        plain_properties = {name: _no_boolean(part) for name, part in properties.items()}
        schema = {**schema, "properties": plain_properties}
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def _no_boolean(schema: object) -> JSONValue:
    return ({} if schema else {"not": {}}) if isinstance(schema, bool) else schema


def _read(form: object, names: NameMap | None) -> Tool:
    data = plain(form)
    if not isinstance(data.get("name"), str) or not data["name"]:
        raise ValueError("it has no name")
    tool = Tool.from_dict({**data, "name": identity(data["name"], None)["name"]} if names is not None else data)
    own = kept(tool, "mcp")
    changes: JSONDict = {key: own[key] for key in ("name", *_OWN) if isinstance(own.get(key), str | list)}
    if own:
        meta = tool.meta
        stored = {key: value for key, value in meta.pop(META_KEY).items() if key != "mcp"}
        changes |= {field: own[key] for key, field in _SCHEMAS if isinstance(own.get(key), dict | bool)}
        changes["meta"] = {**meta, META_KEY: stored} if stored else meta
    elif names is not None:
        changes |= identity(data["name"], names)
    return tool.replace(**changes) if changes else tool
