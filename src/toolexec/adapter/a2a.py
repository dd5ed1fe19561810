"""A2A: an agent's skills as tools, and its card as a provider's card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolexec.adapter.base import (
    Converted,
    FormOptions,
    converting,
    described_as,
    keep,
    kept,
    lose_fields,
    plain,
    strings,
)
from toolexec.adapter.features import SchemaFeature, used_features
from toolexec.adapter.losses import Losses, LossWarning
from toolexec.adapter.names import NameMap
from toolexec.adapter.provider_card import ProviderCard, ProviderInterface
from toolexec.adapter.schemas import not_strict
from toolexec.errors import InvalidToolIDError
from toolexec.model.ids import ToolID, clean_segment
from toolexec.model.json_value import JSONDict
from toolexec.model.tool import Tool

_PROTOCOL: Final = "1.0"
_NAME: Final = "a2a"
_IN_META: Final = ("examples", "inputModes", "outputModes", "securityRequirements")
_CAPABILITIES: Final = {
    "streaming": "streaming",
    "pushNotifications": "push_notifications",
    "extendedAgentCard": "extended_agent_card",
    "extensions": "extensions",
}
_FLAGS: Final = frozenset(_CAPABILITIES) - {"extensions"}
_OLD_SOURCE: Final = "a2a-0.3"
"""The source of a card of A2A 0.3, whose signatures are not those of a card of 1.0."""
_SCHEMES: Final[Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "apiKey": ("apiKeySecurityScheme", ("location", "name"), ("description",)),
    "http": ("httpAuthSecurityScheme", ("scheme",), ("description", "bearerFormat")),
    "oauth2": ("oauth2SecurityScheme", (), ("description", "oauth2MetadataUrl")),
    "openIdConnect": ("openIdConnectSecurityScheme", ("openIdConnectUrl",), ("description",)),
    "mutualTLS": ("mtlsSecurityScheme", (), ("description",)),
}
"""By the type of a scheme in 0.3: its key in 1.0, the strings that it needs, and those that it may have."""
_FLOWS: Final[Mapping[str, tuple[str, ...]]] = {
    "authorizationCode": ("authorizationUrl", "tokenUrl"),
    "clientCredentials": ("tokenUrl",),
    "deviceCode": ("deviceAuthorizationUrl", "tokenUrl"),
    "implicit": ("authorizationUrl",),
    "password": ("tokenUrl",),
}
"""The flows of OAuth, the preferred one first, with the addresses that each needs."""
_CARD_KEYS: Final = frozenset({"skills", "supportedInterfaces", "capabilities", "preferredTransport"})


class A2AAdapter:
    """An A2A agent's skills. The skill's `id` is the tool's ID.

    A skill has no schemas: what a tool takes and gives is lost, and a tool that is read from one takes any object. Its
    `examples`, `inputModes`, `outputModes` and `securityRequirements` are in the tool's meta under these names.
    """

    @property
    def name(self) -> str:
        """`a2a`."""
        return _NAME

    def supports(self, feature: SchemaFeature) -> bool:
        """Return False: a skill has no schema."""
        del feature
        return False

    def to_tool(self, form: object, *, names: NameMap | None = None) -> Tool:
        """Implement `Adapter.to_tool`. A whole card is refused; `card_to_provider` reads it."""
        del names
        return converting(_NAME, "to_tool", lambda: _read(plain(form)))

    def from_tool(self, tool: Tool, options: FormOptions | None = None) -> Converted:
        """Implement `Adapter.from_tool`."""
        return converting(_NAME, "from_tool", lambda: _write(tool, options or FormOptions()), tool_id=tool.id)


def card_to_provider(card: object) -> ProviderCard:
    """Return an agent card (A2A 1.0, or 0.3) as a provider's card: JSON data, or the message of `a2a-sdk`.

    Raises ConversionError for a card without name, description, version or any interface, and for a skill that is none.
    """
    return converting(_NAME, "to_provider", lambda: _read_card(plain(card)))


def provider_to_card(provider: ProviderCard) -> tuple[JSONDict, tuple[LossWarning, ...]]:
    """Write an agent card (A2A 1.0) for a provider, whatever form that came from, and list what is lost: the schemas of
    its skills, above all.

    Security schemes in the words of A2A 0.3 (those of OpenAPI) are written in the words of 1.0. Raises ConversionError
    for a provider without description, version, any interface or any skill, and for a security scheme that a card
    cannot hold.
    """
    return converting(_NAME, "from_provider", lambda: _write_card(provider), tool_id=None)


# -- skills ---------------------------------------------------------------------------------------------------------


def _read(data: JSONDict) -> Tool:
    if data.keys() & _CARD_KEYS:
        raise ValueError("this is an agent card; card_to_provider reads it, with all of its skills")
    skill_id = data.get("id")
    if not isinstance(skill_id, str) or not skill_id:
        raise ValueError("the skill has no id")
    try:
        found = ToolID.parse(skill_id)
    except InvalidToolIDError:
        found = ToolID(clean_segment(skill_id) or skill_id)
    title, description = data.get("name"), data.get("description")
    meta: JSONDict = {key: listed for key in _IN_META[:3] if (listed := strings(data.get(key)))}
    requirements = _requirements(data.get("securityRequirements", data.get("security")))
    meta |= {"securityRequirements": requirements} if requirements else {}
    tags = strings(data.get("tags"))
    extra: JSONDict = {"id": skill_id} if str(found) != skill_id else {}
    tool = Tool(
        name=found.name,
        namespace=found.namespace,
        version=found.version,
        title=title if isinstance(title, str) and title != found.name else "",
        description=description if isinstance(description, str) else "",
        input_schema={"type": "object"},
        tags=tags,
    )
    extra |= {"tags": tags} if list(tool.tags) != tags else {}
    return tool.replace(meta=keep(meta, _NAME, extra))


def _write(tool: Tool, options: FormOptions) -> Converted:
    losses = Losses(options.source, _NAME, tool.id)
    before = kept(tool, _NAME)
    skill_id = before["id"] if isinstance(before.get("id"), str) else options.name or tool.id
    meta = tool.meta
    lose_fields(tool, {"namespace", "version", "title", "tags", *_IN_META}, skill_id, _NAME, losses)
    if options.strict:
        not_strict(losses)
    for root, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        if schema is not None and schema.to_json() not in ({"type": "object"}, {"type": "object", "properties": {}}):
            with losses.root(root):
                for path, feature in used_features(schema.to_json()):
                    losses.add(feature.value, path)
            if root == "input":
                losses.add("inputSchema", "/inputSchema")
    skill: JSONDict = {
        "id": skill_id,
        "name": tool.display_name,
        "description": described_as(tool, 0, losses) or tool.display_name,
        "tags": strings(before.get("tags")) or list(tool.tags) or [tool.namespace or tool.name],  # one is needed
    }
    skill |= {key: found for key in _IN_META[:3] if (found := strings(meta.get(key)))}
    requirements = _requirements(meta.get("securityRequirements"))
    if requirements:
        skill["securityRequirements"] = _written(requirements)
    return Converted(form=skill, name=skill_id, tool_id=tool.id, warnings=losses.warnings())


# -- cards ----------------------------------------------------------------------------------------------------------


def _read_card(data: JSONDict) -> ProviderCard:
    for key in ("name", "description", "version"):
        if not isinstance(data.get(key), str) or not data[key]:
            raise ValueError(f"the card has no {key}")
    interfaces = _interfaces(data)
    if not interfaces:
        raise ValueError("the card has no interface; supportedInterfaces must have one")
    skills = data.get("skills", [])
    if not isinstance(skills, list) or not all(isinstance(skill, dict) for skill in skills):
        raise ValueError("the card's skills are no list of objects")
    given = _object(data.get("capabilities"))
    capabilities = {own: given[key] for key, own in _CAPABILITIES.items() if key in given}
    if data.get("supportsAuthenticatedExtendedCard") is True:
        capabilities.setdefault("extended_agent_card", True)
    organization = _object(data.get("provider"))
    signatures = data.get("signatures")
    return ProviderCard(
        name=data["name"],
        description=data["description"],
        version=data["version"],
        capabilities=capabilities,
        security_schemes={name: _object(scheme) for name, scheme in _object(data.get("securitySchemes")).items()},
        security_requirements=_requirements(data.get("securityRequirements", data.get("security"))),
        default_input_modes=tuple(strings(data.get("defaultInputModes"))),
        default_output_modes=tuple(strings(data.get("defaultOutputModes"))),
        skills=tuple(_read(skill) for skill in skills),
        interfaces=interfaces,
        organization=_text(organization.get("organization")),
        organization_url=_text(organization.get("url")),
        documentation_url=_text(data.get("documentationUrl")),
        icon_url=_text(data.get("iconUrl")),
        signatures=[item for item in signatures if isinstance(item, dict)] if isinstance(signatures, list) else [],
        source=_NAME if data.get("supportedInterfaces") else _OLD_SOURCE,
    )


def _interfaces(data: JSONDict) -> tuple[ProviderInterface, ...]:
    """Return those of 1.0; else the address of 0.3 and its additional ones."""
    given = data.get("supportedInterfaces")
    listed = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
    version = _text(data.get("protocolVersion")) or "0.3"
    if not listed and isinstance(data.get("url"), str):
        more = data.get("additionalInterfaces")
        listed = [{"url": data["url"], "transport": data.get("preferredTransport", "JSONRPC")}]
        listed += (
            [item for item in more if isinstance(item, dict) and item != listed[0]] if isinstance(more, list) else []
        )
    return tuple(
        ProviderInterface(
            url=item["url"],
            binding=_text(item.get("protocolBinding", item.get("transport"))) or "JSONRPC",
            protocol_version=_text(item.get("protocolVersion")) or (version if "transport" in item else _PROTOCOL),
            tenant=_text(item.get("tenant")),
        )
        for item in listed
        if isinstance(item.get("url"), str) and item["url"]
    )


def _write_card(provider: ProviderCard) -> tuple[JSONDict, tuple[LossWarning, ...]]:
    for key in ("description", "version", "interfaces", "skills"):
        if not getattr(provider, key):
            raise ValueError(f"the provider {provider.name!r:.100} has no {key}, which a card needs")
    losses = Losses(provider.source or "toolexec", _NAME)
    skills = [_write(tool, FormOptions(source=provider.source or "toolexec")) for tool in provider.skills]
    card: JSONDict = {
        "name": provider.name,
        "description": provider.description,
        "supportedInterfaces": [_interface(item) for item in provider.interfaces],
        "version": provider.version,
        "capabilities": _written_capabilities(provider, losses),
        "defaultInputModes": list(provider.default_input_modes) or ["application/json"],
        "defaultOutputModes": list(provider.default_output_modes) or ["application/json"],
        "skills": [skill.form for skill in skills],
    }
    if provider.organization and provider.organization_url:
        card["provider"] = {"organization": provider.organization, "url": provider.organization_url}
    elif provider.organization or provider.organization_url:
        losses.add("organization", "/organization", "dropped", "a card needs its name and its address")
    if provider.signatures and provider.source == _OLD_SOURCE:
        losses.add("signatures", "/signatures", "dropped", "they are those of the card of A2A 0.3; sign this one")
    optional = {
        "documentationUrl": provider.documentation_url,
        "iconUrl": provider.icon_url,
        "securitySchemes": {
            name: _written_scheme(name, dict(scheme), losses) for name, scheme in provider.security_schemes.items()
        },
        "securityRequirements": _written(provider.security_requirements),
        "signatures": [] if provider.source == _OLD_SOURCE else [dict(item) for item in provider.signatures],
    }
    card |= {key: value for key, value in optional.items() if value}
    for key in sorted(provider.meta):
        losses.add(key, f"/meta/{key}")
    return plain(card), (*losses.warnings(), *(warning for skill in skills for warning in skill.warnings))


def _written_capabilities(provider: ProviderCard, losses: Losses) -> JSONDict:
    given = {key: provider.capabilities[own] for key, own in _CAPABILITIES.items() if own in provider.capabilities}
    lost = [*(provider.capabilities.keys() - set(_CAPABILITIES.values()))]
    written: JSONDict = {key: value for key, value in given.items() if key in _FLAGS and isinstance(value, bool)}
    extensions = given.get("extensions")
    if isinstance(extensions, list):
        written["extensions"] = [item for item in extensions if isinstance(item, dict) and _text(item.get("uri"))]
    for key, value in given.items():
        if value is not None and written.get(key) != value:
            lost.append(_CAPABILITIES[key])
    for key in sorted(lost):
        losses.add(key, f"/capabilities/{key}")
    return written


def _interface(item: ProviderInterface) -> dict[str, str]:
    if not item.url or not item.binding:
        raise ValueError("an interface of the provider has no url, or no binding")
    data = {"url": item.url, "protocolBinding": item.binding, "protocolVersion": item.protocol_version or _PROTOCOL}
    return {**data, "tenant": item.tenant} if item.tenant else data


# -- security -------------------------------------------------------------------------------------------------------


def _written_scheme(name: str, scheme: JSONDict, losses: Losses) -> JSONDict:
    """Return the scheme in the words of 1.0, in which its kind is a key, from these or from those of 0.3, in which its
    kind is a `type`; raises ValueError for one that is neither."""
    kinds = [kind for kind, (key, _, _) in _SCHEMES.items() if isinstance(scheme.get(key), Mapping)]
    if len(kinds) == 1:
        kind = kinds[0]
        given = _object(scheme[_SCHEMES[kind][0]])
    else:
        kind = _text(scheme.get("type"))
        given = {**scheme, "location": scheme.get("location", scheme.get("in"))}
    if kind not in _SCHEMES:
        raise ValueError(f"the security scheme {name!r:.100} is of no kind that A2A has; use {', '.join(_SCHEMES)}")
    key, needed, more = _SCHEMES[kind]
    written: JSONDict = {part: _text(given.get(part)) for part in (*needed, *more)}
    missing = [part for part in needed if not written[part]]
    if missing:
        raise ValueError(f"the security scheme {name!r:.100} ({kind}) has no {missing[0]}")
    written = {part: value for part, value in written.items() if value}
    if kind == "oauth2":
        written["flows"] = _written_flows(name, _object(given.get("flows")), losses)
    return {key: written}


def _written_flows(name: str, flows: JSONDict, losses: Losses) -> JSONDict:
    """Return the one flow of OAuth that a card of 1.0 can have; raises ValueError when there is none, or it is
    incomplete."""
    found = [flow for flow in _FLOWS if isinstance(flows.get(flow), Mapping)]
    if not found:
        raise ValueError(f"the security scheme {name!r:.100} (oauth2) has no flow; use {', '.join(_FLOWS)}")
    chosen, *others = found
    for flow in others:
        losses.add(flow, f"/securitySchemes/{name}/flows/{flow}", "dropped", f"a scheme has one flow: {chosen}")
    given = _object(flows[chosen])
    written: JSONDict = {}
    for part in _FLOWS[chosen]:
        written[part] = _text(given.get(part))
        if not written[part]:
            raise ValueError(f"the flow {chosen} of the security scheme {name!r:.100} has no {part}")
    if refresh := _text(given.get("refreshUrl")):
        written["refreshUrl"] = refresh
    if chosen == "authorizationCode" and given.get("pkceRequired") is True:
        written["pkceRequired"] = True
    written["scopes"] = {scope: _text(words) for scope, words in _object(given.get("scopes")).items()}
    return {chosen: written}


def _requirements(value: object) -> list[dict[str, list[str]]]:
    """Alternatives of schemes with their scopes, from the words of 1.0 or those of 0.3."""
    found: list[dict[str, list[str]]] = []
    for item in value if isinstance(value, list | tuple) else ():
        schemes = _object(item).get("schemes", item) if isinstance(item, Mapping) else None
        if isinstance(schemes, Mapping):
            found.append({str(name): _scopes(scopes) for name, scopes in schemes.items()})
    return found


def _scopes(value: object) -> list[str]:
    listed = value.get("list") if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    return strings(listed)


def _written(requirements: object) -> list[JSONDict]:
    found = _requirements(requirements)
    return [{"schemes": {name: {"list": scopes} for name, scopes in item.items()}} for item in found]


def _object(value: object) -> JSONDict:
    return dict(value) if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
