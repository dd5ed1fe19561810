"""Links that an API's author wrote down."""

from __future__ import annotations

from typing import Any

import pytest
from tests.discovery.links.services import READ, TEXT, index_of, many, obj, tool

from toolexec.discovery.links import Links, Producer
from toolexec.model.binding import LocalBinding
from toolexec.model.tool import Tool

CLOSE = tool("t:close_issue", {"issue_id": TEXT}, None)


def ids(producers: list[Producer]) -> list[str]:
    """The tools, best first."""
    return [producer.tool_id for producer in producers]


def from_list(*tools: Tool) -> dict[str, list[Producer]]:
    """The producers for the last of the tools."""
    return Links(index_of(*tools)).producers_for(tools[-1].id)


class TestOpenAPI:
    """Links that an API's author wrote down."""

    def links_of(self, links: Any, *, operation: str = "resolve", **arguments: Any) -> dict[str, list[Producer]]:
        """The producers for an operation, with this metadata in the other tool."""
        maker = tool("api:makeTicket", {}, obj(a=TEXT), meta={"openapi_links": links})
        return from_list(maker, tool(f"api:{operation}", arguments or {"ref_x": TEXT}))

    @pytest.mark.parametrize(
        ("expression", "path"),
        [
            ("$response.body#/id", "id"),
            ("$response.body#/items/0/id", "items[].id"),
            ("$response.body#/a~1b~0c", None),
            ("$response.body#/a-b", '"a-b"'),
            ("$response.body", "@"),
            ("$response.body#/", "@"),
            ("$response.body#/a b", None),
            ("$response.body/id", None),
            ("$response.header.x", None),
            ("$request.path.id", None),
            ("constant", None),
            (7, None),
            ("$response.body#/" + "a/" * 400, None),
            ("$response.body#/" + "a/" * 20 + "b", None),
        ],
    )
    def test_expressions(self, expression: Any, path: str | None) -> None:
        """Those into the body become paths; all others are left out."""
        found = self.links_of({"Next": {"operationId": "resolve", "parameters": {"ref_x": expression}}})
        assert [(p.path, p.source) for p in found.get("ref_x", ())] == ([(path, "openapi")] if path else [])

    @pytest.mark.parametrize(
        "operation", ["resolve_ticket", "ResolveTicket", "api:resolveTicket", "api:resolveTicket:1"]
    )
    def test_operations(self, operation: str) -> None:
        """The name of a tool of the same namespace, however it is written, or a whole ID."""
        links = {"Next": {"operationId": operation, "parameters": {"path.ref_x": "$response.body#/id"}}}
        (producer,) = self.links_of(links, operation="resolve-ticket")["ref_x"]
        assert producer.score > 0.95
        assert producer.tool_id == "api:makeTicket"

    def test_arguments_in_objects(self) -> None:
        """The last name is enough."""
        links = {"Next": {"operationId": "resolve", "parameters": {"ref_x": "$response.body#/id"}}}
        assert list(self.links_of(links, body=obj(ref_x=TEXT))) == ["body.ref_x"]

    @pytest.mark.parametrize(
        "links",
        [None, [], "x", {"a": 1}, {"a": {"operationId": 1, "parameters": {}}}, {"a": {"operationId": "resolve"}},
         {"a": {"operationId": "resolve", "parameters": []}},
         {str(n): {"operationId": "other", "parameters": {"ref_x": "$response.body#/id"}} for n in range(500)}],
    )  # fmt: skip
    def test_malformed_links(self, links: Any) -> None:
        """Leaves malformed links out."""
        assert self.links_of(links) == {}

    def test_two_kinds_of_evidence(self) -> None:
        """A link that schemas show, too, is surer, and says both."""
        links = {"Next": {"operationId": "close_issue", "parameters": {"issue_id": "$response.body#/items/0/id"}}}
        source = tool("t:list_issues", {}, obj(items=many(obj(id=TEXT))), READ, meta={"openapi_links": links})
        (producer,) = from_list(source, CLOSE)["issue_id"]
        assert producer.score > 0.99
        assert "API" in producer.reason
        assert "issue ID" in producer.reason

    def test_they_go_with_their_tool(self) -> None:
        """A tool that is replaced or removed leaves no link behind."""
        meta = {"openapi_links": {"Next": {"operationId": "go", "parameters": {"x": "$response.body#/id"}}}}
        source = tool("t:start", {}, None, meta=meta)
        index = index_of(source, tool("t:go", {"x": TEXT}))
        links = Links(index)
        assert ids(links.producers_for("t:go")["x"]) == ["t:start"]
        index.replace(source.replace(meta=None), LocalBinding("t:start"))
        assert links.producers_for("t:go") == {}
