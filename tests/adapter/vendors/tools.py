"""Tools and cards of every shape, for the vendors' own validators."""

from __future__ import annotations

from typing import Any

from toolexec.adapter import ProviderCard, ProviderInterface
from toolexec.model import Tool, ToolAnnotations

_RICH: dict[str, Any] = {
    "type": "object",
    "required": ["q", "kind"],
    "properties": {
        "q": {"type": "string", "minLength": 2, "pattern": "^a"},
        "n": {"type": ["integer", "null"], "minimum": 1, "exclusiveMaximum": 501, "default": 10},
        "kind": {"const": "x"},
        "where": {"$ref": "#/$defs/Place"},
        "mode": {"type": ["string", "null"], "enum": ["a", "b", None]},
        "either": {"oneOf": [{"type": "string", "format": "uri"}, {"type": "integer"}]},
        "pos": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "minItems": 2},
        "all": {"allOf": [{"$ref": "#/$defs/Place"}], "description": "merged"},
        "free": True,
        "never": False,
    },
    "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}}},
}
_TREE: dict[str, Any] = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "below": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        }
    },
}

TOOLS: list[Tool] = [
    Tool(name="bare", input_schema={}),
    Tool(name="anything", input_schema=True, output_schema=True),
    Tool(name="empty", input_schema={"type": "object"}, description="Takes nothing."),
    Tool(name="untyped", input_schema={"properties": {"a": {"type": "string"}}, "required": ["a"]}),
    Tool(name="nullable", input_schema={"type": ["object", "null"], "properties": {"a": {}}}),
    Tool(
        name="choice",
        input_schema={"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "null"}]},
        output_schema={"anyOf": [{"type": "object"}, {"type": "array"}]},
    ),
    Tool(name="tree", input_schema=_TREE, output_schema=_TREE, description="Takes a tree."),
    Tool(name="booleans", input_schema={"type": "object", "properties": {"yes": True, "no": False}}),
    Tool(
        name="older",
        input_schema={
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}},
            "definitions": {"unused": {"type": "string"}},
        },
    ),
    Tool(
        name="find",
        namespace="shop",
        version="1.0",
        title="Find it",
        description="Finds things.",
        tags=["a"],
        input_schema=_RICH,
        output_schema={"type": "object", "properties": {"a": {"type": "integer"}, "b": True}},
        annotations=ToolAnnotations(title="Find", read_only=True, open_world=False),
        meta={"examples": ["find tea"], "inputModes": ["text/plain"], "securityRequirements": [{"k": ["a"]}]},
    ),
]

_FLOW = {
    "authorizationCode": {
        "authorizationUrl": "https://id.example/authorize",
        "tokenUrl": "https://id.example/token",
        "refreshUrl": "https://id.example/refresh",
        "scopes": {"read": "Reads."},
    }
}
_SCHEMES: dict[str, Any] = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key", "description": "A key."},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "session"},
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "A token."},
    "code": {"type": "oauth2", "flows": _FLOW, "oauth2MetadataUrl": "https://id.example/.well-known/x"},
    "client": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://t", "scopes": {"a": ""}}}},
    "implicit": {"type": "oauth2", "flows": {"implicit": {"authorizationUrl": "https://t", "scopes": {"a": "b"}}}},
    "password": {"type": "oauth2", "flows": {"password": {"tokenUrl": "https://t", "scopes": {"a": "b"}}}},
    "openid": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example", "description": "d"},
    "tls": {"type": "mutualTLS"},
    "tls2": {"type": "mutualTLS", "description": "With a certificate."},
}
_SKILL: dict[str, Any] = {
    "id": "tools:search",
    "name": "Search",
    "description": "Finds things.",
    "tags": ["find"],
    "examples": ["find a shop"],
    "inputModes": ["text/plain"],
    "outputModes": ["application/json"],
    "security": [{"code": ["read"]}],
}
_OLD: dict[str, Any] = {
    "protocolVersion": "0.3.0",
    "name": "Clerk",
    "description": "Sells things.",
    "version": "2.0",
    "url": "https://a.example/rpc",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{key: _SKILL[key] for key in ("id", "name", "description", "tags")}],
}

OLD_CARDS: dict[str, dict[str, Any]] = {
    "least": _OLD,
    "nulls": {**_OLD, "documentationUrl": None, "provider": None, "securitySchemes": None, "signatures": None},
    "all": {
        **_OLD,
        "preferredTransport": "GRPC",
        "provider": {"organization": "Shop", "url": "https://shop.example"},
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "stateTransitionHistory": True,
            "extensions": [{"uri": "https://x.example", "required": True, "params": {"a": [1, "b"]}}],
        },
        "supportsAuthenticatedExtendedCard": True,
        "security": [{"code": ["read"]}, {"key": [], "tls": []}],
        "securitySchemes": _SCHEMES,
        "skills": [_SKILL],
        "documentationUrl": "https://docs.example",
        "iconUrl": "https://icon.example/i.png",
        "signatures": [{"protected": "e30", "signature": "c2ln"}],
    },
    **{f"scheme {name}": {**_OLD, "securitySchemes": {name: scheme}} for name, scheme in _SCHEMES.items()},
}

_FACTS: dict[str, Any] = {
    "description": "d",
    "version": "1",
    "interfaces": (ProviderInterface(url="https://a.example"),),
    "skills": tuple(TOOLS),
}
PROVIDERS: list[ProviderCard] = [
    ProviderCard(name="least", **_FACTS),
    ProviderCard(
        name="all",
        **_FACTS,
        capabilities={"streaming": True, "push_notifications": "yes", "extended_agent_card": None, "flying": True},
        security_schemes=_SCHEMES,
        security_requirements=[{"key": []}, {"code": ["read"]}],
        organization="o",
        organization_url="https://o.example",
        documentation_url="https://d.example",
        icon_url="https://i.example",
    ),
    ProviderCard(
        name="newer",
        **_FACTS,
        security_schemes={"k": {"apiKeySecurityScheme": {"location": "header", "name": "X"}}},
        organization="without an address",
    ),
]
