"""Bindings say where a tool lives: in this process, at a provider, or on an MCP server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias, get_args

from toolexec.errors import InvalidToolError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONObject

__all__ = [
    "Binding",
    "BindingKind",
    "BindingSelector",
    "LocalBinding",
    "MCPBinding",
    "MCPMethod",
    "ProviderBinding",
    "binding_from_dict",
    "prefer_local",
]

BindingKind: TypeAlias = Literal["local", "provider", "mcp"]
"""The kinds of bindings, in the order in which they are preferred."""
MCPMethod: TypeAlias = Literal["tools/call", "resources/read", "prompts/get", "completion/complete"]
"""What is asked of an MCP server."""


@dataclass(frozen=True, slots=True)
class LocalBinding:
    """A handler in this process, by its registered name.

    >>> LocalBinding("double").kind
    'local'
    """

    kind: ClassVar[BindingKind] = "local"
    destination: ClassVar[str] = ""
    name: str

    def __post_init__(self) -> None:
        if type(self.name) is not str or not self.name:
            _require("local", handler=self.name)

    @property
    def backend(self) -> str:
        """The name of the backend that hosts the tool."""
        return "local"

    @property
    def tool(self) -> str:
        """The name under which the backend knows the tool."""
        return self.name

    def to_dict(self) -> JSONDict:
        """Return the binding as JSON-able data; `binding_from_dict` reads it back."""
        return {"kind": "local", "local": {"name": self.name}}


@dataclass(frozen=True, slots=True)
class ProviderBinding:
    """A tool of an external provider, by the provider's name and the provider's own name for the tool.

    `destination` is where its calls and their credentials go: the origins of its requests and of its tokens, or the
    program. It is a part of what is pinned, not of which binding it is, and not for callers.
    """

    kind: ClassVar[BindingKind] = "provider"
    provider: str
    tool: str
    destination: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        _require("provider", provider=self.provider, tool=self.tool)

    @property
    def backend(self) -> str:
        """The name of the backend that hosts the tool."""
        return self.provider

    def to_dict(self) -> JSONDict:
        """Return the binding as JSON-able data; `binding_from_dict` reads it back."""
        return {"kind": "provider", "provider": {"providerId": self.provider, "toolId": self.tool}}


@dataclass(frozen=True, slots=True)
class MCPBinding:
    """A tool of an MCP server, by the server's name here and the tool's name there; `destination` is the origin of its
    URL, or its program (see `ProviderBinding`). With another `method` it is not a tool that is called, but a resource
    that is read, or a prompt, by its URI or its name there."""

    kind: ClassVar[BindingKind] = "mcp"
    server: str
    tool: str
    destination: str = field(default="", compare=False, repr=False)
    method: MCPMethod = "tools/call"

    def __post_init__(self) -> None:
        _require("mcp", server=self.server, tool=self.tool)

    @property
    def backend(self) -> str:
        """The name of the backend that hosts the tool."""
        return self.server

    def to_dict(self) -> JSONDict:
        """Return the binding as JSON-able data; `binding_from_dict` reads it back."""
        data: JSONDict = {"serverName": self.server, "toolName": self.tool}
        if self.method != "tools/call":
            data["method"] = self.method
        return {"kind": "mcp", "mcp": data}


Binding: TypeAlias = LocalBinding | ProviderBinding | MCPBinding
"""Where a tool lives: in this process, at a provider or on an MCP server."""
BindingSelector: TypeAlias = Callable[[Sequence[Binding]], Binding]
"""Picks one of a tool's bindings; it must return one of those it was given."""

_PREFERENCE: dict[str, int] = {"local": 0, "provider": 1, "mcp": 2}


def prefer_local(bindings: Sequence[Binding]) -> Binding:
    """Return the default selector: local before provider before mcp, then the order of registration."""
    return min(bindings, key=lambda binding: _PREFERENCE[binding.kind])


def binding_from_dict(data: Mapping[str, object]) -> Binding:
    """Read what `to_dict` wrote; raises InvalidToolError for an unknown kind or a missing part."""
    kind = data.get("kind")
    detail = data.get(kind) if isinstance(kind, str) else None
    part: JSONObject = detail if isinstance(detail, Mapping) else {}
    match kind:
        case "local":
            return LocalBinding(_text(part, "name"))
        case "provider":
            return ProviderBinding(_text(part, "providerId"), _text(part, "toolId"))
        case "mcp":
            return MCPBinding(_text(part, "serverName"), _text(part, "toolName"), method=_method(part))
        case _:
            hint = did_you_mean(kind, ("local", "provider", "mcp"), otherwise="use local, provider or mcp")
            raise InvalidToolError(f"unknown binding kind {kind!r}; {hint}", code="invalid_binding")


def _method(part: Mapping[str, object]) -> MCPMethod:
    method = part.get("method", "tools/call")
    for known in get_args(MCPMethod):
        if method == known:
            return known
    raise InvalidToolError(f"unknown method {method!r} of an mcp binding", code="invalid_binding")


def _text(part: Mapping[str, object], key: str) -> str:
    value = part.get(key, "")
    return value if isinstance(value, str) else ""


def _require(kind: str, **parts: str) -> None:
    for label, value in parts.items():
        if not isinstance(value, str) or not value:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidToolError(f"a {kind} binding needs the name of its {label}", code="invalid_binding")
