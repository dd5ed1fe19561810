"""Tools of a provider's request that a model finds by namespace."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from toolexec import Tool
from toolexec.adapter.export import VendorTools, collect


def exported(*tools: Tool, always: tuple[str, ...] = ()) -> VendorTools:
    return collect(
        tools,
        "openai-responses",
        strict=False,
        describe=True,
        search="server",
        always=always,
        allowed_callers=("direct", "programmatic"),
        reader=None,
        filters=None,
    )


def made(namespace: str, name: str) -> Tool:
    return Tool(name=name, namespace=namespace, description="Does it.", input_schema={"type": "object"})


def test_deferred_functions_are_in_the_entry_of_their_namespace() -> None:
    """A tool that is always there, or has no namespace, is an entry of its own; namespaces that would have one name in
    the provider's form have two."""
    tools = [made("crm", "list_deals"), made("crm", "log"), made("", "echo"), made("a.b", "x"), made("a_b", "y")]
    done = exported(*tools, always=("crm:log",))
    assert done.tools[0] == {"type": "tool_search"}
    flat = {form["name"]: form.get("defer_loading", False) for form in done.tools if form["type"] == "function"}
    assert flat == {"crm__log": False, "echo": True}
    spaces = {form["name"]: form for form in done.tools if form["type"] == "namespace"}
    assert len(spaces) == 3
    assert [form["name"] for form in spaces["crm"]["tools"]] == ["crm__list_deals"]
    assert spaces["crm"]["description"] == "Tools of crm: list deals."
    assert done.converted.keys() == {tool.id for tool in tools}


def test_the_description_of_a_namespace_is_short() -> None:
    """A model reads it in every turn: of many tools it names the first ones, and says how many more there are."""
    [_, space] = exported(*(made("big", f"tool_number_{number}") for number in range(100))).tools
    assert len(space["description"]) < 450
    assert space["description"].endswith("more.")
    assert len(space["tools"]) == 100


@pytest.mark.full
def test_a_namespace_has_the_type_of_the_package() -> None:
    """The SDK takes the entry, with callers and deferred functions in it."""
    responses = pytest.importorskip("openai.types.responses")
    [_, space] = exported(made("crm", "list_deals"), made("crm", "log")).tools
    TypeAdapter(responses.NamespaceToolParam).validate_python(space)
    model = responses.NamespaceTool.model_validate(space)
    assert [tool.defer_loading for tool in model.tools] == [True, True]
    assert model.tools[0].allowed_callers == ["direct", "programmatic"]
