"""A2A: skills, and agents' cards."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from toolexec.adapter import A2AAdapter, ProviderCard, ProviderInterface, card_to_provider, provider_to_card
from toolexec.errors import ConversionError, InvalidToolError
from toolexec.model import Tool

SKILL: dict[str, Any] = {
    "id": "tools:search:1.2.3",
    "name": "Search",
    "description": "Finds things.",
    "tags": ["find", "Two Words"],
    "examples": ["find a shop"],
    "inputModes": ["text/plain"],
    "outputModes": ["application/json"],
    "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}],
}
CARD: dict[str, Any] = {
    "name": "Clerk",
    "description": "Sells things.",
    "version": "2.0",
    "supportedInterfaces": [
        {"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://a.example/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "t1"},
    ],
    "provider": {"organization": "Shop", "url": "https://shop.example"},
    "capabilities": {"streaming": True, "pushNotifications": False, "extensions": [{"uri": "https://x.example"}]},
    "securitySchemes": {"oauth": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example"}}},
    "securityRequirements": [{"schemes": {"oauth": {"list": ["read", "write"]}}}, {"schemes": {"key": {"list": []}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain", "application/json"],
    "skills": [SKILL],
    "documentationUrl": "https://docs.example",
    "iconUrl": "https://icon.example/i.png",
    "signatures": [{"protected": "e30", "signature": "c2ln"}],
}


FLOW: dict[str, Any] = {"clientCredentials": {"tokenUrl": "https://t.example", "scopes": {"read": "Reads"}}}
SCHEMES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "apiKey", "in": "header", "name": "X-Key", "description": "d"},
        {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "d"}},
    ),
    (
        {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        {"httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"}},
    ),
    ({"type": "oauth2", "flows": FLOW}, {"oauth2SecurityScheme": {"flows": FLOW}}),
    (
        {"type": "openIdConnect", "openIdConnectUrl": "https://id.example"},
        {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example"}},
    ),
    ({"type": "mutualTLS"}, {"mtlsSecurityScheme": {}}),
]


def _provider(**parts: Any) -> ProviderCard:
    """A provider that a card can be written for."""
    skills = (Tool(name="t", input_schema={"type": "object"}, description="d", tags=["x"]),)
    facts: dict[str, Any] = {"name": "p", "description": "d", "version": "1", "skills": skills}
    return ProviderCard(**{**facts, "interfaces": (ProviderInterface(url="https://x"),), **parts})


class TestSkills:
    """A skill is a tool without schemas."""

    def test_there_and_back(self) -> None:
        """The ID has its three parts; what a tool has no field for is in the meta."""
        before = copy.deepcopy(SKILL)
        tool = A2AAdapter().to_tool(SKILL)
        assert (tool.namespace, tool.name, tool.version, tool.title) == ("tools", "search", "1.2.3", "Search")
        assert tool.input_schema.to_json() == {"type": "object"}
        assert tool.tags == ("find", "two-words")
        assert tool.meta["securityRequirements"] == [{"oauth": ["read"]}]
        done = A2AAdapter().from_tool(tool)
        assert done.form == SKILL == before
        assert done.warnings == ()

    @pytest.mark.parametrize(
        ("skill_id", "tool_id"),
        [("find", "find"), ("a:b", "a:b"), ("a:b:c:d", "a-b-c-d"), ("get weather!", "get-weather"), (":x", "x")],
    )
    def test_ids(self, skill_id: str, tool_id: str) -> None:
        """One that is not a tool ID becomes the nearest name, and comes back as it was."""
        tool = A2AAdapter().to_tool({"id": skill_id})
        assert tool.id == tool_id
        assert A2AAdapter().from_tool(tool).form["id"] == skill_id

    def test_what_is_lost(self) -> None:
        """The schemas, with all that they say."""
        tool = Tool(
            name="t",
            input_schema={"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}},
            output_schema={"anyOf": [{"type": "string"}]},
        )
        warnings = [f"{w.path} {w.feature}" for w in A2AAdapter().from_tool(tool).warnings]
        assert warnings == [
            "tool:/outputSchema outputSchema",
            "tool:/inputSchema inputSchema",
            "input:/properties/a pattern",
            "output: anyOf",
        ]

    @pytest.mark.parametrize(
        ("form", "problem"),
        [
            ({}, "no id"),
            ({"id": ""}, "no id"),
            ({"id": "!!"}, "name"),
            (CARD, "card_to_provider reads it"),
            (None, "mapping"),
        ],
    )
    def test_no_skill(self, form: Any, problem: str) -> None:
        """A card is not one either."""
        with pytest.raises(ConversionError, match=r"^a2a to_tool: ") as caught:
            A2AAdapter().to_tool(form)
        assert problem in str(caught.value)

    def test_older_words_for_security(self) -> None:
        """Those of 0.3 are read, too."""
        tool = A2AAdapter().to_tool({"id": "x", "security": [{"oauth": ["read"]}, 5, {"schemes": 3}]})
        assert tool.meta["securityRequirements"] == [{"oauth": ["read"]}]


class TestCards:
    """A card is a provider's card."""

    def test_there_and_back(self) -> None:
        """Every field."""
        before = copy.deepcopy(CARD)
        provider = card_to_provider(CARD)
        assert provider.id == "Clerk:2.0"
        assert provider.capabilities["push_notifications"] is False
        assert provider.interfaces[1] == ProviderInterface(
            url="https://a.example/grpc", binding="GRPC", protocol_version="1.0", tenant="t1"
        )
        assert provider.security_requirements == ({"oauth": ["read", "write"]}, {"key": []})
        assert [skill.id for skill in provider.skills] == ["tools:search:1.2.3"]
        card, warnings = provider_to_card(provider)
        assert card == CARD == before
        assert warnings == ()

    def test_an_older_card(self) -> None:
        """Of 0.3: one address, others beside it, and other names."""
        old = {
            "protocolVersion": "0.3.0",
            "name": "Old",
            "description": "d",
            "version": "1",
            "url": "https://old.example",
            "preferredTransport": "GRPC",
            "additionalInterfaces": [{"url": "https://old.example/rpc", "transport": "JSONRPC"}, 5],
            "security": [{"key": []}],
            "supportsAuthenticatedExtendedCard": True,
            "capabilities": {},
            "skills": [{"id": "s"}],
        }
        provider = card_to_provider(old)
        assert [(item.binding, item.protocol_version) for item in provider.interfaces] == [
            ("GRPC", "0.3.0"),
            ("JSONRPC", "0.3.0"),
        ]
        assert provider.capabilities == {"extended_agent_card": True}
        card, _ = provider_to_card(provider)
        assert card["capabilities"] == {"extendedAgentCard": True}
        assert card["defaultInputModes"] == ["application/json"]

    @pytest.mark.parametrize(
        "change",
        [
            {"name": ""},
            {"description": None},
            {"version": 3},
            {"supportedInterfaces": []},
            {"supportedInterfaces": [{"url": ""}]},
            {"skills": [{}]},
            {"skills": "x"},
            {"skills": [5]},
        ],
    )
    def test_no_card(self, change: dict[str, Any]) -> None:
        """Report all fields that a card must have in one kind of error."""
        with pytest.raises(ConversionError) as caught:
            card_to_provider({**CARD, **change})
        assert str(caught.value).startswith(("a2a to_provider: ", "a2a to_tool: "))

    @pytest.mark.parametrize(("scheme", "written"), SCHEMES, ids=lambda value: next(iter(value)))
    def test_older_schemes_of_security(self, scheme: dict[str, Any], written: dict[str, Any]) -> None:
        """Every scheme of 0.3 is written in the words of 1.0, and one of 1.0 stays as it is."""
        for given in (scheme, written):
            card, _ = provider_to_card(_provider(security_schemes={"k": given}))
            assert card["securitySchemes"] == {"k": written}

    @pytest.mark.parametrize(
        "scheme",
        [
            {},
            {"type": "magic"},
            {"type": "apiKey", "in": "header"},
            {"type": "http"},
            {"type": "oauth2"},
            {"type": "oauth2", "flows": {"implicit": {"scopes": {}}}},
            {"type": "openIdConnect"},
            {"apiKeySecurityScheme": {"name": "X"}},
            {"apiKeySecurityScheme": {"location": "header", "name": "X"}, "mtlsSecurityScheme": {}},
        ],
    )
    def test_no_scheme(self, scheme: dict[str, Any]) -> None:
        """A scheme that a card cannot hold is refused by its name."""
        with pytest.raises(ConversionError, match="'key'"):
            provider_to_card(_provider(security_schemes={"key": scheme}))

    def test_several_flows(self) -> None:
        """Of several flows a card has the preferred one, and the others are listed."""
        flows = {
            "implicit": {"authorizationUrl": "https://a.example", "scopes": {}},
            "authorizationCode": {
                "authorizationUrl": "https://a.example",
                "tokenUrl": "https://t.example",
                "scopes": {"read": "Reads"},
            },
        }
        card, warnings = provider_to_card(_provider(security_schemes={"o": {"type": "oauth2", "flows": flows}}))
        assert [*card["securitySchemes"]["o"]["oauth2SecurityScheme"]["flows"]] == ["authorizationCode"]
        assert [w.path for w in warnings] == ["tool:/securitySchemes/o/flows/implicit"]

    def test_signatures_of_an_older_card(self) -> None:
        """A signature of a card of 0.3 is none of the card of 1.0."""
        old = {
            "name": "Old",
            "description": "d",
            "version": "1",
            "url": "https://old.example",
            "skills": [SKILL],
            "signatures": CARD["signatures"],
        }
        card, warnings = provider_to_card(card_to_provider(old))
        assert "signatures" not in card
        assert [w.feature for w in warnings] == ["signatures"]

    def test_capabilities_of_the_wrong_kind(self) -> None:
        """Leaves capabilities of the wrong type out and lists them."""
        provider = _provider(capabilities={"streaming": "yes", "push_notifications": None, "extensions": [{"a": 1}]})
        card, warnings = provider_to_card(provider)
        assert card["capabilities"] == {"extensions": []}
        assert [w.feature for w in warnings] == ["extensions", "streaming"]

    @pytest.mark.parametrize("missing", ["description", "version", "interfaces", "skills"])
    def test_no_provider_for_a_card(self, missing: str) -> None:
        """The same the other way."""
        parts: dict[str, Any] = {
            "description": "d",
            "version": "1",
            "interfaces": (ProviderInterface(url="https://x"),),
            "skills": (Tool(name="t", input_schema={}),),
        }
        with pytest.raises(ConversionError, match=rf"^a2a from_provider: .*no {missing}"):
            provider_to_card(ProviderCard(name="p", **{**parts, missing: type(parts[missing])()}))

    def test_what_a_card_cannot_hold(self) -> None:
        """Is told, that of the skills, too."""
        provider = ProviderCard(
            name="p",
            description="d",
            version="1",
            interfaces=(ProviderInterface(url="https://x"),),
            capabilities={"flying": True},
            skills=(Tool(name="t", input_schema={"properties": {"a": {}}}),),
            meta={"k": 1},
        )
        card, warnings = provider_to_card(provider)
        assert card["capabilities"] == {}
        assert card["supportedInterfaces"][0]["protocolVersion"] == "1.0"
        assert [w.path for w in warnings] == ["tool:/capabilities/flying", "tool:/meta/k", "tool:/inputSchema"]


