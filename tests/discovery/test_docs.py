"""Documentation at three levels of detail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toolexec.discovery import DocEntry, InMemoryDocStore, InMemoryIndex, ToolExample
from toolexec.discovery.docs import schema_info
from toolexec.errors import (
    ConfigurationError,
    DocNotFoundError,
    InvalidToolError,
    InvalidToolIDError,
    ToolNotFoundError,
)
from toolexec.model import LocalBinding, Tool, ToolAnnotations

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "default": "test"}, "n": {"type": ["integer", "null"]}},
    "required": ["query"],
}
SEARCH = Tool(
    name="search",
    namespace="web",
    description="Searches the web",
    input_schema=SCHEMA,
    annotations=ToolAnnotations(read_only=True),
    meta={"inputModes": ["text"], "securitySchemes": {"key": {}}},
)
EXAMPLES = tuple(ToolExample(title=f"Example {i}", args={"query": f"q{i}"}) for i in range(3))
ENTRY = DocEntry(summary="Finds pages", notes="Be kind.", examples=EXAMPLES, external_refs=("https://example.com",))


def store(*tools: Tool, **options: Any) -> InMemoryDocStore:
    """A store on an index with these tools."""
    index = InMemoryIndex()
    for tool in tools:
        index.register(tool, LocalBinding(tool.name))
    return InMemoryDocStore(index, **options)


class TestLevels:
    def test_summary(self) -> None:
        """The summary has what the tool is and how it behaves, nothing more."""
        docs = store(SEARCH)
        docs.register_doc("web:search", ENTRY)
        assert docs.describe("web:search", "summary").to_dict() == {
            "id": "web:search",
            "summary": "Finds pages",
            "inputModes": ["text"],
            "securitySummary": "key",
            "annotations": {"readOnlyHint": True},
        }

    def test_schema(self) -> None:
        """The tool, where it lives, and its schema at a glance."""
        docs = store(SEARCH)
        docs.register_doc("web:search", ENTRY)
        doc = docs.describe("web:search", "schema")
        assert doc.tool == SEARCH
        assert doc.bindings == (LocalBinding("search"),)
        data = doc.to_dict()
        assert data["schemaInfo"] == {
            "required": ["query"],
            "types": {"query": ["string"], "n": ["integer", "null"]},
            "defaults": {"query": "test"},
        }
        assert not data.keys() & {"notes", "examples", "externalRefs", "exampleCall"}

    def test_full(self) -> None:
        """Everything, with a call to copy."""
        docs = store(SEARCH)
        docs.register_doc("web:search", ENTRY)
        data = docs.describe("web:search").to_dict()
        assert (data["notes"], data["externalRefs"]) == ("Be kind.", ["https://example.com"])
        assert [example["title"] for example in data["examples"]] == ["Example 0", "Example 1", "Example 2"]
        assert data["exampleCall"] == {"tool": "web:search", "args": {"query": "q0"}}
        assert data["tool"]["inputSchema"] == SCHEMA

    def test_undocumented_tools(self) -> None:
        """The tool speaks for itself: its summary, and a call made up from its schema."""
        doc = store(SEARCH).describe("web:search")
        assert doc.summary == "Searches the web"
        assert doc.example_call == {"query": "test"}
        with_meta = SEARCH.replace(meta={"summary": "From meta"})
        assert store(with_meta).describe("web:search", "summary").summary == "From meta"

    def test_long_descriptions_are_cut(self) -> None:
        """A summary has at most 200 characters."""
        summary = store(SEARCH.replace(description="é" * 500)).describe("web:search", "summary").summary
        assert summary == "é" * 199 + "…"

    def test_a_tool_whose_schema_cannot_be_compiled(self) -> None:
        """Describes such a tool without an example."""
        broken = SEARCH.replace(input_schema={"properties": {"a": {"pattern": "("}}})
        doc = store(broken).describe("web:search")
        assert doc.tool == broken
        assert doc.example_call is None

    @pytest.mark.parametrize("level", ["Full", "", "everything", None])
    def test_unknown_levels(self, level: Any) -> None:
        """Refused before anything is looked up."""
        with pytest.raises(ConfigurationError, match=r"use summary, schema or full|did you mean full"):
            store().describe("no:such", level)

    def test_versions(self) -> None:
        """`namespace:name` describes the highest version, with the documentation of that version."""
        docs = store(SEARCH.replace(version="1.0.0"), SEARCH.replace(version="2.0.0"))
        docs.register_doc("web:search:2.0.0", ENTRY)
        doc = docs.describe("web:search")
        assert (doc.id, doc.notes) == ("web:search:2.0.0", "Be kind.")
        assert len(docs.list_examples("web:search")) == 3
        assert docs.describe("web:search:1.0.0").notes == ""


class TestMissing:
    def test_nothing_known(self) -> None:
        """Unknown and malformed IDs are distinguished; without an index the store speaks for itself."""
        for ask in (store(SEARCH).describe, store(SEARCH).list_examples):
            with pytest.raises(ToolNotFoundError) as caught:
                ask("web:serach")
            assert caught.value.details["close"] == ["web:search"]
            with pytest.raises(InvalidToolIDError):
                ask("a::b")
        with pytest.raises(DocNotFoundError, match="nothing is known about x"):
            InMemoryDocStore().describe("x")

    def test_documented_without_a_tool(self) -> None:
        """The summary can be shown, the tool cannot."""
        docs = InMemoryDocStore()
        docs.register_doc("web:search", ENTRY)
        assert docs.describe("web:search", "summary").to_dict() == {"id": "web:search", "summary": "Finds pages"}
        assert len(docs.list_examples("web:search")) == 3
        for level in ("schema", "full"):
            with pytest.raises(DocNotFoundError, match="only its summary can be shown"):
                docs.describe("web:search", level)  # type: ignore[arg-type]

    def test_resolver(self) -> None:
        """Tools that the index does not have come from the resolver, at every level."""
        docs = store(resolver=lambda tool_id: SEARCH if tool_id == "web:search" else None)
        assert docs.describe("web:search", "summary").summary == "Searches the web"
        assert docs.describe("web:search", "schema").tool == SEARCH
        assert docs.list_examples("web:search") == []
        with pytest.raises(ToolNotFoundError):
            docs.describe("web:other")

    def test_failing_resolver(self) -> None:
        """Its failure is the cause wherever the tool is needed, and nowhere else."""

        def fail(tool_id: str) -> Tool:
            raise OSError("registry down")

        docs = InMemoryDocStore(resolver=fail)
        docs.register_doc("documented", ENTRY)
        assert docs.describe("documented", "summary").summary == "Finds pages"
        for ask in (
            lambda: docs.describe("documented", "schema"),
            lambda: docs.describe("documented"),
            lambda: docs.describe("other", "summary"),
            lambda: docs.list_examples("other"),
        ):
            with pytest.raises(DocNotFoundError, match="registry down") as caught:
                ask()
            assert isinstance(caught.value.__cause__, OSError)


class TestRegistration:
    def test_long_texts_are_cut(self) -> None:
        """Summary 200 characters, notes 2,000, 20 references of 500."""
        docs = store(SEARCH)
        docs.register_doc("web:search", DocEntry(summary="s" * 999, notes="n" * 9999, external_refs=("r" * 999,) * 99))
        doc = docs.describe("web:search")
        assert (len(doc.summary), len(doc.notes), len(doc.external_refs)) == (200, 2000, 20)
        assert {len(ref) for ref in doc.external_refs} == {500}

    def test_examples_and_texts_do_not_wipe_each_other(self) -> None:
        """New texts without examples keep the old examples, new examples keep the texts."""
        docs = store(SEARCH)
        docs.register_examples("web:search", EXAMPLES)
        docs.register_doc("web:search", DocEntry(summary="New"))
        assert len(docs.list_examples("web:search")) == 3
        docs.register_examples("web:search", EXAMPLES[:1])
        assert docs.describe("web:search", "summary").summary == "New"
        assert len(docs.list_examples("web:search")) == 1
        docs.register_doc("web:search", DocEntry(examples=EXAMPLES))
        assert len(docs.list_examples("web:search")) == 3

    @pytest.mark.parametrize("position", [0, 2])
    def test_all_or_nothing(self, position: int) -> None:
        """One example over the caps refuses the whole, wherever it stands."""
        docs = store(SEARCH, max_examples=1)
        docs.register_doc("web:search", ENTRY)
        bad = list(EXAMPLES)
        bad[position] = ToolExample(args={f"k{i}": i for i in range(51)})
        with pytest.raises(InvalidToolError, match=f"example {position + 1}"):
            docs.register_examples("web:search", bad)
        with pytest.raises(InvalidToolError):
            docs.register_doc("web:search", DocEntry(summary="New", examples=tuple(bad)))
        assert docs.describe("web:search").summary == "Finds pages"

    @pytest.mark.parametrize(
        ("cap", "limit", "shown"),
        [(None, None, 3), (None, 0, 3), (None, -1, 3), (None, 2, 2), (2, None, 2), (2, 0, 2), (2, 1, 1), (2, 10, 2), (0, None, 0), (0, 5, 0)],
    )  # fmt: skip
    def test_how_many_are_shown(self, cap: int | None, limit: int | None, shown: int) -> None:
        """The smaller of the store's cap and the caller's limit, in order."""
        docs = store(SEARCH, max_examples=cap)
        docs.register_examples("web:search", EXAMPLES)
        assert docs.list_examples("web:search", limit) == list(EXAMPLES[:shown])
        assert len(docs.describe("web:search").examples) == (3 if cap is None else cap)

    def test_callers_cannot_spoil_it(self) -> None:
        """Callers can change what they registered and what they received without harm."""
        args = {"query": "q", "deep": {"list": [1]}}
        docs = store(SEARCH.replace(input_schema={"properties": {"a": {"default": [1]}}}))
        docs.register_doc("web:search", DocEntry(examples=(ToolExample(args=args),)))
        args["deep"]["list"].append(2)  # type: ignore[index]
        doc = docs.describe("web:search")
        doc.examples[0].args["deep"]["list"].append(3)
        docs.list_examples("web:search")[0].args["deep"]["list"].append(4)
        assert doc.example_call is not None
        doc.example_call["deep"]["list"].append(5)
        assert doc.schema_info is not None
        doc.schema_info.defaults["a"].append(6)
        again = docs.describe("web:search")
        assert again.examples[0].args == again.example_call == {"query": "q", "deep": {"list": [1]}}
        assert again.schema_info is not None
        assert again.schema_info.defaults == {"a": [1]}

    def test_many_threads(self) -> None:
        """Describing, listing and registering at once is safe."""
        docs = store(SEARCH)

        def work(turn: int) -> str:
            docs.register_doc("web:search", DocEntry(summary=f"s{turn}", examples=EXAMPLES))
            docs.register_examples("web:search", EXAMPLES[: turn % 3 + 1])
            assert docs.list_examples("web:search")
            return docs.describe("web:search").summary

        with ThreadPoolExecutor(8) as pool:
            assert all(summary.startswith("s") for summary in pool.map(work, range(100)))


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("true", {}),
        ("{}", {}),
        ('{"properties": {}}', {}),
        ('{"properties": [], "required": "a"}', {}),
        ('{"required": ["a", 7]}', {"required": ["a"]}),
        ('{"properties": {"a": true, "b": {"type": "integer", "default": 0}}}', {"types": {"b": ["integer"]}, "defaults": {"b": 0}}),
        ('{"properties": {"a": {"type": ["string", 7]}, "b": {"type": 7}}}', {"types": {"a": ["string"]}}),
        ('{"properties": {"a": {"default": null}}}', {"defaults": {"a": None}}),
    ],
)  # fmt: skip
def test_schema_info(schema: str, data: dict[str, Any]) -> None:
    """Required names, types and defaults of the top level; odd schemas have none."""
    info = schema_info(schema)
    assert info.to_dict() == data
