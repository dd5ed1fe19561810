"""The registry, and conversions from one form to another."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest

from toolexec.adapter import (
    AdapterRegistry,
    Converted,
    FormOptions,
    NameMap,
    OpenAIAdapter,
    SchemaFeature,
    default_adapters,
)
from toolexec.errors import ConfigurationError, ConversionError
from toolexec.model import Tool

ALL = ["a2a", "anthropic", "gemini", "mcp", "openai", "openai-responses"]
OPENAI: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Finds things.",
        "parameters": {
            "type": "object",
            "properties": {"q": {"type": "string", "minLength": 1, "maxLength": 100}, "n": {"default": 10}},
            "required": ["q"],
            "additionalProperties": False,
        },
    },
}


def test_the_default_adapters() -> None:
    """All forms, sorted by name, in a registry of one's own."""
    found = default_adapters()
    assert found.list() == ALL
    assert [found.get(name).name for name in ALL] == ALL
    found.unregister("mcp")
    assert "mcp" in default_adapters().list()


def test_names_are_unique() -> None:
    """The first adapter of a name stays."""
    first = OpenAIAdapter()
    found = AdapterRegistry([first])
    with pytest.raises(ConfigurationError, match="openai is there already"):
        found.register(OpenAIAdapter())
    assert found.get("openai") is first
    assert AdapterRegistry().list() == []


def test_unknown_names() -> None:
    """The error lists those that there are."""
    found = default_adapters()
    for attempt in (found.get, found.unregister):
        with pytest.raises(ConfigurationError, match=r"'xml'; there are a2a, anthropic"):
            attempt("xml")
    for names in (("xml", "mcp"), ("mcp", "xml")):
        with pytest.raises(ConfigurationError, match="xml"):
            found.convert({}, *names)


class Nameless(OpenAIAdapter):
    """An adapter that cannot be registered, and fails in its own way."""

    @property
    def name(self) -> str:
        return ""


class Broken(OpenAIAdapter):
    """An adapter that raises what it likes."""

    @property
    def name(self) -> str:
        return "broken"

    def to_tool(self, form: Any, *, names: NameMap | None = None) -> Tool:
        raise ValueError("no")

    def from_tool(self, tool: Tool, options: FormOptions | None = None) -> Converted:
        raise KeyError("gone")


def test_an_adapter_needs_a_name() -> None:
    """An adapter needs a name, because it is found by that."""
    with pytest.raises(ConfigurationError, match="needs a name"):
        AdapterRegistry([Nameless()])


def test_a_failure_names_the_adapter_once() -> None:
    """In the direction that failed, with the first cause; never one wrapped in another."""
    found = default_adapters()
    found.register(Broken())
    with pytest.raises(ConversionError) as caught:
        found.convert({"type": "function", "function": {"parameters": {}}}, "openai", "anthropic")
    error = caught.value
    assert (error.adapter, error.direction, error.op) == ("openai", "to_tool", "convert")
    assert str(error) == "openai to_tool: the form is malformed: it has no name"
    with pytest.raises(ConversionError, match=r"^broken to_tool: ") as caught:
        found.convert(OPENAI, "broken", "mcp")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ConversionError, match=r"^broken from_tool: ") as caught:
        found.convert(OPENAI, "openai", "broken")
    assert caught.value.tool_id == "find"


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("source", ALL)
def test_every_form_into_every_other(source: str, target: str) -> None:
    """The name survives, nothing that was given is changed, and the same conversion gives the same again."""
    found = default_adapters()
    form = found.convert(OPENAI, "openai", source).form
    before = copy.deepcopy(form)
    first = found.convert(form, source, target)
    assert form == before
    assert first.name == "find"
    assert first.tool_id == "find"
    assert found.convert(form, source, target) == first
    assert all((w.from_adapter, w.to_adapter) == (source, target) for w in first.warnings)


def test_what_all_vendors_have_costs_nothing() -> None:
    """Bounds, defaults, required names: no warning, and the schema is the same."""
    done = default_adapters().convert(OPENAI, "openai", "anthropic")
    assert done.warnings == ()
    assert done.form["input_schema"] == OPENAI["function"]["parameters"]
    assert done.form["description"] == "Finds things."


def test_names_give_the_id_back() -> None:
    """With the map that they were made with."""
    names = NameMap(["shop:price:1.0"])
    form = {"type": "function", "function": {"name": names.to_vendor("shop:price:1.0")}}
    tool = OpenAIAdapter().to_tool(form, names=names)
    assert (tool.namespace, tool.name, tool.version) == ("shop", "price", "1.0")
    assert OpenAIAdapter().to_tool(form).id == "shop__price__1_0"
    other = default_adapters().get("anthropic").to_tool({"name": "else", "input_schema": {}}, names=names)
    assert other.id == "else"


class Numbered(OpenAIAdapter):
    """One of many."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    @property
    def name(self) -> str:
        return f"adapter-{self._number}"


def test_several_threads_at_once() -> None:
    """Registering and converting do not get into each other's way."""
    found = default_adapters()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(30):
                found.register(Numbered(number))
                found.convert(OPENAI, f"adapter-{number}", ALL[(number + turn) % len(ALL)])
                assert f"adapter-{number}" in found.list()
                found.unregister(f"adapter-{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert found.list() == ALL


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("form", [None, 5, "text", [], {}, {"name": ""}, {"name": 7}, object(), {"a": object()}])
def test_no_form_at_all(name: str, form: Any) -> None:
    """One kind of error for whatever is wrong."""
    with pytest.raises(ConversionError) as caught:
        default_adapters().get(name).to_tool(form)
    assert (caught.value.adapter, caught.value.direction) == (name, "to_tool")


@pytest.mark.parametrize("name", ALL)
def test_what_is_supported(name: str) -> None:
    """The matrix of each form, by keyword."""
    adapter = default_adapters().get(name)
    supported = {feature.value for feature in SchemaFeature if adapter.supports(feature)}
    assert len(list(SchemaFeature)) == 53
    if name == "a2a":
        assert supported == set()
    elif name == "gemini":
        assert {"anyOf", "pattern", "nullable", "default", "enum", "minimum", "maxItems"} < supported
        assert not supported & {"$ref", "$defs", "oneOf", "const", "additionalProperties", "uniqueItems", "not"}
    else:
        assert supported == {feature.value for feature in SchemaFeature}


def test_the_features_of_a_keyword_are_its_name() -> None:
    """The first are those that all forms were compared by from the beginning."""
    assert [str(feature) for feature in SchemaFeature][:8] == [
        "$ref",
        "$defs",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "pattern",
        "format",
    ]