class TestProviderCard:
    """A value of its own."""

    def test_it_shares_nothing(self) -> None:
        """Whatever happens to what it was made from, or to a copy."""
        schemes: dict[str, Any] = {"k": {"in": ["header"]}}
        requirements: list[dict[str, Any]] = [{"k": ["a"]}]
        card = ProviderCard(name="p", security_schemes=schemes, security_requirements=requirements)
        schemes["k"]["in"].append("query")
        requirements[0]["k"].append("b")
        assert card.security_schemes == {"k": {"in": ["header"]}}
        assert card.security_requirements == ({"k": ["a"]},)
        other = card.copy()
        assert other == card
        other.security_schemes["k"]["in"].append("x")
        assert card.security_schemes == {"k": {"in": ["header"]}}

    def test_as_data(self) -> None:
        """There and back, without what is empty."""
        card = card_to_provider(CARD)
        assert ProviderCard.from_dict(card.to_dict()) == card
        assert ProviderCard(name="p").to_dict() == {"name": "p"}
        assert ProviderCard.from_dict({"name": "p", "unknown": 1}).id == "p"

    @pytest.mark.parametrize(
        "parts",
        [
            {"name": ""},
            {"name": "  "},
            {"name": 5},
            {"name": "p", "meta": {"x": object()}},
            {"name": "p", "capabilities": {"x": float("nan")}},
            {"name": "p", "skills": (Tool(name="t", input_schema={}),) * 10_001},
        ],
    )
    def test_what_is_refused(self, parts: dict[str, Any]) -> None:
        """No name, no JSON, too many skills."""
        with pytest.raises(InvalidToolError):
            ProviderCard(**parts)
