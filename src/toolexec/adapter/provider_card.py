"""Who offers tools: the card of a provider, such as an A2A agent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from toolexec.errors import InvalidToolError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.tool import Tool

_MAX_SKILLS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInterface:
    """An address of a provider: `binding` is the protocol (`JSONRPC`, `GRPC`, `HTTP+JSON`), in `protocol_version`."""

    url: str
    binding: str = "JSONRPC"
    protocol_version: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCard:
    """What a provider says about itself; a value of its own, whatever happens to what it was made from.

    `name` must not be empty. `capabilities` are flags such as `streaming`, `push_notifications` and
    `extended_agent_card`, and `extensions`. `security_schemes` are by name, in the form's own words;
    `security_requirements` are alternatives, each with the schemes that it needs and their scopes. The modes are media
    types, for skills that name none. `skills` are tools. `signatures` hold for the form that they came in, and no
    longer for a card that was changed. `source` names that form, `meta` has what it holds beyond this.

    Raises InvalidToolError for a card without a name, with parts that are not JSON, or with over 10,000 skills.
    """

    name: str
    description: str = ""
    version: str = ""
    capabilities: JSONObject = field(default_factory=JSONDict)
    security_schemes: Mapping[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    security_requirements: Sequence[Mapping[str, Sequence[str]]] = ()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    skills: tuple[Tool, ...] = ()
    interfaces: tuple[ProviderInterface, ...] = ()
    organization: str = ""
    organization_url: str = ""
    documentation_url: str = ""
    icon_url: str = ""
    signatures: Sequence[JSONObject] = ()
    source: str = ""
    meta: JSONObject = field(default_factory=JSONDict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidToolError("a provider's card has no name; give it one", details={"field": "name"})
        put = object.__setattr__
        for key in ("capabilities", "security_schemes", "meta"):
            put(self, key, _copy(key, dict(getattr(self, key))))
        for key in ("security_requirements", "signatures"):
            put(self, key, tuple(_copy(key, [dict(item) for item in getattr(self, key)])))
        for key in ("default_input_modes", "default_output_modes", "skills", "interfaces"):
            put(self, key, tuple(getattr(self, key)))
        if len(self.skills) > _MAX_SKILLS:
            raise InvalidToolError(
                f"the card of {self.name[:100]} has {len(self.skills)} skills; {_MAX_SKILLS} is the most"
            )

    @property
    def id(self) -> str:
        """`name`, or `name:version`."""
        return f"{self.name}:{self.version}" if self.version else self.name

    def copy(self) -> ProviderCard:
        """Return the same card, with nothing shared that could be changed."""
        return ProviderCard(**{part.name: getattr(self, part.name) for part in fields(self)})

    def to_dict(self) -> JSONDict:
        """Return the card as JSON-able data, without what is empty; `from_dict` reads it."""
        data: JSONDict = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if part.name == "skills":
                value = [tool.to_dict() for tool in value]
            elif part.name == "interfaces":
                value = [{key.name: getattr(item, key.name) for key in fields(item)} for item in value]
            if value:
                data[part.name] = _copy(part.name, list(value) if isinstance(value, tuple) else value)
        return data

    @classmethod
    def from_dict(cls, data: JSONObject) -> ProviderCard:
        """Read what `to_dict` wrote; unknown keys are ignored. Raises InvalidToolError or InvalidSchemaError."""
        known = {part.name for part in fields(cls)}
        parts = {key: value for key, value in data.items() if key in known}
        parts["skills"] = tuple(Tool.from_dict(skill) for skill in data.get("skills", ()))
        parts["interfaces"] = tuple(ProviderInterface(**item) for item in data.get("interfaces", ()))
        parts.setdefault("name", "")
        return cls(**parts)


def _copy(key: str, value: object) -> JSONValue:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidToolError(f"the card's {key} is not JSON: {error}", details={"field": key}) from error
